// Package pipeline runs the plugins that are bound to a place, and the built-in redactor, over what comes in and goes out:
// it is what the engine knows as hook.Hooks. It decides which hooks see which items, in which order, what of their
// answers is taken, and what becomes of an operation when one fails.
//
// Everything fails closed: an error of a hook is an error of the chain. The one exception are hooks of the stage load
// whose manifest says fail = "open". No error, event or statistic holds what an item held or a plugin said.
// docs/bundles.md is the contract.
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

// Plugin is a loaded plugin. *plugins.Plugin and *worker.Plugin are such.
type Plugin interface {
	Stages() []hook.Stage
	Digest() [32]byte
	Call(context.Context, *plugins.Call) (*plugins.Result, error)
	Close() error
}

// Loader makes plugins ready to be called.
type Loader interface {
	Load(context.Context, plugins.Spec) (Plugin, error)
}

// LoaderFunc is a Loader.
type LoaderFunc func(context.Context, plugins.Spec) (Plugin, error)

// Load is f.
func (f LoaderFunc) Load(ctx context.Context, s plugins.Spec) (Plugin, error) { return f(ctx, s) }

// Load loads a bundle with a configuration that its Config returned, and checks that the module has the hooks that the
// manifest says it has.
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

// Binding says where a plugin or the built-in redactor runs. Exactly one of Plugin, Redactor and Missing is set.
type Binding struct {
	Bundle   *bundle.Bundle // of Plugin
	Plugin   Plugin
	Config   []byte // what Plugin was loaded with
	Redactor *Redactor

	// Missing says why a plugin that must run here cannot, and what to do. Operations of Stages (none: all) fail with it
	// and Name.
	Missing string
	Name    string
	Stages  []hook.Stage

	Tenants  []string // none is all
	Prefixes []string // what names of threads begin with; none is all, and what belongs to no thread
	Order    *int     // in place of what the manifest says
}

// covers reports whether the binding is for a thread.
func (b *Binding) covers(tenant, thread string) bool {
	return (len(b.Tenants) == 0 || slices.Contains(b.Tenants, tenant)) &&
		(len(b.Prefixes) == 0 || slices.ContainsFunc(b.Prefixes, func(p string) bool { return strings.HasPrefix(thread, p) }))
}

// Options of a Pipeline. The zero value works.
type Options struct {
	// Redactor is what plugins that may call the built-in redactor get where none is bound; nil: with all of its rules.
	Redactor *Redactor

	// A plugin that fails Failures times in a row for a tenant (0: 5) is suspended for that tenant: what needs it fails at
	// once, until after Pause (0: 10 s) one call is let through to see whether it works again.
	Failures int
	Pause    time.Duration

	// Observe, if not nil, is told of every item that passed a hook. It must be quick, and may be called by many at a time.
	Observe func(Event)

	Now func() time.Time // nil: time.Now
}

// Event is that an item passed a hook, or failed to.
type Event struct {
	Plugin   string // NAME@VERSION, or redact
	Stage    hook.Stage
	Kind     hook.Kind
	Err      error // one of the kinds of package hook, nil for success
	Fuel     uint64
	Took     time.Duration
	Findings map[string]int // by rule of the redactor; of a plugin all under ""

	Suspended bool // the plugin is, for some tenant, after this
}

// Pipeline is a hook.Hooks. Methods are safe for concurrent use.
type Pipeline struct {
	o        Options
	fallback func() *Redactor // Options.Redactor, which is made when it is needed
	current  atomic.Pointer[set]

	mu      sync.Mutex // of what follows
	users   map[Plugin]*user
	redacts counter // calls of the redactor
}

// user is a plugin in use.
type user struct {
	plugin  Plugin
	name    string
	sets    int // that it is in
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
	p := &Pipeline{o: o, users: map[Plugin]*user{}}
	p.fallback = sync.OnceValue(func() *Redactor {
		if o.Redactor != nil {
			return o.Redactor
		}
		return newRedactor(redact.Default(), redact.Config{})
	})
	p.current.Store(&set{})
	return p
}

// set is what is bound at a time. It does not change. Chains point to it, and when neither they nor the pipeline do any
// more, those of its plugins that are in no later set are closed: whoever got a chain may run it whenever it likes.
type set struct {
	closed bool
	links  []link // in the order in which they run
}

// link is one hook of a binding.
type link struct {
	binding  *Binding
	stage    hook.Stage
	hook     *bundle.Hook // nil of the redactor and what is missing
	user     *user        // nil of the same
	name     string
	order    int
	identity hook.Identity
}

// Replace makes these the bindings: of the chains that are asked for from now on. It takes over their plugins, which may
// be those of the bindings before, and closes every one as soon as no chain can come to it any more.
func (p *Pipeline) Replace(bindings []Binding) {
	p.mu.Lock()
	s := &set{}
	var in []*user
	for i := range bindings {
		b := bindings[i]
		var u *user
		if b.Plugin != nil {
			if u = p.users[b.Plugin]; u == nil {
				u = &user{plugin: b.Plugin, name: b.Bundle.Name(), circuit: circuit{failures: p.o.Failures, pause: p.o.Pause}}
				p.users[b.Plugin] = u
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

// Close ends the pipeline: For fails from now on, and plugins are closed when no chain can come to them any more.
func (p *Pipeline) Close() error {
	p.mu.Lock()
	p.swap(&set{closed: true}, nil)
	return nil
}

// swap makes a set the current one, which holds some users, and unlocks.
func (p *Pipeline) swap(s *set, in []*user) {
	runtime.AddCleanup(s, p.release, in)
	p.current.Store(s)
	p.mu.Unlock()
	go runtime.GC() // what guests hold is outside of the heap, so that without this their memory could stay for minutes
}

// release closes the plugins of a set that is gone.
func (p *Pipeline) release(in []*user) {
	p.mu.Lock()
	var last []*user
	for _, u := range in {
		if u.sets--; u.sets == 0 {
			delete(p.users, u.plugin)
			last = append(last, u)
		}
	}
	p.mu.Unlock()
	for _, u := range last {
		go func() { // it may wait
			defer panics.To(func(error) {}) // and is of no more use, whatever became of it
			u.plugin.Close()
		}()
	}
}

// For returns what runs at a stage for the threads of a tenant whose name is thread.
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

// Steps returns the migrations that plugins offer for a thread. The chain of the stage migrate makes the one that its
// Call names.
func (p *Pipeline) Steps(tenant, thread string) []bundle.Migration {
	var steps []bundle.Migration
	s := p.current.Load()
	for i := range s.links {
		if l := &s.links[i]; l.stage == hook.Migrate && l.user != nil && l.binding.covers(tenant, thread) {
			for _, m := range l.binding.Bundle.Manifest.Migrations {
				if !slices.Contains(steps, m) {
					steps = append(steps, m)
				}
			}
		}
	}
	return steps
}

// Stat is how often a plugin was called.
type Stat struct {
	Plugin        string // NAME@VERSION, or redact
	Calls, Errors uint64 // since it was loaded; rejections are no errors
	Suspended     bool   // for some tenant
}

// Stats returns how often the plugins that are bound were called, in the order of their names. A plugin that is loaded
// with two configurations is there twice.
func (p *Pipeline) Stats() []Stat {
	p.mu.Lock()
	defer p.mu.Unlock()
	stats := []Stat{{Plugin: redactName, Calls: p.redacts.calls.Load(), Errors: p.redacts.errors.Load()}}
	for _, u := range p.users {
		stats = append(stats, Stat{u.name, u.calls.Load(), u.errors.Load(), u.circuit.suspended()})
	}
	slices.SortFunc(stats, func(a, b Stat) int { return cmp.Or(cmp.Compare(a.Plugin, b.Plugin), cmp.Compare(a.Calls, b.Calls)) })
	return stats
}
