package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ckptd/ckptd/engine/upkeep"
)

// upkeepOps are the operations in the sweep that neither save nor load checkpoints.
var upkeepOps = []faultOp{
	{name: "put writes", run: func(ctx context.Context, b *bed) error {
		_, err := b.Thread(testRef("chat")).PutWrites(ctx, "c9", "task", "path", Upsert, []Write{{Channel: "x", Data: []byte("small")}, {Index: 1, Channel: "x", Data: b.w.big}}, 0)
		return err
	}},
	{name: "put writes to a new thread", run: func(ctx context.Context, b *bed) error {
		th := b.Thread(testRef("writes first"))
		if _, err := th.PutWrites(ctx, "to come", "task", "", Ignore, []Write{{Channel: "x", Data: []byte("early")}}, 0); err != nil {
			return err
		}
		ws, err := th.Writes(ctx, "to come")
		if err == nil && (len(ws) != 1 || string(ws[0].Data) != "early") {
			err = fmt.Errorf("writes %+v", ws)
		}
		return err
	}, changes: inThread("writes first")},
	{name: "writes", reads: true, run: func(ctx context.Context, b *bed) error {
		ws, err := b.Thread(testRef("chat")).Writes(ctx, "c3")
		if err == nil && len(ws) != 0 {
			err = fmt.Errorf("writes %+v", ws)
		}
		return err
	}},
	{name: "put and get a blob", run: func(ctx context.Context, b *bed) error {
		u, blob := b.User("acme", "alice"), b.w.huge[:260<<10] // two parts
		id, _, err := u.PutBlob(ctx, bytes.NewReader(blob))
		if err != nil {
			return err
		}
		var got bytes.Buffer
		if _, err := u.GetBlob(ctx, id, &got); err != nil {
			return err
		}
		if !bytes.Equal(got.Bytes(), blob) {
			return errors.New("the blob is another")
		}
		s := b.w.with("plan", []byte("with a blob"))
		return b.save(ctx, testRef("chat"), Draft{ID: "with blob", Parent: "c9", Blobs: []BlobID{id}, Channels: changes(s)}, s)
	}},
	{name: "prune", changes: inThread("chat"), run: func(ctx context.Context, b *bed) error {
		_, err := b.Thread(testRef("chat")).Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 2})
		return err
	}},
	{name: "erase", changes: inThread("tree"), run: func(ctx context.Context, b *bed) error {
		_, err := b.Thread(testRef("tree")).Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 2, Erase: true})
		return err
	}},
	{name: "remove", changes: inThread("tree"), again: missing, run: func(ctx context.Context, b *bed) error {
		_, err := b.Thread(testRef("tree")).Upkeep().Prune(ctx, upkeep.PruneOptions{Remove: []string{"n1", "n2"}})
		return err
	}},
	{name: "dry run", reads: true, run: func(ctx context.Context, b *bed) error {
		rep, err := b.Thread(testRef("chat")).Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 2, DryRun: true})
		if err == nil && len(rep.Removed) != 11 {
			err = fmt.Errorf("%d to go", len(rep.Removed))
		}
		return err
	}},
	{name: "copy", again: conflicts, run: func(ctx context.Context, b *bed) error {
		return b.Thread(testRef("tree")).Copy(ctx, testRef("copy"))
	}},
	{name: "delete a run", changes: inThread("chat"), run: func(ctx context.Context, b *bed) error {
		_, _, err := b.User("acme", "alice").Upkeep().DeleteRun(ctx, "run")
		return err
	}},
	{name: "collect garbage", run: func(ctx context.Context, b *bed) error {
		_, err := b.Upkeep().GC(ctx, "acme", upkeep.GCOptions{Grace: -1})
		return err
	}},
	{name: "collect after a deletion", changes: inThread("chat"), run: func(ctx context.Context, b *bed) error {
		if _, err := b.Thread(testRef("chat")).Delete(ctx); err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		_, err := b.User("acme", "alice").Upkeep().GC(ctx, upkeep.GCOptions{Grace: -1})
		return err
	}},
	{name: "set retention", run: func(ctx context.Context, b *bed) error {
		want := upkeep.RetentionPolicy{KeepLast: 50}
		if err := b.Upkeep().SetRetention(ctx, "acme", want); err != nil {
			return err
		}
		got, err := b.Upkeep().Retention(ctx, "acme")
		if err == nil && got != want {
			err = fmt.Errorf("retention %+v", got)
		}
		return err
	}},
	{name: "stats", reads: true, run: func(ctx context.Context, b *bed) error {
		st, err := b.Upkeep().Stats(ctx, "acme", "alice")
		if err == nil && (st.Threads != 3 || st.Checkpoints != 21) {
			err = fmt.Errorf("stats %+v", st)
		}
		return err
	}},
	{name: "diff", reads: true, run: func(ctx context.Context, b *bed) error {
		d, err := b.Thread(testRef("chat")).Diff(ctx, At("c3"), Latest)
		if err == nil && (len(d.Channels) != 2 || d.Channels[0].Kind != Changed) {
			err = fmt.Errorf("diff %+v", d)
		}
		return err
	}},
}

// TestUpkeepFaultSweep is TestFaultSweep for them.
func TestUpkeepFaultSweep(t *testing.T) { sweepAll(t, upkeepOps) }

// A prune and a deletion with garbage collected at each failed call spare the data of other
// threads.
func TestFaultSweepSharedParts(t *testing.T) {
	w := newFaultWorld(t)
	ctx := context.Background()
	for k := range 40 {
		b := newBed(t, w)
		shared := map[string][]byte{"x": w.big}
		for _, name := range []string{"chat", "twin"} {
			if err := b.save(ctx, testRef(name), Draft{Root: true, Channels: changes(shared)}, shared); err != nil {
				t.Fatal(err)
			}
		}
		b.acked = b.acked[1:] // that of the thread that goes
		plan := faultPlans[0].plan
		plan.After = k
		b.fault.Arm(plan)
		_, derr := b.Thread(testRef("chat")).Delete(ctx)
		_, gerr := b.Upkeep().GC(ctx, "acme", upkeep.GCOptions{Grace: -1})
		fired := b.fault.Fired() > 0
		b.fault.Disarm()
		if fired && derr == nil && gerr == nil {
			t.Errorf("call %d: the error was swallowed", k)
		}
		v := b.view()
		b.checkAcked(v)
		mustBeClean(t, v, upkeep.VerifyOptions{Deep: true})
		v.Close()
		b.Close()
		if !fired {
			return
		}
	}
}
