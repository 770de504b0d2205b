package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ckptd/ckptd/hook"
)

// careless is a caller that keeps its own bytes, splices with whatever version it was told last,
// and looks at nothing but errors.
type careless struct {
	t        *testing.T
	f        *fixture
	h        *testHooks
	r        *rand.Rand
	ref      Ref
	have     map[string]string  // the state it believes in
	versions map[string]Version // as it was told
	kind     string             // of the hooks that run, "" for none
	hooked   string             // kind of the hooks that the head has
	want     map[string]string  // the state that must be stored
	last     *Draft
	needed   int
}

func (c *careless) text() string {
	var b strings.Builder
	for range c.r.IntN(6) {
		fmt.Fprintf(&b, "%s ", []string{"word", "sk-", "id-", fmt.Sprintf("sk-%x", c.r.IntN(99)), fmt.Sprintf("id-%x", c.r.IntN(99)), "<sk>"}[c.r.IntN(6)])
	}
	return b.String()
}

func (c *careless) passed(s string) string {
	if c.kind == "" {
		return s
	}
	return string(redacted(c.kind, []byte(s)))
}

// learn takes the versions of an answer, whatever kind it is.
func (c *careless) learn(cp *Checkpoint) {
	for _, ch := range cp.Channels {
		c.versions[ch.Name] = ch.Version
	}
}

func (c *careless) save() {
	ctx := context.Background()
	th := c.f.Thread(c.ref)
	next := maps.Clone(c.have)
	whole, d := Draft{Keep: c.r.IntN(4) > 0}, Draft{}
	if c.r.IntN(2) == 0 {
		whole.ID = fmt.Sprint("c-", c.r.Uint64())
	}
	d = whole
	for _, name := range []string{"a", "b", "c"} {
		old, has := c.have[name]
		if (d.Keep || !has) && c.r.IntN(2) == 0 || c.r.IntN(8) == 0 {
			if !d.Keep {
				delete(next, name)
			}
			continue
		}
		at := c.r.IntN(len(old) + 1)
		end := at + c.r.IntN(len(old)-at+1)
		insert := c.text()
		next[name] = old[:at] + insert + old[end:]
		full := Change{Name: name, Data: []byte(next[name])}
		whole.Channels = append(whole.Channels, full)
		if c.versions[name] != 0 && c.r.IntN(5) > 0 {
			full = Change{Name: name, Base: c.versions[name], Prefix: at, Suffix: len(old) - end, Data: []byte(insert)}
			if c.r.IntN(2) == 0 {
				full = Change{Name: name, Base: c.versions[name], Splices: []Splice{{From: at, To: at, Data: []byte(insert)}, {From: at, To: end}}}
			}
		}
		d.Channels = append(d.Channels, full)
	}
	cp, err := th.Save(ctx, d)
	if errors.Is(err, ErrNeedFull) {
		c.needed++
		d = whole
		cp, err = th.Save(ctx, d)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.learn(cp)
	c.have, c.last = next, &d
	stored := map[string]string{}
	for name := range next {
		switch given := slices.ContainsFunc(whole.Channels, func(ch Change) bool { return ch.Name == name }); {
		case given:
			stored[name] = c.passed(next[name])
		case c.kind != c.hooked:
			stored[name] = c.passed(c.want[name])
		default:
			stored[name] = c.want[name]
		}
	}
	c.want, c.hooked = stored, c.kind
	c.check("after a save")
}

func (c *careless) check(when string) {
	c.t.Helper()
	if got := dataOf(c.t, c.f, c.ref, Latest); !maps.Equal(got, c.want) {
		c.t.Fatalf("%s: stored is %q, want %q", when, got, c.want)
	}
}

func (c *careless) step() {
	ctx := context.Background()
	switch n := c.r.IntN(40); {
	case n < 26:
		c.save()
	case n < 30:
		c.learn(headers(c.t, c.f.Thread(c.ref)))
	case n < 32:
		for cp, err := range c.f.Thread(c.ref).History(ctx, HistoryOptions{Limit: 1}) {
			if err != nil {
				c.t.Fatal(err)
			}
			c.learn(cp)
		}
	case n < 34: // it learns the stored state
		cp, err := c.f.Thread(c.ref).Load(ctx, Latest)
		if err != nil {
			c.t.Fatal(err)
		}
		c.learn(cp)
		for _, ch := range cp.Channels {
			c.have[ch.Name] = string(ch.Data)
		}
	case n < 36 && c.last != nil && c.last.ID != "":
		cp, err := c.f.Thread(c.ref).Save(ctx, *c.last)
		if err != nil {
			c.t.Fatalf("repeating %+v: %v", c.last, err)
		}
		c.learn(cp)
		c.check("after a save was repeated")
	case n < 38:
		c.f.reopen()
	default:
		c.kind = []string{"", "sk", "id"}[c.r.IntN(3)]
		if c.h.set(hook.PreSave, nil); c.kind != "" {
			c.h.set(hook.PreSave, redacting(c.kind))
		}
	}
}

// TestCarelessCallersCorruptNothing: the stored state is always the hooks' output for the state
// that the caller means, even if the caller takes its own bytes for the stored ones.
func TestCarelessCallersCorruptNothing(t *testing.T) {
	for seed := range uint64(12) {
		f, h := newHookFixture(t)
		c := &careless{t: t, f: f, h: h, r: rand.New(rand.NewPCG(seed, 3)), ref: testRef("t"), have: map[string]string{}, versions: map[string]Version{},
			want: map[string]string{}}
		c.save()
		for range 150 {
			c.step()
		}
		if c.needed == 0 {
			t.Error("no splice was refused")
		}
	}
}

// Saves of one lineage with slow hooks, which change in the meantime, run concurrently; kept data
// has always run through the hooks that its checkpoint records.
func TestConcurrentSavesWithHooks(t *testing.T) {
	ctx := context.Background()
	f, h := newHookFixture(t)
	ref := testRef("t")
	slow := func(kind string) *testChain {
		c := redacting(kind)
		run := c.run
		c.run = func(ctx context.Context, call *hook.Call) error {
			time.Sleep(time.Duration(len(call.Items)%3) * time.Millisecond)
			return run(ctx, call)
		}
		return c
	}
	both := []string{"sk", "id"}
	h.set(hook.PreSave, slow("sk"))
	mustSave(t, f, ref, Draft{Channels: []Change{{Name: "shared", Data: []byte("sk-1 id-1")}}})
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			name := fmt.Sprint("w", w)
			for i := range 25 {
				if w == 0 && i%5 == 4 {
					h.set(hook.PreSave, slow(both[i%2]))
				}
				d := Draft{Keep: true, Channels: []Change{{Name: name, Data: fmt.Appendf(nil, "sk-%x id-%x", r.IntN(99), r.IntN(99))}}}
				if i%3 == 0 {
					d.ID = fmt.Sprint(name, "-", i)
				}
				if _, err := f.Thread(ref).Save(ctx, d); err != nil {
					t.Errorf("saving: %v", err)
				}
			}
		})
	}
	wg.Wait()
	n := 0
	for cp, err := range f.Thread(ref).History(ctx, HistoryOptions{Data: true}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		kind := strings.TrimPrefix(cp.Hooks[0].Name, "redact-")
		for _, ch := range cp.Channels {
			if secrets[kind].Match(ch.Data) {
				t.Errorf("seq %d records %s and has %q", cp.Seq, cp.Hooks[0].Name, ch.Data)
			}
		}
	}
	if n != 151 {
		t.Errorf("%d checkpoints, want 151", n)
	}
}
