package bundle

import (
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxSteps is how many schemas a validation may apply. References to references make them exponentially many.
const maxSteps = 200_000

// schema is a JSON Schema which refers to nothing outside of it.
type schema struct{ doc any }

func compileSchema(text []byte) (*schema, error) {
	doc, err := readJSON(text, maxSchema)
	if err != nil {
		return nil, err
	}
	if doc, err = canonical(doc, "", 0); err != nil { // which bounds depth and numbers
		return nil, err
	}
	s := &schema{doc}
	_, err = s.compile(new(steps))
	return s, err
}

// compile compiles the schema for one validation, whose steps are counted.
func (s *schema) compile(n *steps) (compiled *jsonschema.Schema, err error) {
	defer func() {
		if r := recover(); r != nil { // the library is not meant for hostile schemas
			err = errors.New("it is no JSON Schema that can be read")
		}
	}()
	c := jsonschema.NewCompiler()
	c.UseLoader(nothing{})
	c.RegisterVocabulary(&jsonschema.Vocabulary{URL: "urn:ckptd:steps",
		Compile: func(*jsonschema.CompilerContext, map[string]any) (jsonschema.SchemaExt, error) { return n, nil }})
	c.AssertVocabs()
	if err := c.AddResource("schema.json", s.doc); err != nil {
		return nil, schemaError(err)
	}
	if compiled, err = c.Compile("schema.json"); err != nil {
		return nil, schemaError(err)
	}
	return compiled, nil
}

// check checks JSON. Errors begin with the place in it, or with ": ".
func (s *schema) check(config []byte) (err error) {
	instance, err := readJSON(config, MaxConfig)
	if err != nil {
		return fmt.Errorf(": %w", err)
	}
	n := new(steps)
	compiled, err := s.compile(n)
	if err != nil {
		return fmt.Errorf(": %w", err)
	}
	defer func() {
		if r := recover(); r != nil {
			err = errors.New(": checking it takes too long: make the schema simpler")
		}
	}()
	n.left = maxSteps
	if err := compiled.Validate(instance); err != nil {
		return validationError(err)
	}
	return nil
}

// validationError names the deepest place that the first way to fail leads to.
func validationError(err error) error {
	e, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return fmt.Errorf(": %w", err)
	}
	for len(e.Causes) > 0 {
		e = e.Causes[0]
	}
	path := ""
	for _, name := range e.InstanceLocation {
		path += "/" + escaped(name)
	}
	_, what, _ := strings.Cut(e.Error(), "': ")
	if path != "" {
		path = " at " + path
	}
	return fmt.Errorf("%s: %s", path, what)
}

func schemaError(err error) error {
	if e, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		return fmt.Errorf("it is no JSON Schema%w", validationError(e.Err))
	}
	return fmt.Errorf("it is no JSON Schema that can be read: %w", err)
}

// nothing loads nothing: a schema could name files of this machine, or others.
type nothing struct{}

func (nothing) Load(string) (any, error) {
	return nil, errors.New("a schema of a plugin refers to nothing outside of it")
}

// steps counts the schemas that a validation applies, and panics after too many: there is no other way to end one.
type steps struct{ left int }

func (n *steps) Validate(*jsonschema.ValidatorContext, any) {
	if n.left--; n.left == 0 {
		panic("too many steps")
	}
}
