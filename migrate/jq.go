package migrate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"time"

	"github.com/itchyny/gojq"
)

// JQ makes a step of a jq program, which gets a document as its input and gives the next as its only output. Source names
// its file. A program that does not parse is ErrInvalid with line and column.
func JQ(from, to uint64, source, program string, limits Limits) (Step, error) {
	query, err := gojq.Parse(program)
	if err != nil {
		if at, ok := errors.AsType[*gojq.ParseError](err); ok {
			line, column := position(program, at.Offset-len(at.Token))
			return Step{}, invalid("%s:%d:%d: %w", source, line, column, err)
		}
		return Step{}, invalid("%s: %w", source, err)
	}
	code, err := gojq.Compile(query)
	if err != nil {
		return Step{}, invalid("%s: %w", source, err)
	}
	run := func(ctx context.Context, doc any) (any, error) {
		m := newMeter(ctx, limits.Memory)
		out, err := only(code.RunWithContext(m, doc))
		if m.over {
			err = fmt.Errorf("it needs more than %d MiB of memory", limits.Memory>>20)
		}
		return out, err
	}
	return Step{From: from, To: to, Description: comment(program), Source: source, Run: run}, nil
}

// only is the one value that a program gives.
func only(iter gojq.Iter) (any, error) {
	var out any
	for n := 0; ; n++ {
		v, ok := iter.Next()
		if !ok && n == 0 {
			return nil, errors.New("it gives no value; the outcome must be the document")
		}
		if !ok {
			return out, nil
		}
		if err, failed := v.(error); failed {
			if halt, ok := errors.AsType[*gojq.HaltError](err); ok && halt.Value() == nil {
				return nil, errors.New("it halts without a value; the outcome must be the document")
			}
			return nil, err
		}
		if n > 0 {
			return nil, errors.New("it gives several values; the outcome must be one document")
		}
		out = v
	}
}

// position is the line and column of an offset, counted from 1, the column in bytes.
func position(text string, offset int) (line, column int) {
	before := text[:min(max(offset, 0), len(text))]
	line = strings.Count(before, "\n") + 1
	return line, len(before) - strings.LastIndex(before, "\n")
}

// comment is the first comment of a program, which says what it does.
func comment(program string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(program), "\n")
	if text, ok := strings.CutPrefix(first, "#"); ok {
		return strings.TrimSpace(text)
	}
	return ""
}

// meter is a context that stops a program which takes too much memory. The interpreter asks for Done before every
// instruction; an instruction can at most multiply what there is, and takes the longer the more that is. So looking
// at the clock every few instructions and at the heap when time has passed notices growth before it is too much.
type meter struct {
	context.Context
	limit uint64
	over  bool
	done  chan struct{}

	calls     int
	looked    time.Time
	allocated uint64 // when the live heap was last known to be within the limit
	live      uint64 // at the beginning
	sample    [2]metrics.Sample
}

const (
	lookEvery = 8
	lookAfter = 500 * time.Microsecond
)

func newMeter(ctx context.Context, limit int64) *meter {
	m := &meter{Context: ctx, limit: uint64(limit), done: make(chan struct{}), looked: time.Now()}
	m.sample[0].Name, m.sample[1].Name = "/gc/heap/allocs:bytes", "/gc/heap/live:bytes"
	metrics.Read(m.sample[:])
	m.allocated, m.live = m.sample[0].Value.Uint64(), m.sample[1].Value.Uint64()
	return m
}

// Done is called by the interpreter, from one goroutine.
func (m *meter) Done() <-chan struct{} {
	if m.over {
		return m.done
	}
	if m.calls++; m.calls%lookEvery == 0 {
		if now := time.Now(); now.Sub(m.looked) > lookAfter {
			m.looked = now
			m.look()
		}
	}
	if m.over {
		return m.done
	}
	return m.Context.Done()
}

// look compares what was allocated with the limit. The counters are the whole process's, so before a program is
// blamed the garbage of others is collected.
func (m *meter) look() {
	metrics.Read(m.sample[:1])
	if m.sample[0].Value.Uint64()-m.allocated <= m.limit {
		return
	}
	runtime.GC()
	metrics.Read(m.sample[:])
	m.allocated = m.sample[0].Value.Uint64()
	if live := m.sample[1].Value.Uint64(); live > m.live && live-m.live > m.limit {
		m.over = true
		close(m.done)
	}
}

// Err says why Done is closed.
func (m *meter) Err() error {
	if m.over {
		return context.DeadlineExceeded
	}
	return m.Context.Err()
}
