package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/backendtest"
	"github.com/ckptd/ckptd/codec"
)

func put(t *testing.T, th *Thread, checkpoint, task string, mode WriteMode, ws ...Write) {
	t.Helper()
	if _, err := th.PutWrites(context.Background(), checkpoint, task, "path/"+task, mode, ws, 0); err != nil {
		t.Fatal(err)
	}
}

// wantWrites compares the pending writes of a checkpoint with "task:index:channel=data".
func wantWrites(t *testing.T, th *Thread, checkpoint string, want ...string) {
	t.Helper()
	ws, err := th.Writes(context.Background(), checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range ws {
		got = append(got, fmt.Sprintf("%s:%d:%s=%s", w.Task, w.Index, w.Channel, w.Data))
		if w.Path != "path/"+w.Task || w.Type != "json" {
			t.Errorf("write %+v", w)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("writes of %s (-want +got):\n%s", checkpoint, d)
	}
}

func wr(index int64, channel, data string) Write {
	return Write{Index: index, Channel: channel, Type: "json", Data: []byte(data)}
}

func TestWrites(t *testing.T) {
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	put(t, th, "c1", "b", Upsert, wr(1, "y", "1"), wr(0, "x", "0"), wr(-3, "error", "oops"))
	put(t, th, "c1", "a", Ignore, wr(0, "x", "a"))
	put(t, th, "c2", "a", Upsert, wr(0, "x", "other"))
	want := []string{"a:0:x=a", "b:-3:error=oops", "b:0:x=0", "b:1:y=1"}
	wantWrites(t, th, "c1", want...)
	f.reopen()
	th = f.Thread(testRef("t"))
	wantWrites(t, th, "c1", want...)
	save(t, th, Draft{ID: "c1", Channels: []Change{jsonChannel("n", "1")}})
	wantWrites(t, th, "c1", want...)

	put(t, th, "c1", "b", Upsert, wr(1, "y2", "new"), wr(7, "z", ""), wr(7, "z", "last"))
	put(t, th, "c1", "a", Ignore, wr(0, "x", "dropped"), wr(2, "x", "first"), wr(2, "x", "second"))
	wantWrites(t, th, "c1", "a:0:x=a", "a:2:x=first", "b:-3:error=oops", "b:0:x=0", "b:1:y2=new", "b:7:z=last")
	wantWrites(t, th, "c2", "a:0:x=other")
	wantWrites(t, th, "c3")

	other := testRef("t")
	other.Namespace = "sub"
	put(t, f.Thread(other), "c1", "b", Upsert, wr(0, "x", "sub"))
	wantWrites(t, f.Thread(other), "c1", "b:0:x=sub")
	if got, err := th.Namespaces(context.Background()); err != nil || len(got) != 2 || got[1] != "sub" {
		t.Errorf("namespaces are %q, %v", got, err)
	}
}

func TestWritesOrder(t *testing.T) {
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	var want []string
	for i := range 20 {
		task := fmt.Sprint("task", 90-i)
		put(t, th, "c", task, Upsert, wr(0, "x", "1"))
		want = append([]string{task + ":0:x=1"}, want...)
	}
	wantWrites(t, th, "c", want...)
}

// Tasks come in the order of their paths, whatever their ids; tasks with one path in that of their
// ids.
func TestWritesOrderByPath(t *testing.T) {
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	for _, p := range []struct{ task, path string }{{"a", "~pull, 2"}, {"c", "~pull, 1"}, {"b", "~pull, 1"}, {"d", ""}, {"e", "~pull, 10"}} {
		if _, err := th.PutWrites(t.Context(), "cp", p.task, p.path, Upsert, []Write{wr(1, "x", "1"), wr(-1, "x", "0")}, 0); err != nil {
			t.Fatal(err)
		}
	}
	ws, err := th.Writes(t.Context(), "cp")
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, w := range ws {
		got += fmt.Sprint(w.Task, w.Index, " ")
	}
	if want := "d-1 d1 b-1 b1 c-1 c1 e-1 e1 a-1 a1 "; got != want {
		t.Errorf("the order is %s, want %s", got, want)
	}
}

// Writes name the generation of the thread, so that later ones can be refused.
func TestPutWritesGeneration(t *testing.T) {
	ctx := t.Context()
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	for want := range uint64(3) {
		for _, ws := range [][]Write{{wr(0, "x", "1")}, {wr(0, "x", "1")}, nil} { // new, repeated, none
			if got, err := th.PutWrites(ctx, "cp", "task", "", Upsert, ws, 0); got != want+1 || err != nil {
				t.Fatalf("generation %d, %v, want %d", got, err, want+1)
			}
		}
		if _, err := th.Delete(ctx); err != nil {
			t.Fatal(err)
		}
		if got, err := th.PutWrites(ctx, "cp", "task", "", Upsert, []Write{wr(0, "x", "late")}, want+1); !errors.Is(err, ErrGeneration) || got != 0 {
			t.Fatalf("late writes: %d, %v", got, err)
		}
	}
}

// A load with Head names the durable head, whichever checkpoint it returns.
func TestLoadHead(t *testing.T) {
	ctx := t.Context()
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	save(t, th, Draft{ID: "a"})
	save(t, th, Draft{ID: "b"})
	check := func(want Head) {
		t.Helper()
		for _, w := range []Which{Latest, At("a"), AtSeq(2), LatestByID(), Before("b")} {
			for _, headers := range []bool{true, false} {
				cp, err := th.Load(ctx, w, LoadOptions{Head: true, HeadersOnly: headers})
				if err != nil || cp.Head == nil || *cp.Head != want {
					t.Fatalf("%+v: %+v, %v, want %+v", w, cp, err, want)
				}
			}
		}
	}
	check(Head{2, "b"})
	f.reopen()
	th = f.Thread(testRef("t"))
	check(Head{2, "b"})
	if _, err := th.SetLabels(ctx, At("a"), map[string]string{"k": "v"}); err != nil { // seq 3, but not newest
		t.Fatal(err)
	}
	cp, err := th.Load(ctx, At("a"), LoadOptions{Head: true})
	if err != nil || cp.Seq != 3 || *cp.Head != (Head{2, "b"}) {
		t.Fatalf("%+v, %v", cp, err)
	}
	save(t, th, Draft{Parent: "a", Expect: ExpectHead(cp.Head.Seq)})
	if cp, err = th.Load(ctx, At("a")); err != nil || cp.Head != nil {
		t.Errorf("a load that did not ask has the head %+v, %v", cp.Head, err)
	}
}

// A draft that keeps its parent can leave the parent's run.
func TestKeepWithoutRun(t *testing.T) {
	ctx := t.Context()
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	save(t, th, Draft{ID: "a", RunID: "run"})
	d := Draft{ID: "b", Keep: true, NoRun: true}
	b := save(t, th, d)
	if b.RunID != "" {
		t.Fatalf("saved with run %q", b.RunID)
	}
	if again := save(t, th, d); again.Seq != b.Seq {
		t.Error("the same draft replaces it")
	}
	d.Parent, d.NoRun = "a", false
	if again := save(t, th, d); again.RunID != "run" {
		t.Errorf("another draft under this id is taken for the first: run %q", again.RunID)
	}
	if _, err := th.Save(ctx, Draft{Keep: true, NoRun: true, RunID: "x"}); !errors.Is(err, ErrInvalid) {
		t.Errorf("no run, and a run: %v", err)
	}
	save(t, th, Draft{ID: "c", Parent: "a", Keep: true, NoRun: true})
	if n, _, err := f.User("acme", "alice").Upkeep().DeleteRun(ctx, "run"); n != 2 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
	if _, err := th.Load(ctx, At("c")); err != nil {
		t.Errorf("the checkpoint without a run: %v", err)
	}
}

// hooked calls before once, ahead of the next commit.
type hooked struct {
	backend.Backend
	before func()
}

func (h *hooked) Commit(ctx context.Context, b backend.Batch) error {
	if fn := h.before; fn != nil {
		h.before = nil
		fn()
	}
	return h.Backend.Commit(ctx, b)
}

// Writes that come between reading and writing those of a task are not lost, nor is a thread that
// begins meanwhile.
func TestWritesBetween(t *testing.T) {
	f := newFixture(t, Options{})
	h := &hooked{Backend: f.be}
	f.be = h
	f.reopen()
	th, ref := f.Thread(testRef("t")), testRef("t")
	ref.Namespace = "sub"
	saveLine(t, f.Thread(testRef("other")), 1) // the user exists
	h.before = func() { put(t, f.Thread(ref), "c", "a", Upsert, wr(0, "x", "sub")) }
	put(t, th, "c", "a", Upsert, wr(0, "x", "0"))
	other := f.second()
	h.before = func() { put(t, other.Thread(testRef("t")), "c", "a", Upsert, wr(1, "x", "1")) }
	put(t, th, "c", "a", Upsert, wr(2, "x", "2"))
	wantWrites(t, th, "c", "a:0:x=0", "a:1:x=1", "a:2:x=2")
	wantWrites(t, f.Thread(ref), "c", "a:0:x=sub")
}

// The path of a task follows the mode.
func TestWritesPath(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	for _, step := range []struct {
		mode       WriteMode
		path, want string
	}{{Ignore, "one", "one"}, {Ignore, "two", "one"}, {Upsert, "three", "three"}, {Upsert, "", ""}} {
		if _, err := th.PutWrites(ctx, "c", "t", step.path, step.mode, []Write{wr(0, "x", "1")}, 0); err != nil {
			t.Fatal(err)
		}
		ws, err := th.Writes(ctx, "c")
		if err != nil || len(ws) != 1 || ws[0].Path != step.want {
			t.Errorf("after %+v: %+v, %v", step, ws, err)
		}
	}
}

// Writes start a thread, and deleted writes do not return with it.
func TestWritesAndDelete(t *testing.T) {
	ctx := context.Background()
	now := time.UnixMilli(1_800_000_000_000)
	f := newFixture(t, Options{Now: func() time.Time { return now }})
	th := f.Thread(testRef("t"))
	if _, err := th.Writes(ctx, "c"); !errors.Is(err, ErrNotFound) {
		t.Errorf("writes of nothing: %v", err)
	}
	if _, err := th.PutWrites(ctx, "c", "a", "path/a", Upsert, []Write{wr(0, "x", "old")}, 2); !errors.Is(err, ErrGeneration) {
		t.Errorf("writes of a generation to come: %v", err)
	}
	put(t, th, "c", "a", Upsert, wr(0, "x", "old"))
	if _, err := th.Load(ctx, Latest); !errors.Is(err, ErrNotFound) {
		t.Errorf("a thread with writes only loads: %v", err)
	}
	gen, err := th.Delete(ctx)
	if err != nil || gen != 2 {
		t.Fatalf("deleting gave generation %d, %v", gen, err)
	}
	if _, err := th.Writes(ctx, "c"); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted writes are read: %v", err)
	}
	if _, err := th.PutWrites(ctx, "c", "b", "path/b", Upsert, []Write{wr(0, "x", "late")}, 1); !errors.Is(err, ErrGeneration) {
		t.Errorf("writes of a deleted generation: %v", err)
	}
	if _, err := th.Writes(ctx, "c"); !errors.Is(err, ErrNotFound) {
		t.Errorf("refused writes began the thread: %v", err)
	}
	if _, err := th.PutWrites(ctx, "c", "b", "path/b", Upsert, []Write{wr(0, "x", "new")}, gen); err != nil {
		t.Fatal(err)
	}
	wantWrites(t, th, "c", "b:0:x=new")
	if cp := save(t, th, Draft{ID: "c", Generation: gen, TTL: time.Hour}); cp.Generation != 2 || cp.Seq != 1 {
		t.Errorf("saved %+v", cp)
	}
	wantWrites(t, th, "c", "b:0:x=new")

	// A thread that expired is gone like a deleted one.
	now = now.Add(3 * time.Hour)
	if _, err := th.Writes(ctx, "c"); !errors.Is(err, ErrNotFound) {
		t.Errorf("expired writes are read: %v", err)
	}
	put(t, th, "c", "c", Upsert, wr(0, "x", "third"))
	wantWrites(t, th, "c", "c:0:x=third")
	f.reopen()
	wantWrites(t, f.Thread(testRef("t")), "c", "c:0:x=third")
	if cp := save(t, f.Thread(testRef("t")), Draft{}); cp.Generation != 3 || cp.Seq != 1 {
		t.Errorf("saved %+v", cp)
	}
}

// Large writes go to parts, also when many small ones add up, and come back.
func TestWritesLarge(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	r := rand.New(rand.NewPCG(1, 2))
	noise := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	th := f.Thread(testRef("t"))
	want := map[int64][]byte{}
	for round := range 4 {
		var ws []Write
		for i, n := range []int{30 << 10, 600 << 10, 40 << 10, 0, 20 << 10} {
			w := Write{Index: int64(5*(3-round) + i), Channel: "c", Data: noise(n)}
			ws, want[w.Index] = append(ws, w), w.Data
		}
		if _, err := th.PutWrites(ctx, "c", "t", "", Upsert, ws, 0); err != nil {
			t.Fatal(err)
		}
		f.reopen()
		th = f.Thread(testRef("t"))
		got, err := th.Writes(ctx, "c")
		if err != nil || len(got) != len(want) {
			t.Fatalf("round %d: %d writes, %v", round, len(got), err)
		}
		for _, w := range got {
			if !bytes.Equal(w.Data, want[w.Index]) {
				t.Errorf("round %d: write %d differs", round, w.Index)
			}
		}
	}
}

func TestWritesBadInput(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{MaxChannel: 1 << 20})
	th := f.Thread(testRef("t"))
	long := strings.Repeat("x", 257)
	ok := []Write{wr(0, "x", "1")}
	for i, args := range []struct {
		checkpoint, task, path string
		mode                   WriteMode
		ws                     []Write
	}{
		{"", "t", "", Upsert, ok}, {long, "t", "", Upsert, ok}, {"\xff", "t", "", Upsert, ok},
		{"c", "", "", Upsert, ok}, {"c", long, "", Upsert, ok}, {"c", "t", strings.Repeat("x", 1025), Upsert, ok}, {"c", "t", "\xff", Upsert, ok},
		{"c", "t", "", 2, ok}, {"c", "t", "", Upsert, []Write{wr(0, "", "1")}}, {"c", "t", "", Upsert, []Write{wr(0, long, "1")}},
		{"c", "t", "", Upsert, []Write{{Channel: "x", Type: long}}}, {"c", "t", "", Upsert, make([]Write, codec.MaxWrites+1)},
	} {
		for j := range args.ws {
			if i == 11 {
				args.ws[j] = wr(int64(j), "x", "1")
			}
		}
		if _, err := th.PutWrites(ctx, args.checkpoint, args.task, args.path, args.mode, args.ws, 0); !errors.Is(err, ErrInvalid) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if _, err := th.PutWrites(ctx, "c", "t", "", Upsert, []Write{{Channel: "x", Data: make([]byte, 1<<20+1)}}, 0); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a write over the limit: %v", err)
	}
	wide := make([]Write, codec.MaxWrites)
	for i := range wide {
		wide[i] = Write{Index: int64(i), Channel: long[:256], Type: "json", Data: []byte("1")}
	}
	if _, err := th.PutWrites(ctx, "c", "t", "", Upsert, wide, 0); !errors.Is(err, ErrTooLarge) {
		t.Errorf("writes over the record's limit: %v", err)
	}
	if _, err := th.Writes(ctx, ""); !errors.Is(err, ErrInvalid) {
		t.Errorf("writes of no checkpoint: %v", err)
	}
	if _, err := th.Writes(ctx, "c"); !errors.Is(err, ErrNotFound) {
		t.Errorf("refused writes began the thread: %v", err)
	}
	for i := range wide {
		wide[i].Channel = "x"
	}
	if _, err := th.PutWrites(ctx, "c", "t", "", Upsert, wide, 0); err != nil {
		t.Errorf("as many writes as are allowed: %v", err)
	}
	if _, err := th.PutWrites(ctx, "c", "t", "", Upsert, []Write{wr(codec.MaxWrites, "x", "1")}, 0); !errors.Is(err, ErrInvalid) {
		t.Errorf("one more: %v", err)
	}
	if ws, err := th.Writes(ctx, "c"); err != nil || len(ws) != codec.MaxWrites {
		t.Errorf("%d writes, %v", len(ws), err)
	}
}

// Writers of one task, of the same thread before it exists, lose nothing to each other.
func TestWritesRace(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	var wg sync.WaitGroup
	const writers, each = 8, 6
	for g := range writers {
		wg.Go(func() {
			ref := testRef("t")
			if g%2 == 1 {
				ref.Namespace = "sub"
			}
			for i := range each {
				_, err := f.Thread(ref).PutWrites(ctx, "c", "task", "", Upsert, []Write{wr(int64(g*each+i), "x", fmt.Sprint(g, i))}, 0)
				if err != nil {
					t.Error(err)
				}
				if _, err := f.Thread(ref).Save(ctx, Draft{Step: int64(i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, ns := range []string{"", "sub"} {
		ref := testRef("t")
		ref.Namespace = ns
		ws, err := f.Thread(ref).Writes(ctx, "c")
		if err != nil || len(ws) != writers/2*each {
			t.Errorf("namespace %q has %d writes, %v", ns, len(ws), err)
		}
		if n := len(collectIDs(t, f.Thread(ref).History(ctx, HistoryOptions{}))); n != writers/2*each {
			t.Errorf("namespace %q has %d checkpoints", ns, n)
		}
	}
}

// Whatever call fails, the error surfaces, and the writes are there as a whole or not at all.
func TestWritesFaults(t *testing.T) {
	ctx := context.Background()
	large := strings.Repeat("0123456789abcdef", 1<<10)
	for i := range 3000 { // not compressible
		large += fmt.Sprint(i * i * i)
	}
	for name, ref := range map[string]Ref{"first": {Namespace: "sub"}, "later": {}} {
		f := newFixture(t, Options{CacheBytes: -1})
		fault := backendtest.NewFault(f.be)
		f.be = fault.Backend()
		f.reopen()
		ref.Tenant, ref.User = "acme", "alice"
		for k := 0; ; k++ {
			ref.Thread = fmt.Sprint(name, k)
			if name == "later" {
				put(t, f.Thread(ref), "c", "a", Upsert, wr(0, "x", "before"))
			} else {
				saveLine(t, f.Thread(testRef("other")), 1) // the user exists
			}
			fault.Arm(backendtest.Plan{Ops: backendtest.OpAny, After: k, Err: backend.ErrUnavailable})
			_, err := f.Thread(ref).PutWrites(ctx, "c", "a", "path/a", Upsert, []Write{wr(0, "x", large), wr(1, "y", "1")}, 0)
			var ws []PendingWrite
			var rerr error
			if fault.Fired() == 0 {
				ws, rerr = f.Thread(ref).Writes(ctx, "c")
			}
			fault.Disarm()
			if fault.Fired() == 0 {
				if err != nil || rerr != nil || len(ws) != 2 || string(ws[0].Data) != large {
					t.Errorf("%s: without a fault: %v, %v", name, err, rerr)
				}
				break
			}
			if err != nil && !errors.Is(err, ErrUnavailable) || err == nil && !errors.Is(rerr, ErrUnavailable) {
				t.Errorf("%s, fault %d: %v, %v", name, k, err, rerr)
			}
			switch {
			case err == nil:
				wantWrites(t, f.Thread(ref), "c", "a:0:x="+large, "a:1:y=1")
			case name == "later":
				wantWrites(t, f.Thread(ref), "c", "a:0:x=before")
			default:
				if _, err := f.Thread(ref).Writes(ctx, "c"); !errors.Is(err, ErrNotFound) {
					t.Errorf("fault %d left writes: %v", k, err)
				}
			}
		}
	}
}

// A lost acknowledgement is repaired by putting the writes again.
func TestWritesAmbiguous(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	fault := backendtest.NewFault(f.be)
	f.be = fault.Backend()
	f.reopen()
	saveLine(t, f.Thread(testRef("other")), 1)
	th := f.Thread(testRef("t"))
	for i := range 3 {
		fault.Arm(backendtest.Plan{Ops: backendtest.OpCommit, Err: backend.ErrAmbiguous, Apply: i != 1})
		ws := []Write{wr(int64(i), "x", fmt.Sprint(i))}
		if _, err := th.PutWrites(ctx, "c", "a", "path/a", Upsert, ws, 0); !errors.Is(err, ErrAmbiguous) {
			t.Errorf("%d: %v", i, err)
		}
		fault.Disarm()
		put(t, th, "c", "a", Upsert, ws...)
	}
	wantWrites(t, th, "c", "a:0:x=0", "a:1:x=1", "a:2:x=2")
	save(t, th, Draft{})
}
