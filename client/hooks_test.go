package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/hook"
)

// masking is hooks that take keys out of what is saved, and fail when they are told to.
type masking struct{ fails atomic.Pointer[hook.Error] }

var keys = regexp.MustCompile(`sk-[a-z0-9]*`)

func masked(data []byte) []byte { return keys.ReplaceAll(data, []byte("(key)")) }

func (m *masking) For(stage hook.Stage, _, _ string) (hook.Chain, error) {
	if stage != hook.PreSave {
		return nil, nil
	}
	return m, nil
}

func (*masking) Identities() []hook.Identity {
	return []hook.Identity{{Name: "masking@1.0.0", Digest: [32]byte{1}, Config: [32]byte{2}}}
}

func (m *masking) Run(_ context.Context, c *hook.Call) error {
	if e := m.fails.Load(); e != nil {
		return e
	}
	for i := range c.Items {
		c.Items[i].Data = masked(c.Items[i].Data)
		c.Fuel++
	}
	return nil
}

// A session whose appends hold secrets goes on as if nothing was, and what is stored is what hooks
// make of the whole.
func TestSessionOfSecrets(t *testing.T) {
	ctx := t.Context()
	rng := rand.New(rand.NewPCG(7, 8))
	w := newHookedWorld(t, &masking{})
	s := w.Thread(place("t")).Session()
	var log, plain []byte
	for step := range 200 {
		line := fmt.Sprintf("line %d of %x\n", step, rng.Uint64())
		if rng.IntN(4) == 0 {
			line = fmt.Sprintf("the key is sk-%x\n", rng.Uint64())
		}
		log = append(log, line...)
		if at := len(log) - rng.IntN(min(len(log), 50)); rng.IntN(10) == 0 { // also in the middle of what is there
			log = slices.Insert(log, at, []byte(" sk-abc ")...)
		}
		plain = append(plain, "no secrets\n"...)
		cp, err := s.Save(ctx, engine.Draft{Step: int64(step), Channels: []engine.Change{{Name: "log", Type: "text", Data: log}, {Name: "plain", Type: "text", Data: plain}}})
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		got, err := w.engine.Thread(place("t")).Load(ctx, engine.At(cp.ID))
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string][]byte{"log": masked(log), "plain": plain} {
			ch, _ := got.Channel(name)
			if string(ch.Data) != string(want) {
				t.Fatalf("step %d: %s is stored as\n%s\nwant\n%s", step, name, ch.Data, want)
			}
			if saved, _ := cp.Channel(name); saved.Rewritten != (strings.Contains(string(log), "sk-") && name == "log") {
				t.Fatalf("step %d: %s is said to be rewritten: %v", step, name, saved.Rewritten)
			}
		}
		if rng.IntN(10) == 0 { // and goes on from what is stored
			loaded, err := s.Load(ctx, engine.Latest)
			if err != nil {
				t.Fatal(err)
			}
			ch, _ := loaded.Channel("log")
			log = slices.Clone(ch.Data)
		}
	}
	if _, err := s.Load(ctx, engine.Latest); err != nil {
		t.Fatal(err)
	}
	w.in.Store(0)
	w.faults(nil)
	if _, err := s.Save(ctx, engine.Draft{Channels: []engine.Change{{Name: "log", Type: "text", Data: append(masked(log), '\n')}, {Name: "plain", Type: "text", Data: plain}}}); err != nil {
		t.Fatal(err)
	}
	if n := w.in.Load(); n > 400 || w.calls.Load() != 1 {
		t.Errorf("after a load %d bytes in %d calls for one", n, w.calls.Load())
	}
}

// loud is hooks that change what is loaded, and not its size.
type loud struct {
	masking
	off atomic.Bool
}

func (l *loud) For(stage hook.Stage, _, _ string) (hook.Chain, error) {
	if stage != hook.Load || l.off.Load() {
		return nil, nil
	}
	return l, nil
}

func (*loud) Run(_ context.Context, c *hook.Call) error {
	for i := range c.Items {
		c.Items[i].Data = bytes.ToUpper(c.Items[i].Data)
	}
	return nil
}

// What hooks made for a load is not what is stored, so nothing is spliced into it.
func TestSessionOfChangedLoads(t *testing.T) {
	ctx := t.Context()
	l := &loud{}
	w := newHookedWorld(t, l)
	s := w.Thread(place("t")).Session()
	for _, text := range []string{"one", "ONE and two"} {
		if _, err := s.Save(ctx, engine.Draft{Channels: []engine.Change{{Name: "a", Type: "text", Data: []byte(text)}}}); err != nil {
			t.Fatal(err)
		}
		cp, err := s.Load(ctx, engine.Latest)
		if err != nil || string(cp.Channels[0].Data) != strings.ToUpper(text) {
			t.Fatalf("loaded %q, %v", cp.Channels[0].Data, err)
		}
		l.off.Store(true)
		if cp, err = w.engine.Thread(place("t")).Load(ctx, engine.Latest); err != nil || string(cp.Channels[0].Data) != text {
			t.Errorf("%q is stored as %q, %v", text, cp.Channels[0].Data, err)
		}
		l.off.Store(false)
	}
}

// What hooks did is told as in process: by whom, to what, and how they failed.
func TestHooksOverTheWire(t *testing.T) {
	ctx := t.Context()
	m := &masking{}
	w := newHookedWorld(t, m)
	th := w.Thread(place("t"))
	saved, err := th.Save(ctx, engine.Draft{Channels: []engine.Change{{Name: "a", Data: []byte("sk-1")}, {Name: "b", Data: []byte("b")}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(saved.Hooks) != 1 || saved.Hooks[0] != m.Identities()[0] || saved.Fuel == 0 || !saved.Channels[0].Rewritten || saved.Channels[1].Rewritten {
		t.Errorf("saved: %+v", saved)
	}
	_, err = th.Save(ctx, engine.Draft{Keep: true, Channels: []engine.Change{{Name: "a", Base: saved.Channels[0].Version, Prefix: 4, Data: []byte("!")}}})
	if full, ok := errors.AsType[*engine.NeedFullError](err); !ok || !slices.Equal(full.Channels, []string{"a"}) {
		t.Errorf("a splice of what hooks rewrote: %v", err)
	}
	for _, kind := range []error{hook.ErrRejected, hook.ErrFailed, hook.ErrFuel, hook.ErrTimeout, hook.ErrTrap, hook.ErrLimit, hook.ErrUnavailable, hook.ErrInvalid} {
		want := hook.Error{Kind: kind, Plugin: "masking@1.0.0", Stage: hook.PreSave, Item: "channel a", Code: 17, Reason: "because"}
		m.fails.Store(&want)
		w.faults(nil)
		_, err := th.Save(ctx, engine.Draft{Channels: []engine.Change{{Name: "a", Data: []byte("x")}}})
		if got, ok := errors.AsType[*hook.Error](err); !ok || *got != want || !errors.Is(err, kind) || !errors.Is(err, engine.ErrRejected) {
			t.Errorf("%v arrives as %#v", kind, err)
		}
		if errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrAmbiguous) || w.calls.Load() != 1 {
			t.Errorf("%v: %v after %d calls", kind, err, w.calls.Load())
		}
	}
}
