package engine

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/internal/contain"
)

// ListByIDOptions select checkpoints of a user. The zero value selects all, headers only.
type ListByIDOptions struct {
	Thread    string  // only this thread
	Namespace *string // only this namespace; nil: all
	ID        string  // only checkpoints with this id
	Before    string  // only checkpoints with smaller ids, bytewise; it can be any text
	Limit     int     // at most this many; 0: no limit

	// After, with Before, continues a list after the checkpoint with the id Before in this lineage:
	// the list goes on with that id in lineages that come later in the order of Ref.Compare.
	After *Ref

	// Meta is a JSON object: only checkpoints whose metadata contains it, as with PostgreSQL's
	// jsonb @>. If there are load hooks, the metadata is their output.
	Meta []byte
	Filter

	// Data reads the channels too: those of Channels, or all if that is nil.
	Data     bool
	Channels []string
	Writes   bool // reads the pending writes, too

	// Visible reports whether a thread is listed; nil means that all are. Other threads are not
	// read.
	Visible func(thread string) bool
}

// MaxMetaFilter is the maximum size in bytes of ListByIDOptions.Meta.
const MaxMetaFilter = 64 << 10

// Entry is a checkpoint in a list, with its pending writes if the list asked for them.
type Entry struct {
	Checkpoint *Checkpoint
	Writes     []PendingWrite
}

// ListByID yields checkpoints of the user's threads, the greatest id first, bytewise, and those
// with the same id in the order of Ref.Compare. For a user or thread that does not exist it yields
// none. Checkpoints deleted or pruned in the meantime are left out, and those saved in the meantime
// can be. After an error it ends.
//
// It begins with a look at each lineage in scope. UUIDs that callers chose as ids are stored in
// order, so after that only the checkpoints are read that are yielded or excluded by Meta or
// Filter. Of ids that the engine made, it reads the records of the time in question. All other ids
// of a lineage are read first. An entry is in memory until the next one is asked for.
func (u *User) ListByID(ctx context.Context, o ListByIDOptions) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		m := newListing(u.s, o)
		defer m.close()
		err := m.collect(ctx, u)
		if err == nil {
			err = m.yieldAll(ctx, yield)
		}
		if err != nil && err != errStop {
			yield(nil, fmt.Errorf("listing by id: %w", err))
		}
	}
}

// historyByID is History in order of id.
func (t *Thread) historyByID(ctx context.Context, o *HistoryOptions, yield func(*Checkpoint, error) bool) error {
	if o.From != "" || o.Branch != "" {
		return fmt.Errorf("%w: ByID cannot be combined with From or Branch", ErrInvalid)
	}
	m := newListing(t.s, ListByIDOptions{Before: o.Before, Limit: o.Limit, Filter: o.Filter, Data: o.Data, Channels: o.Channels})
	m.export, m.oneThread = o.Export, true
	defer m.close()
	err := t.s.withLineage(ctx, t.ref, func(l *lineage) error {
		if _, there := l.th.record(); !there {
			return ErrNotFound
		}
		return m.add(ctx, l)
	})
	if err != nil {
		return err
	}
	return m.yieldAll(ctx, func(e *Entry, _ error) bool { return yield(e.Checkpoint, nil) })
}

// listing is a list by id under way.
type listing struct {
	s         *Store
	o         ListByIDOptions
	meta      *contain.Object // nil: no condition
	export    bool
	oneThread bool // it fails if the thread is deleted in the meantime

	lines  []*idLine   // those with more checkpoints: a heap, ordered by the next id
	room   reservation // for lines
	recent []*idLine   // those with a restorer, the latest last
	left   int
}

const (
	// bytesPerLine is the memory of an idLine with the first of its ids, without its names.
	bytesPerLine = 512
	// recentLines bounds the lineages of a listing that remember records: neighbours share most of
	// them.
	recentLines = 4
)

func newListing(s *Store, o ListByIDOptions) *listing { return &listing{s: s, o: o, left: o.Limit} }

func (m *listing) close() {
	for _, c := range m.recent {
		c.forget()
	}
	for _, c := range m.lines {
		c.room.release()
	}
	m.room.release()
}

// collect adds the lineages in scope.
func (m *listing) collect(ctx context.Context, u *User) error {
	if len(m.o.Meta) > 0 {
		var err error
		if len(m.o.Meta) > MaxMetaFilter {
			return &LimitError{"filter on metadata", int64(len(m.o.Meta)), MaxMetaFilter}
		}
		if m.meta, err = contain.Parse(m.o.Meta); err != nil {
			return fmt.Errorf("%w: the filter on metadata is %w", ErrInvalid, err)
		}
	}
	ref := Ref{Tenant: u.name.tenant, User: u.name.name, Thread: cmp.Or(m.o.Thread, "-")}
	if m.o.Namespace != nil {
		ref.Namespace = *m.o.Namespace
	}
	if err := ref.check(); err != nil {
		return err
	}
	k, err := u.keys(ctx, false)
	if err != nil {
		return ignoring(ErrNotFound, err)
	}
	if m.o.Thread != "" {
		return m.addThread(ctx, ref)
	}
	return k.eachThread(ctx, func(_ crypto.Token, rec *codec.Thread) error {
		if !u.s.live(rec) {
			return nil
		}
		ref.Thread = rec.ID
		return m.addThread(ctx, ref)
	})
}

// addThread adds lineages of a thread: that of the ref if a namespace is asked for, else all.
func (m *listing) addThread(ctx context.Context, ref Ref) error {
	if m.o.Visible != nil && !m.o.Visible(ref.Thread) {
		return nil
	}
	if m.o.Namespace != nil {
		return m.s.withLineage(ctx, ref, func(l *lineage) error { return m.add(ctx, l) })
	}
	return m.s.eachLineage(ctx, ref, func(l *lineage) error { return m.add(ctx, l) })
}

// add adds a lineage if it has checkpoints to list.
func (m *listing) add(ctx context.Context, l *lineage) error {
	if _, there := l.th.record(); !there {
		return nil
	}
	c := &idLine{ref: l.ref, generation: l.generation()}
	if err := c.begin(ctx, l, &m.o); err != nil || c.done() {
		c.room.release()
		return err
	}
	if err := m.room.reserve(ctx, int64(bytesPerLine+len(l.ref.Thread)+len(l.ref.Namespace))); err != nil {
		c.room.release()
		return err
	}
	heap.Push(m, c)
	return nil
}

// Len, Less, Swap, Push and Pop implement heap.Interface for lines.
func (m *listing) Len() int           { return len(m.lines) }
func (m *listing) Less(i, j int) bool { return m.lines[i].before(m.lines[j]) }
func (m *listing) Swap(i, j int)      { m.lines[i], m.lines[j] = m.lines[j], m.lines[i] }
func (m *listing) Push(c any)         { m.lines = append(m.lines, c.(*idLine)) }

func (m *listing) Pop() any {
	last := len(m.lines) - 1
	c := m.lines[last]
	m.lines[last], m.lines = nil, m.lines[:last]
	return c
}

// yieldAll yields the checkpoints. It returns errStop if the caller wants no more.
func (m *listing) yieldAll(ctx context.Context, yield func(*Entry, error) bool) error {
	for len(m.lines) > 0 {
		c := m.lines[0]
		if c.done() {
			heap.Pop(m)
			c.forget()
			c.room.release()
			continue
		}
		var err error
		if id, exact := c.next(); exact {
			err = m.yieldOne(ctx, c, id, yield)
		} else {
			err = m.withLine(ctx, c, c.readIDs)
		}
		if err != nil {
			return err
		}
		heap.Fix(m, 0)
	}
	return nil
}

// withLine calls fn with a lineage of the list, unless it was deleted in the meantime.
func (m *listing) withLine(ctx context.Context, c *idLine, fn func(context.Context, *lineage) error) error {
	read := func(l *lineage) error {
		if _, there := l.th.record(); there && l.generation() == c.generation {
			return fn(ctx, l)
		}
		if m.oneThread {
			return ErrGeneration
		}
		c.end()
		return nil
	}
	err := m.s.withLineage(ctx, c.ref, read)
	if err == errOvertaken {
		err = m.s.withExclusive(ctx, c.ref, read)
	}
	return err
}

// yieldOne yields the checkpoint with the next id of a lineage, if it still exists and matches.
func (m *listing) yieldOne(ctx context.Context, c *idLine, id string, yield func(*Entry, error) bool) error {
	paid, entryCtx := withTab(ctx)
	defer paid.close()
	e, err := m.read(entryCtx, c, id)
	if err == nil {
		err = c.payForRecords(ctx)
	}
	if err != nil || e == nil {
		return err
	}
	if !yield(e, nil) {
		return errStop
	}
	if m.left--; m.left == 0 {
		return errStop
	}
	return nil
}

// read reads the next checkpoint of a lineage, which has an id. It is nil if it does not match.
func (m *listing) read(ctx context.Context, c *idLine, id string) (e *Entry, err error) {
	chain, err := m.s.hookChain(hook.Load, c.ref.Tenant, c.ref.Thread)
	if err != nil {
		return nil, err
	}
	seq, stored := c.take(id), m.meta
	if chain != nil { // their output counts
		stored = nil
	}
	m.use(c)
	err = m.withLine(ctx, c, func(ctx context.Context, l *lineage) (err error) {
		e, err = m.readAt(ctx, c.restorerOf(l), l, id, seq, stored)
		return ignoring(ErrNotFound, err)
	})
	if err != nil || e == nil {
		return nil, err
	}
	cp := e.Checkpoint
	if err = m.s.applyLoadHooks(ctx, cp, m.export); err == nil {
		e.Writes, err = m.s.Thread(cp.Ref).runWriteLoadHooks(ctx, cp.ID, e.Writes, m.export)
	}
	matches := true
	if err == nil && chain != nil {
		matches, err = hasMeta(ctx, m.meta, id, cp.Meta)
	}
	if err != nil || !matches {
		return nil, err
	}
	return e, nil
}

// readAt reads the checkpoint with an id, which was found at seq, if it matches the options and its
// metadata contains meta.
func (m *listing) readAt(ctx context.Context, rs *restorer, l *lineage, id string, seq uint64, meta *contain.Object) (*Entry, error) {
	defer rs.reserved.release()
	r, err := l.currentAt(ctx, seq)
	if errors.Is(err, ErrNotFound) { // removed, or replaced and then removed: the id has an entry now
		r, err = l.find(ctx, At(id))
	}
	if err != nil {
		return nil, err
	}
	if l.recordID(r) != id {
		return nil, corrupt(space.Describe(l.IDKey(id)), "names another checkpoint", nil)
	}
	if !m.o.admits(r.rec) {
		return nil, nil
	}
	attrs, err := rs.meta(ctx, r)
	if err != nil || !m.o.describes(attrs) {
		return nil, err
	}
	if matches, err := hasMeta(ctx, meta, id, attrs.Meta); err != nil || !matches {
		return nil, err
	}
	var want wanting
	if m.o.Data {
		want = (&LoadOptions{Channels: m.o.Channels}).want
	}
	cp, err := rs.checkpoint(ctx, r, want)
	if err == nil {
		err = reserve(ctx, cp.bytesOfHeader()+cp.bytesOfData())
	}
	if err != nil {
		return nil, err
	}
	e := &Entry{Checkpoint: cp}
	if m.o.Writes {
		e.Writes, err = l.readWrites(ctx, id)
	}
	return e, err
}

// hasMeta reports whether the metadata of a checkpoint contains an object, if that is not nil.
func hasMeta(ctx context.Context, object *contain.Object, id string, meta []byte) (bool, error) {
	if object == nil {
		return true, nil
	}
	var parsed reservation
	if err := parsed.reserve(ctx, contain.Memory(meta)); err != nil {
		return false, err
	}
	defer parsed.release()
	yes, err := object.In(meta)
	if err != nil {
		err = fmt.Errorf("%w: filtering the metadata of checkpoint %q: %w: use a smaller filter", ErrInvalid, id, err)
	}
	return yes, err
}

// use makes a lineage the latest of the recent ones.
func (m *listing) use(c *idLine) {
	if i := slices.Index(m.recent, c); i >= 0 {
		m.recent = slices.Delete(m.recent, i, i+1)
	}
	if len(m.recent) == recentLines {
		m.recent[0].forget()
		m.recent = slices.Delete(m.recent, 0, 1)
	}
	m.recent = append(m.recent, c)
}
