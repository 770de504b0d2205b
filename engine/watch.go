package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/crypto"
)

// Event reports a checkpoint that became durable: a new one or a replacement.
type Event struct {
	Ref        Ref
	Generation uint64
	ID         string
	Seq        uint64
	Time       int64 // Unix milliseconds
	Step       int64
	Status     string
	Before     string // status of the parent; "" if there is none or it is not known any more

	// Cursor resumes the watch after this event.
	Cursor Cursor

	began   int64 // when its save began, for the hub,
	counted bool  // which counts it
}

// Changed reports whether the status differs from that of the parent.
func (e *Event) Changed() bool { return e.Status != e.Before }

// Cursor is a position in a watch, valid for any later watch of the same scope on the same store.
// It is opaque; it contains a time and pseudonyms of a few lineages, but no ids. The zero value is
// now.
type Cursor string

// CursorAt is the position before all checkpoints saved at that time or later.
func CursorAt(at time.Time) Cursor { return cursorState{low: max(0, at.UnixMilli())}.cursor() }

// WatchScope selects what to watch: a tenant, a user of it, or a thread of that user with all its
// namespaces.
type WatchScope struct {
	Tenant, User, Thread string

	// Began asks for a first event with only a Cursor, as soon as nothing saved from then on can be
	// missed, so that the caller can announce that the watch has begun.
	Began bool
}

func (w *WatchScope) check() error {
	if w.User == "" && w.Thread != "" {
		return fmt.Errorf("%w: a thread needs a user", ErrInvalid)
	}
	return errors.Join(checkName("tenant", w.Tenant, false), checkName("user", w.User, true), checkName("thread", w.Thread, true))
}

func (w *WatchScope) holds(r *Ref) bool {
	return r.Tenant == w.Tenant && (w.User == "" || r.User == w.User) && (w.Thread == "" || r.Thread == w.Thread)
}

// Watch yields an event for every checkpoint in scope that becomes durable after the cursor, and
// waits for more, until ctx ends (its error comes last) or the store is closed (ErrClosed). It
// never delays a save. It runs in the caller's goroutine and holds no lock while the caller handles
// an event.
//
// The events of a lineage come in the order of seq, those of several lineages roughly in the order
// of time. Within one watch no event comes twice. A watch resumed from the cursor of the last event
// misses nothing, even after a crash. It may repeat events of the last milliseconds before that
// cursor, if more than eight lineages were saved to in them. This relies on a clock that does not
// go back.
//
// To find checkpoints saved between the cursor and now, Watch reads the newest checkpoint of every
// thread in scope. So resuming costs a read for each thread, and so does falling thousands of
// events behind. Checkpoints pruned, replaced or deleted before the watch reaches them are left
// out. Deleting or copying a thread and moving a branch cause no event; saves to a deleted thread
// have the next Generation.
func (s *Store) Watch(ctx context.Context, scope WatchScope, from Cursor) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		w := &watcher{s: s, scope: scope, seen: map[lineageDigest]lastSeen{}}
		err := w.run(ctx, from, yield)
		switch {
		case err == nil: // the caller has seen enough
			return
		case ctx.Err() != nil:
			err = ctx.Err()
		case s.hub.closed() || errors.Is(err, backend.ErrClosed):
			err = ErrClosed
		}
		yield(Event{}, fmt.Errorf("watching: %w", err))
	}
}

func (h *hub) closed() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

// cursorState is the content of a cursor: the watch has seen all events with a time below low,
// those at low of the lineages before upto, and those of some lineages up to a seq.
type cursorState struct {
	low  int64
	upto lineageDigest
	seen []lastSeen
}

// lineageDigest names a lineage in one generation of its thread.
type lineageDigest [8]byte

// lastSeen is the newest event seen of a lineage.
type lastSeen struct {
	of   lineageDigest
	seq  uint64
	time int64 // math.MaxInt64 if not known
}

const (
	cursorVersion = 1
	cursorSeen    = 8
)

func (m cursorState) cursor() Cursor {
	b := binary.AppendUvarint([]byte{cursorVersion}, uint64(m.low))
	b = append(b, m.upto[:]...)
	for _, l := range m.seen {
		if l.time >= m.low {
			b = binary.AppendUvarint(append(b, l.of[:]...), l.seq)
		}
	}
	return Cursor(base64.RawURLEncoding.EncodeToString(b))
}

func (c Cursor) parse() (m cursorState, err error) {
	bad := fmt.Errorf("%w: not a cursor", ErrInvalid)
	b, err := base64.RawURLEncoding.Strict().DecodeString(string(c))
	if err != nil || len(b) == 0 || b[0] != cursorVersion {
		return m, bad
	}
	low, n := binary.Uvarint(b[1:])
	if n <= 0 || low > math.MaxInt64 || len(b) < 1+n+len(m.upto) {
		return m, bad
	}
	m.low, m.upto, b = int64(low), lineageDigest(b[1+n:]), b[1+n+len(m.upto):]
	for len(b) > 0 {
		l := lastSeen{time: math.MaxInt64}
		if len(b) <= len(l.of) || len(m.seen) == cursorSeen {
			return m, bad
		}
		copy(l.of[:], b)
		if l.seq, n = binary.Uvarint(b[len(l.of):]); n <= 0 {
			return m, bad
		}
		m.seen, b = append(m.seen, l), b[len(l.of)+n:]
	}
	return m, nil
}

// watcher is a watch under way.
type watcher struct {
	s           *Store
	scope       WatchScope
	at          uint64 // number of the next event to read from the hub
	cursorState        // the lineages in the cursor, the most recently seen last
	seen        map[lineageDigest]lastSeen
	seenLimit   int // size of seen at which it is cleaned up
}

// errBehind means that the hub has dropped events the watcher has not read.
var errBehind = errors.New("watcher is behind")

// errEnough means that the caller has stopped the iteration.
var errEnough = errors.New("enough")

func (w *watcher) run(ctx context.Context, from Cursor, yield func(Event, error) bool) error {
	if err := w.scope.check(); err != nil {
		return err
	}
	if from != "" {
		m, err := from.parse()
		if err != nil {
			return err
		}
		w.cursorState = m
		for _, l := range m.seen {
			w.seen[l.of] = l
		}
	}
	w.s.hub.enter()
	defer w.s.hub.leave()
	if err := w.s.waitPending(ctx); err != nil {
		return err
	}
	for {
		next, low := w.s.hub.join(w.s.now)
		w.at = next
		if w.scope.Began {
			w.scope.Began = false
			if from == "" {
				w.low = low
			}
			if !yield(Event{Cursor: w.cursor()}, nil) {
				return nil
			}
		}
		if from != "" {
			if err := w.catchUp(ctx, low, yield); err != nil {
				return stopped(err)
			}
		}
		w.low, w.upto, from = low, lineageDigest{}, "on"
		if err := w.live(ctx, yield); err != errBehind {
			return stopped(err)
		}
	}
}

func stopped(err error) error {
	if err == errEnough {
		return nil
	}
	return err
}

// watchPage is how many events are read from the hub at a time: few, since most watches are idle.
const watchPage = 16

// live yields events from the hub.
func (w *watcher) live(ctx context.Context, yield func(Event, error) bool) error {
	page := make([]ringEvent, watchPage)
	waiter := newWaiter(w.scope)
	defer w.s.hub.unwait(waiter)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if w.s.hub.closed() {
			return ErrClosed
		}
		n, next, ok := w.s.hub.read(waiter, w.at, page)
		if !ok {
			return errBehind
		}
		w.at = next
		for i := range page[:n] {
			p := &page[i]
			if !w.deliver(&p.Event, p.low, lineageDigest{}, yield) {
				return errEnough
			}
		}
		clear(page[:n])
		if n > 0 {
			continue
		}
		select {
		case <-waiter.wake:
			w.at = waiter.at
		case <-ctx.Done():
		case <-w.s.hub.done:
		}
	}
}

// deliver yields an event that was not seen before. All later events have a time of at least low
// or, at low, are in upto or a later lineage.
func (w *watcher) deliver(e *Event, low int64, upto lineageDigest, yield func(Event, error) bool) bool {
	of := w.s.digestOf(e.Ref, e.Generation)
	if e.Seq <= w.seen[of].seq {
		return true
	}
	l := lastSeen{of, e.Seq, e.Time}
	w.seen[of], w.low, w.upto = l, low, upto
	w.cursorState.seen = append(slices.DeleteFunc(w.cursorState.seen, func(l lastSeen) bool { return l.of == of || l.time < low }), l)
	if n := len(w.cursorState.seen); n > cursorSeen {
		w.cursorState.seen = slices.Delete(w.cursorState.seen, 0, n-cursorSeen)
	}
	if len(w.seen) > w.seenLimit {
		for of, l := range w.seen {
			if l.time < low {
				delete(w.seen, of)
			}
		}
		w.seenLimit = max(1024, 2*len(w.seen))
	}
	e.Cursor = w.cursor()
	return yield(*e, nil)
}

// digestOf is a pseudonym of a lineage. In the first life of a namespace it is made of the
// generation of the thread: cursors of earlier versions hold these.
func (s *Store) digestOf(ref Ref, generation uint64) (p lineageDigest) {
	if thread := threadOf(generation); generation == generationOf(thread, 0) {
		generation = thread
	}
	tok := s.keys.IndexToken(ref.Tenant, "watch", fmt.Sprintf("%d %q %q %q", generation, ref.User, ref.Thread, ref.Namespace))
	copy(p[:], tok[:])
	return p
}

// catchUp finds the unseen checkpoints in storage, and yields them in the order of time and
// lineage. Saves in the meantime are delivered after it, with a time of bound or later.
func (w *watcher) catchUp(ctx context.Context, bound int64, yield func(Event, error) bool) error {
	var b backlog
	err := w.eachThread(ctx, func(ref Ref) error {
		return w.s.eachLineage(ctx, ref, func(l *lineage) error { return w.collect(ctx, l, &b) })
	})
	if err != nil {
		return err
	}
	slices.SortFunc(b.found, func(p, q position) int {
		of, other := b.digestOf(p), b.digestOf(q)
		return cmp.Or(cmp.Compare(p.time, q.time), bytes.Compare(of[:], other[:]), cmp.Compare(p.seq, q.seq))
	})
	for _, p := range b.found {
		if w.s.hub.closed() {
			return ErrClosed
		}
		e, err := w.event(ctx, b.refs[p.ref], p)
		if err != nil {
			return err
		}
		low, upto := bound, lineageDigest{}
		if p.time < bound { // then no more events can have that time
			low, upto = p.time, b.digestOf(p)
		}
		if e != nil && !w.deliver(e, low, upto, yield) {
			return errEnough
		}
	}
	return nil
}

// backlog is the list of checkpoints that a watcher has to catch up with.
type backlog struct {
	matches
	digests []lineageDigest // of refs
}

func (b *backlog) digestOf(p position) lineageDigest { return b.digests[p.ref] }

// eachThread calls fn with every thread in scope that may have unseen checkpoints.
func (w *watcher) eachThread(ctx context.Context, fn func(Ref) error) error {
	// A thread whose entry moves is listed twice. Its newer checkpoints are delivered as they are
	// saved.
	seen := map[crypto.Token]bool{}
	again := func(thread crypto.Token) bool {
		was := seen[thread]
		seen[thread] = true
		return was
	}
	user := func(name string, _ crypto.Token) error {
		if w.scope.Thread != "" {
			err := fn(Ref{Tenant: w.scope.Tenant, User: name, Thread: w.scope.Thread})
			if errors.Is(err, ErrNotFound) { // the user does not exist
				err = nil
			}
			return err
		}
		k, err := w.s.user(ctx, userName{w.scope.Tenant, name}, false)
		if err != nil {
			return ignoring(ErrNotFound, err)
		}
		clear(seen)
		return k.eachActive(ctx, w.low-activeFor+1, again, func(th activeThread) error {
			return fn(Ref{Tenant: w.scope.Tenant, User: name, Thread: th.id})
		})
	}
	if w.scope.User != "" {
		return user(w.scope.User, crypto.Token{})
	}
	return w.s.eachUser(ctx, w.scope.Tenant, nil, user)
}

// collect finds the unseen checkpoints of a lineage. Time never decreases along it.
func (w *watcher) collect(ctx context.Context, l *lineage, b *backlog) error {
	rec, stored, err := l.th.stored(ctx)
	if !stored || err != nil {
		return err
	}
	generation := l.generation()
	of := w.s.digestOf(l.ref, generation)
	low := w.low
	if bytes.Compare(of[:], w.upto[:]) < 0 {
		low++
	}
	b.refs, b.digests = append(b.refs, l.ref), append(b.digests, of)
	return l.eachRecord(ctx, w.seen[of].seq+1, endSeq, true, func(r *record) error {
		switch {
		case r.rec == nil:
			return nil
		case r.rec.Time < max(low, rec.Created): // older ones were copied from another thread
			return errStop
		case r.visible():
			b.found = append(b.found, position{r.rec.Time, r.seq, generation, len(b.refs) - 1})
		}
		return nil
	})
}

// event builds the event of a checkpoint; nil if that is gone.
func (w *watcher) event(ctx context.Context, ref Ref, p position) (e *Event, err error) {
	err = w.s.withLineage(ctx, ref, func(l *lineage) error {
		// An expired thread may have a save under way that extends its life.
		_, stored, err := l.th.stored(ctx)
		if err == nil && (!stored || l.generation() != p.generation) {
			err = ErrNotFound
		}
		if err != nil {
			return err
		}
		r, err := l.visible(ctx, p.seq)
		if err != nil {
			return err
		}
		e = &Event{Ref: ref, Generation: p.generation, ID: l.recordID(r), Seq: p.seq, Time: r.rec.Time, Step: r.rec.Step, Status: r.rec.Status}
		if r.rec.ParentDist == 0 {
			return nil
		}
		parent, err := l.readRecord(ctx, p.seq-r.rec.ParentDist)
		if err == nil && parent != nil && parent.rec != nil {
			e.Before = parent.rec.Status
		}
		return err
	})
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return e, err
}
