package sim

import (
	"context"
	"fmt"

	"github.com/ckptd/ckptd/engine"
)

// appends simulates a working agent: many consecutive saves, most of which add a message, while
// some change only other channels.
type appends struct {
	call
	first  engine.Draft
	parent *known
	sizes  []int // bytes added by each; 0: only a status
	text   []byte
	saves  []*save
}

func (a *appends) String() string { return fmt.Sprintf("%d saves", len(a.sizes)) }

func (a *appends) run(ctx context.Context, s *engine.Store) error {
	var ch engine.Channel
	id := ""
	if a.parent != nil {
		id = a.parent.cp.ID
		ch, _ = a.parent.cp.Channel("log")
	}
	for i, n := range a.sizes {
		d := engine.Draft{Step: a.first.Step + int64(i) + 1, Parent: id, Keep: true, Kind: a.first.Kind, SchemaVersion: a.first.SchemaVersion}
		switch {
		case ch.Version == 0:
			d.Channels = []engine.Change{{Name: "log", Data: a.text}}
		case n == 0:
			d.Status = engine.StatusWaiting
		default:
			at := (i * 37) % (len(a.text) - n)
			d.Channels = []engine.Change{{Name: "log", Base: ch.Version, Prefix: int(ch.Size), Data: a.text[at : at+n]}}
		}
		sub := &save{call: *a.sub(), draft: d}
		cp, err := s.Thread(a.ref).Save(ctx, d)
		sub.cp, sub.err = cp, err
		sub.res = -1
		a.saves = append(a.saves, sub)
		if err != nil {
			return err
		}
		id = cp.ID
		ch, _ = cp.Channel("log")
	}
	return nil
}

// sub returns a call that is part of this one.
func (a *appends) sub() *call {
	return &call{name: fmt.Sprintf("%s.%d", a.name, len(a.saves)), ref: a.ref, kind: a.kind, from: a.from, endAt: -1}
}

func (a *appends) learn(m *model) {
	for i, s := range a.saves {
		if i > len(a.saves)-4 || i%16 == 0 {
			s.name = fmt.Sprintf("%s.%d", a.name, i)
			m.learn(a.ref, s.name, s.cp, &s.draft)
		}
	}
}

func (a *appends) saw() (cps []*engine.Checkpoint) {
	for _, s := range a.saves {
		if s.err == nil {
			cps = append(cps, s.cp)
		}
	}
	return cps
}

func (a *appends) effect(f *facts) {
	for i, s := range a.saves {
		// The saves of a row are not told apart: each may have taken effect at any time during the
		// row.
		s.inv, s.res, s.to, s.ended, s.act = a.inv, a.res, a.to, a.ended, s
		s.unknown = a.unknown && i == len(a.saves)-1
		s.effect(f)
	}
}

func (a *appends) claim(f *facts, cp *engine.Checkpoint) *rev {
	for _, s := range a.saves {
		if s.doubtful() {
			if r := s.claim(f, cp); r != nil {
				return r
			}
		}
	}
	return nil
}

func (a *appends) check(f *facts) {
	if a.unknown {
		return
	}
	for _, s := range a.saves {
		s.check(f)
	}
}

func makeAppends(g *gen) action {
	a := &appends{call: call{ref: g.ref()}}
	n := 6 + g.rand.IntN(10)
	switch g.w.prof.name {
	case "long":
		n = 40 + g.rand.IntN(140)
	case "walks":
		n = 15 + g.rand.IntN(30)
	}
	a.first.Step = g.w.model.nextStep(g.name)
	if a.parent = g.knownThat(a.ref, func(k *known) bool { _, ok := k.cp.Channel("log"); return ok }); a.parent != nil && !g.one(6) {
		for _, k := range g.w.model.known[a.ref] { // usually the newest
			if _, ok := k.cp.Channel("log"); ok && k.cp.Seq > a.parent.cp.Seq && k.cp.Generation == a.parent.cp.Generation {
				a.parent = k
			}
		}
	}
	if versioned(a.ref) {
		a.first.Kind, a.first.SchemaVersion = agent, 1
		if a.parent != nil {
			a.first.SchemaVersion = a.parent.cp.SchemaVersion
		}
	}
	a.text = g.text(600 + g.rand.IntN(g.w.prof.first/2+1) + g.w.prof.first/2) // large enough for long delta paths
	every := 4 + g.rand.IntN(12)
	for range n {
		size := 1 + g.rand.IntN(g.w.prof.add)
		if g.one(every) {
			size = 0
		}
		a.sizes = append(a.sizes, size)
	}
	return a
}
