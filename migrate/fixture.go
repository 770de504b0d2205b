package migrate

import (
	"context"
	"fmt"
)

// Fixture is a document before and after a step.
type Fixture struct {
	Name     string // of the fixture and its file, for messages
	From, To uint64
	Before   []byte // JSON of a Document
	After    []byte
}

// check runs a single fixture: up from Before to After, and back if From is greater than To.
func (s *Set) check(ctx context.Context, f *Fixture) error {
	fail := func(format string, args ...any) error {
		return invalid("kind %q: fixture %s, version %d to %d: %w", s.kind, f.Name, f.From, f.To, fmt.Errorf(format, args...))
	}
	var c counter
	c.json(f.Before)
	c.json(f.After)
	leave, err := s.enter(ctx, c.memory())
	if err != nil {
		return fail("%w", err)
	}
	defer leave()
	before, err := OpenJSON(f.Before)
	if err != nil {
		return fail("before: %w", err)
	}
	want, err := OpenJSON(f.After)
	if err != nil {
		return fail("after: %w", err)
	}
	path, err := s.Path(f.From, f.To, true)
	if err != nil {
		return fail("%w", err)
	}
	got, err := s.walk(ctx, before, path)
	if err != nil {
		return fail("%w", err)
	}
	if !got.Equal(want) {
		return fail("the outcome differs at %s", orWhole(firstDifference(want.value, got.value)))
	}
	return nil
}

func orWhole(path string) string {
	if path == "" {
		return "the top"
	}
	return path
}
