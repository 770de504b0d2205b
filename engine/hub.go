package engine

import (
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
	ring    []passed      // the events from first to next-1, at their number modulo the length
	size    uint64
	first   uint64
	next    uint64
	waiting bool
	wake    chan struct{} // closed when there is news, if somebody waits

	done chan struct{} // closed with the store
}

// passed is an event and the low mark after it.
type passed struct {
	Event
	low int64
}

// ringSize is how many events a watcher may be behind before it has to look into storage.
const ringSize = 4096

func newHub() *hub {
	return &hub{running: map[int64]int{}, size: ringSize, wake: make(chan struct{}), done: make(chan struct{})}
}

func (h *hub) close() { close(h.done) }

// begin returns the time at which a save begins, in Unix milliseconds. It is counted if somebody watches, and then
// needs an end: settled, or drop if nothing will come of it. The caller holds the lock of a lineage from before it
// until the save is in its queue.
func (h *hub) begin(now func() time.Time) (ms int64, counted bool) {
	if h.watchers.Load() == 0 {
		return now().UnixMilli(), false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	ms = now().UnixMilli()
	h.running[ms]++
	return ms, true
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

// settled passes on an event whose save is durable, in the order of its lineage. Of a save that failed it is not known
// what became of it, so everybody is sent to look into storage.
func (h *hub) settled(e *Event, durable bool) {
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
		h.ring[h.next%h.size] = passed{*e, h.low(e.began)}
		h.next++
		if h.next-h.first > h.size {
			h.first++
		}
	default:
		h.next++
		h.first = h.next
	}
	if h.waiting {
		close(h.wake)
		h.wake, h.waiting = make(chan struct{}), false
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
		h.ring = make([]passed, h.size)
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

// read copies events from number at on to page. Not ok means that they are no longer in the ring. If there are none yet,
// it returns what is closed when there are.
func (h *hub) read(at uint64, page []passed) (n int, ok bool, wake <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at < h.first {
		return 0, false, nil
	}
	for n < len(page) && at < h.next {
		page[n] = h.ring[at%h.size]
		n, at = n+1, at+1
	}
	if n == 0 {
		h.waiting, wake = true, h.wake
	}
	return n, true, wake
}

// settleAll waits until every save that is under way is settled. Saves that begin meanwhile are not waited for.
func (s *Store) settleAll(done <-chan struct{}) bool {
	s.mu.Lock()
	lineages := make([]*lineage, 0, len(s.lineages))
	for _, l := range s.lineages {
		lineages = append(lineages, l)
	}
	s.mu.Unlock()
	for _, l := range lineages {
		l.mu.Lock()
		var wait chan struct{}
		if p := l.last; p != nil && !p.over {
			if p.done == nil {
				p.done = make(chan struct{})
			}
			wait = p.done
		}
		l.mu.Unlock()
		if wait == nil {
			continue
		}
		select {
		case <-wait:
		case <-done:
			return false
		}
	}
	return true
}
