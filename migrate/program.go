package migrate

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"sync"

	"github.com/itchyny/gojq"

	"github.com/ckptd/ckptd/internal/weight"
)

// program is a compiled jq program whose built-ins pay before they run. It can run only once at a
// time.
type program struct {
	code     *gojq.Code
	meter    meter // of the current run
	patterns map[pattern]size
}

// pattern is a regular expression with its flags; size holds its known dimensions.
type (
	pattern struct{ text, flags string }
	size    struct {
		instructions, groups int
		re                   *regexp.Regexp
	}
)

func compile(query *gojq.Query) (*program, error) {
	if err := interpreterKnown(); err != nil {
		return nil, err
	}
	code, err := gojq.Compile(query)
	if err != nil {
		return nil, err
	}
	p := &program{code: code, patterns: map[pattern]size{}}
	_, err = p.guard()
	return p, err
}

func (p *program) run(ctx context.Context, limits Limits, doc any) (any, error) {
	p.meter.start(ctx, limits.Memory)
	out, err := only(p.code.RunWithContext(&p.meter, doc))
	if p.meter.why != nil {
		return nil, p.meter.why
	}
	return out, err
}

// interpreterKnown checks that the built-ins of a program can be guarded.
var interpreterKnown = sync.OnceValue(func() error {
	query, err := gojq.Parse("tojson")
	if err != nil {
		return err
	}
	code, err := gojq.Compile(query)
	if err != nil {
		return err
	}
	if n, err := (&program{code: code}).guard(); err != nil || n != 1 {
		return errUnknownInterpreter
	}
	return nil
})

// guard inserts a payment before every call of a built-in and returns the number of calls. The
// interpreter has no hook for that, nor for the memory of a call, so guard modifies its
// instructions in place; they were compiled for this program alone. Each is an operation with an
// operand v, which for a built-in is [3]any{function, number of arguments, name}.
func (p *program) guard() (calls int, err error) {
	codes := reflect.ValueOf(p.code).Elem().FieldByName("codes")
	if !codes.IsValid() || codes.Kind() != reflect.Slice || codes.Type().Elem().Kind() != reflect.Pointer {
		return 0, errUnknownInterpreter
	}
	for i := range codes.Len() {
		operand := codes.Index(i).Elem().FieldByName("v")
		if !operand.IsValid() || operand.Type() != reflect.TypeFor[any]() {
			return 0, errUnknownInterpreter
		}
		operand = reflect.NewAt(operand.Type(), operand.Addr().UnsafePointer()).Elem() // make it settable
		call, ok := operand.Interface().([3]any)
		if !ok {
			continue
		}
		run, isFunc := call[0].(func(any, []any) any)
		name, isName := call[2].(string)
		if !isFunc || !isName {
			return 0, errUnknownInterpreter
		}
		price, known := prices[name]
		if !known {
			return 0, fmt.Errorf("unknown built-in %s: its cost cannot be bounded", name)
		}
		if name == "_match" {
			price = p.matching
		}
		call[0] = func(in any, args []any) any {
			if err := p.meter.pay(name, price(in, args)); err != nil {
				return err
			}
			return run(in, args)
		}
		operand.Set(reflect.ValueOf(call))
		calls++
	}
	return calls, nil
}

const (
	maxPattern  = 4 << 10 // bytes of a regular expression
	maxPatterns = 100     // regular expressions cached per program
	maxMatches  = 1 << 20 // of one in a text; more would exceed the memory of a step
)

// matching prices a regular expression: every instruction may look at every byte, all text before a
// match is counted in characters, and all groups of all matches are kept.
func (p *program) matching(in any, args []any) bill {
	text, _ := in.(string)
	expr, _ := args[0].(string)
	flags, _ := args[1].(string)
	if len(expr) > maxPattern {
		return bill{weight.Over, 0}
	}
	s, b, ok := p.pattern(pattern{expr, flags})
	if !ok {
		return bill{len(expr), 0} // the interpreter will report an error
	}
	scan := weight.Times(len(text), s.instructions) / 4
	b.steps = weight.Plus(b.steps, scan)
	if args[2] == true || b.steps > maxSteps {
		return b
	}
	matches := 1
	if strings.Contains(flags, "g") {
		matches = 2 * len(s.re.FindAllStringIndex(text, maxMatches))
		b.steps = weight.Plus(b.steps, scan)
	}
	kept := weight.Times(matches, 1+s.groups)
	return bill{weight.Plus(b.steps, weight.Times(kept, 1+len(text)/16)), weight.Plus(b.bytes, weight.Times(kept, 512))}
}

// pattern returns the size of a regular expression and, if it is new, the cost of compiling it.
func (p *program) pattern(key pattern) (s size, b bill, ok bool) {
	if s, ok := p.patterns[key]; ok {
		return s, bill{}, true
	}
	expr := key.text
	if strings.Contains(key.flags, "i") {
		expr = "(?i)" + expr
	}
	if strings.Contains(key.flags, "m") {
		expr = "(?s)" + expr
	}
	var err error
	if s.instructions, s.groups, err = weight.Pattern(expr); err != nil {
		return s, b, false
	}
	if s.instructions == weight.Over {
		return s, bill{weight.Over, 0}, true
	}
	if s.re, err = regexp.Compile(expr); err != nil {
		return s, b, false
	}
	p.patterns[key] = s
	return s, bill{weight.Times(s.instructions, 8), weight.Times(s.instructions, 400)}, true
}
