package torture

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
)

const tenant = "acme"

func refOf(name string) engine.Ref {
	return engine.Ref{Tenant: tenant, User: "user-" + name[len(name)-1:], Thread: name}
}

// team is the writers of a process, each with a thread of its own.
type team struct {
	s      *engine.Store
	cycle  int          // in the ids that it gives
	upkeep sync.RWMutex // held for writing by a collection without grace
	tell   func(line) error
	rare   bool // compactions and erasures are left out
}

// writer does random operations on one thread.
type writer struct {
	*team
	rnd    *rand.Rand
	name   string
	n      int
	now    thread
	newest string // the id saved last, "" for none
	state  map[string][]byte
}

func (t *team) writer(seed uint64, i int, found map[string]thread) *writer {
	w := &writer{team: t, rnd: rand.New(rand.NewPCG(seed, uint64(i))), name: fmt.Sprintf("thread-%02d", i)}
	w.now = found[w.name].clone()
	return w
}

// step does one operation, tells that it begins, and that it was acknowledged.
func (w *writer) step(ctx context.Context) error {
	w.n++
	switch k := w.rnd.IntN(100); {
	case len(w.now.States) == 0 || k < 80:
		return w.save(ctx)
	case k < 86:
		return w.fork(ctx)
	case k < 87:
		return w.delete(ctx)
	case k < 95 || w.rare:
		return w.prune(ctx, false)
	case k < 96:
		return w.prune(ctx, true)
	case k < 98:
		return w.collect(ctx, false)
	case k < 99:
		return w.collect(ctx, true)
	}
	return w.save(ctx)
}

func (w *writer) thread() *engine.Thread { return w.s.Thread(refOf(w.name)) }

func (w *writer) anyID() string {
	ids := slices.Sorted(maps.Keys(w.now.States))
	return ids[w.rnd.IntN(len(ids))]
}

func (w *writer) begin(o op) error {
	o.Thread = w.name
	if err := w.tell(line{Begin: &o}); err != nil {
		return err
	}
	w.now = w.now.after(o)
	return nil
}

func (w *writer) end(err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	return w.tell(line{Acked: w.name})
}

// save saves behind the newest checkpoint, or another one, on a branch or none: the whole state, or
// a part of it.
func (w *writer) save(ctx context.Context) error {
	w.upkeep.RLock()
	defer w.upkeep.RUnlock()
	d := engine.Draft{ID: fmt.Sprintf("%s-%d-%d", w.name, w.cycle, w.n), Step: int64(w.n), Parent: w.newest}
	if len(w.now.States) == 0 {
		d.Root, w.state = true, nil
	} else if _, ok := w.now.States[w.newest]; !ok || w.rnd.IntN(8) == 0 {
		d.Parent, w.state = w.anyID(), nil
	}
	if w.rnd.IntN(5) == 0 {
		d.Branch = fmt.Sprint("branch-", w.rnd.IntN(3))
	}
	w.draw(&d)
	if err := w.begin(op{Kind: "save", ID: d.ID, Branch: d.Branch, Sum: sumOf(w.state)}); err != nil {
		return err
	}
	w.newest = d.ID
	_, err := w.thread().Save(ctx, d)
	return w.end(err)
}

// draw makes the state of a draft.
func (w *writer) draw(d *engine.Draft) {
	if w.state == nil || w.rnd.IntN(20) == 0 {
		w.state = map[string][]byte{"notes": text(w.rnd, 50)}
	} else {
		w.state = maps.Clone(w.state)
	}
	log := w.state["log"]
	at := w.rnd.IntN(len(log) + 1)
	w.state["log"] = slices.Concat(log[:at], text(w.rnd, 20+w.rnd.IntN(400)), log[at:])
	if w.rnd.IntN(30) == 0 {
		w.state["file"] = noise(w.rnd, 1+w.rnd.IntN(100<<10))
	}
	for _, name := range slices.Sorted(maps.Keys(w.state)) {
		d.Channels = append(d.Channels, engine.Change{Name: name, Data: w.state[name]})
	}
}

func (w *writer) fork(ctx context.Context) error {
	o := op{Kind: "fork", ID: w.anyID(), Branch: fmt.Sprintf("fork-%d-%d", w.cycle, w.n)}
	if err := w.begin(o); err != nil {
		return err
	}
	_, err := w.thread().Fork(ctx, engine.At(o.ID), o.Branch)
	return w.end(err)
}

func (w *writer) delete(ctx context.Context) error {
	if err := w.begin(op{Kind: "delete"}); err != nil {
		return err
	}
	w.newest = ""
	_, err := w.thread().Delete(ctx)
	return w.end(err)
}

// prune asks first for the checkpoints that it will remove, since a kill leaves no time to.
func (w *writer) prune(ctx context.Context, erase bool) error {
	w.upkeep.RLock()
	defer w.upkeep.RUnlock()
	o := upkeep.PruneOptions{KeepLast: 1 + w.rnd.IntN(6), Erase: erase, DryRun: true}
	rep, err := w.thread().Upkeep().Prune(ctx, o)
	if err != nil {
		return w.end(err)
	}
	p := op{Kind: "prune"}
	if erase {
		p.Kind = "erase"
	}
	for _, item := range rep.Removed {
		p.Gone = append(p.Gone, item.ID)
	}
	if err := w.begin(p); err != nil {
		return err
	}
	o.DryRun = false
	_, err = w.thread().Upkeep().Prune(ctx, o)
	return w.end(err)
}

// collect changes nothing that anybody sees.
func (w *writer) collect(ctx context.Context, compact bool) error {
	if !w.upkeep.TryLock() {
		return nil
	}
	defer w.upkeep.Unlock()
	_, err := w.s.Upkeep().GC(ctx, tenant, upkeep.GCOptions{Grace: -1, Compact: compact})
	if err != nil {
		return fmt.Errorf("collecting garbage: %w", err)
	}
	return nil
}

// contents reads all that a store holds, every byte of every state.
func contents(ctx context.Context, s *engine.Store) (map[string]thread, error) {
	all := map[string]thread{}
	for user, err := range s.Upkeep().Users(ctx, tenant) {
		if err != nil {
			return nil, err
		}
		for info, err := range s.User(tenant, user).Threads(ctx, engine.ThreadOptions{}) {
			if err != nil {
				return nil, err
			}
			if all[info.Ref.Thread], err = read(ctx, s.Thread(info.Ref)); err != nil {
				return nil, fmt.Errorf("%s: %w", info.Ref.Thread, err)
			}
		}
	}
	return all, nil
}

func read(ctx context.Context, th *engine.Thread) (t thread, err error) {
	t = thread{map[string]string{}, map[string]string{}}
	for cp, err := range th.History(ctx, engine.HistoryOptions{Data: true}) {
		if err != nil {
			return t, err
		}
		state := map[string][]byte{}
		for _, ch := range cp.Channels {
			state[ch.Name] = ch.Data
		}
		t.States[cp.ID] = sumOf(state)
	}
	branches, err := th.Branches(ctx)
	if errors.Is(err, engine.ErrNotFound) {
		err = nil
	}
	for _, b := range branches {
		t.Branches[b.Name] = b.HeadID
	}
	return t, err
}

func sumOf(state map[string][]byte) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(state)) {
		fmt.Fprintf(h, "%s %d ", name, len(state[name]))
		h.Write(state[name])
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:12])
}

func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// text packs as text does.
func text(r *rand.Rand, n int) []byte {
	words := []string{"the ", "agent ", "calls ", "a ", "tool ", "and ", "waits ", "for ", "what ", "it ", "says ", "then ", "goes ", "on "}
	var b []byte
	for len(b) < n {
		if b = append(b, words[r.IntN(len(words))]...); r.IntN(5) == 0 {
			b = fmt.Appendf(b, "%x ", r.Uint32())
		}
	}
	return b[:n]
}
