package sim

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"
)

// scheduler decides who goes on. Whoever wants to do something that others could see stands at a gate first. When all
// stand still, one gate is chosen and opened: by names, never by who came first, since that is up to Go's scheduler.
type scheduler struct {
	seed    uint64
	shuffle bool // choose anew at each step; else every gate has a rank, and some wait for long

	mu       sync.Mutex
	gates    map[string]*gate
	finished []*call
	running  map[string]*call // operations under way, by name
	clients  int              // that are not at their end
	owners   map[string]*call // by the id of the goroutine
	step     int
	crashAt  int // step; 0: never
	crashed  bool
	faults   int // that were injected in this round
	stuck    string

	decide func(g *gate) verdict
	settle func(c *call)
	crash  func()

	trace  uint64 // hash of all that was decided
	opened int
	log    func(format string, args ...any)
}

// gate is where somebody stands.
type gate struct {
	name string
	kind byte // 's'tart of an operation, 'g'et, 'c'an, 'w'rite, 'a'nswer of a write
	open chan verdict
}

// verdict is what becomes of what stands at a gate.
type verdict byte

const (
	pass    verdict = iota
	fails           // it is refused, and nothing happens
	lost            // nothing happens, and the outcome is not told
	applied         // it happens, and the outcome is not told
	dead            // the process is no more
)

// park stands at a gate until it is opened, or until ctx ends.
func (s *scheduler) park(ctx context.Context, name string, kind byte) (verdict, error) {
	g := &gate{name, kind, make(chan verdict, 1)}
	s.mu.Lock()
	for i := 2; s.gates[g.name] != nil; i++ { // the same caller twice at a time
		g.name = fmt.Sprintf("%s~%d", name, i)
	}
	if s.crashed {
		s.mu.Unlock()
		return dead, nil
	}
	s.gates[g.name] = g
	s.mu.Unlock()
	select {
	case v := <-g.open:
		return v, nil
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(s.gates, g.name); len(g.open) > 0 {
			return <-g.open, nil
		}
		return pass, ctx.Err()
	}
}

// run lets the clients work until all are at their end and nobody stands at a gate.
func (s *scheduler) run() {
	for idle := 0; ; {
		synctest.Wait()
		if s.settleFinished() || s.endContexts() {
			continue
		}
		if s.crashAt != 0 && s.step >= s.crashAt && !s.crashed {
			s.die()
			continue
		}
		g := s.choose()
		if g != nil {
			idle = 0
			s.open(g)
			continue
		}
		if s.left() == 0 {
			return
		}
		if idle++; idle > 40 { // nobody is at a gate, and time does not help
			s.giveUp()
			return
		}
		time.Sleep(time.Duration(idle) * time.Second)
	}
}

func (s *scheduler) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clients
}

// settleFinished takes note of operations that came to their end, in the order of their names.
func (s *scheduler) settleFinished() bool {
	s.mu.Lock()
	done := s.finished
	s.finished = nil
	s.mu.Unlock()
	slices.SortFunc(done, func(a, b *call) int { return strings.Compare(a.name, b.name) })
	for _, c := range done {
		c.res, c.settled = s.step, true
		s.note("end " + c.name)
		s.settle(c)
		close(c.seen)
	}
	return len(done) > 0
}

// endContexts ends the context of an operation whose time has come.
func (s *scheduler) endContexts() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.running)) {
		c := s.running[name]
		if c.ended || c.endAt < 0 || s.step-c.inv < c.endAt {
			continue
		}
		c.ended = true
		s.note("context of " + name)
		c.cancel()
		return true
	}
	return false
}

// choose picks the gate that opens next.
func (s *scheduler) choose() *gate {
	s.mu.Lock()
	defer s.mu.Unlock()
	var best *gate
	var rank uint64
	for _, g := range s.gates {
		r := hash(s.seed, "rank", g.name)
		if s.shuffle {
			r = hash(s.seed+uint64(s.step), "rank", g.name)
		}
		if best == nil || r > rank || r == rank && g.name > best.name {
			best, rank = g, r
		}
	}
	if best != nil {
		delete(s.gates, best.name)
	}
	return best
}

func (s *scheduler) open(g *gate) {
	v := s.decide(g)
	if s.step++; v != pass {
		s.faults++
	}
	s.opened++
	s.note(fmt.Sprintf("%s %d", g.name, v))
	g.open <- v
}

// die ends the process: what stands at a gate gets no further, and all contexts end.
func (s *scheduler) die() {
	s.note("crash")
	s.crash()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.crashed = true
	for _, g := range s.gates {
		g.open <- dead
	}
	clear(s.gates)
	for _, c := range s.running {
		c.cancel()
	}
}

// giveUp tells of operations that never end.
func (s *scheduler) giveUp() {
	s.mu.Lock()
	names := slices.Sorted(maps.Keys(s.running))
	s.mu.Unlock()
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	s.stuck = fmt.Sprintf("%v never end\n%s", names, buf)
	s.die()
	synctest.Wait()
}

// now is the step, after what do does with the scheduler locked.
func (s *scheduler) now(do func()) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	return s.step
}

// note adds a decision to the record of the run.
func (s *scheduler) note(what string) {
	s.trace = hash(s.trace, what)
	if s.log != nil {
		s.log("%5d %s", s.step, what)
	}
}
