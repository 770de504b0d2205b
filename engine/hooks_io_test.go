package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/backendtest"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/plugins/hook"
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
	put := func(ws ...Write) error { return th.PutWrites(ctx, "cp", "task", "p", Upsert, ws, 0) }
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

func TestHooksOfBlobs(t *testing.T) {
	ctx := context.Background()
	f, h := newHookFixture(t)
	u := f.User("acme", "alice")
	c := redacting("sk")
	h.set(hook.PreSave, c)
	long := strings.Repeat("ß sk-1 ", 30_000)
	for _, b := range []struct{ name, in, want, typ string }{
		{"text", "a sk-1", "a <sk>", "text"}, {"json", `{"a":"sk-1"}`, `{"a":"<sk>"}`, "json"}, {"long", long, strings.ReplaceAll(long, "sk-1", "<sk>"), "text"},
		{"cut rune", strings.Repeat("x", 64<<10-1) + "ß sk-1", strings.Repeat("x", 64<<10-1) + "ß <sk>", "text"},
		{"empty", "", "", ""}, {"binary", "\x00 sk-1", "\x00 sk-1", ""}, {"not UTF-8", "\xff sk-1", "\xff sk-1", ""},
		{"binary of 64 KiB and more", "\x00" + strings.Repeat("sk-1", 1<<18), "\x00" + strings.Repeat("sk-1", 1<<18), ""},
	} {
		c.takeSeen()
		id, n, err := u.PutBlob(ctx, strings.NewReader(b.in))
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if _, err := u.GetBlob(ctx, id, &got); err != nil || got.String() != b.want || int(n) != len(b.want) {
			t.Errorf("%s: %d bytes, %v", b.name, n, err)
		}
		c.mu.Lock()
		if b.typ == "" && len(c.seen) > 0 || b.typ != "" && (len(c.seen) != 1 || c.seen[0].Items[0].Type != b.typ || c.seen[0].Items[0].Kind != hook.Blob) {
			t.Errorf("%s: the hooks saw %d calls", b.name, len(c.seen))
		}
		c.mu.Unlock()
	}
	before := allEntries(t, f.be)
	_, _, err := u.PutBlob(ctx, io.LimitReader(repeating('x'), maxTextBlob+1))
	if !errors.Is(err, ErrRejected) || !errors.Is(err, hook.ErrLimit) {
		t.Errorf("a text that is too large: %v", err)
	}
	h.set(hook.PreSave, refusing(hook.ErrTrap))
	if _, _, err = u.PutBlob(ctx, strings.NewReader("sk-1")); !errors.Is(err, ErrRejected) {
		t.Errorf("error %v, want ErrRejected", err)
	}
	if !sameEntries(before, allEntries(t, f.be)) {
		t.Error("something was stored")
	}
}

type repeating byte

func (r repeating) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r)
	}
	return len(p), nil
}

// summarising puts what is long into a blob.
func summarising() *testChain {
	return &testChain{ids: identity("summary"), run: func(_ context.Context, c *hook.Call) error {
		for i := range c.Items {
			if it := &c.Items[i]; it.Kind == hook.Channel && len(it.Data) > 100 {
				id, err := c.PutBlob(it.Data)
				if err != nil {
					return err
				}
				it.Data = fmt.Appendf(nil, "blob:%x", id)
			}
		}
		return nil
	}}
}

func TestHooksPutBlobs(t *testing.T) {
	ctx := context.Background()
	f, h := newHookFixture(t)
	ref := testRef("t")
	c := summarising()
	h.set(hook.PreSave, c)
	long := []byte(strings.Repeat("long ", 200_000))
	d := Draft{ID: "a", Channels: []Change{{Name: "out", Data: long}, {Name: "x", Data: []byte("short")}}}
	cp := mustSave(t, f, ref, d)
	if len(cp.Blobs) != 1 || dataOf(t, f, ref, Latest)["out"] != fmt.Sprintf("blob:%v", cp.Blobs[0]) {
		t.Fatalf("blobs %v, state %v", cp.Blobs, dataOf(t, f, ref, Latest))
	}
	var got bytes.Buffer
	if _, err := f.User("acme", "alice").GetBlob(ctx, cp.Blobs[0], &got); err != nil || !bytes.Equal(got.Bytes(), long) {
		t.Errorf("the blob has %d bytes, %v", got.Len(), err)
	}
	if again := mustSave(t, f, ref, d); again.Seq != cp.Seq {
		t.Error("the same save is another")
	}
	next := mustSave(t, f, ref, Draft{Keep: true, Channels: []Change{{Name: "x", Data: bytes.Repeat([]byte("y"), 200)}}})
	if len(next.Blobs) != 2 {
		t.Errorf("blobs %v", next.Blobs)
	}

	before := allEntries(t, f.be)
	var late func([]byte) ([32]byte, error)
	for name, try := range map[string]struct {
		draft Draft
		err   error
	}{
		"hooks fail": {Draft{Channels: []Change{{Name: "fail", Data: long}}}, ErrRejected},
		"conflict":   {Draft{Expect: ExpectHead(1), Channels: []Change{{Name: "out", Data: long[1:]}}}, ErrConflict},
		"moved":      {Draft{Channels: []Change{{Name: "move", Data: long[2:]}}, Generation: 9}, ErrGeneration},
	} {
		h.set(hook.PreSave, &testChain{ids: identity("summary"), run: func(ctx context.Context, call *hook.Call) error {
			late = call.PutBlob
			if err := c.run(ctx, call); err != nil || call.Items[0].Name != "fail" {
				return err
			}
			return errors.New("a plain error")
		}})
		if _, err := f.Thread(ref).Save(ctx, try.draft); !errors.Is(err, try.err) {
			t.Errorf("%s: %v, want %v", name, err, try.err)
		}
		if !sameEntries(before, allEntries(t, f.be)) {
			t.Errorf("%s: something was stored", name)
		}
	}
	if _, err := late([]byte("late")); !errors.Is(err, hook.ErrInvalid) {
		t.Errorf("a blob after the hooks: %v", err)
	}
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
		t.Errorf("a splice on what is no longer the parent: %v", err)
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
				t.Errorf("%s: a splice on what hooks gave: %v", what, err)
			}
		}
	}
	cp, err := th.Load(ctx, Latest)
	check("load", cp, err, `["<sk>"]`)
	if b, _ := cp.Channel("b"); b.Rewritten {
		t.Error("what hooks left is told to be rewritten")
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

// lineRedactor looks only at lines that the parent does not have, if it uses that.
func lineRedactor(incremental bool, scanned *int) *testChain {
	return &testChain{ids: identity("lines"), run: func(_ context.Context, c *hook.Call) error {
		for i := range c.Items {
			it := &c.Items[i]
			known := map[string]bool{}
			if incremental {
				for line := range bytes.Lines(it.Prev) {
					known[string(line)] = true
				}
			}
			var out []byte
			for line := range bytes.Lines(it.Data) {
				if !known[string(line)] {
					*scanned += len(line)
					line = redacted("sk", line)
				}
				out = append(out, line...)
			}
			it.Data = out
		}
		return nil
	}}
}

// TestHooksComposeWithDeltas: hooks that look only at what changed store what those store that look at everything, and
// both store deltas.
func TestHooksComposeWithDeltas(t *testing.T) {
	var scanned [2]int
	var fixtures [2]*fixture
	for i := range fixtures {
		var h *testHooks
		fixtures[i], h = newHookFixture(t)
		h.set(hook.PreSave, lineRedactor(i == 1, &scanned[i]))
	}
	r := rand.New(rand.NewPCG(5, 6))
	ref := testRef("t")
	state := []string{}
	full := 0
	for step := range 120 {
		for range r.IntN(4) {
			line := fmt.Sprintf("%s sk-%x\n", words(r, 100), r.IntN(9))
			at := len(state)
			if r.IntN(5) == 0 {
				at = r.IntN(len(state) + 1)
			}
			state = append(state[:at:at], append([]string{line}, state[at:]...)...)
		}
		data := []byte(strings.Join(state, ""))
		for i, f := range fixtures {
			cp := mustSave(t, f, ref, Draft{Step: int64(step), Channels: []Change{{Name: "log", Data: data}}})
			if got := dataOf(t, f, ref, Latest)["log"]; got != string(redacted("sk", data)) {
				t.Fatalf("step %d, store %d: got %q", step, i, got)
			}
			if ch, _ := cp.Channel("log"); len(data) > 0 && !ch.Rewritten {
				t.Error("not told to be rewritten")
			}
			if cp.Cost.Full {
				full++
			}
		}
	}
	if full > 20 {
		t.Errorf("%d of 240 saves stored a full value", full)
	}
	// The caller's lines are not those that are stored, so those with secrets are looked at again; a caller that loads
	// has only new ones.
	scanned[1] = 0
	cp, err := fixtures[1].Thread(ref).Load(context.Background(), Latest)
	if err != nil {
		t.Fatal(err)
	}
	ch, _ := cp.Channel("log")
	mustSave(t, fixtures[1], ref, Draft{Keep: true, Channels: []Change{{Name: "log", Base: ch.Version, Prefix: len(ch.Data), Data: []byte("new sk-1\n")}}})
	if scanned[1] != len("new sk-1\n") {
		t.Errorf("%d bytes were looked at", scanned[1])
	}
}

// Every backend call of a save with hooks fails once; what is left is clean, and the save can be repeated.
func TestFaultsAfterHooks(t *testing.T) {
	ctx := context.Background()
	for _, p := range faultPlans {
		t.Run(p.name, func(t *testing.T) {
			for k := 0; ; k++ {
				f, h := newHookFixture(t)
				fault := backendtest.NewFault(keepOpen{f.be})
				mustSave(t, f, testRef("t"), Draft{Channels: []Change{{Name: "a", Data: []byte("sk-0")}}})
				h.set(hook.PreSave, summarising())
				s, err := Open(ctx, fault.Backend(), f.opts)
				if err != nil {
					t.Fatal(err)
				}
				plan := p.plan
				plan.After = k
				fault.Arm(plan)
				d := Draft{ID: "b", Keep: true, Channels: []Change{{Name: "out", Data: bytes.Repeat([]byte("sk-1"), 100_000)}}}
				_, err = s.Thread(testRef("t")).Save(ctx, d)
				fired := fault.Fired() > 0
				fault.Disarm()
				if fired == (err == nil) {
					t.Fatalf("call %d: fired %v, error %v", k, fired, err)
				}
				cp, err := s.Thread(testRef("t")).Save(ctx, d)
				if err != nil || len(cp.Blobs) != 1 || cp.Seq != 2 {
					t.Fatalf("call %d: repeated: %+v, %v", k, cp, err)
				}
				mustBeClean(t, s, VerifyOptions{Deep: true})
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if !fired {
					return
				}
			}
		})
	}
}

// The hash chain covers what hooks were recorded, and what they took.
func TestVerifyCoversHooks(t *testing.T) {
	ctx := context.Background()
	f, h := newHookFixture(t)
	f.broken = true
	h.set(hook.PreSave, redacting("sk"))
	mustSave(t, f, testRef("t"), Draft{Channels: []Change{{Name: "a", Data: []byte("sk-1")}}})
	mustSave(t, f, testRef("t"), Draft{Keep: true})
	mustBeClean(t, f.Store, VerifyOptions{Deep: true})
	l, err := f.acquire(ctx, testRef("t"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.release()
	r, err := l.readRecord(ctx, 1)
	if err != nil || r.rec.Fuel == 0 {
		t.Fatalf("fuel %d, %v", r.rec.Fuel, err)
	}
	r.rec.Fuel++
	key := l.recordKey(1)
	value, err := l.th.sealer.Seal(nil, kindRecord, key, codec.AppendRecord(nil, 1, r.rec))
	if err != nil {
		t.Fatal(err)
	}
	putRaw(t, f, key, value)
	rep, err := f.Verify(ctx, VerifyOptions{})
	if err != nil || rep.Clean() || !strings.Contains(rep.Problems[0].Err.Error(), "the hash of its parent") {
		t.Errorf("problems %v, %v", rep.Problems, err)
	}
}

// BenchmarkSaveHooks is a save of 1 kB more on 100 kB, without hooks and with one that changes nothing.
func BenchmarkSaveHooks(b *testing.B) {
	for _, name := range []string{"none", "identity"} {
		b.Run(name, func(b *testing.B) {
			f, h := newHookFixture(b)
			f.broken = true
			if name == "identity" {
				h.set(hook.PreSave, &testQuiet{identity("quiet")})
			}
			ctx := context.Background()
			th := f.Thread(testRef("t"))
			data := words(rand.New(rand.NewPCG(1, 1)), 100<<10)
			cp, err := th.Save(ctx, Draft{Channels: []Change{{Name: "a", Data: data}}})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				ch := cp.Channels[0]
				d := Draft{Keep: true, Channels: []Change{{Name: "a", Base: ch.Version, Prefix: int(ch.Size) - 1<<10, Data: data[:1<<10]}}}
				if cp, err = th.Save(ctx, d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

type testQuiet struct{ ids []hook.Identity }

func (q *testQuiet) Identities() []hook.Identity           { return q.ids }
func (q *testQuiet) Run(context.Context, *hook.Call) error { return nil }

func putRaw(t *testing.T, f *fixture, key, value []byte) {
	t.Helper()
	if err := f.be.Commit(context.Background(), backend.Batch{Muts: []backend.Mut{{Key: key, Value: value, Version: versionOne}}}); err != nil {
		t.Fatal(err)
	}
}
