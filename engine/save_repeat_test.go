package engine

import (
	"context"
	"errors"
	"maps"
	"testing"

	"github.com/ckptd/ckptd/hook"

	"github.com/ckptd/ckptd/engine/upkeep"
)

// repeatable are the ways to draft a checkpoint c, on b with the channels state and avatar.
func repeatable(b *Checkpoint) map[string]Draft {
	state, _ := b.Channel("state")
	next := supportDraft(`{"user_pref": {"lang": "en"}, "attempts": "4", "n": 1.50}`)
	avatar := next.Channels[1:]
	splice := Change{Name: "state", Base: state.Version, Prefix: 34, Suffix: int(state.Size) - 44, Data: []byte(`ttempts": "9`)}
	drafts := map[string]Draft{
		"whole":             {Channels: next.Channels},
		"whole, on the tip": {Channels: next.Channels, Parent: b.ID},
		"changed channel":   {Keep: true, Channels: avatar, Parent: b.ID},
		"new channel":       {Keep: true, Channels: []Change{{Name: "plan", Data: []byte("plan")}}},
		"splice":            {Keep: true, Channels: []Change{splice}, Parent: b.ID},
		"splice, no parent": {Channels: []Change{splice}, Branch: "main", RunID: "run"},
		"status":            {Keep: true, Status: StatusSucceeded, Labels: map[string]string{"mine": "yes"}},
		"removed channel":   {Keep: true, Channels: []Change{{Name: "avatar", Remove: true}}},
	}
	for name, d := range drafts {
		d.ID, d.Step, d.SchemaVersion = "c", 3, 1
		drafts[name] = d
	}
	return drafts
}

// circumstances are events that can happen between a save and its repetition.
var circumstances = map[string]func(f *fixture, h *testHooks, th *Thread) error{
	"nothing": func(*fixture, *testHooks, *Thread) error { return nil },
	"restart": func(f *fixture, _ *testHooks, _ *Thread) error { f.reopen(); return nil },
	"parent removed": func(f *fixture, _ *testHooks, th *Thread) error {
		_, err := th.Upkeep().Prune(context.Background(), upkeep.PruneOptions{KeepLast: 1})
		return err
	},
	"parent erased": func(f *fixture, _ *testHooks, th *Thread) error {
		_, err := th.Upkeep().Prune(context.Background(), upkeep.PruneOptions{KeepLast: 1, Erase: true})
		return err
	},
	"garbage collected": func(f *fixture, _ *testHooks, th *Thread) error {
		_, err := th.Upkeep().Prune(context.Background(), upkeep.PruneOptions{KeepLast: 1})
		if err == nil {
			_, err = f.User("acme", "alice").Upkeep().GC(context.Background(), upkeep.GCOptions{})
		}
		return err
	},
	"rewritten": func(f *fixture, _ *testHooks, th *Thread) error {
		_, err := th.Upkeep().Prune(context.Background(), upkeep.PruneOptions{KeepLast: 3, Erase: true})
		return err
	},
	"parent replaced": func(f *fixture, _ *testHooks, th *Thread) error {
		_, err := th.Save(context.Background(), Draft{ID: "b", Parent: "a", SchemaVersion: 1, Channels: []Change{{Name: "other", Data: []byte("x")}}})
		return err
	},
	"parent labelled": func(f *fixture, _ *testHooks, th *Thread) error {
		_, err := th.SetLabels(context.Background(), At("b"), map[string]string{"k": "v"})
		return err
	},
	"labelled": func(f *fixture, _ *testHooks, th *Thread) error {
		_, err := th.SetLabels(context.Background(), At("c"), map[string]string{LabelPin: "yes"})
		return err
	},
	"labelled twice, then pruned": func(f *fixture, _ *testHooks, th *Thread) error {
		_, err := th.SetLabels(context.Background(), At("c"), map[string]string{LabelPin: "yes"})
		if err == nil {
			_, err = th.SetLabels(context.Background(), At("c"), map[string]string{LabelPin: "", "k": "v"})
		}
		if err == nil {
			_, err = th.Upkeep().Prune(context.Background(), upkeep.PruneOptions{KeepLast: 1, Erase: true})
		}
		return err
	},
	"followed": func(f *fixture, _ *testHooks, th *Thread) error {
		_, err := th.Save(context.Background(), Draft{Keep: true, Kind: "support", SchemaVersion: 1, Step: 9, Channels: []Change{{Name: "x"}}})
		return err
	},
	"branch moved": func(f *fixture, _ *testHooks, th *Thread) error {
		if err := th.SetBranch(context.Background(), "main", At("a")); err != nil {
			return err
		}
		return th.SetBranch(context.Background(), "other", At("c"))
	},
	"branch deleted": func(f *fixture, _ *testHooks, th *Thread) error {
		if err := th.DeleteBranch(context.Background(), "main"); !errors.Is(err, ErrNotFound) {
			return err
		}
		return nil
	},
	"head migrated": func(f *fixture, _ *testHooks, th *Thread) error {
		_, err := th.Upkeep().MigrateHead(context.Background(), upkeep.HeadMigration{To: 2})
		return err
	},
	"history migrated": func(f *fixture, _ *testHooks, th *Thread) error {
		_, err := th.Upkeep().MigrateHistory(context.Background(), 2, false)
		return err
	},
	"history migrated and restored": func(f *fixture, _ *testHooks, th *Thread) error {
		_, err := th.Upkeep().MigrateHistory(context.Background(), 2, false)
		if err == nil {
			err = th.Upkeep().RestoreHistory(context.Background())
		}
		return err
	},
	"hooks installed": func(_ *fixture, h *testHooks, _ *Thread) error {
		h.set(hook.PreSave, each("other", func(b []byte) []byte { return append([]byte("{}"), b...)[:len(b)] }))
		return nil
	},
	"hooks refuse": func(_ *fixture, h *testHooks, _ *Thread) error {
		h.set(hook.PreSave, refusing(errors.New("no")))
		return nil
	},
}

// A save repeated under its id, because its answer was lost, returns the checkpoint as it is by
// then, and writes nothing, whatever has happened to the checkpoints it depends on.
func TestRepeatedSaveIsAnsweredAsTheFirstTime(t *testing.T) {
	ctx := context.Background()
	for circumstance, happen := range circumstances {
		for _, way := range []string{"whole", "whole, on the tip", "changed channel", "new channel", "splice", "splice, no parent", "status", "removed channel"} {
			t.Run(circumstance+"/"+way, func(t *testing.T) {
				h := &testHooks{}
				f := newFixture(t, Options{Hooks: h, Migrations: only(supportSet(t))})
				mustSave(t, f, testRef("t"), func() Draft { d := supportDraft(supportV1); d.ID = "a"; return d }())
				b := mustSave(t, f, testRef("t"), func() Draft { d := supportDraft(supportV1); d.ID, d.Step = "b", 2; return d }())
				d := repeatable(b)[way]
				mustSave(t, f, testRef("t"), d)
				if err := happen(f, h, f.Thread(testRef("t"))); err != nil {
					t.Fatal(err)
				}
				th := f.Thread(testRef("t"))
				now := mustLoad(t, th, At("c"))
				before := allEntries(t, f.be)
				for range 2 {
					again, err := th.Save(ctx, d)
					if err != nil {
						t.Fatal(err)
					}
					if again.ID != "c" || again.Seq != now.Seq || again.Hash != now.Hash || !maps.Equal(again.Labels, now.Labels) {
						t.Errorf("answered as seq %d with labels %v, the checkpoint is seq %d with labels %v", again.Seq, again.Labels, now.Seq, now.Labels)
					}
					f.reopen()
					th = f.Thread(testRef("t"))
				}
				if !sameEntries(allEntries(t, f.be), before) {
					t.Error("something was written")
				}
			})
		}
	}
}

// A different save does not count as the same one, even with the same id.
func TestSaveUnderAnIDIsNoRepetition(t *testing.T) {
	f := newFixture(t, Options{})
	ref := testRef("t")
	b := mustSave(t, f, ref, supportDraft(supportV1))
	for way, d := range repeatable(b) {
		d.Parent, d.ID = b.ID, way
		first := mustSave(t, f, ref, d)
		for _, change := range []func(d *Draft){
			func(d *Draft) { d.Step++ },
			func(d *Draft) { d.Labels = map[string]string{"mine": "no"} },
			func(d *Draft) { d.Channels = append([]Change{{Name: "more"}}, d.Channels...) },
			func(d *Draft) { d.Status = StatusFailed },
			func(*Draft) {}, // as the first time, over later changes
		} {
			other := d
			change(&other)
			cp := mustSave(t, f, ref, other)
			if cp.Seq <= first.Seq || cp.ID != way {
				t.Errorf("%s: another save is answered as seq %d", way, cp.Seq)
			}
			first = cp
		}
	}
	mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
}
