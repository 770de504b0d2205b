package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// Replay runs a plan again and reports problems along with all decisions.
func Replay(t *testing.T, p Plan) {
	t.Helper()
	r := Run(t, p, true)
	for _, problem := range r.Problems {
		t.Error(problem)
	}
	if t.Failed() {
		t.Logf("%v\n%s", p, strings.Join(r.Log, "\n"))
	}
}

// Report reports a failing plan: how often it fails again and, as a test, the smallest failing plan
// found within a time limit. If the limit is zero, it only reports the problems.
func Report(t *testing.T, r *Result, limit time.Duration) {
	t.Helper()
	if limit == 0 {
		t.Errorf("%v (profile %s) fails:\n%s", r.Plan, r.Profile, strings.Join(r.Problems, "\n"))
		return
	}
	again, same := 0, 0
	for range 10 {
		n := Run(t, r.Plan, false)
		if len(n.Problems) > 0 {
			again++
		}
		if n.Trace == r.Trace {
			same++
		}
	}
	t.Errorf("%v (profile %s) fails, and failed again in %d of 10 replays (%d of them step by step the same):\n%s",
		r.Plan, r.Profile, again, same, strings.Join(r.Problems, "\n"))
	small := Shrink(t, r, limit)
	t.Logf("a smaller one (%d operations, %d gates):\n%s\n%s", small.Ops, small.Gates, small.test(), strings.Join(small.Problems, "\n"))
}

// test returns the source of a test that runs the plan of a result.
func (r *Result) test() string {
	return fmt.Sprintf("func TestSeed%d(t *testing.T) {\n\tsim.Replay(t, %v)\n}", r.Plan.Seed, r.Plan)
}

// Shrink searches for a smaller plan that fails like r, within a time limit.
func Shrink(t *testing.T, r *Result, limit time.Duration) *Result {
	s := &shrinking{t: t, best: r, like: gist(r), until: time.Now().Add(limit)}
	s.best.Plan.Profile = r.Profile
	if n := r.Round + 1; n < r.Rounds {
		s.try(func(p *Plan) { p.Rounds = n })
	}
	s.try(func(p *Plan) { p.Serial = true })
	s.try(func(p *Plan) { p.Sound = true })
	s.try(func(p *Plan) { p.Calm = true })
	s.try(func(p *Plan) { p.Alive = true })
	s.drop()
	s.try(func(p *Plan) { p.Threads = 1 })
	for _, n := range []int{1, 2, 4, 20} {
		if s.try(func(p *Plan) { p.Channels = n }) {
			break
		}
	}
	s.drop()
	return s.best
}

// shrinking is a search for a smaller plan.
type shrinking struct {
	t     *testing.T
	best  *Result
	like  string
	until time.Time
}

// gist returns the subject of a problem, without names and numbers.
func gist(r *Result) string {
	text := r.Problems[0]
	if i := strings.LastIndex(text, "): "); i >= 0 {
		text = text[i:]
	}
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c == ' ' {
			return c
		}
		return -1
	}, strings.ToLower(text))
}

// try keeps a change of the plan if it still fails.
func (s *shrinking) try(change func(*Plan)) bool {
	if time.Now().After(s.until) {
		return false
	}
	p := s.best.Plan
	change(&p)
	r := Run(s.t, p, false)
	if len(r.Problems) == 0 || words(gist(r), s.like) < 0.5 {
		return false
	}
	s.best = r
	return true
}

// words returns the share of the words of one text that are in another.
func words(a, b string) float64 {
	have, n, all := map[string]bool{}, 0, strings.Fields(b)
	for _, w := range strings.Fields(a) {
		have[w] = true
	}
	for _, w := range all {
		if have[w] {
			n++
		}
	}
	return float64(n) / float64(max(len(all), 1))
}

// drop leaves out operations, in large groups at first.
func (s *shrinking) drop() {
	ops := slices.Sorted(maps.Keys(s.best.Done))
	for size := (len(ops) + 1) / 2; size > 0; size /= 2 {
		for from := 0; from < len(ops); {
			rest := slices.Concat(ops[:from], ops[min(from+size, len(ops)):])
			if s.try(func(p *Plan) { p.Only = rest }) {
				ops = rest
			} else {
				from += size
			}
		}
	}
}
