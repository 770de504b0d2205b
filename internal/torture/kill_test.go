package torture

import (
	"strings"
	"time"
)

// killRound kills a process with up to 64 writers again and again, in its work or while it opens
// the store. The next one reports the content, before it continues: everything that was
// acknowledged, nothing half.
func killRound(r *round) {
	p, m := place(r.dir), newModel()
	kills := min(r.units, 100)
	for cycle := 0; cycle <= kills && !r.Failed(); cycle++ {
		j := job{Kind: "write", Place: p, Seed: r.rnd.Uint64(), Cycle: cycle, Writers: 1 << r.rnd.IntN(7), Deep: cycle%10 == 9 || cycle == kills}
		after := time.Duration(r.rnd.IntN(100)) * time.Millisecond
		opening := cycle > 0 && cycle < kills && r.rnd.IntN(4) == 0
		killed(r, m, j, after, opening)
		if cycle < kills {
			r.did()
		}
	}
}

// killed runs a child, kills it some time after it was ready, or after its start, and has the model
// take in its messages.
func killed(r *round, m *model, j job, after time.Duration, opening bool) {
	c, err := start(j)
	r.must(err)
	var timer *time.Timer
	if opening {
		timer = time.AfterFunc(20*time.Millisecond+after, func() { c.Process.Kill() })
	}
	ready, acked := false, 0
	for {
		l, err := c.next()
		if err != nil {
			break // cut off: not acknowledged to anyone
		}
		switch {
		case l.Ready && !ready:
			ready = true
			for _, problem := range append(m.judge(l.Found), l.Problems...) {
				r.problem("cycle %d: %s", j.Cycle, problem)
			}
			if timer == nil {
				timer = time.AfterFunc(after, func() { c.Process.Kill() })
			}
		case l.Begin != nil:
			m.begin(*l.Begin)
		case l.Acked != "":
			m.ack(l.Acked)
			acked++
		case l.Failed != "", l.Stopped != "":
			r.problem("cycle %d: %s%s", j.Cycle, l.Failed, l.Stopped)
		}
	}
	if text := c.complaint(); text != "" && !strings.HasPrefix(text, "exit status 1") {
		r.problem("cycle %d: the child ended by itself: %s", j.Cycle, text)
	}
	if !ready {
		if !opening {
			r.problem("cycle %d: it was never ready", j.Cycle)
		}
		r.count("while opening", 1)
	}
	r.count("operations acknowledged", acked)
}
