// Package pipeline runs the bound plugins and the built-in redactor on data that is saved, loaded,
// exported or migrated. It implements hook.Hooks for the engine. It decides which hooks see which
// items and in which order, which parts of their results to accept, and how an operation ends when
// a hook fails.
//
// Everything fails closed: an error of a hook is an error of the chain. The only exception is a
// hook of the stage load whose manifest says fail = "open". Errors, events and statistics never
// contain data of an item or text from a plugin. docs/bundles.md is the contract.
package pipeline

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/internal/panics"
	"github.com/ckptd/ckptd/plugins"
	"github.com/ckptd/ckptd/plugins/bundle"
	"github.com/ckptd/ckptd/plugins/redact"
)

// Plugin is a loaded plugin. *plugins.Plugin and *worker.Plugin implement it.
type Plugin interface {
	Stages() []hook.Stage
	Digest() [32]byte
	Call(context.Context, *plugins.Call) (*plugins.Result, error)
	Close() error
}

// Loader loads plugins so that they are ready to be called.
type Loader interface {
	Load(context.Context, plugins.Spec) (Plugin, error)
}

// LoaderFunc is a function that implements Loader.
type LoaderFunc func(context.Context, plugins.Spec) (Plugin, error)

// Load calls f.
func (f LoaderFunc) Load(ctx context.Context, s plugins.Spec) (Plugin, error) { return f(ctx, s) }

// Load loads a bundle with a configuration returned by its Config method, and checks that the
// module exports the hooks that the manifest declares.
func Load(ctx context.Context, l Loader, b *bundle.Bundle, config []byte) (Plugin, error) {
	p, err := l.Load(ctx, b.Spec(config))
	if err != nil {
		return nil, err
	}
	for _, stage := range b.Manifest.Stages() {
		if !slices.Contains(p.Stages(), stage) {
			p.Close()
			return nil, &hook.Error{Kind: hook.ErrInvalid, Plugin: b.Name(),
				Reason: "the manifest names the stage " + stage.String() +
					" and the module exports no on_" + stage.String() + ": add it, or correct the manifest"}
		}
	}
	return p, nil
}

// Binding defines where a plugin or the built-in redactor runs. Exactly one of Plugin, Redactor and
// Missing is set.
type Binding struct {
	Bundle   *bundle.Bundle // of Plugin
	Plugin   Plugin
	Config   []byte // the configuration that Plugin was loaded with
	Redactor *Redactor

	// Missing says why a plugin that must run here cannot, and how to fix that. Operations of
	// Stages (empty: all) fail with it and Name.
	Missing string
	Name    string
	Stages  []hook.Stage

	Tenants  []string // empty means all
	Prefixes []string // of thread names; empty means all threads, and items that belong to no thread
	Order    *int     // overrides the manifest's
}

// covers reports whether the binding applies to a thread.
func (b *Binding) covers(tenant, thread string) bool {
	return (len(b.Tenants) == 0 || slices.Contains(b.Tenants, tenant)) &&
		(len(b.Prefixes) == 0 || slices.ContainsFunc(b.Prefixes, func(p string) bool { return strings.HasPrefix(thread, p) }))
}

// Options of a Pipeline. The zero value works.
type Options struct {
	// Redactor serves plugins that may call the built-in redactor where none is bound; nil: one
	// with all rules.
	Redactor *Redactor

	// A plugin that fails Failures times in a row for a tenant (0: 5) is suspended for that tenant:
	// operations that need it fail at once. After Pause (0: 10 s) a single call is let through to
	// see whether the plugin works again.
	Failures int
	Pause    time.Duration

	// Observe, if not nil, is called for every item that passed a hook. It must be fast and safe
	// for concurrent use.
	Observe func(Event)

	Now func() time.Time // nil: time.Now
}

// Event reports that an item passed a hook or failed to.
type Event struct {
	Plugin   string // NAME@VERSION, or redact
	Stage    hook.Stage
	Kind     hook.Kind
	Err      error // one of the kinds of package hook, nil for success
	Fuel     uint64
	Took     time.Duration
	Findings map[string]int // by rule for the redactor; for a plugin, all under ""

	Suspended bool // the plugin is now suspended for some tenant
}

// Pipeline implements hook.Hooks. Its methods are safe for concurrent use.
type Pipeline struct {
	o        Options
	fallback func() *Redactor // Options.Redactor, created on first use
	current  atomic.Pointer[bindingSet]

	mu      sync.Mutex // guards the fields below
	shared  map[Plugin]*sharedPlugin
	redacts counter // calls of the redactor
}

// sharedPlugin is a plugin along with the state that all its bindings share.
type sharedPlugin struct {
	plugin  Plugin
	name    string
	sets    int // number of sets that contain it
	circuit circuit
	counter
}

// counter counts calls.
type counter struct{ calls, errors atomic.Uint64 }

// New returns a Pipeline without bindings.
func New(o Options) *Pipeline {
	if o.Failures <= 0 {
		o.Failures = 5
	}
	if o.Pause <= 0 {
		o.Pause = 10 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	p := &Pipeline{o: o, shared: map[Plugin]*sharedPlugin{}}
	p.fallback = sync.OnceValue(func() *Redactor {
		if o.Redactor != nil {
			return o.Redactor
		}
		return newRedactor(redact.Default(), redact.Config{})
	})
	p.current.Store(&bindingSet{})
	return p
}

// bindingSet is an immutable set of bindings. Chains point to it. Once neither they nor the
// pipeline do, those of its plugins that are in no later set are closed: a caller with a chain can
// run it at any time.
type bindingSet struct {
	closed bool
	links  []link // in the order in which they run
}

// link is one hook of a binding.
type link struct {
	binding  *Binding
	stage    hook.Stage
	hook     *bundle.Hook  // nil for the redactor and for a missing plugin
	shared   *sharedPlugin // nil for the same
	name     string
	order    int
	identity hook.Identity
}

// Replace sets the bindings of all chains requested from now on. It takes ownership of their
// plugins, which may be those of the previous bindings, and closes each plugin as soon as no chain
// can reach it.
func (p *Pipeline) Replace(bindings []Binding) {
	p.mu.Lock()
	s := &bindingSet{}
	var in []*sharedPlugin
	for i := range bindings {
		b := bindings[i]
		var u *sharedPlugin
		if b.Plugin != nil {
			if u = p.shared[b.Plugin]; u == nil {
				u = &sharedPlugin{plugin: b.Plugin, name: b.Bundle.Name(), circuit: circuit{failures: p.o.Failures, pause: p.o.Pause}}
				p.shared[b.Plugin] = u
			}
			if !slices.Contains(in, u) {
				u.sets++
				in = append(in, u)
			}
		}
		s.links = append(s.links, links(&b, u)...)
	}
	slices.SortStableFunc(s.links, func(a, b link) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.name, b.name))
	})
	p.swap(s, in)
}

// Close ends the pipeline: For fails from now on, and plugins are closed once no chain can reach
// them.
func (p *Pipeline) Close() error {
	p.mu.Lock()
	p.swap(&bindingSet{closed: true}, nil)
	return nil
}

// swap makes a set, which uses the plugins in, the current one. It unlocks p.mu.
func (p *Pipeline) swap(s *bindingSet, in []*sharedPlugin) {
	runtime.AddCleanup(s, p.release, in)
	p.current.Store(s)
	p.mu.Unlock()
	go runtime.GC() // guest memory is outside the heap; without this it could stay for minutes
}

// release closes the plugins of an unreachable set.
func (p *Pipeline) release(in []*sharedPlugin) {
	p.mu.Lock()
	var last []*sharedPlugin
	for _, u := range in {
		if u.sets--; u.sets == 0 {
			delete(p.shared, u.plugin)
			last = append(last, u)
		}
	}
	p.mu.Unlock()
	for _, u := range last {
		go func() { // Close may block
			defer panics.To(func(error) {}) // nobody uses the plugin any more, so a panic is harmless
			u.plugin.Close()
		}()
	}
}

// For returns the chain of a stage for a tenant's threads with the given name.
func (p *Pipeline) For(stage hook.Stage, tenant, thread string) (hook.Chain, error) {
	s := p.current.Load()
	if s.closed {
		return nil, &hook.Error{Kind: hook.ErrUnavailable, Stage: stage, Reason: "the plugins were closed with the store"}
	}
	var found []*link
	for i := range s.links {
		l := &s.links[i]
		if l.stage != stage || !l.binding.covers(tenant, thread) {
			continue
		}
		if l.binding.Missing != "" {
			return nil, &hook.Error{Kind: hook.ErrUnavailable, Plugin: l.name, Stage: stage, Reason: l.binding.Missing}
		}
		found = append(found, l)
	}
	if len(found) == 0 {
		return nil, nil
	}
	return &chain{p, s, stage, found}, nil
}

// Steps returns the migrations that plugins provide for a thread. The chain of the stage migrate
// runs the one that its Call names.
func (p *Pipeline) Steps(tenant, thread string) []bundle.Migration {
	var steps []bundle.Migration
	s := p.current.Load()
	for i := range s.links {
		if l := &s.links[i]; l.stage == hook.Migrate && l.shared != nil && l.binding.covers(tenant, thread) {
			for _, m := range l.binding.Bundle.Manifest.Migrations {
				if !slices.Contains(steps, m) {
					steps = append(steps, m)
				}
			}
		}
	}
	return steps
}

// Stat counts the calls of a plugin.
type Stat struct {
	Plugin        string // NAME@VERSION, or redact
	Calls, Errors uint64 // since it was loaded; rejections do not count as errors
	Suspended     bool   // for some tenant
}

// Stats returns the call counts of the bound plugins, ordered by name. A plugin that is loaded with
// two configurations appears twice.
func (p *Pipeline) Stats() []Stat {
	p.mu.Lock()
	defer p.mu.Unlock()
	stats := []Stat{{Plugin: redactName, Calls: p.redacts.calls.Load(), Errors: p.redacts.errors.Load()}}
	for _, u := range p.shared {
		stats = append(stats, Stat{u.name, u.calls.Load(), u.errors.Load(), u.circuit.suspended()})
	}
	slices.SortFunc(stats, func(a, b Stat) int { return cmp.Or(cmp.Compare(a.Plugin, b.Plugin), cmp.Compare(a.Calls, b.Calls)) })
	return stats
}
