package engine

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/hook"
)

func TestHooksOfWrites(t *testing.T) {
	ctx := context.Background()
	f, h := newHookFixture(t)
	th := f.Thread(testRef("t"))
	c := redacting("sk")
	run := c.run
	c.run = func(ctx context.Context, call *hook.Call) error {
		if call.PutBlob != nil {
			t.Error("a write may put a blob, which no checkpoint keeps")
		}
		for i := range call.Items {
			call.Items[i].Dropped = string(call.Items[i].Data) == "drop"
		}
		return run(ctx, call)
	}
	h.set(hook.PreSave, c)
	put := func(ws ...Write) error {
		_, err := th.PutWrites(ctx, "cp", "task", "p", Upsert, ws, 0)
		return err
	}
	for range 2 {
		if err := put(Write{Channel: "a", Type: "json", Data: []byte(`"sk-1"`)}, Write{Index: 1, Channel: "b", Data: []byte("drop")}, Write{Index: 2, Data: []byte("b"), Channel: "b"}); err != nil {
			t.Fatal(err)
		}
	}
	want := []PendingWrite{{"task", "p", Write{0, "a", "json", []byte(`"<sk>"`)}}, {"task", "p", Write{2, "b", "", []byte("b")}}}
	got, err := th.Writes(ctx, "cp")
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
	before := allEntries(t, f.be)
	h.set(hook.PreSave, refusing(hook.ErrTrap))
	if err := put(Write{Channel: "a", Data: []byte("sk-2")}); !errors.Is(err, ErrRejected) || !errors.Is(err, hook.ErrTrap) {
		t.Errorf("error %v, want ErrRejected", err)
	}
	if !sameEntries(before, allEntries(t, f.be)) {
		t.Error("something was stored")
	}
	h.set(hook.Load, &testChain{run: func(_ context.Context, c *hook.Call) error {
		c.Items[0].Dropped, c.Items[1].Data = true, []byte("given")
		return nil
	}})
	got, err = th.Writes(ctx, "cp")
	want = want[1:]
	want[0].Data = []byte("given")
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
}

// Hooks see the strings that are stored unchanged, and can refuse them.
func TestHooksSeeNames(t *testing.T) {
	ctx := context.Background()
	f, h := newHookFixture(t)
	seen := map[string]bool{}
	h.set(hook.PreSave, &testChain{run: func(_ context.Context, c *hook.Call) error {
		for _, n := range c.Names {
			seen[n.Text] = true
		}
		return nil
	}})
	ref := testRef("thread-1")
	ref.Namespace = "namespace-1"
	mustSave(t, f, ref, Draft{ID: "id-1", Branch: "branch-1", Kind: "kind-1", Status: "status-1", RunID: "run-1", Channels: []Change{{Name: "a", Data: []byte("a")}}})
	if _, err := f.Thread(ref).PutWrites(ctx, "id-2", "task-1", "path-1", Upsert, []Write{{Channel: "a", Data: []byte("w")}}, 0); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"thread-1", "namespace-1", "id-1", "branch-1", "kind-1", "status-1", "run-1", "id-2", "task-1", "path-1"} {
		if !seen[name] {
			t.Errorf("%s was not shown", name)
		}
	}
}

func TestHooksOfLabels(t *testing.T) {
	ctx := context.Background()
	f, h := newHookFixture(t)
	ref := testRef("t")
	th := f.Thread(ref)
	h.set(hook.PreSave, redacting("id"))
	mustSave(t, f, ref, Draft{ID: "a", Labels: map[string]string{"old": "sk-0", "gone": "x"}, Meta: []byte(`"sk-1"`),
		Channels: []Change{{Name: "a", Data: []byte("id-1 sk-1")}, {Name: "b", Data: []byte("b")}}})
	mustSave(t, f, ref, Draft{ID: "b", Keep: true})
	set := func(labels map[string]string) *Checkpoint {
		t.Helper()
		cp, err := th.SetLabels(ctx, At("a"), labels)
		if err != nil {
			t.Fatal(err)
		}
		return cp
	}
	check := func(cp *Checkpoint, labels map[string]string, a string) {
		t.Helper()
		if d := cmp.Diff(labels, cp.Labels); d != "" {
			t.Error(d)
		}
		if got := dataOf(t, f, ref, At("a")); got["a"] != a || got["b"] != "b" {
			t.Errorf("state %v", got)
		}
		if ch, _ := cp.Channel("a"); !ch.Rewritten {
			t.Error("channel a was rewritten, and is not told so")
		}
	}
	c := redacting("id")
	h.set(hook.PreSave, c)
	check(set(map[string]string{"new": "id-1", "id-2": "y", "gone": ""}), map[string]string{"old": "sk-0", "new": "<id>", "<id>": "y"}, "<id> sk-1")
	if got := c.takeSeen(); len(got) != 2 {
		t.Errorf("the hooks saw %v", got)
	}
	before := allEntries(t, f.be)
	set(map[string]string{"new": "id-3", "old": "sk-0"})
	if !sameEntries(before, allEntries(t, f.be)) {
		t.Error("labels that hooks make the same were saved again")
	}
	h.set(hook.PreSave, refusing(hook.ErrRejected))
	if _, err := th.SetLabels(ctx, At("a"), map[string]string{"l": "sk-1"}); !errors.Is(err, ErrRejected) {
		t.Errorf("error %v, want ErrRejected", err)
	}
	if !sameEntries(before, allEntries(t, f.be)) {
		t.Error("something was stored")
	}
	sk := redacting("sk")
	h.set(hook.PreSave, sk)
	cp := set(map[string]string{"more": "sk-9"})
	check(cp, map[string]string{"old": "<sk>", "new": "<id>", "<id>": "y", "more": "<sk>"}, "<id> <sk>")
	if string(cp.Meta) != `"<sk>"` || cp.Hooks[0].Name != sk.ids[0].Name {
		t.Errorf("metadata %s, hooks %v", cp.Meta, cp.Hooks)
	}
	h.set(hook.PreSave, nil)
	if cp = set(map[string]string{"more": "sk-9"}); cp.Hooks != nil {
		t.Errorf("hooks %v", cp.Hooks)
	}
	check(cp, map[string]string{"old": "<sk>", "new": "<id>", "<id>": "y", "more": "sk-9"}, "<id> <sk>")
}

// A head that moves while hooks run is noticed when they are through.
func TestHeadMovesWhileHooksRun(t *testing.T) {
	ctx := context.Background()
	f, h := newHookFixture(t)
	ref := testRef("t")
	quiet := redacting("sk")
	h.set(hook.PreSave, quiet)
	first := mustSave(t, f, ref, Draft{Channels: []Change{{Name: "a", Data: []byte("one")}, {Name: "b", Data: []byte("b")}}})
	a, _ := first.Channel("a")
	moves := func(d Draft) *testChain {
		once := true
		c := redacting("sk")
		c.run = func(ctx context.Context, call *hook.Call) error {
			if once {
				once = false
				h.set(hook.PreSave, quiet)
				mustSave(t, f, ref, d)
			}
			return quiet.run(ctx, call)
		}
		return c
	}
	h.set(hook.PreSave, moves(Draft{Keep: true, Channels: []Change{{Name: "a", Data: []byte("other")}}}))
	before := len(allEntries(t, f.be))
	_, err := f.Thread(ref).Save(ctx, Draft{Keep: true, Channels: []Change{{Name: "a", Base: a.Version, Prefix: 3, Data: []byte(" sk-1")}}})
	if !errors.Is(err, ErrNeedFull) || len(allEntries(t, f.be)) != before+1 {
		t.Errorf("a splice on a former parent: %v", err)
	}
	h.set(hook.PreSave, moves(Draft{Keep: true, Channels: []Change{{Name: "a", Data: []byte("sk-2")}}}))
	mustSave(t, f, ref, Draft{Keep: true, Channels: []Change{{Name: "b", Data: []byte("sk-3")}}})
	if d := cmp.Diff(map[string]string{"a": "<sk>", "b": "<sk>"}, dataOf(t, f, ref, Latest)); d != "" {
		t.Error(d)
	}
	h.set(hook.PreSave, moves(Draft{Keep: true}))
	if _, err := f.Thread(ref).Save(ctx, Draft{Keep: true, Expect: ExpectHead(4)}); !errors.Is(err, ErrConflict) {
		t.Errorf("error %v, want ErrConflict", err)
	}
}

func TestHooksOfLoads(t *testing.T) {
	ctx := context.Background()
	f, h := newHookFixture(t)
	ref := testRef("t")
	th := f.Thread(ref)
	mustSave(t, f, ref, Draft{ID: "a", Meta: []byte(`"sk-1"`), Labels: map[string]string{"l": "sk-2"}, Channels: []Change{jsonChannel("a", `["sk-3"]`), jsonChannel("b", `1`)}})
	mustSave(t, f, ref, Draft{ID: "b", Keep: true, Channels: []Change{jsonChannel("a", `["sk-4"]`)}})
	c := redacting("sk")
	h.set(hook.Load, c)
	export := each("export", bytes.ToUpper)
	h.set(hook.Export, export)
	check := func(what string, cp *Checkpoint, err error, data string) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		a, _ := cp.Channel("a")
		if !strings.EqualFold(cp.Labels["l"]+string(cp.Meta), `<sk>"<sk>"`) && !strings.EqualFold(cp.Labels["L"]+string(cp.Meta), `<sk>"<sk>"`) || string(a.Data) != data || a.Rewritten != (data != "") {
			t.Errorf("%s: labels %v, metadata %s, channel %+v", what, cp.Labels, cp.Meta, a)
		}
		if data != "" {
			_, err := th.Save(ctx, Draft{Parent: cp.ID, Keep: true, Channels: []Change{{Name: "a", Base: a.Version, Prefix: 1}}})
			if !errors.Is(err, ErrNeedFull) {
				t.Errorf("%s: a splice on load hooks' output: %v", what, err)
			}
		}
	}
	cp, err := th.Load(ctx, Latest)
	check("load", cp, err, `["<sk>"]`)
	if b, _ := cp.Channel("b"); b.Rewritten {
		t.Error("unchanged channels are marked rewritten")
	}
	cp, err = th.Load(ctx, At("a"), LoadOptions{Channels: []string{"a"}, Export: true})
	check("export", cp, err, `["<SK>"]`)
	c.takeSeen()
	cp, err = th.Load(ctx, At("a"), LoadOptions{HeadersOnly: true})
	check("headers", cp, err, "")
	if d := cmp.Diff([]string{"metadata ", "label l"}, c.takeSeen()); d != "" && len(c.takeSeen()) > 2 {
		t.Error(d)
	}
	for cp, err := range th.History(ctx, HistoryOptions{Data: true}) {
		check("history", cp, err, `["<sk>"]`)
	}
	for cp, err := range th.History(ctx, HistoryOptions{Data: true, Export: true}) {
		check("exported history", cp, err, `["<SK>"]`)
	}
	for cp, err := range f.User("acme", "alice").Query(ctx, Query{}) {
		check("query", cp, err, "")
	}
	for info, err := range f.User("acme", "alice").Threads(ctx, ThreadOptions{}) {
		if err != nil || info.Labels["l"] != "<sk>" {
			t.Errorf("threads: %v %v", info.Labels, err)
		}
	}
	tree, err := th.Tree(ctx)
	check("tree", tree.Nodes[0].Checkpoint, err, "")
	d, err := th.Diff(ctx, At("a"), At("b"))
	if err != nil || d.Channels[0].Kind != Same || d.To.Channels[0].Data != nil {
		t.Errorf("diff: %+v, %v", d, err)
	}

	h.set(hook.Export, refusing(hook.ErrFuel))
	if _, err := th.Load(ctx, Latest, LoadOptions{Export: true}); !errors.Is(err, ErrRejected) || !errors.Is(err, hook.ErrFuel) {
		t.Errorf("an export that hooks refuse: %v", err)
	}
	h.set(hook.Load, refusing(hook.ErrFuel))
	if _, err := th.Load(ctx, Latest); !errors.Is(err, ErrRejected) {
		t.Errorf("a load that hooks refuse: %v", err)
	}
	h.set(hook.Load, nil)
	if got := dataOf(t, f, ref, Latest)["a"]; got != `["sk-4"]` {
		t.Errorf("stored is %s", got)
	}
}

func TestCopyToOtherHooks(t *testing.T) {
	ctx := context.Background()
	f, h := newHookFixture(t)
	mustSave(t, f, testRef("free"), Draft{Channels: []Change{{Name: "a", Data: []byte("sk-1")}}})
	h.only = "strict"
	h.set(hook.PreSave, redacting("sk"))
	mustSave(t, f, testRef("strict"), Draft{Channels: []Change{{Name: "a", Data: []byte("sk-1")}}})
	if err := f.Thread(testRef("free")).Copy(ctx, testRef("strict-2")); !errors.Is(err, ErrRejected) {
		t.Errorf("copying past the hooks: %v, want ErrRejected", err)
	}
	for _, to := range []string{"strict-3", "free-2"} {
		if err := f.Thread(testRef("strict")).Copy(ctx, testRef(to)); err != nil {
			t.Error(err)
		}
		if got, _ := f.Thread(testRef(to)).Load(ctx, Latest); got == nil || len(got.Hooks) != 1 {
			t.Errorf("the copy is %+v", got)
		}
	}
}
