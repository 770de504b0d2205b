package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/hook"
)

// testHooks are hooks whose chains a test sets.
type testHooks struct {
	mu     sync.Mutex
	chains map[hook.Stage]hook.Chain
	only   string // if set, threads with another prefix have none
	err    error
}

func (h *testHooks) For(stage hook.Stage, tenant, thread string) (hook.Chain, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return nil, h.err
	}
	if h.chains[stage] == nil || !strings.HasPrefix(thread, h.only) {
		return nil, nil
	}
	return h.chains[stage], nil
}

func (h *testHooks) set(stage hook.Stage, c hook.Chain) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.chains == nil {
		h.chains = map[hook.Stage]hook.Chain{}
	}
	if h.chains[stage] = c; c == nil {
		delete(h.chains, stage)
	}
}

// testChain runs a function on every call, and remembers its items.
type testChain struct {
	ids []hook.Identity
	run func(ctx context.Context, c *hook.Call) error

	mu   sync.Mutex
	seen []hook.Call
}

func (c *testChain) Identities() []hook.Identity { return c.ids }

func (c *testChain) Run(ctx context.Context, call *hook.Call) error {
	c.mu.Lock()
	seen := *call
	seen.Items = slices.Clone(call.Items)
	c.seen = append(c.seen, seen)
	c.mu.Unlock()
	return c.run(ctx, call)
}

// takeSeen returns the items that the chain got since the last call, as kind and name, with a ' if
// there was a Prev.
func (c *testChain) takeSeen() (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.seen {
		for _, it := range call.Items {
			s := fmt.Sprint(it.Kind, " ", it.Name)
			if it.Prev != nil {
				s += "'"
			}
			out = append(out, s)
		}
	}
	c.seen = nil
	return out
}

func identity(name string) []hook.Identity {
	id := hook.Identity{Name: name}
	copy(id.Digest[:], name)
	return []hook.Identity{id}
}

// each makes a chain of a function on bytes.
func each(name string, fn func([]byte) []byte) *testChain {
	return &testChain{ids: identity(name), run: func(_ context.Context, c *hook.Call) error {
		for i := range c.Items {
			it := &c.Items[i]
			it.Data = fn(it.Data)
			if it.Kind == hook.Label {
				it.Name = string(fn([]byte(it.Name)))
			}
			c.Fuel += uint64(len(it.Data))
		}
		return nil
	}}
}

var secrets = map[string]*regexp.Regexp{"sk": regexp.MustCompile(`sk-[0-9a-f]+`), "id": regexp.MustCompile(`id-[0-9a-f]+`)}

// redacting replaces secrets of a kind by something that may be longer or shorter.
func redacting(kind string) *testChain {
	return each("redact-"+kind, func(b []byte) []byte { return redacted(kind, b) })
}

func redacted(kind string, b []byte) []byte { return secrets[kind].ReplaceAll(b, []byte("<"+kind+">")) }

// refusing is a chain that fails after it did its work.
func refusing(err error) *testChain {
	c := redacting("sk")
	run := c.run
	c.run = func(ctx context.Context, call *hook.Call) error {
		if call.PutBlob != nil {
			if _, err := call.PutBlob([]byte("sk-b10b of a hook that fails")); err != nil {
				return err
			}
		}
		return errors.Join(run(ctx, call), err)
	}
	return c
}

func newHookFixture(t testing.TB) (*fixture, *testHooks) {
	h := &testHooks{}
	return newFixture(t, Options{Hooks: h}), h
}

func dataOf(t testing.TB, f *fixture, ref Ref, w Which) map[string]string {
	t.Helper()
	cp, err := f.Thread(ref).Load(context.Background(), w)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, ch := range cp.Channels {
		out[ch.Name] = string(ch.Data)
	}
	return out
}

func TestHooksRewriteWhatIsSaved(t *testing.T) {
	ctx := context.Background()
	f, h := newHookFixture(t)
	c := redacting("sk")
	h.set(hook.PreSave, c)
	th := f.Thread(testRef("t"))
	cp, err := th.Save(ctx, Draft{ID: "a", Step: 3, SchemaVersion: 2, Meta: []byte(`{"key":"sk-1"}`), Labels: map[string]string{"who": "sk-2", "sk-3": "x", "sk-4": "y"},
		Channels: []Change{jsonChannel("messages", `["sk-123"]`), {Name: "plan", Data: []byte("clean")}}})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(cp.Hooks, c.ids) || cp.Fuel == 0 {
		t.Errorf("hooks %v, fuel %d", cp.Hooks, cp.Fuel)
	}
	m, _ := cp.Channel("messages")
	p, _ := cp.Channel("plan")
	if !m.Rewritten || p.Rewritten {
		t.Errorf("rewritten: %v and %v", m.Rewritten, p.Rewritten)
	}
	if d := cmp.Diff(map[string]string{"who": "<sk>", "<sk>": "x", "<sk>#2": "y"}, cp.Labels); d != "" || string(cp.Meta) != `{"key":"<sk>"}` {
		t.Errorf("labels %s, metadata %s", d, cp.Meta)
	}
	if d := cmp.Diff(map[string]string{"messages": `["<sk>"]`, "plan": "clean"}, dataOf(t, f, testRef("t"), Latest)); d != "" {
		t.Error(d)
	}
	place := c.seen[0].Place
	if place.Tenant != "acme" || place.User != "alice" || place.Thread != "t" || place.Checkpoint != "a" || place.Step != 3 || place.SchemaVersion != 2 ||
		place.Status != StatusRunning || place.Time.IsZero() || c.seen[0].Seed == noHash || c.seen[0].PseudonymKey == noHash {
		t.Errorf("the place is %+v", place)
	}

	// The caller's bytes differ from the stored ones, and no version equates them.
	splice := func(v Version) error {
		_, err := th.Save(ctx, Draft{Keep: true, Channels: []Change{{Name: "messages", Base: v, Prefix: 9, Suffix: 1, Data: []byte(`,"more"`)}}})
		return err
	}
	versions := []Version{m.Version}
	for _, cp := range []*Checkpoint{headers(t, th), mustSave(t, f, testRef("t"), Draft{Keep: true, Step: 4})} {
		ch, _ := cp.Channel("messages")
		if versions = append(versions, ch.Version); !ch.Rewritten {
			t.Error("a channel without data is not told to be rewritten")
		}
	}
	for _, v := range versions {
		if err := splice(v); !errors.Is(err, ErrNeedFull) {
			t.Errorf("splicing on %x: %v, want ErrNeedFull", v, err)
		}
	}
	f.reopen()
	th = f.Thread(testRef("t"))
	for _, v := range versions {
		if err := splice(v); !errors.Is(err, ErrNeedFull) {
			t.Errorf("splicing on %x after a restart: %v, want ErrNeedFull", v, err)
		}
	}
	cp, err = th.Load(ctx, Latest)
	if err != nil {
		t.Fatal(err)
	}
	if m, _ = cp.Channel("messages"); m.Rewritten {
		t.Error("the stored value is marked rewritten")
	}
	cp, err = th.Save(ctx, Draft{Keep: true, Channels: []Change{{Name: "messages", Base: m.Version, Prefix: len(m.Data) - 1, Suffix: 1, Data: []byte(`,"more"`)}}})
	if err != nil {
		t.Fatal(err)
	}
	if m, _ = cp.Channel("messages"); m.Rewritten || dataOf(t, f, testRef("t"), Latest)["messages"] != `["<sk>","more"]` {
		t.Errorf("after a splice on the loaded value: %+v, %v", m, dataOf(t, f, testRef("t"), Latest))
	}
}

func headers(t testing.TB, th *Thread) *Checkpoint {
	t.Helper()
	cp, err := th.Load(context.Background(), Latest, LoadOptions{HeadersOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	return cp
}

// Only changes run through the hooks, with the parent's value as Prev. Kept data runs through them
// once when the hooks have changed.
func TestHooksSeeWhatChanged(t *testing.T) {
	f, h := newHookFixture(t)
	ref := testRef("t")
	step := func(name string, c *testChain, d Draft, want ...string) *Checkpoint {
		t.Helper()
		h.set(hook.PreSave, nil)
		if c != nil {
			h.set(hook.PreSave, c)
			c.takeSeen()
		}
		cp := mustSave(t, f, ref, d)
		if c != nil {
			if d := cmp.Diff(want, c.takeSeen()); d != "" {
				t.Errorf("%s: %s", name, d)
			}
			if !slices.Equal(cp.Hooks, c.ids) {
				t.Errorf("%s: recorded %v", name, cp.Hooks)
			}
		} else if cp.Hooks != nil {
			t.Errorf("%s: recorded %v", name, cp.Hooks)
		}
		return cp
	}
	sk, id := redacting("sk"), redacting("id")
	text := func(s string) []Change { return []Change{{Name: "a", Data: []byte(s)}} }
	step("no hooks", nil, Draft{Meta: []byte(`"sk-1"`), Labels: map[string]string{"l": "sk-2"}, Channels: append(text("sk-1 id-1"), Change{Name: "b", Data: []byte("sk-b")})})
	step("hooks that are new", sk, Draft{Keep: true, Channels: text("sk-1 id-1 more")}, "channel a", "channel b", "meta ", "label l")
	if got := dataOf(t, f, ref, Latest); got["a"] != "<sk> id-1 more" || got["b"] != "<sk>" {
		t.Errorf("got %v", got)
	}
	step("the same hooks", sk, Draft{Keep: true, Channels: text("sk-1 id-1 more and more")}, "channel a'")
	step("nothing changes", sk, Draft{Keep: true})
	step("whole state", sk, Draft{Meta: []byte(`"m"`), Channels: append(text("id-1"), Change{Name: "c", Data: []byte("id-c")})}, "channel a'", "channel c", "meta ")
	f.reopen()
	step("after a restart", sk, Draft{Keep: true, Channels: text("id-2")}, "channel a'")
	step("another type", sk, Draft{Keep: true, Channels: []Change{{Name: "a", Type: "text", Data: []byte("id-2")}}}, "channel a")
	step("another hook", id, Draft{Keep: true, Labels: map[string]string{}}, "channel a", "channel c", "meta ")
	if got := dataOf(t, f, ref, Latest); got["a"] != "<id>" || got["c"] != "<id>" {
		t.Errorf("got %v", got)
	}
	cp := step("kept channels that were rewritten", id, Draft{Keep: true})
	if a, _ := cp.Channel("a"); !a.Rewritten {
		t.Error("a kept channel that was rewritten is not told so")
	}
	step("no hooks again", nil, Draft{Keep: true})
	step("and back", id, Draft{Keep: true, Labels: map[string]string{"x": "y"}}, "channel a", "channel c", "meta ", "label x")
}

// A save that hooks do not let in leaves nothing, on disk or in memory.
func TestRejectedSavesLeaveNothing(t *testing.T) {
	ctx := context.Background()
	f, h := newHookFixture(t)
	ref := testRef("t")
	mustSave(t, f, ref, Draft{ID: "first", Channels: []Change{{Name: "a", Data: []byte("fine")}}})
	before := allEntries(t, f.be)
	why := &hook.Error{Kind: hook.ErrTimeout, Plugin: "p@1.0.0", Stage: hook.PreSave, Item: "channel a"}
	broken := func(run func(c *hook.Call)) *testChain {
		return &testChain{ids: identity("broken"), run: func(_ context.Context, c *hook.Call) error { run(c); return nil }}
	}
	unwritable := each("unwritable", bytes.ToUpper)
	unwritable.ids = slices.Repeat(unwritable.ids, 65)
	for name, chain := range map[string]*testChain{
		"fails":            refusing(why),
		"too many hooks":   unwritable,
		"spoils metadata":  each("spoil", func(b []byte) []byte { return append([]byte("{"), b...) }),
		"loses an item":    broken(func(c *hook.Call) { c.Items = c.Items[1:] }),
		"long label":       broken(func(c *hook.Call) { c.Items[len(c.Items)-1].Name = strings.Repeat("x", 300) }),
		"label without":    broken(func(c *hook.Call) { c.Items[len(c.Items)-1].Name = "" }),
		"too many blobs":   broken(nil),
		"missing":          nil,
		"no name for hook": {ids: []hook.Identity{{}}, run: func(context.Context, *hook.Call) error { return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			h.set(hook.PreSave, chain)
			switch name {
			case "missing":
				h.err = why
			case "too many blobs":
				chain.run = func(_ context.Context, c *hook.Call) error {
					big := make([]byte, maxHookBlobs/2+1)
					for i := range 2 {
						big[0] = byte(i)
						if _, err := c.PutBlob(big); err != nil {
							return err
						}
					}
					return nil
				}
			}
			th := f.Thread(ref)
			_, err := th.Save(ctx, Draft{Meta: []byte(`{"m":"sk-fee1"}`), Labels: map[string]string{"l": "sk-fee1"}, Channels: []Change{{Name: "a", Data: []byte("sk-fee1dead")}}})
			h.err = nil
			var e *hook.Error
			if !errors.Is(err, ErrRejected) {
				t.Fatalf("error %v, want ErrRejected", err)
			}
			if name != "too many blobs" && !errors.As(err, &e) {
				t.Errorf("no *hook.Error in %v", err)
			}
			if strings.Contains(err.Error(), "fee1") {
				t.Errorf("the error quotes: %v", err)
			}
			if !sameEntries(allEntries(t, f.be), before) {
				t.Error("something was stored")
			}
			for _, l := range f.lineages {
				for _, tip := range l.states {
					if bytes.Contains(fmt.Appendf(nil, "%s %s %v", tip.chans[0].value, tip.meta.Meta, tip.meta.Labels), []byte("fee1")) {
						t.Error("a cached head has it")
					}
				}
			}
			if got := dataOf(t, f, ref, Latest)["a"]; got != "fine" {
				t.Errorf("the state is %q", got)
			}
		})
	}
	h.set(hook.PreSave, redacting("sk"))
	mustSave(t, f, ref, Draft{Channels: []Change{{Name: "a", Data: []byte("sk-1 again")}}})
}

// A save that is repeated is the same one, whatever the hooks are by then.
func TestRetriesAreRecognisedBeforeHooksRun(t *testing.T) {
	ctx := context.Background()
	f, h := newHookFixture(t)
	ref := testRef("t")
	h.set(hook.PreSave, redacting("sk"))
	mustSave(t, f, ref, Draft{ID: "base", Channels: []Change{{Name: "a", Data: []byte("clean")}, {Name: "b", Data: []byte("b")}}})
	a, _ := headers(t, f.Thread(ref)).Channel("a")
	drafts := []Draft{
		{ID: "rewritten", Keep: true, Channels: []Change{{Name: "a", Data: []byte("now sk-1 x")}, {Name: "b", Data: []byte("sk-2")}}},
		{ID: "spliced", Parent: "base", Keep: true, Channels: []Change{{Name: "a", Base: a.Version, Prefix: 5, Data: []byte(" sk-3")}}},
		{ID: "untouched", Parent: "base", Keep: true, Channels: []Change{{Name: "b", Data: []byte("id-7")}}},
		{ID: "labelled", Parent: "base", Keep: true, Labels: map[string]string{"l": "sk-4"}},
	}
	var saved []*Checkpoint
	for _, d := range drafts {
		saved = append(saved, mustSave(t, f, ref, d))
	}
	mustSave(t, f, ref, Draft{ID: "later", Keep: true})
	for name, chain := range map[string]hook.Chain{"the same": redacting("sk"), "others": redacting("id"), "failing": refusing(hook.ErrRejected), "none": nil} {
		h.set(hook.PreSave, chain)
		for i, d := range drafts {
			for range 2 {
				cp, err := f.Thread(ref).Save(ctx, d)
				if err != nil {
					t.Errorf("%s, %s: %v", name, d.ID, err)
					continue
				}
				cp.Cost, saved[i].Cost = Cost{}, Cost{}
				if diff := cmp.Diff(saved[i], cp); diff != "" {
					t.Errorf("%s, %s: %s", name, d.ID, diff)
				}
				slices.Reverse(d.Channels)
				f.reopen()
			}
		}
	}
	h.set(hook.PreSave, redacting("sk"))
	other := drafts[0]
	other.Channels = []Change{{Name: "a", Data: []byte("now sk-2 x")}, {Name: "b", Data: []byte("sk-2")}}
	if cp := mustSave(t, f, ref, other); cp.Seq != saved[0].Seq {
		t.Error("a draft that hooks make equal was saved again")
	}
	other.Channels[0].Data = []byte("changed")
	if cp := mustSave(t, f, ref, other); cp.Seq == saved[0].Seq || dataOf(t, f, ref, At(other.ID))["a"] != "changed" {
		t.Error("other content did not replace the checkpoint")
	}
}

func TestHooksDrop(t *testing.T) {
	f, h := newHookFixture(t)
	ref := testRef("t")
	mustSave(t, f, ref, Draft{Meta: []byte(`1`), Labels: map[string]string{"l": "drop", "m": "x"},
		Channels: []Change{{Name: "kept", Data: []byte("drop")}, {Name: "a", Data: []byte("a")}, {Name: "given", Data: []byte("g")}}})
	h.set(hook.PreSave, &testChain{ids: identity("drop"), run: func(_ context.Context, c *hook.Call) error {
		for i := range c.Items {
			c.Items[i].Dropped = c.Items[i].Kind == hook.Meta || bytes.Contains(c.Items[i].Data, []byte("drop"))
		}
		return nil
	}})
	for _, d := range []Draft{{Keep: true, Channels: []Change{{Name: "given", Data: []byte("drop")}, {Name: "new", Data: []byte("drop")}}},
		{Meta: []byte(`2`), Labels: map[string]string{"l": "drop", "m": "x"}, Channels: []Change{{Name: "a", Data: []byte("a")}, {Name: "given", Data: []byte("drop")}}}} {
		cp := mustSave(t, f, ref, d)
		if diff := cmp.Diff(map[string]string{"a": "a"}, dataOf(t, f, ref, Latest)); diff != "" || len(cp.Meta) > 0 || len(cp.Labels) != 1 {
			t.Errorf("left: %s, metadata %s, labels %v", diff, cp.Meta, cp.Labels)
		}
	}
}
