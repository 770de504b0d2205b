package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// A thread has one kind: said once, every later checkpoint has it, however it is made.
func TestKindStays(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	save := func(d Draft) *Checkpoint {
		t.Helper()
		cp, err := th.Save(ctx, d)
		if err != nil {
			t.Fatal(err)
		}
		return cp
	}
	first := save(Draft{Channels: []Change{jsonChannel("a", "1")}})
	if first.Kind != "" {
		t.Errorf("kind is %q before one was said", first.Kind)
	}
	named := save(Draft{Kind: "support", SchemaVersion: 3, Channels: []Change{jsonChannel("a", "2")}})
	kept := save(Draft{Keep: true, SchemaVersion: 3, Channels: []Change{jsonChannel("b", "2")}})
	whole := save(Draft{ID: "mine", SchemaVersion: 3, Channels: []Change{jsonChannel("a", "3")}})
	if again := save(Draft{ID: "mine", SchemaVersion: 3, Channels: []Change{jsonChannel("a", "3")}}); again.Seq != whole.Seq {
		t.Errorf("the same save again is another checkpoint: seq %d after %d", again.Seq, whole.Seq)
	}
	labelled, err := th.SetLabels(ctx, Latest, map[string]string{"env": "prod"})
	if err != nil {
		t.Fatal(err)
	}
	forked, err := th.Fork(ctx, At(named.ID), "b")
	if err != nil {
		t.Fatal(err)
	}
	if err := th.Copy(ctx, testRef("copy")); err != nil {
		t.Fatal(err)
	}
	f.reopen()
	copied, err := f.Thread(testRef("copy")).Load(ctx, Latest)
	if err != nil {
		t.Fatal(err)
	}
	for name, cp := range map[string]*Checkpoint{"named": named, "kept": kept, "whole": whole, "labelled": labelled, "forked": forked, "copied": copied} {
		if cp.Kind != "support" || cp.SchemaVersion != 3 {
			t.Errorf("%s is of kind %q, version %d", name, cp.Kind, cp.SchemaVersion)
		}
	}
	_, err = f.Thread(testRef("t")).Save(ctx, Draft{Kind: "sales", Channels: []Change{jsonChannel("a", "4")}})
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), `"sales"`) || !strings.Contains(err.Error(), `"support"`) {
		t.Errorf("another kind: %v, want ErrInvalid that names both", err)
	}
	d, err := f.Thread(testRef("t")).Diff(ctx, At(first.ID), At(named.ID))
	if err != nil || len(d.Fields) != 2 || d.Fields[0] != (FieldDiff{"kind", Added, "", "support"}) {
		t.Errorf("fields that differ are %+v, %v", d.Fields, err)
	}
	for info, err := range f.User("acme", "alice").Threads(ctx, ThreadOptions{}) {
		if err != nil || info.Kind != "support" || info.SchemaVersion != 3 {
			t.Errorf("listed is %+v, %v", info, err)
		}
	}
}
