// Package schema checks JSON against a JSON Schema of a caller. Both the value and the schema may
// be hostile: the work is counted and ends with a context, numbers are bounded, and the schema
// cannot refer to anything outside of it.
package schema

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ckptd/ckptd/internal/weight"
)

const (
	maxSchema   = 20_000 // steps of weight
	maxDepth    = 100
	maxPatterns = 200_000 // instructions of all regular expressions of a schema
	maxPattern  = 4096    // bytes of one
	// A check can take this many steps, and more for a large value.
	maxSteps     = 200_000
	stepsPerItem = 64
	// The library applies schemas within each other on the stack: so deep at most.
	maxNesting = 50_000
)

// Schema is a compiled JSON Schema, of draft 4 to 2020-12. Methods are safe for concurrent use.
type Schema struct {
	doc   any
	chain int       // maximum number of schemas applied to a value within each other
	idle  sync.Pool // of *compiled
}

// compiled is a schema with the step counter of the one check that uses it.
type compiled struct {
	*jsonschema.Schema
	steps *steps
}

// Read reads the text of a schema.
func Read(text []byte) (*Schema, error) {
	if values, _ := weight.JSON(text); values > maxSchema {
		return nil, fmt.Errorf("it is not a readable JSON Schema: it has %d values, more than the limit of %d", values, maxSchema)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	return Compile(doc)
}

// Compile compiles a schema: its value, with numbers as they are written.
func Compile(doc any) (*Schema, error) {
	size, depth, err := admit(doc)
	switch {
	case err == nil && size > maxSchema:
		err = fmt.Errorf("it has the weight of %d values, more than the limit of %d", size, maxSchema)
	case err == nil && depth > maxDepth:
		err = fmt.Errorf("it is nested %d deep, more than the limit of %d", depth, maxDepth)
	}
	if err != nil {
		return nil, fmt.Errorf("it is not a readable JSON Schema: %w", err)
	}
	s := &Schema{doc: doc}
	c, err := s.compile()
	if err != nil {
		return nil, err
	}
	s.chain = longestChain(c.Schema)
	s.idle.Put(c)
	return s, nil
}

func (s *Schema) compile() (c *compiled, err error) {
	defer func() {
		if r := recover(); r != nil { // the library is not meant for hostile schemas
			err = errors.New("it is not a readable JSON Schema")
		}
	}()
	n := new(steps)
	patterns := 0
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(nothing{})
	compiler.UseRegexpEngine(func(pattern string) (jsonschema.Regexp, error) {
		if len(pattern) > maxPattern {
			return nil, fmt.Errorf("it has %d bytes, more than the limit of %d", len(pattern), maxPattern)
		}
		size, _, err := weight.Pattern(pattern)
		if err != nil {
			return nil, err
		}
		if patterns = weight.Plus(patterns, size); patterns > maxPatterns {
			return nil, errors.New("the regular expressions of the schema are too large")
		}
		re, err := regexp.Compile(pattern)
		return &counted{re, size, n}, err
	})
	if err := compiler.AddResource(here, s.doc); err != nil {
		return nil, schemaError(err)
	}
	sch, err := compiler.Compile(here)
	if err != nil {
		return nil, schemaError(err)
	}
	for s := range reachable(sch) {
		n.count(s)
	}
	return &compiled{sch, n}, nil
}

// here is the schema's address for the library: it does not exist.
const here = "ckptd:///schema.json"

// Error says where in a value it does not fit a schema, and why.
type Error struct {
	Path   string // JSON pointer, "" for the whole
	Reason string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Reason
	}
	return "at " + e.Path + ": " + e.Reason
}

// Check checks a value, whose numbers are json.Number. It returns an *Error if the value does not
// fit or cannot be checked, or the cause if the context ended.
func (s *Schema) Check(ctx context.Context, v any) (err error) {
	size, depth, err := admit(v)
	if err != nil {
		return err
	}
	if weight.Times(depth, s.chain) > maxNesting {
		return &Error{Reason: fmt.Sprintf("it is nested %d deep, and the schema applies %d nested schemas to one value: simplify the schema",
			depth, s.chain)}
	}
	c, _ := s.idle.Get().(*compiled)
	if c == nil {
		if c, err = s.compile(); err != nil {
			return &Error{Reason: err.Error()}
		}
	}
	defer func() {
		switch recover().(type) {
		case nil:
		case tooLong:
			if err = ctx.Err(); err == nil {
				err = &Error{Reason: "checking it takes too long: simplify the schema"}
			}
		default: // the library is not meant for hostile values either
			err = &Error{Reason: "it cannot be checked"}
		}
		s.idle.Put(c)
	}()
	c.steps.start(ctx, weight.Plus(maxSteps, weight.Times(stepsPerItem, size)))
	if err := c.Validate(v); err != nil {
		return deepest(err)
	}
	return ctx.Err()
}

// deepest names the deepest place that the first way to fail leads to.
func deepest(err error) error {
	e, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return &Error{Reason: err.Error()}
	}
	for len(e.Causes) > 0 {
		e = e.Causes[0]
	}
	path := ""
	for _, name := range e.InstanceLocation {
		path += "/" + escaped(name)
	}
	_, what, _ := strings.Cut(e.Error(), "': ")
	return &Error{Path: path, Reason: what}
}

// escaped is the name of a member as a JSON pointer writes it.
func escaped(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

func schemaError(err error) error {
	if e, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		return fmt.Errorf("it is not a JSON Schema %w", deepest(e.Err))
	}
	return fmt.Errorf("it is not a readable JSON Schema: %w", err)
}

// nothing loads nothing: a schema could name files of this machine, or others.
type nothing struct{}

func (nothing) Load(url string) (any, error) {
	return nil, fmt.Errorf("a schema cannot refer to anything outside of it, such as %s", url)
}
