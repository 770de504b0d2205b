package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// faultNamespaces are those that the tests use.
var faultNamespaces = []string{"", "sub", "new"}

// faultWorld is the content of a store at the start of each run of the sweep.
type faultWorld struct {
	f        *fixture
	entries  []backend.Entry
	contents map[spot]string

	chat  []*Checkpoint // of the thread "chat", a line with deltas
	state map[string][]byte
	big   []byte // needs a part of its own
	huge  []byte // needs more parts than fit into the batch of a save
}

func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func newFaultWorld(t *testing.T) *faultWorld {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w := &faultWorld{f: newFixture(t, Options{Now: func() time.Time { return now }}), big: noise(r, 70<<10), huge: noise(r, 530<<10)}
	w.state = map[string][]byte{"messages": words(r, 2000), "plan": words(r, 500)}
	for i := range 12 {
		w.state["messages"] = append(bytes.Clone(w.state["messages"]), words(r, 100)...)
		d := Draft{Step: int64(i), RunID: "run", Channels: changes(w.state), Branch: "main"}
		if i%3 == 0 {
			d.ID = fmt.Sprint("c", i)
		}
		if i == 5 {
			d.Labels, d.Meta, d.Status = map[string]string{"env": "prod"}, []byte(`{"a":1}`), StatusFailed
		}
		w.chat = append(w.chat, mustSave(t, w.f, testRef("chat"), d))
	}
	sub := testRef("chat")
	sub.Namespace = "sub"
	mustSave(t, w.f, sub, Draft{CalledFrom: "c0", Channels: changes(map[string][]byte{"x": w.big})})
	mustSave(t, w.f, testRef("other"), Draft{ID: "o1", Channels: changes(map[string][]byte{"x": []byte("1")}), TTL: time.Hour})
	tree := testRef("tree")
	mustSave(t, w.f, tree, Draft{ID: "root", Channels: changes(map[string][]byte{"x": words(r, 3000)})})
	for i := range 6 {
		parent := "root"
		if i > 1 {
			parent = fmt.Sprint("n", i-2)
		}
		mustSave(t, w.f, tree, Draft{ID: fmt.Sprint("n", i), Parent: parent, Keep: true, Branch: fmt.Sprint("b", i%2), Channels: []Change{{Name: "y", Data: words(r, 300)}}})
	}
	w.entries = allEntries(t, w.f.be)
	w.contents = contents(t, w.f.Store)
	if len(w.contents) != 12+1+1+7+3 {
		t.Fatalf("the world has %d checkpoints and threads", len(w.contents))
	}
	return w
}

// warm brings heads into memory.
func (w *faultWorld) warm(t *testing.T, s *Store) {
	sub := testRef("chat")
	sub.Namespace = "sub"
	for _, ref := range []Ref{testRef("chat"), sub, testRef("other"), testRef("tree")} {
		if _, err := s.Thread(ref).Load(context.Background(), Latest); err != nil {
			t.Fatal(err)
		}
	}
}

func changes(state map[string][]byte) (cs []Change) {
	for _, name := range []string{"messages", "plan", "x", "y"} {
		if data, ok := state[name]; ok {
			cs = append(cs, Change{Name: name, Data: data})
		}
	}
	return cs
}

// with returns the state with one channel set.
func (w *faultWorld) with(name string, data []byte) map[string][]byte {
	next := map[string][]byte{name: data}
	for k, v := range w.state {
		if k != name {
			next[k] = v
		}
	}
	return next
}

func conflicts(err error) bool { return errors.Is(err, ErrConflict) }

func missing(err error) bool { return errors.Is(err, ErrNotFound) }

func inNamespace(name string) func(spot) bool {
	return func(at spot) bool { return at.ref.Namespace == name }
}

func inThread(names ...string) func(spot) bool {
	return func(at spot) bool {
		for _, name := range names {
			if at.ref.Thread == name {
				return true
			}
		}
		return false
	}
}

// saving makes a sweep operation of a save to the thread "chat" whose head is the end of the line.
func savingOp(name string, make func(w *faultWorld) (Draft, map[string][]byte)) faultOp {
	return faultOp{name: name, again: conflicts, run: func(ctx context.Context, b *bed) error {
		d, state := make(b.w)
		return b.save(ctx, testRef("chat"), d, state)
	}}
}

func loadingOp(name string, which func(w *faultWorld) Which, want func(w *faultWorld) string, o ...LoadOptions) faultOp {
	return faultOp{name: "load " + name, reads: true, run: func(ctx context.Context, b *bed) error {
		cp, err := b.Thread(testRef("chat")).Load(ctx, which(b.w), o...)
		if err == nil && cp.ID != want(b.w) {
			err = fmt.Errorf("loaded %s, want %s", cp.ID, want(b.w))
		}
		return err
	}}
}

func historyOp(name string, thread string, o HistoryOptions, want int) faultOp {
	return faultOp{name: "history " + name, reads: true, run: func(ctx context.Context, b *bed) error {
		return counted(b.Thread(testRef(thread)).History(ctx, o), want)
	}}
}

// counted runs to the end of a sequence, which is its first error.
func counted[T any](seq iter.Seq2[T, error], want int) error {
	n := 0
	for _, err := range seq {
		if err != nil {
			return err
		}
		n++
	}
	if n != want {
		return fmt.Errorf("%d, want %d", n, want)
	}
	return nil
}

func head(w *faultWorld) string { return w.chat[len(w.chat)-1].ID }

var faultOps = []faultOp{
	savingOp("save full", func(w *faultWorld) (Draft, map[string][]byte) {
		s := w.with("plan", []byte("another plan"))
		return Draft{Channels: changes(s)}, s
	}),
	savingOp("save keep", func(w *faultWorld) (Draft, map[string][]byte) {
		s := w.with("x", []byte("a new channel"))
		return Draft{Keep: true, Channels: []Change{{Name: "x", Data: s["x"]}}}, s
	}),
	savingOp("save splice", func(w *faultWorld) (Draft, map[string][]byte) {
		m := w.state["messages"]
		last, _ := w.chat[len(w.chat)-1].Channel("messages")
		s := w.with("messages", []byte(string(m[:100])+" spliced "+string(m[len(m)-50:])))
		return Draft{Parent: head(w), Keep: true, Channels: []Change{{Name: "messages", Base: last.Version, Prefix: 100, Suffix: 50, Data: []byte(" spliced ")}}}, s
	}),
	savingOp("save remove", func(w *faultWorld) (Draft, map[string][]byte) {
		return Draft{Keep: true, Channels: []Change{{Name: "plan", Remove: true}}}, map[string][]byte{"messages": w.state["messages"]}
	}),
	savingOp("save with id", func(w *faultWorld) (Draft, map[string][]byte) {
		s := w.with("plan", []byte("with an id"))
		return Draft{ID: "c-new", Parent: head(w), Channels: changes(s)}, s
	}),
	savingOp("save with uuid", func(w *faultWorld) (Draft, map[string][]byte) {
		s := w.with("plan", []byte("with an id"))
		return Draft{ID: "1ef5cbe4-1b1e-6c60-bfff-0123456789ab", Parent: head(w), Channels: changes(s)}, s
	}),
	savingOp("save same again", func(w *faultWorld) (Draft, map[string][]byte) {
		s := w.with("plan", []byte("twice"))
		return Draft{ID: "c9-again", Parent: "c9", Channels: changes(s)}, s
	}),
	savingOp("save on condition", func(w *faultWorld) (Draft, map[string][]byte) {
		s := w.with("plan", []byte("conditional"))
		return Draft{Expect: ExpectHead(12), Channels: changes(s)}, s
	}),
	savingOp("save described", func(w *faultWorld) (Draft, map[string][]byte) {
		s := w.with("plan", []byte("described"))
		labels := map[string]string{}
		for i := range 40 { // more index entries than fit into the batch of a save
			labels[fmt.Sprint("label ", i)] = "v"
		}
		return Draft{RunID: "another run", Labels: labels, Meta: []byte(`{"b":[2]}`), Status: StatusSucceeded, Channels: changes(s)}, s
	}),
	savingOp("save on a branch", func(w *faultWorld) (Draft, map[string][]byte) {
		s := w.with("plan", []byte("branched"))
		return Draft{Branch: "main", Channels: changes(s)}, s
	}),
	savingOp("save fork", func(w *faultWorld) (Draft, map[string][]byte) {
		s := w.with("plan", []byte("forked"))
		return Draft{Parent: w.chat[4].ID, Branch: "side", Channels: changes(s)}, s
	}),
	savingOp("save dangling", func(w *faultWorld) (Draft, map[string][]byte) {
		s := w.with("plan", []byte("dangling"))
		return Draft{Parent: "nobody", AllowDangling: true, Channels: changes(s)}, s
	}),
	savingOp("save root", func(w *faultWorld) (Draft, map[string][]byte) {
		s := w.with("plan", []byte("root"))
		return Draft{Root: true, Channels: changes(s)}, s
	}),
	savingOp("save large", func(w *faultWorld) (Draft, map[string][]byte) {
		s := w.with("x", append([]byte("large"), w.big...))
		return Draft{Channels: changes(s)}, s
	}),
	savingOp("save huge", func(w *faultWorld) (Draft, map[string][]byte) {
		s := w.with("x", w.huge)
		return Draft{Channels: changes(s)}, s
	}),
	savingOp("save with ttl", func(w *faultWorld) (Draft, map[string][]byte) {
		s := w.with("plan", []byte("expires"))
		return Draft{TTL: time.Hour, Channels: changes(s)}, s
	}),
	{name: "save in a new namespace", run: func(ctx context.Context, b *bed) error {
		ref, s := testRef("chat"), map[string][]byte{"x": b.w.big}
		ref.Namespace = "new"
		return b.save(ctx, ref, Draft{Channels: changes(s)}, s)
	}},
	{name: "save of a new user", run: func(ctx context.Context, b *bed) error {
		ref, s := Ref{Tenant: "acme", User: "bob", Thread: "first"}, map[string][]byte{"x": words(rand.New(rand.NewPCG(3, 4)), 5000)}
		return b.save(ctx, ref, Draft{Channels: changes(s)}, s)
	}},
	{name: "several saves", run: func(ctx context.Context, b *bed) error {
		ref := testRef("several")
		for i := range 4 {
			s := map[string][]byte{"x": []byte(strings.Repeat("again ", 100*(i+1)))}
			if err := b.save(ctx, ref, Draft{ID: fmt.Sprint("s", i), Channels: changes(s)}, s); err != nil {
				return err
			}
		}
		return nil
	}, changes: inThread("several")},

	loadingOp("latest", func(w *faultWorld) Which { return Latest }, head),
	loadingOp("latest by id", func(w *faultWorld) Which { return LatestByID() }, head),
	loadingOp("at the head", func(w *faultWorld) Which { return At(head(w)) }, head),
	loadingOp("at an id of a caller", func(w *faultWorld) Which { return At("c3") }, func(w *faultWorld) string { return "c3" }),
	loadingOp("at an id", func(w *faultWorld) Which { return At(w.chat[4].ID) }, func(w *faultWorld) string { return w.chat[4].ID }),
	loadingOp("at a seq", func(w *faultWorld) Which { return AtSeq(8) }, func(w *faultWorld) string { return w.chat[7].ID }),
	loadingOp("before", func(w *faultWorld) Which { return Before(w.chat[5].ID) }, func(w *faultWorld) string { return w.chat[4].ID }),
	loadingOp("latest of a run", func(w *faultWorld) Which { return LatestOfRun("run") }, head),
	loadingOp("head of a branch", func(w *faultWorld) Which { return HeadOf("main") }, head),
	loadingOp("headers", func(w *faultWorld) Which { return AtSeq(7) }, func(w *faultWorld) string { return w.chat[6].ID }, LoadOptions{HeadersOnly: true}),
	loadingOp("one channel", func(w *faultWorld) Which { return AtSeq(7) }, func(w *faultWorld) string { return w.chat[6].ID }, LoadOptions{Channels: []string{"plan"}}),
	{name: "load parts", reads: true, run: func(ctx context.Context, b *bed) error {
		ref := testRef("chat")
		ref.Namespace = "sub"
		cp, err := b.Thread(ref).Load(ctx, Latest)
		if err == nil && !bytes.Equal(cp.Channels[0].Data, b.w.big) {
			err = errors.New("loaded something else")
		}
		return err
	}},
	{name: "load of nobody", reads: true, run: func(ctx context.Context, b *bed) error {
		if _, err := b.Thread(testRef("nobody")).Load(ctx, Latest); !errors.Is(err, ErrNotFound) {
			return err
		}
		return nil
	}},

	historyOp("", "chat", HistoryOptions{}, 12),
	historyOp("with data", "chat", HistoryOptions{Data: true, Limit: 5}, 5),
	historyOp("of a run before", "chat", HistoryOptions{Before: "c9", Filter: Filter{RunID: "run", Status: StatusRunning}}, 8),
	historyOp("of a branch", "tree", HistoryOptions{Branch: "b1"}, 4),
	historyOp("from", "tree", HistoryOptions{From: "n4", Before: "n4"}, 3),

	{name: "threads", reads: true, run: func(ctx context.Context, b *bed) error {
		return counted(b.User("acme", "alice").Threads(ctx, ThreadOptions{Count: true}), 3)
	}},
	{name: "latest of a user", reads: true, run: func(ctx context.Context, b *bed) error {
		_, err := b.User("acme", "alice").Latest(ctx)
		return err
	}},
	{name: "delete", again: missing, changes: inThread("chat"), run: func(ctx context.Context, b *bed) error {
		generation, err := b.Thread(testRef("chat")).Delete(ctx)
		if err == nil && generation != 2 {
			err = fmt.Errorf("generation %d", generation)
		}
		return err
	}},
	{name: "delete a namespace", again: missing, changes: inNamespace("sub"), run: func(ctx context.Context, b *bed) error {
		generation, err := b.Thread(nsRef("chat", "sub")).Delete(ctx)
		if err == nil && generation != 1<<32+2 {
			err = fmt.Errorf("generation %#x", generation)
		}
		return err
	}},
	{name: "delete a namespace and save afresh", changes: inNamespace("sub"), run: func(ctx context.Context, b *bed) error {
		generation, err := b.Thread(nsRef("chat", "sub")).Delete(ctx)
		if errors.Is(err, ErrNotFound) {
			generation, err = 1<<32+2, nil
		}
		if err != nil {
			return err
		}
		s := map[string][]byte{"x": []byte("afresh")}
		return b.save(ctx, nsRef("chat", "sub"), Draft{ID: "c3", Generation: generation, Channels: changes(s)}, s)
	}},
	{name: "delete and save afresh", changes: inThread("chat"), run: func(ctx context.Context, b *bed) error {
		generation, err := b.Thread(testRef("chat")).Delete(ctx)
		if errors.Is(err, ErrNotFound) {
			generation, err = 2, nil
		}
		if err != nil {
			return err
		}
		s := map[string][]byte{"x": []byte("afresh")}
		return b.save(ctx, testRef("chat"), Draft{ID: "c3", Generation: generation, Channels: changes(s)}, s)
	}},

	savingOp("replace", func(w *faultWorld) (Draft, map[string][]byte) {
		s := w.with("plan", []byte("replaced"))
		return Draft{ID: "c3", Channels: changes(s)}, s
	}).replacing(func(*faultWorld) string { return "c3" }),
	savingOp("replace one of the engine's own ids", func(w *faultWorld) (Draft, map[string][]byte) {
		s := w.with("plan", []byte("replaced"))
		return Draft{ID: w.chat[4].ID, Channels: changes(s)}, s
	}).replacing(func(w *faultWorld) string { return w.chat[4].ID }),
	savingOp("replace the head", func(w *faultWorld) (Draft, map[string][]byte) {
		s := w.with("plan", []byte("replaced"))
		return Draft{ID: head(w), Branch: "main", Channels: changes(s)}, s
	}).replacing(head),
	{name: "fork", again: conflicts, run: func(ctx context.Context, b *bed) error {
		cp, err := b.Thread(testRef("tree")).Fork(ctx, At("n3"), "new branch")
		if err == nil && cp.ID != "n3" {
			err = fmt.Errorf("forked at %s", cp.ID)
		}
		return err
	}},
	{name: "fork and save", again: conflicts, run: func(ctx context.Context, b *bed) error {
		_, err := b.Thread(testRef("chat")).Fork(ctx, AtSeq(3), "new branch")
		if err != nil && !errors.Is(err, ErrConflict) {
			return err
		}
		s := b.w.with("plan", []byte("forked"))
		return b.save(ctx, testRef("chat"), Draft{ID: "forked", Branch: "new branch", Channels: changes(s)}, s)
	}},
	{name: "set a branch", run: func(ctx context.Context, b *bed) error {
		th := b.Thread(testRef("tree"))
		if err := th.SetBranch(ctx, "b0", At("n1")); err != nil {
			return err
		}
		cp, err := th.Load(ctx, HeadOf("b0"))
		if err == nil && cp.ID != "n1" {
			err = fmt.Errorf("the branch is at %s", cp.ID)
		}
		return err
	}},
	{name: "delete a branch", again: missing, run: func(ctx context.Context, b *bed) error {
		return b.Thread(testRef("tree")).DeleteBranch(ctx, "b0")
	}},
	{name: "branches", reads: true, run: func(ctx context.Context, b *bed) error {
		branches, err := b.Thread(testRef("tree")).Branches(ctx)
		if err == nil && len(branches) != 2 {
			err = fmt.Errorf("branches %v", branches)
		}
		return err
	}},
	{name: "tree", reads: true, run: func(ctx context.Context, b *bed) error {
		tree, err := b.Thread(testRef("tree")).Tree(ctx)
		if err == nil && (len(tree.Nodes) != 7 || len(tree.Heads) != 2) {
			err = fmt.Errorf("%d nodes, %d heads", len(tree.Nodes), len(tree.Heads))
		}
		return err
	}},
	{name: "namespaces", reads: true, run: func(ctx context.Context, b *bed) error {
		names, err := b.Thread(testRef("chat")).Namespaces(ctx)
		if err == nil && len(names) != 2 {
			err = fmt.Errorf("namespaces %q", names)
		}
		return err
	}},
	faultOp{name: "set labels", run: func(ctx context.Context, b *bed) error {
		cp, err := b.Thread(testRef("chat")).SetLabels(ctx, At("c3"), map[string]string{"env": "test"})
		if err == nil && cp.Labels["env"] != "test" {
			err = fmt.Errorf("labels %v", cp.Labels)
		}
		return err
	}}.replacing(func(*faultWorld) string { return "c3" }),
	{name: "query", reads: true, run: func(ctx context.Context, b *bed) error {
		return counted(b.User("acme", "alice").Query(ctx, Query{Filter: Filter{Labels: map[string]string{"env": "prod"}}}), 1)
	}},
	{name: "query a tenant", reads: true, run: func(ctx context.Context, b *bed) error {
		return counted(b.QueryTenant(ctx, "acme", Query{Filter: Filter{RunID: "run"}}), 12)
	}},
	{name: "query by looking at all", reads: true, run: func(ctx context.Context, b *bed) error {
		most := int64(3)
		return counted(b.QueryTenant(ctx, "acme", Query{Filter: Filter{RunID: "run", Status: StatusRunning, MaxStep: &most}}), 4)
	}},
	{name: "verify", reads: true, run: func(ctx context.Context, b *bed) error {
		rep, err := b.Upkeep().Verify(ctx, upkeep.VerifyOptions{Deep: true})
		if err == nil && !rep.Clean() {
			err = fmt.Errorf("%d problems, the first: %v", len(rep.Problems), rep.Problems[0].Err)
		}
		return err
	}},
}

// replacing marks an operation that changes one checkpoint of the thread "chat", all or nothing.
func (op faultOp) replacing(id func(w *faultWorld) string) faultOp {
	op.replaces = func(w *faultWorld, at spot) bool { return at == spot{testRef("chat"), id(w)} }
	return op
}
