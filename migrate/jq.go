package migrate

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/itchyny/gojq"
)

// JQ creates a step from a jq program. The program's input is a document, and its only output must
// be the next. Source names its file. A program with a syntax error is ErrInvalid with line and
// column.
func JQ(from, to uint64, source, text string, limits Limits) (Step, error) {
	if len(text) > maxProgram {
		return Step{}, invalid("%s: it has %d bytes, more than the limit of %d", source, len(text), maxProgram)
	}
	query, err := gojq.Parse(text)
	if err != nil {
		if at, ok := errors.AsType[*gojq.ParseError](err); ok {
			line, column := position(text, at.Offset-len(at.Token))
			return Step{}, invalid("%s:%d:%d: %w", source, line, column, err)
		}
		return Step{}, invalid("%s: %w", source, err)
	}
	first, err := compile(query)
	if err != nil {
		return Step{}, invalid("%s: %w", source, err)
	}
	var idle sync.Pool // of *program
	idle.Put(first)
	run := func(ctx context.Context, doc any) (any, error) {
		p, _ := idle.Get().(*program)
		if p == nil {
			var err error
			if p, err = compile(query); err != nil {
				return nil, err
			}
		}
		out, err := p.run(ctx, limits, doc)
		if len(p.patterns) < maxPatterns {
			idle.Put(p)
		}
		return out, err
	}
	return Step{From: from, To: to, Description: comment(text), Source: source, Run: run}, nil
}

// maxProgram bounds a program in bytes: the interpreter compiles it on the stack.
const maxProgram = 64 << 10

// only returns the single output of a program.
func only(iter gojq.Iter) (any, error) {
	var out any
	for n := 0; ; n++ {
		v, ok := iter.Next()
		if !ok && n == 0 {
			return nil, errors.New("it returns no value: it must return the document")
		}
		if !ok {
			return out, nil
		}
		if err, failed := v.(error); failed {
			if halt, ok := errors.AsType[*gojq.HaltError](err); ok && halt.Value() == nil {
				return nil, errors.New("it halts without a value: it must return the document")
			}
			return nil, cut(err)
		}
		if n > 0 {
			return nil, errors.New("it returns several values: it must return one document")
		}
		out = v
	}
}

// position returns the line and column of an offset, from 1, with the column in bytes.
func position(text string, offset int) (line, column int) {
	before := text[:min(max(offset, 0), len(text))]
	line = strings.Count(before, "\n") + 1
	return line, len(before) - strings.LastIndex(before, "\n")
}

// comment returns the first comment of a program, which describes it.
func comment(program string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(program), "\n")
	if text, ok := strings.CutPrefix(first, "#"); ok {
		return strings.TrimSpace(text)
	}
	return ""
}

// cut shortens a message, because a program may have built it from an entire state.
func cut(err error) error {
	if text := err.Error(); len(text) > maxMessage {
		return errors.New(text[:maxMessage] + " …")
	}
	return err
}

const maxMessage = 1000
