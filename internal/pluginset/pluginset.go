// Package pluginset manages the plugins of a store, with the types of the wire API: for the server,
// and for commands that have opened the store themselves. It is the store's hook.Hooks.
//
// A store without a directory of plugins has no hooks, and nothing of plugins is started for it. If
// there is one, whatever cannot be read of it fails every operation that hooks could concern:
// nothing comes in that did not pass them.
package pluginset

import (
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/internal/telemetry"
	"github.com/ckptd/ckptd/plugins"
	"github.com/ckptd/ckptd/plugins/pipeline"
	"github.com/ckptd/ckptd/plugins/registry"
)

// Sealer seals files next to a store. An upkeep.Store is one.
type Sealer interface {
	SealSidecar(dst []byte, name string, plain []byte) ([]byte, error)
	OpenSidecar(name string, sealed []byte) ([]byte, error)
	Pseudonym(purpose string, names ...string) string
}

// Options configure the directory and the runtime of plugins.
type Options struct {
	Dir     string // of the plugins, made when the first is installed; "": none can be
	Workers bool   // run them in processes of their own
	Memory  int64  // bytes that the guests of a process may have together, 0: 1 GiB
	Calls   int    // at a time, and so processes; 0: as many as processors, of processes at most 8

	Log     *slog.Logger       // nil: nothing is logged
	Metrics *telemetry.Metrics // nil: nothing is counted
}

// Set is the plugins of a store. Methods are safe for concurrent use, and their changes are durable
// when they return. Before Open is called, every operation fails.
type Set struct {
	o      Options
	loader loader
	now    atomic.Pointer[registry.Registry] // nil: not read
	none   atomic.Bool                       // there is nothing to read

	mu     sync.Mutex // guards the fields below, and the opening of the registry
	sealer Sealer
	closed bool
}

// sealedAs is the name under which the state of the plugins is sealed.
const sealedAs = "plugins"

// New returns the plugins of a store that is yet to be opened. It reads nothing.
func New(o Options) *Set {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Set{o: o}
	s.loader.o = o
	return s
}

// Load loads a module that is not installed, such as a migration step, into the plugin runtime. It
// must not be called before Open if plugins run in this process: their cache has no key until then.
func (s *Set) Load(ctx context.Context, spec plugins.Spec) (pipeline.Plugin, error) {
	return s.loader.Load(ctx, spec)
}

// Open sets the sealer of the plugin state, as soon as the store is open. It does not read the
// plugins yet: Start does, or the first operation that could have hooks.
func (s *Set) Open(sealer Sealer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealer = sealer
	_, err := os.Lstat(s.o.Dir)
	s.none.Store(s.o.Dir == "" || errors.Is(err, fs.ErrNotExist))
}

// Start reads and loads the installed plugins, if there are any.
func (s *Set) Start(ctx context.Context) error {
	if s.none.Load() {
		return nil
	}
	_, err := s.registry(ctx)
	return err
}

// Reload reads the installed plugins again, and loads those that could not be loaded before.
func (s *Set) Reload(ctx context.Context) error {
	if r := s.now.Load(); r != nil {
		return r.Reload(ctx)
	}
	return nil
}

// For is that of hook.Hooks.
func (s *Set) For(stage hook.Stage, tenant, thread string) (hook.Chain, error) {
	if r := s.now.Load(); r != nil {
		return r.Hooks().For(stage, tenant, thread)
	}
	if s.none.Load() {
		return nil, nil
	}
	r, err := s.registry(context.Background()) // which outlives the operation
	if err != nil {
		return nil, &hook.Error{Kind: hook.ErrUnavailable, Stage: stage, Reason: err.Error()}
	}
	return r.Hooks().For(stage, tenant, thread)
}

// registry opens the registry, if that is yet to be done.
func (s *Set) registry(ctx context.Context) (*registry.Registry, error) {
	if r := s.now.Load(); r != nil {
		return r, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.now.Load(); r != nil {
		return r, nil
	}
	switch {
	case s.o.Dir == "":
		return nil, &hook.Error{Kind: hook.ErrUnavailable, Reason: "this store has no plugin directory"}
	case s.sealer == nil || s.closed:
		return nil, &hook.Error{Kind: hook.ErrUnavailable, Reason: "the store is not open"}
	}
	if err := noCoreDumps(); err != nil {
		return nil, err
	}
	s.loader.cacheKey = sha256.Sum256([]byte(s.sealer.Pseudonym("cache of plugins")))
	r, err := registry.Open(ctx, registry.Options{Dir: s.o.Dir, Loader: &s.loader,
		Seal:     func(plain []byte) ([]byte, error) { return s.sealer.SealSidecar(nil, sealedAs, plain) },
		Unseal:   func(sealed []byte) ([]byte, error) { return s.sealer.OpenSidecar(sealedAs, sealed) },
		Pipeline: pipeline.Options{Observe: observer(s.o.Metrics)}})
	if err != nil {
		return nil, err
	}
	s.now.Store(r)
	s.none.Store(false)
	return r, nil
}

// Close stops the plugin runtime. Operations fail from then on.
func (s *Set) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.none.Store(false)
	var err error
	if r := s.now.Load(); r != nil {
		err = r.Close()
	}
	return errors.Join(err, s.loader.close())
}

// cacheDir is where compiled plugins are kept.
func (o *Options) cacheDir() string { return filepath.Join(o.Dir, "cache") }
