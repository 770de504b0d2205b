package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// Generations and the deletion of namespaces, docs/format.md §13.

// lifeBits is the number of bits of a namespace's generation that hold the number of its life.
const lifeBits = 32

func generationOf(thread, life uint64) uint64 { return thread<<lifeBits | (life + 1) }

// threadOf returns the generation of the thread in that of a namespace.
func threadOf(generation uint64) uint64 {
	if generation>>lifeBits == 0 {
		return generation
	}
	return generation >> lifeBits
}

// Admits reports whether a request that names a generation is for one that has it. A request that
// names the generation of a thread is for all of its namespaces.
func Admits(named, has uint64) bool {
	if named>>lifeBits == 0 || has>>lifeBits == 0 {
		return threadOf(named) == threadOf(has)
	}
	return named == has
}

// namespaceLife is the life that a namespace has in a generation of its thread.
type namespaceLife struct{ thread, life uint64 }

// learnLife reads the namespace's life if it can be another than 0. A namespace that has not begun
// is read again each time. The caller holds th.mu, and the thread is loaded.
func (l *lineage) learnLife(ctx context.Context) error {
	rec, _ := l.th.record()
	if rec.Cuts == 0 || l.ref.Namespace == "" {
		return nil
	}
	if known := l.life.Load(); known != nil && known.thread == rec.Generation {
		return nil
	}
	n, err := l.namespace(ctx)
	if err == nil && n != nil {
		l.life.Store(&namespaceLife{rec.Generation, n.Life})
	}
	return err
}

// lifeNow returns the life of the namespace, or the one that it would begin now. The caller holds
// th.mu since learnLife.
func (l *lineage) lifeNow() uint64 {
	rec, _ := l.th.record()
	if known := l.life.Load(); known != nil && known.thread == rec.Generation {
		return known.life
	}
	return rec.Cuts
}

// generation returns the generation of the lineage. The caller holds th.mu since learnLife.
func (l *lineage) generation() uint64 {
	thread := l.th.generation()
	if l.ref.Namespace == "" {
		return thread
	}
	return generationOf(thread, l.lifeNow())
}

// namespace reads the record of the namespace; nil if there is none.
func (l *storedLineage) namespace(ctx context.Context) (*codec.Namespace, error) {
	key := l.NamespaceKey(l.NS)
	got, err := l.s.be.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("reading namespace: %w", err)
	}
	if got[0].Version == "" {
		return nil, nil
	}
	return unseal(l, space.Namespaces, key, got[0].Value)
}

// newestTime is the time of the newest record; 0 if there is none, or it is damaged.
func (l *storedLineage) newestTime(ctx context.Context) (ms int64, err error) {
	r := l.RecordsFrom(1, endSeq)
	r.Reverse, r.Limit = true, 4
	err = l.s.scan(ctx, r, func(e backend.Entry) error {
		r, err := l.openRecord(e.Key, e.Value)
		if err != nil || r.rec == nil {
			return err
		}
		ms = r.rec.Time
		return errStop
	})
	if errors.Is(err, errStop) || errors.Is(err, ErrCorrupt) {
		err = nil
	}
	return ms, err
}

// deleteNamespace deletes a namespace and returns its new generation. It deletes the whole thread
// if that holds nothing else.
func (s *Store) deleteNamespace(ctx context.Context, ref Ref) (uint64, error) {
	l, err := s.lockThread(ctx, ref, false)
	if err != nil {
		return 0, err
	}
	defer l.unlockThread()
	was, there := l.th.record()
	if !there {
		return 0, ErrNotFound
	}
	n, err := l.namespace(ctx)
	if err != nil {
		return 0, err
	}
	if n == nil {
		return 0, fmt.Errorf("%w: namespace %q", ErrNotFound, ref.Namespace)
	}
	names, err := l.th.namespaces(ctx)
	if err != nil {
		return 0, err
	}
	if len(names) == 2 { // the unnamed one and this one
		used, err := l.th.usesUnnamed(ctx)
		if err != nil {
			return 0, err
		}
		if !used {
			thread, err := l.th.remove(ctx)
			if thread == 0 {
				return 0, err
			}
			return generationOf(thread, 0), err
		}
	}
	last, err := l.newestTime(ctx)
	if err != nil {
		return 0, err
	}
	err = l.th.cut(ctx, []*codec.Namespace{n}, last)
	rec, _ := l.th.record()
	if rec.Cuts == was.Cuts {
		return 0, err
	}
	return generationOf(rec.Generation, rec.Cuts), err
}

// counted counts a deletion of namespaces in the thread record. last is the time of the newest
// checkpoint that goes.
func (t *thread) counted(rec codec.Thread, last int64) (codec.Thread, error) {
	if rec.Cuts >= codec.MaxCuts {
		return rec, fmt.Errorf("%w: namespaces of the thread were deleted too often", ErrExhausted)
	}
	now, err := t.u.s.time()
	if err != nil {
		return rec, err
	}
	rec.Cuts, rec.LastCut = rec.Cuts+1, max(now, last, rec.LastCut)
	return rec, nil
}

// cut deletes namespaces. They are deleted, some or all, once the first batch is durable; load
// completes a deletion that was interrupted after that. The epoch that the thread keeps is dropped:
// it holds the namespaces, too. The caller holds mu for writing.
func (t *thread) cut(ctx context.Context, dead []*codec.Namespace, last int64) error {
	if err := t.dropKept(ctx); err != nil {
		return err
	}
	rec, _ := t.record()
	rec, err := t.counted(rec, last)
	if err != nil {
		return err
	}
	rec.Cutting = true
	muts := make([]backend.Mut, 0, len(dead))
	for _, n := range dead {
		gone := *n
		gone.Deleted = true
		mut, err := sealMut(t, space.Namespaces, t.NamespaceKey(t.Namespace(n.Name).NS), &gone, space.Once)
		if err != nil {
			return err
		}
		muts = append(muts, mut)
	}
	first := min(len(muts), backend.MaxBatchKeys/2) // with the thread record and its activity entry
	if err := t.replace(ctx, rec, muts[:first]...); err != nil {
		t.forgetNamespaces(dead)
		return err
	}
	err = t.u.s.commitAll(ctx, muts[first:])
	t.forgetNamespaces(dead)
	if err != nil {
		return err
	}
	if err := t.finishCut(ctx); err != nil {
		return fmt.Errorf("removing records of deleted namespaces: %w", err)
	}
	return nil
}

// forgetNamespaces drops deleted namespaces from memory. The caller holds mu for writing.
func (t *thread) forgetNamespaces(dead []*codec.Namespace) {
	for _, n := range dead {
		t.u.s.forgetLineage(t.lineage(n.Name).ref)
	}
}

func (s *Store) forgetLineage(ref Ref) {
	l := s.refInMemory(ref)
	if l == nil {
		return
	}
	defer s.unrefLineage(l)
	l.mu.lock(context.Background()) // no operation on the thread is under way, so it is free
	defer l.mu.unlock()
	l.forget()
	l.life.Store(nil)
}

// finishCut removes everything stored of deleted namespaces, their index entries first, as purge
// does for a thread. The caller holds mu for writing.
func (t *thread) finishCut(ctx context.Context) error {
	rec, _ := t.record()
	if !rec.Cutting {
		return nil
	}
	ctx = backend.MakingRoom(ctx)
	dead, err := t.deletedNamespaces(ctx)
	if err != nil {
		return err
	}
	out := &batcher{s: t.u.s}
	for _, name := range dead {
		v, err := t.lineage(name).inventory(ctx)
		if err == nil {
			err = v.unindex(ctx, out)
		}
		if err != nil && !errors.Is(err, ErrCorrupt) { // GC finds the entries of damaged ones
			return err
		}
	}
	if err := out.flush(ctx); err != nil {
		return err
	}
	for _, name := range dead {
		if err := t.lineage(name).removeAll(ctx, out); err != nil {
			return err
		}
	}
	if err := out.flush(ctx); err != nil {
		return err
	}
	rec.Cutting = false
	return t.replace(ctx, rec)
}

// loadWhole is load and, if a deletion of namespaces is unfinished, its completion. Another store on
// the same backend can have completed it. The caller holds mu for writing.
func (t *thread) loadWhole(ctx context.Context) (err error) {
	for range 2 {
		if err = t.load(ctx); err == nil {
			err = t.finishCut(ctx)
		}
		if !errors.Is(err, backend.ErrConflict) {
			break
		}
	}
	return err
}

// deletedNamespaces lists the namespaces that are deleted but still have a record. It skips damaged
// records.
func (t *storedThread) deletedNamespaces(ctx context.Context) (names []string, err error) {
	err = t.u.s.scan(ctx, t.Namespaces(), func(e backend.Entry) error {
		n, err := t.openNamespace(e)
		if errors.Is(err, ErrCorrupt) {
			return nil
		}
		if err == nil && n.Deleted {
			names = append(names, n.Name)
		}
		return err
	})
	return names, err
}

// removeAll deletes all keys of the lineage, the record of the namespace last.
func (l *storedLineage) removeAll(ctx context.Context, out *batcher) error {
	for _, r := range []backend.Range{l.Records(), l.IDs(), l.Branches(), l.Writes()} {
		r.KeysOnly = true
		err := l.s.scan(ctx, r, func(e backend.Entry) error {
			return out.add(ctx, backend.Mut{Key: e.Key, Delete: true})
		})
		if err != nil {
			return err
		}
	}
	return out.add(ctx, backend.Mut{Key: l.NamespaceKey(l.NS), Delete: true})
}

// checkGeneration checks the generation that a request names; 0 names none.
func (l *lineage) checkGeneration(what string, named uint64) error {
	has := l.generation()
	if named == 0 || Admits(named, has) {
		return nil
	}
	of := "thread"
	if threadOf(named) == threadOf(has) {
		of = "namespace"
	}
	return fmt.Errorf("%w: the %s for generation %d, but the %s has %d", ErrGeneration, what, named, of, has)
}

// calledFrom is the id of the checkpoint that a namespace hangs on, pending saves included.
type calledFrom struct {
	id    string
	known bool
}

// checkCalled checks that the namespace hangs on no other checkpoint than id; "" is any. The caller
// holds l.mu.
func (l *lineage) checkCalled(ctx context.Context, id string) error {
	if id == "" {
		return nil
	}
	if !l.called.known {
		n, err := l.namespace(ctx)
		if err != nil {
			return err
		}
		l.called.known = true
		if n != nil {
			l.called.id = n.CalledFrom
		}
	}
	if had := l.called.id; had != "" && had != id {
		return fmt.Errorf("%w: the namespace was called from checkpoint %q, not from %q", ErrInvalid, had, id)
	}
	return nil
}

// addNamespace adds the record of the namespace to the first save in it, and to the first that
// names the checkpoint that the namespace hangs on. The caller holds l.mu.
func (l *lineage) addNamespace(p *pending, called string) error {
	if l.ref.Namespace == "" || p.seq > 1 && (called == "" || called == l.called.id) {
		return nil
	}
	p.calledFrom = called
	return l.putNamespace(p, called)
}

func (l *lineage) putNamespace(p *pending, called string) error {
	n := &codec.Namespace{Name: l.ref.Namespace, Life: l.lifeNow(), CalledFrom: called}
	return addSealed(l, p, space.Namespaces, l.NamespaceKey(l.NS), n, space.Once)
}
