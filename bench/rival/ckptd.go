package rival

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/badger"
	"github.com/ckptd/ckptd/bench/workload"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine"
)

func ckptdRival(whole bool) Rival {
	r := Rival{
		Name: "ckptd", What: "ckptd's engine, embedded, on Badger: receives changes, as its clients send them; encrypted",
		Durable: "default; in the growth over threads, GOMEMLIMIT is the cache plus 400 MiB",
		Open:    func(ctx context.Context, o Options) (Driver, error) { return openCkptd(ctx, o, whole, nil) },
	}
	if whole {
		r.Name, r.What = "ckptd-whole", "the same, but receives the whole state each time and finds the changes itself"
	}
	return r
}

// Pipeline opens ckptd on a wrapped backend, to measure the cost of a save without its commit.
func Pipeline(ctx context.Context, o Options, wrap func(backend.Backend) backend.Backend) (Driver, error) {
	return openCkptd(ctx, o, false, wrap)
}

const (
	// remembered is the number of steps that a thread can go back, more than any workload does.
	remembered = 64
	users      = 16
	// outsideCache is the memory that the process may use in addition to the cache before Go's
	// garbage collector works harder.
	outsideCache = 400 << 20
)

type ckptd struct {
	store *engine.Store
	whole bool

	mu      sync.Mutex
	threads map[int]*lineage
}

// lineage is a client's memory of a thread. Only the goroutine that saves the thread uses it.
type lineage struct {
	*engine.Thread
	saved []saved // the last steps, each at its number modulo remembered
	draft []engine.Change
}

type saved struct {
	step int
	id   string
	// versions of the channels, in order of name
	versions []engine.Version
}

func openCkptd(ctx context.Context, o Options, whole bool, wrap func(backend.Backend) backend.Backend) (Driver, error) {
	if o.Small && os.Getenv("GOMEMLIMIT") == "" { // as advised by Options.CacheBytes
		debug.SetMemoryLimit(o.Cache + outsideCache)
	}
	keyFile := filepath.Join(o.Dir, "data.key")
	root, err := crypto.ReadKeyFile(keyFile)
	create := errors.Is(err, fs.ErrNotExist)
	if create {
		if root, err = crypto.GenerateRootKey(); err == nil {
			err = crypto.WriteKeyFile(keyFile, root)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("opening the key: %w", err)
	}
	keystore, err := crypto.OpenFileKeystore(filepath.Join(o.Dir, "data.keys"), create)
	if err != nil {
		return nil, fmt.Errorf("opening the keystore: %w", err)
	}
	var be backend.Backend
	if be, err = badger.Open(filepath.Join(o.Dir, "data"), badger.Options{}); err != nil {
		return nil, fmt.Errorf("opening the backend: %w", err)
	}
	if wrap != nil {
		be = wrap(be)
	}
	store, err := engine.Open(ctx, be, engine.Options{Root: root, Keystore: keystore, Create: create, CacheBytes: o.Cache})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the store: %w", err), be.Close())
	}
	return &ckptd{store: store, whole: whole, threads: map[int]*lineage{}}, nil
}

func (c *ckptd) lineage(thread int) *lineage {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.threads[thread]
	if l == nil {
		l = &lineage{Thread: c.store.Thread(engine.Ref{
			Tenant: "bench", User: fmt.Sprintf("user-%d", thread%users), Thread: fmt.Sprintf("thread-%d", thread)})}
		c.threads[thread] = l
	}
	return l
}

func (c *ckptd) Save(ctx context.Context, s *workload.Step) error {
	l := c.lineage(s.Thread)
	parent, err := l.find(ctx, s.Parent)
	if err != nil {
		return err
	}
	d := engine.Draft{Step: int64(s.Number), Parent: parent.id, Channels: l.draft[:0]}
	if c.whole || s.Parent < 0 {
		for _, channel := range s.State.Channels {
			d.Channels = append(d.Channels, engine.Change{Name: channel.Name, Type: "json", Data: s.State.Doc[channel.Start:channel.End]})
		}
	} else {
		d.Keep = true
		d.Channels = splices(d.Channels, s, parent.versions)
	}
	cp, err := l.Thread.Save(ctx, d)
	clear(d.Channels) // they reference the player's state
	l.draft = d.Channels
	if err != nil {
		return err
	}
	l.remember(s.Number, cp)
	return nil
}

// find returns the remembered step, or looks it up. It returns nothing for a step that doesn't
// exist.
func (l *lineage) find(ctx context.Context, step int) (*saved, error) {
	if step < 0 {
		return &saved{}, nil
	}
	if at := step % remembered; at < len(l.saved) && l.saved[at].step == step {
		return &l.saved[at], nil
	}
	cp, err := l.Load(ctx, engine.AtSeq(uint64(step)+1), engine.LoadOptions{HeadersOnly: true})
	if err != nil {
		return nil, err
	}
	return l.remember(step, cp), nil
}

func (l *lineage) remember(step int, cp *engine.Checkpoint) *saved {
	for len(l.saved) <= step%remembered {
		l.saved = append(l.saved, saved{step: -1})
	}
	at := &l.saved[step%remembered]
	at.step, at.id, at.versions = step, cp.ID, at.versions[:0]
	for _, channel := range cp.Channels {
		at.versions = append(at.versions, channel.Version)
	}
	return at
}

// splices appends the changes of a step on top of the parent's channels, which have the given
// versions.
func splices(to []engine.Change, s *workload.Step, versions []engine.Version) []engine.Change {
	first := len(to)
	for _, e := range s.Splices {
		change := engine.Change{Name: e.Channel, Data: e.Insert, Prefix: e.Prefix, Suffix: e.Suffix}
		if e.New {
			change.Type = "json"
		}
		to = append(to, change)
	}
	at := 0 // index into the parent's channels: those of the state without new ones, in the same order
	for _, channel := range s.State.Channels {
		for i, e := range s.Splices {
			if e.Channel != channel.Name {
				continue
			}
			if e.New {
				at--
			} else {
				to[first+i].Base = versions[at]
			}
		}
		at++
	}
	return to
}

func (c *ckptd) Load(ctx context.Context, thread, step int) ([]byte, error) {
	which := engine.Latest
	if step >= 0 {
		which = engine.AtSeq(uint64(step) + 1)
	}
	cp, err := c.lineage(thread).Load(ctx, which)
	if err != nil {
		return nil, err
	}
	size := 2
	for _, channel := range cp.Channels {
		size += len(channel.Name) + len(channel.Data) + len(`"":,`)
	}
	return workload.AppendDoc(make([]byte, 0, size), len(cp.Channels), func(i int) (string, []byte) {
		return cp.Channels[i].Name, cp.Channels[i].Data
	}), nil
}

func (c *ckptd) Settle(context.Context) error { return nil } // any deferred work happens in Close
func (c *ckptd) Process() int                 { return 0 }
func (c *ckptd) Close() error                 { return c.store.Close() }
