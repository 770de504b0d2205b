package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// hub passes on what becomes durable to those who watch. Nobody watching costs a save one atomic load. A save never
// waits for a watcher: the hub remembers the last events in a ring, and a watcher that falls behind it finds the rest
// in storage.
//
// What a watcher has not seen yet must be found again from its cursor, after a restart too. So the hub knows the times
// of the saves under way: whatever settles after an event has a time that is not below the low mark of that event.
type hub struct {
	watchers atomic.Int32

	mu      sync.Mutex
	running map[int64]int // saves under way that began while somebody watched, by the millisecond
	ring    []ringEvent   // the events from first to next-1, at their number modulo the length
	size    uint64
	first   uint64
	next    uint64
	waiting map[WatchScope]map[*waiter]struct{} // those who have seen all there is, by what they wait for

	done chan struct{} // closed with the store
}

// waiter is a watcher as the hub knows it. While it waits, events of others pass it by: it is not woken for them, and
// does not fall behind.
type waiter struct {
	scope WatchScope    // as a key: only the names
	wake  chan struct{} // has room for one
	at    uint64        // once it is woken: the number of the event it is woken for
}

func newWaiter(scope WatchScope) *waiter {
	scope.Began = false
	return &waiter{scope: scope, wake: make(chan struct{}, 1)}
}

// ringEvent is an event and the low mark after it.
type ringEvent struct {
	Event
	low int64
}

// ringSize is how many events a watcher may be behind before it has to look into storage.
const ringSize = 4096

func newHub() *hub {
	return &hub{running: map[int64]int{}, size: ringSize, waiting: map[WatchScope]map[*waiter]struct{}{}, done: make(chan struct{})}
}

func (h *hub) close() { close(h.done) }

// begin returns the time at which a save begins, in Unix milliseconds. It is counted if somebody watches, and then
// needs an end: finished, or drop if nothing will come of it. The caller holds the lock of a lineage from before it
// until the save is in its queue.
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

// finished passes on an event whose save is durable, in the order of its lineage. Of a save that failed it is not known
// what became of it, so everybody is sent to look into storage.
func (h *hub) finished(e *Event, durable bool) {
	if !e.counted {
		return // whoever watches now waited until this was durable
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

// wake wakes those who wait for a scope, for the event that comes next. The caller holds h.mu.
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

// low is the least time, from ms down, of what is not settled.
func (h *hub) low(ms int64) int64 {
	for at := range h.running {
		ms = min(ms, at)
	}
	return ms
}

// enter makes saves count that begin from now on.
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

// join returns the number of the event that settles next, and the low mark of all that settle from then on.
func (h *hub) join(now func() time.Time) (next uint64, low int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.next, h.low(now().UnixMilli())
}

// read copies to page the events of w's scope from number at on, and returns how many these are and where to read on. Not
// ok means that some are no longer in the ring. If there are none yet, w waits from now on: until it is woken, or until
// unwait.
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

// waitPending waits until every save under way is finished. It does not wait for saves that begin meanwhile.
func (s *Store) waitPending(ctx context.Context) error {
	s.mu.Lock()
	lineages := make([]*lineage, 0, len(s.lineages))
	for _, l := range s.lineages {
		lineages = append(lineages, l)
	}
	s.mu.Unlock()
	slices.SortFunc(lineages, func(a, b *lineage) int { return a.ref.Compare(b.ref) }) // not the map's: a run can be repeated
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
