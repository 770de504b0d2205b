package client

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/engine"
)

// What comes through the server is what the engine has.
func TestSaveLoad(t *testing.T) {
	ctx := t.Context()
	w := newWorld(t, Options{})
	th, direct := w.Thread(place("t")), w.engine.Thread(place("t"))
	first, err := th.Save(ctx, engine.Draft{Step: 1, Status: "waiting", Labels: map[string]string{"env": "prod"}, Meta: []byte(`{"a":1}`), RunID: "r",
		Channels: []engine.Change{{Name: "messages", Type: "json", Data: []byte(`["hello"]`)}, {Name: "empty", Data: []byte{}}, {Name: "x", Data: []byte{0, 255}}}})
	if err != nil {
		t.Fatal(err)
	}
	ch, _ := first.Channel("messages")
	second, err := th.Save(ctx, engine.Draft{Keep: true, Expect: engine.ExpectHead(1),
		Channels: []engine.Change{{Name: "messages", Base: ch.Version, Prefix: 8, Suffix: 1, Data: []byte(`,"world"`)}, {Name: "x", Remove: true}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, cp := range []*engine.Checkpoint{first, second} {
		want, err := direct.Load(ctx, engine.At(cp.ID), engine.LoadOptions{HeadersOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, cp); diff != "" {
			t.Errorf("saved (-engine +client):\n%s", diff)
		}
		for _, o := range []engine.LoadOptions{{}, {HeadersOnly: true}, {Channels: []string{"empty"}}, {Channels: []string{}}} {
			want, err := direct.Load(ctx, engine.At(cp.ID), o)
			if err != nil {
				t.Fatal(err)
			}
			got, err := th.Load(ctx, engine.At(cp.ID), o)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%+v (-engine +client):\n%s", o, diff)
			}
		}
	}

	_, err = th.Save(ctx, engine.Draft{Expect: engine.ExpectHead(1)})
	if conflict, ok := errors.AsType[*engine.ConflictError](err); !ok || conflict.HeadSeq != 2 || conflict.HeadID != second.ID {
		t.Errorf("a conflict: %v", err)
	}
	_, err = th.Save(ctx, engine.Draft{Keep: true, Channels: []engine.Change{{Name: "messages", Base: ch.Version, Prefix: 1}}})
	if full, ok := errors.AsType[*engine.NeedFullError](err); !ok || !slices.Equal(full.Channels, []string{"messages"}) {
		t.Errorf("a splice of another base: %v", err)
	}
	if _, err := th.Load(ctx, engine.At("nobody")); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("a checkpoint that is not there: %v", err)
	}
	if _, err := th.Save(ctx, engine.Draft{Parent: "nobody"}); !errors.Is(err, engine.ErrUnknownParent) {
		t.Errorf("a parent that is not there: %v", err)
	}
	if _, err := th.Save(ctx, engine.Draft{Status: "\xff"}); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("a status that is not UTF-8: %v", err)
	}
}

func TestSaveBatch(t *testing.T) {
	w := newWorld(t, Options{})
	w.faults(func(n int64) fault { return fault{drop: n == 1} })
	results, err := w.SaveBatch(t.Context(), []BatchSave{{place("a"), draft}, {place("b"), engine.Draft{Parent: "nobody"}}, {place("a"), draft}})
	if err != nil || len(results) != 3 {
		t.Fatalf("%v, %v", results, err)
	}
	if results[0].Err != nil || results[0].Checkpoint.Seq != 1 || !errors.Is(results[1].Err, engine.ErrUnknownParent) || results[2].Err != nil || results[2].Checkpoint.Seq != 2 {
		t.Errorf("%+v", results)
	}
}

// A channel that the caller has does not travel.
func TestLoadHave(t *testing.T) {
	ctx := t.Context()
	w := newWorld(t, Options{})
	th := w.Thread(place("t"))
	big := random(1 << 20)
	if _, err := th.Save(ctx, engine.Draft{Channels: []engine.Change{{Name: "big", Data: big}, {Name: "small", Data: []byte("1")}}}); err != nil {
		t.Fatal(err)
	}
	w.in.Store(0)
	w.out.Store(0)
	cp, err := th.LoadHave(ctx, engine.Latest, []engine.Channel{{Name: "big", Data: big}, {Name: "small", Data: []byte("0")}})
	if err != nil {
		t.Fatal(err)
	}
	if n := w.in.Load() + w.out.Load(); n > 1000 {
		t.Errorf("%d bytes on the wire", n)
	}
	if !bytes.Equal(cp.Channels[0].Data, big) || string(cp.Channels[1].Data) != "1" {
		t.Errorf("loaded %d bytes and %q", len(cp.Channels[0].Data), cp.Channels[1].Data)
	}
}

// A session sends what changed, whatever was there.
func TestSessionIsSmall(t *testing.T) {
	ctx := t.Context()
	w := newWorld(t, Options{})
	s := w.Thread(place("t")).Session()
	state := random(100_000)
	save := func() *engine.Checkpoint {
		t.Helper()
		cp, err := s.Save(ctx, engine.Draft{Channels: []engine.Change{{Name: "state", Type: "json", Data: state}, {Name: "same", Data: state[:50_000]}}})
		if err != nil {
			t.Fatal(err)
		}
		return cp
	}
	save()
	for range 5 {
		state = slices.Insert(state, 60_000, random(1000)...)
		w.in.Store(0)
		w.faults(nil)
		save()
		if n := w.in.Load(); n > 1300 || w.calls.Load() != 1 {
			t.Errorf("%d bytes in %d calls for 1000 that changed", n, w.calls.Load())
		}
	}
	// Somebody else saves, so the whole state is needed once.
	if _, err := w.engine.Thread(place("t")).Save(ctx, engine.Draft{Channels: []engine.Change{{Name: "other", Data: []byte("x")}}}); err != nil {
		t.Fatal(err)
	}
	w.faults(nil)
	cp := save()
	if w.calls.Load() != 2 || cp.Seq != 8 || len(cp.Channels) != 2 {
		t.Errorf("after another's save: %d calls, %+v", w.calls.Load(), cp)
	}
	w.faults(nil)
	if save(); w.calls.Load() != 1 {
		t.Errorf("after the whole state: %d calls", w.calls.Load())
	}
	// So it is for a channel that was away.
	if _, err := s.Save(ctx, engine.Draft{Channels: []engine.Change{{Name: "state", Type: "json", Data: state}}}); err != nil {
		t.Fatal(err)
	}
	w.faults(nil)
	if save(); w.calls.Load() != 1 {
		t.Errorf("after a channel was away: %d calls", w.calls.Load())
	}
	w.out.Store(0)
	cp, err := s.Load(ctx, engine.Latest)
	if err != nil || w.out.Load() > 1000 {
		t.Errorf("%v, %d bytes to load what the session has", err, w.out.Load())
	}
	cp.Channels[1].Data[0]++ // is the caller's
	w.faults(nil)
	if save(); w.calls.Load() != 1 {
		t.Errorf("after a change of what was loaded: %d calls", w.calls.Load())
	}
}

// Whatever is saved through a session, alone or beside others, loads as it was given.
func TestSessionAgainstWholeSaves(t *testing.T) {
	ctx := t.Context()
	rng := rand.New(rand.NewPCG(1, 2))
	w := newWorld(t, Options{})
	th := w.engine.Thread(place("t"))
	s := w.Thread(place("t")).Session()
	state := map[string][]byte{}
	types := []string{"", "json", "bytes"}
	var ids []string
	for step := range 300 {
		name := fmt.Sprint("c", rng.IntN(3))
		switch v := state[name]; rng.IntN(5) {
		case 0:
			delete(state, name)
		case 1:
			state[name] = []byte{}
		default:
			from := rng.IntN(len(v) + 1)
			to := from + rng.IntN(len(v)-from+1)
			state[name] = slices.Concat(v[:from], random(2*rng.IntN(40)), v[to:])
		}
		d := engine.Draft{Step: int64(step)}
		for name, v := range state {
			d.Channels = append(d.Channels, engine.Change{Name: name, Type: types[rng.IntN(3)], Data: v})
		}
		want := map[string]string{}
		for _, c := range d.Channels {
			if c.Type == "" {
				c.Type = "bytes"
			}
			want[c.Name] = c.Type + string(c.Data)
		}
		switch {
		case rng.IntN(8) == 0:
			if _, err := th.Save(ctx, engine.Draft{Channels: []engine.Change{{Name: "c0", Data: []byte("theirs")}}}); err != nil {
				t.Fatal(err)
			}
		case rng.IntN(8) == 0:
			if _, err := s.Load(ctx, engine.Latest); err != nil && step > 0 {
				t.Fatal(err)
			}
		case rng.IntN(8) == 0 && len(ids) > 0:
			d.Parent = ids[rng.IntN(len(ids))]
		}
		cp, err := s.Save(ctx, d)
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		ids = append(ids, cp.ID)
		got, err := th.Load(ctx, engine.At(cp.ID))
		if err != nil {
			t.Fatal(err)
		}
		have := map[string]string{}
		for _, c := range got.Channels {
			have[c.Name] = c.Type + string(c.Data)
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Fatalf("step %d (-given +loaded):\n%s", step, diff)
		}
	}
}

// A session sends each place where a state changed, and nothing between.
func TestSessionSendsEveryPlace(t *testing.T) {
	const steps = 60
	for name, state := range map[string]func(messages [][]byte) []byte{
		"counter at the head": func(messages [][]byte) []byte {
			return fmt.Appendf(nil, `{"count":%d,"messages":[%s]}`, len(messages), bytes.Join(messages, []byte(",")))
		},
		"msgpack array": func(messages [][]byte) []byte {
			state := binary.BigEndian.AppendUint16([]byte("\x81\xa8messages\xdc"), uint16(len(messages)))
			for _, m := range messages {
				state = append(binary.BigEndian.AppendUint16(append(state, 0xda), uint16(len(m))), m...)
			}
			return state
		},
		"five places": func(messages [][]byte) (state []byte) {
			for i := range 5 {
				state = fmt.Appendf(state, `{"part":%d,"steps":%d,"messages":[`, i, len(messages))
				for j := i; j < len(messages); j += 5 {
					state = append(append(state, messages[j]...), ',')
				}
				state = append(state, "]}"...)
			}
			return state
		},
		"inserted in the middle": func(messages [][]byte) []byte {
			var order [][]byte
			for i, m := range messages {
				order = slices.Insert(order, i/2, m)
			}
			return fmt.Appendf(nil, `{"count":%d,"messages":[%s]}`, len(messages), bytes.Join(order, []byte(",")))
		},
	} {
		w := newWorld(t, Options{})
		s := w.Thread(place("t")).Session()
		var messages [][]byte
		var last []byte
		for range steps {
			messages = append(messages, random(1000))
			last = state(messages)
			if _, err := s.Save(t.Context(), engine.Draft{Channels: []engine.Change{{Name: "state", Data: last}}}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if n := w.in.Load() / steps; n > 1400 {
			t.Errorf("%s: %d bytes for each message of 1,000", name, n)
		} else {
			t.Logf("%s: %d bytes for each message of 1,000", name, n)
		}
		if cp, err := w.engine.Thread(place("t")).Load(t.Context(), engine.Latest); err != nil || !bytes.Equal(cp.Channels[0].Data, last) {
			t.Errorf("%s: what was saved is something else, %v", name, err)
		}
	}
}
