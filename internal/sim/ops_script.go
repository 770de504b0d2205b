package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// script is a sequence of operations of one client, each of which may depend on earlier answers.
// Each is judged individually.
type script struct {
	call
	w     *world
	what  string
	steps []func() action // returns nil if there is nothing to do, which ends the script
	subs  []*call
}

func (a *script) String() string { return a.what }

func (a *script) run(ctx context.Context, s *engine.Store) error {
	for _, step := range a.steps {
		act := step()
		if act == nil {
			return nil
		}
		c := act.base()
		c.name, c.kind, c.act, c.from, c.endAt = fmt.Sprintf("%s.%d", a.name, len(a.subs)), a.kind, act, time.Now(), -1
		a.subs = append(a.subs, c)
		c.inv = a.w.sched.now(func() { a.w.calls = append(a.w.calls, c) })
		c.err = act.run(ctx, s)
		c.res = a.w.sched.now(func() { a.w.sched.note(fmt.Sprintf("%s %s: %s%s", c.name, describe(c), firstLine(c.err), shown(c))) })
		c.to, c.settled = time.Now(), true
		if c.err != nil {
			return nil // judged individually
		}
	}
	return nil
}

// settle ends the operations together with the script.
func (a *script) settle(m *model) {
	for i, c := range a.subs {
		if c.ended = a.ended; i == len(a.subs)-1 && a.unknown {
			c.unknown = true
			continue
		}
		if l, ok := c.act.(learner); ok && c.err == nil {
			l.learn(m)
		}
	}
}

// makeTryout migrates a head, continues from an older state in parallel, erases old data, and
// undoes the migration.
func makeTryout(g *gen) action {
	ref := g.ref()
	if !versioned(ref) {
		return nil
	}
	a := &script{call: call{ref: ref}, w: g.w, what: "migrate, fork, erase, undo"}
	head := &headMigration{call: call{ref: ref}}
	head.opts.To, head.opts.Down = uint64(1+g.rand.IntN(3)), true
	a.steps = []func() action{
		func() action { return head },
		func() action {
			if head.out.New == nil {
				return nil // it already had that version
			}
			f := &save{call: call{ref: ref}}
			f.draft.Step = g.w.model.nextStep(g.name)
			k := g.known(ref)
			if k == nil {
				return nil
			}
			f.draft.Parent = k.cp.ID
			g.state(&f.draft, k, ref)
			return f
		},
		func() action {
			p := &prune{call: call{ref: ref}}
			p.opts.Erase, p.opts.KeepLast = true, 2+g.rand.IntN(2)
			return p
		},
		func() action {
			return &undo{call: call{ref: ref}, old: head.out.Old.Seq, now: head.out.New.Seq, hash: head.out.New.Hash}
		},
	}
	return a
}

// makeShed saves a checkpoint that names a blob, and one on top that does not. It removes the
// first, collects garbage, and saves the second again in terms of the first: keep what it has.
func makeShed(g *gen) action {
	ref := g.ref()
	a := &script{call: call{ref: ref}, w: g.w, what: "name a blob, let go of it, prune, collect, name it again"}
	put := makeBlob(g).(*blob)
	first, second := &save{call: call{ref: ref}}, &save{call: call{ref: ref}}
	step := g.w.model.nextStep(g.name)
	draft := func(s *save, name string) *engine.Draft {
		step++
		s.draft.ID, s.draft.Step = "id-"+g.name+name, step
		if versioned(ref) {
			s.draft.Kind, s.draft.SchemaVersion = agent, 1
		}
		return &s.draft
	}
	again := func() action {
		s := &save{call: call{ref: ref}}
		d := draft(s, "b")
		if d.Keep = true; g.one(2) {
			d.Blobs = []engine.BlobID{put.id}
		}
		return s
	}
	a.steps = []func() action{
		func() action { return put },
		func() action {
			d := draft(first, "a")
			d.Blobs = []engine.BlobID{put.id}
			g.whole(d, ref)
			return first
		},
		func() action {
			d := draft(second, "b")
			d.Parent, d.Keep, d.Blobs = first.draft.ID, true, []engine.BlobID{}
			g.change(d, first.cp)
			return second
		},
		func() action {
			p := &prune{call: call{ref: ref}}
			p.opts.Remove = []string{first.draft.ID}
			return p
		},
		func() action {
			return &collect{call: call{ref: engine.Ref{Tenant: tenant, User: user, Thread: "-"}}, opts: upkeep.GCOptions{Grace: -1}}
		},
		again,
	}
	return a
}
