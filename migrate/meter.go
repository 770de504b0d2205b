package migrate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"time"
)

// meter is a context that stops a program which uses too much. The interpreter calls Done before
// every instruction; built-ins, the only instructions that can use much, pay before they run. So it
// is enough to check the clock every few instructions, and the heap after some time or payment, to
// notice growth in time.
type meter struct {
	context.Context
	limit int
	why   error // if not nil, the program used too much
	done  chan struct{}

	calls     int
	paid      int // bytes paid for since the last check of the heap
	looked    time.Time
	allocated uint64 // when the live heap was last known to be within the limit
	live      uint64 // at the start
	sample    [2]metrics.Sample
}

const (
	lookEvery = 8
	lookAfter = 500 * time.Microsecond
)

func (m *meter) start(ctx context.Context, limit int64) {
	*m = meter{Context: ctx, limit: int(limit), done: make(chan struct{}), looked: time.Now()}
	m.sample[0].Name, m.sample[1].Name = "/gc/heap/allocs:bytes", "/gc/heap/live:bytes"
	metrics.Read(m.sample[:])
	m.allocated, m.live = m.sample[0].Value.Uint64(), m.sample[1].Value.Uint64()
}

// pay is called before a built-in does the work it is billed for. It returns an error if the
// built-in must not run.
func (m *meter) pay(name string, b bill) error {
	switch {
	case b.bytes < 0 || b.bytes > m.limit:
		m.stop(m.tooLarge())
	case b.steps < 0 || b.steps > maxSteps:
		m.stop(fmt.Errorf("%s takes too long on values of this size", strings.TrimPrefix(name, "_")))
	default:
		if m.paid += b.bytes; m.paid > m.limit/2 {
			m.look()
		}
	}
	return m.why
}

func (m *meter) tooLarge() error {
	return fmt.Errorf("it needs more than %d MiB of memory", m.limit>>20)
}

func (m *meter) stop(why error) {
	if m.why == nil {
		m.why = why
		close(m.done)
	}
}

// Done is called by the interpreter, from one goroutine.
func (m *meter) Done() <-chan struct{} {
	if m.calls++; m.calls%lookEvery == 0 && m.why == nil {
		if now := time.Now(); now.Sub(m.looked) > lookAfter {
			m.looked = now
			m.look()
		}
	}
	if m.why != nil {
		return m.done
	}
	return m.Context.Done()
}

// look compares the allocated memory with the limit. The counters cover the whole process, so it
// collects the garbage of others before it blames a program.
func (m *meter) look() {
	m.paid = 0
	metrics.Read(m.sample[:1])
	if m.sample[0].Value.Uint64()-m.allocated <= uint64(m.limit) {
		return
	}
	runtime.GC()
	metrics.Read(m.sample[:])
	m.allocated = m.sample[0].Value.Uint64()
	live := m.sample[1].Value.Uint64()
	m.live = min(m.live, live) // account for memory that others have freed
	if live-m.live > uint64(m.limit) {
		m.stop(m.tooLarge())
	}
}

// Err returns the reason why Done is closed.
func (m *meter) Err() error {
	if m.why != nil {
		return m.why
	}
	return m.Context.Err()
}

var errUnknownInterpreter = errors.New("unknown version of the jq interpreter: the cost of its built-ins cannot be bounded")
