package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// hub passes durable events on to watchers. Without watchers it costs a save one atomic load. A
// save never waits for a watcher: the hub keeps the last events in a ring, and a watcher that falls
// behind finds the rest in storage.
//
// A watcher must be able to find unseen events again from its cursor, even after a restart. So the
// hub knows the times of the saves under way: later events never have a time below the low-water
// mark of an event.
type hub struct {
	watchers atomic.Int32

	mu      sync.Mutex
	running map[int64]int // saves under way that began while there were watchers, by millisecond
	ring    []ringEvent   // the events from first to next-1, at their number modulo the length
	size    uint64
	first   uint64
	next    uint64
	waiting map[WatchScope]map[*waiter]struct{} // those who have read all events, by scope

	done chan struct{} // closed with the store
}

// waiter is a waiting watcher. Events of other scopes neither wake it nor make it fall behind.
type waiter struct {
	scope WatchScope    // as a key: only the names
	wake  chan struct{} // has room for one
	at    uint64        // when woken: the number of the event
}

func newWaiter(scope WatchScope) *waiter {
	scope.Began = false
	return &waiter{scope: scope, wake: make(chan struct{}, 1)}
}

// ringEvent is an event and the low-water mark after it.
type ringEvent struct {
	Event
	low int64
}

// ringSize is how many events a watcher can be behind before it has to read storage.
const ringSize = 4096

func newHub() *hub {
	return &hub{running: map[int64]int{}, size: ringSize, waiting: map[WatchScope]map[*waiter]struct{}{}, done: make(chan struct{})}
}

func (h *hub) close() { close(h.done) }

// begin returns the time at which a save begins, in Unix milliseconds. If there are watchers it is
// counted, and must be ended: by finished, or by drop if the save is given up. The caller holds the
// lock of a lineage from before it until the save is in its queue.
func (h *hub) begin(now func() (int64, error)) (ms int64, counted bool, err error) {
	if h.watchers.Load() == 0 {
		ms, err = now()
		return ms, false, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if ms, err = now(); err != nil {
		return 0, false, err
	}
	h.running[ms]++
	return ms, true, nil
}

func (h *hub) drop(ms int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end(ms)
}

func (h *hub) end(ms int64) {
	if h.running[ms]--; h.running[ms] == 0 {
		delete(h.running, ms)
	}
}

// finished passes on the event of a durable save, in the order of its lineage. If the save failed
// its outcome is unknown, so all watchers have to read storage.
func (h *hub) finished(e *Event, durable bool) {
	if !e.counted {
		return // all watchers waited until this was durable
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end(e.began)
	switch {
	case h.ring == nil:
		return
	case durable:
		h.ring[h.next%h.size] = ringEvent{*e, h.low(e.began)}
		h.wake(WatchScope{Tenant: e.Ref.Tenant})
		h.wake(WatchScope{Tenant: e.Ref.Tenant, User: e.Ref.User})
		h.wake(WatchScope{Tenant: e.Ref.Tenant, User: e.Ref.User, Thread: e.Ref.Thread})
		h.next++
		if h.next-h.first > h.size {
			h.first++
		}
	default:
		for scope := range h.waiting {
			h.wake(scope)
		}
		h.next++
		h.first = h.next
	}
}

// wake wakes the waiters of a scope for the next event. The caller holds h.mu.
func (h *hub) wake(scope WatchScope) {
	waiters, ok := h.waiting[scope]
	if !ok {
		return
	}
	delete(h.waiting, scope)
	for w := range waiters {
		w.at = h.next
		w.wake <- struct{}{}
	}
}

// low is the minimum of ms and the times of all saves under way.
func (h *hub) low(ms int64) int64 {
	for at := range h.running {
		ms = min(ms, at)
	}
	return ms
}

// enter makes saves count from now on.
func (h *hub) enter() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watchers.Add(1) == 1 {
		h.ring = make([]ringEvent, h.size)
	}
}

func (h *hub) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watchers.Add(-1) == 0 {
		h.ring = nil
		h.first = h.next
	}
}

// join returns the number of the next event, and the low-water mark of all events from then on.
func (h *hub) join(now func() time.Time) (next uint64, low int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.next, h.low(now().UnixMilli())
}

// read copies events of w's scope to page, from number at on, and returns how many it copied and
// where to read on. Not ok means that some have left the ring. If there are none yet, w waits from
// now on: until it is woken, or until unwait.
func (h *hub) read(w *waiter, at uint64, page []ringEvent) (n int, next uint64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at < h.first {
		return 0, at, false
	}
	for ; n < len(page) && at < h.next; at++ {
		if e := &h.ring[at%h.size]; w.scope.holds(&e.Ref) {
			page[n] = *e
			n++
		}
	}
	if n == 0 {
		if h.waiting[w.scope] == nil {
			h.waiting[w.scope] = map[*waiter]struct{}{}
		}
		h.waiting[w.scope][w] = struct{}{}
	}
	return n, at, true
}

// unwait ends the waiting of w, if it still waits.
func (h *hub) unwait(w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if waiters := h.waiting[w.scope]; waiters != nil {
		if delete(waiters, w); len(waiters) == 0 {
			delete(h.waiting, w.scope)
		}
	}
}

// waitPending waits until every save under way is finished. It does not wait for saves that begin
// later.
func (s *Store) waitPending(ctx context.Context) error {
	s.mu.Lock()
	lineages := make([]*lineage, 0, len(s.lineages))
	for _, l := range s.lineages {
		lineages = append(lineages, l)
	}
	s.mu.Unlock()
	slices.SortFunc(lineages, func(a, b *lineage) int { return a.ref.Compare(b.ref) }) // to make runs reproducible
	for _, l := range lineages {
		if err := l.waitPending(ctx); err != nil {
			return err
		}
	}
	return nil
}

// waitPending waits until the pending changes are finished.
func (l *lineage) waitPending(ctx context.Context) error {
	if err := l.mu.lock(ctx); err != nil {
		return err
	}
	p := l.last
	if p == nil {
		l.mu.unlock()
		return nil
	}
	pending := l.dependsOn(p)
	l.mu.unlock()
	return pending.wait(ctx)
}
