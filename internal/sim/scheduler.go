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

// scheduler decides who runs next. Anyone about to do something that others could observe first
// waits at a gate. Once all are waiting, one gate is chosen and opened: by name, never by order of
// arrival, because that is up to Go's scheduler.
type scheduler struct {
	seed    uint64
	shuffle bool // choose a random gate at each step; otherwise every gate has a rank, and some wait for long

	mu       sync.Mutex
	gates    map[string]*gate
	finished []*call
	running  map[string]*call // current operations by name
	clients  int              // clients that have not finished
	owners   map[string]*call // by goroutine id
	step     int
	crashAt  int // step; 0: never
	crashed  bool
	faults   int // injected in this round
	stuck    string

	decide func(g *gate) verdict
	settle func(c *call)
	crash  func()

	trace  uint64 // hash of all decisions
	opened int
	log    func(format string, args ...any)
}

// gate is a point where a goroutine waits.
type gate struct {
	name string
	kind byte // 's'tart of an operation, 'g'et, 'c'an, 'w'rite, 'a'nswer of a write
	open chan verdict
}

// verdict is the fate of a call at a gate.
type verdict byte

const (
	pass    verdict = iota
	fails           // it is refused, and nothing happens
	lost            // nothing happens, and the outcome is unknown to the caller
	applied         // it happens, and the outcome is unknown to the caller
	dead            // the process has crashed
)

// park waits at a gate until it opens or ctx ends.
func (s *scheduler) park(ctx context.Context, name string, kind byte) (verdict, error) {
	g := &gate{name, kind, make(chan verdict, 1)}
	s.mu.Lock()
	for i := 2; s.gates[g.name] != nil; i++ { // a concurrent call with the same name
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

// run lets the clients work until all have finished and no gate is occupied.
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
		if idle++; idle > 40 { // no gate is occupied, and passing time does not help
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

// settleFinished records finished operations in the order of their names.
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

// endContexts ends the context of an operation that is due.
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

// choose picks the next gate to open.
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

// die ends the process: calls at a gate go no further, and all contexts end.
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

// giveUp reports operations that never end.
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

// now runs do with the scheduler locked and returns the step after it.
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
