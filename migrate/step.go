package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ckptd/ckptd/internal/weight"
)

// Func transforms the value of a document: maps, slices, strings, json.Number, bool and nil. It
// must be pure: no clock, no randomness, no state from earlier calls. It must not modify its input;
// its result may share parts of it.
type Func func(ctx context.Context, doc any) (any, error)

// Step migrates a state of a kind from one version to an adjacent one.
type Step struct {
	From, To    uint64 // To is From+1, or From-1 for a way back
	Description string
	Source      string // for messages: where the step is defined
	Run         Func
}

// Limits bound one run of a step.
type Limits struct {
	Time   time.Duration
	Memory int64 // bytes that a jq program may allocate in addition to its input, which may take twice as much
}

// DefaultLimits returns the limits of a step without limits of its own.
func DefaultLimits() Limits { return Limits{Time: 2 * time.Second, Memory: 256 << 20} }

// Go creates a step from a function that may modify its input: it gets a copy of the document.
func Go(from, to uint64, description string, fn func(doc map[string]any) (map[string]any, error)) Step {
	run := func(_ context.Context, doc any) (any, error) {
		in, ok := clone(doc).(map[string]any)
		if !ok {
			return nil, fmt.Errorf("the document is %s", typeName(doc))
		}
		out, err := fn(in)
		if err != nil || out == nil {
			return nil, err
		}
		return out, nil
	}
	return Step{From: from, To: to, Description: description, Source: "Go function", Run: run}
}

// Bytes creates a step from a function that converts the JSON of a document to that of the next
// version, such as a WebAssembly module.
func Bytes(from, to uint64, description, source string, fn func(ctx context.Context, from, to uint64, doc []byte) ([]byte, error)) Step {
	run := func(ctx context.Context, doc any) (any, error) {
		in, err := new(comparer).appendJSON(nil, nil, nil, doc)
		if err != nil {
			return nil, err
		}
		out, err := fn(ctx, from, to, in)
		if err != nil {
			return nil, err
		}
		n, err := parseJSON(out)
		if err != nil {
			return nil, fmt.Errorf("the outcome is %w", err)
		}
		return n.value, nil
	}
	return Step{From: from, To: to, Description: description, Source: source, Run: run}
}

// apply runs a step twice and compares the results. With a nondeterministic step, chance would
// decide the result for a thread.
func (s *Step) apply(ctx context.Context, kind string, limits Limits, d *Document) (*Document, error) {
	var outs [2]any
	for i := range outs {
		out, err := s.run(ctx, limits, d.value)
		if err != nil {
			return nil, s.fail(kind, err)
		}
		outs[i] = out
	}
	most := maxOutcome(limits, d)
	c := comparer{left: most}
	if !c.equal(outs[0], outs[1]) {
		if weight.Of(outs[0], most) == weight.Over {
			return nil, s.fail(kind, fmt.Errorf("the outcome needs more than %d MiB of memory, or is nested deeper than %d",
				limits.Memory>>20, weight.MaxDepth))
		}
		return nil, s.fail(kind, &StepError{Path: firstDifference(outs[0], outs[1]),
			Reason: "two runs on the same state differ: a step must not use time, randomness or stored state"})
	}
	next, err := d.with(outs[0], most-c.left)
	if err != nil {
		return nil, s.fail(kind, err)
	}
	return next, nil
}

// maxOutcome bounds the weight of a step's result. A step can return a small value with so many
// references to the same parts that nobody could encode it.
func maxOutcome(limits Limits, d *Document) int { return int(limits.Memory)/inArray + d.size() }

func (s *Step) run(ctx context.Context, limits Limits, doc any) (out any, err error) {
	defer func() {
		if r := recover(); r != nil { // a bug in a Go function fails one state and must not crash the host
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	limited, cancel := context.WithTimeout(ctx, limits.Time)
	defer cancel()
	out, err = s.Run(limited, doc)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("it did not finish within %v", limits.Time)
	}
	return out, err
}

// fail adds the step to err.
func (s *Step) fail(kind string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	e := &StepError{}
	if inner, ok := errors.AsType[*StepError](err); ok {
		*e = *inner
	} else {
		e.Reason, e.Err = err.Error(), err
	}
	e.Kind, e.From, e.To, e.Source = kind, s.From, s.To, s.Source
	return e
}
