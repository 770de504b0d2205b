package schema

import (
	"context"
	"regexp"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ckptd/ckptd/internal/weight"
)

// steps counts the steps of a check. It panics with tooLong if there are too many, or the context
// has ended: the library cannot be stopped in any other way.
type steps struct {
	ctx  context.Context
	left int
	look int // steps until the context is looked at
}

type tooLong struct{}

const lookEvery = 1000

func (n *steps) start(ctx context.Context, most int) { *n = steps{ctx: ctx, left: most} }

func (n *steps) take(k int) {
	n.left -= k
	if n.look -= k; n.look < 0 {
		n.look = lookEvery
		if n.ctx.Err() != nil {
			panic(tooLong{})
		}
	}
	if n.left < 0 {
		panic(tooLong{})
	}
}

// counted is a regular expression each match of which is counted first.
type counted struct {
	*regexp.Regexp
	size  int
	steps *steps
}

// perStep is the approximate number of instructions of a regular expression on a byte that cost as
// much as a step.
const perStep = 64

func (c *counted) MatchString(text string) bool {
	c.steps.take(weight.Times(c.size, len(text)) / perStep)
	return c.Regexp.MatchString(text)
}

// toll is the cost of applying a schema to a value, without the schemas within it.
type toll struct {
	own, each  int            // for the value, for every part of it
	properties map[string]int // for members that have a choice of values
	unique     bool
}

// count makes every schema count its steps before it looks into a value. The first hook that a
// check calls, after the type and the enum of a schema, is its format: so an enum is counted by the
// schema that applies it.
func (n *steps) count(s *jsonschema.Schema) {
	t := tollOf(s)
	format := jsonschema.Format{}
	if s.Format != nil {
		format = *s.Format
	}
	s.Format = &jsonschema.Format{Name: format.Name, Validate: func(v any) error {
		n.take(t.of(v))
		if format.Validate == nil {
			return nil
		}
		return format.Validate(v)
	}}
}

func tollOf(s *jsonschema.Schema) toll {
	t := toll{own: 1 + len(s.Required) + len(s.DependentRequired) + len(s.DependentSchemas) + len(s.Dependencies),
		each: 1 + len(s.PatternProperties), properties: map[string]int{}, unique: s.UniqueItems}
	for _, child := range alongside(s) {
		t.own = weight.Plus(t.own, choice(child))
	}
	for _, child := range below(s) {
		t.each = weight.Plus(t.each, choice(child))
	}
	for name, child := range s.Properties {
		if w := choice(child); w > 0 {
			t.properties[name] = w
		}
	}
	return t
}

// choice is the weight of the values that a schema compares with.
func choice(s *jsonschema.Schema) int {
	n := 0
	if s.Enum != nil {
		n = weight.Of(s.Enum.Values, weight.Over)
	}
	if s.Const != nil {
		n = weight.Plus(n, weight.Of(*s.Const, weight.Over))
	}
	return n
}

func (t *toll) of(v any) int {
	switch v := v.(type) {
	case map[string]any:
		n := weight.Plus(t.own, weight.Times(len(v), t.each))
		for name, w := range t.properties {
			if _, ok := v[name]; ok {
				n = weight.Plus(n, w)
			}
		}
		return n
	case []any:
		n := weight.Plus(t.own, weight.Times(len(v), t.each))
		if t.unique {
			n = weight.Plus(n, weight.Times(4, weight.Of(v, weight.Over-1)))
		}
		return n
	}
	return weight.Plus(t.own, weight.Flat(v))
}
