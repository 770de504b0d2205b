package engine

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// At every length of a path, a save that only keeps channels on it can be read, and so can the next
// save.
func TestKeepsOnTheLongestPath(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	ref := testRef("t")
	th := f.Thread(ref)
	r := rand.New(rand.NewPCG(5, 5))
	state := words(r, 200_000) // so large that records run out before bytes do
	most := 0
	for i := range 600 {
		state = append(state, words(r, 40)...)
		cp, err := th.Save(ctx, Draft{Keep: true, Step: int64(i), Channels: []Change{{Name: "messages", Data: state}}})
		if err != nil {
			t.Fatal(err)
		}
		if cp.Cost.Depth < codec.MaxPath-8 && i != 255 && i != 511 {
			continue
		}
		for range i % 3 {
			if cp, err = th.Save(ctx, Draft{Keep: true, Step: int64(i), Status: StatusSucceeded}); err != nil {
				t.Fatal(err)
			}
			got, cost := loadCold(t, f, ref, cp.ID)
			if !bytes.Equal(got.Channels[0].Data, state) || got.Hash != cp.Hash {
				t.Fatalf("step %d: the state that was kept differs", i)
			}
			most = max(most, cost.records)
		}
	}
	if most != codec.MaxPath {
		t.Errorf("a restore reads at most %d records: the test shows nothing", most)
	}
}

// A channel that a save encodes again, without changing it, keeps its version, and nothing looks
// changed.
func TestStoredAnewIsNoChange(t *testing.T) {
	runsAlone(t)
	ctx := context.Background()
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	r := rand.New(rand.NewPCG(8, 8))
	var last *Checkpoint
	var d Draft
	state := map[string][]byte{}
	for i := range 10 {
		name := fmt.Sprint("channel ", i)
		state[name] = words(r, 400)
		d.Channels = append(d.Channels, Change{Name: name, Data: state[name]})
	}
	found := 0
	for i := range 400 {
		cp, err := th.Save(ctx, d)
		if err != nil {
			t.Fatal(err)
		}
		if n := storedAnew(t, f, cp, &d); i > 0 && n > 0 {
			found++
			changes, err := th.Diff(ctx, At(last.ID), At(cp.ID))
			if err != nil {
				t.Fatal(err)
			}
			for _, ch := range changes.Channels {
				if changed := hasChange(d, ch.Name); (ch.Kind != Same) != changed {
					t.Errorf("step %d: %s is %v, changed is %v", i, ch.Name, ch.Kind, changed)
				}
			}
			for _, ch := range cp.Channels {
				was, _ := last.Channel(ch.Name)
				if changed := hasChange(d, ch.Name); (was.Version != ch.Version) != changed {
					t.Errorf("step %d: %s had version %d and has %d, changed is %v", i, ch.Name, was.Version, ch.Version, changed)
				}
			}
			got, _ := loadCold(t, f, testRef("t"), cp.ID)
			if got.Hash != cp.Hash {
				t.Errorf("step %d restores to another hash", i)
			}
		}
		last, d = cp, Draft{Keep: true, Step: int64(i)}
		if i%3 == 0 {
			d.Status = StatusWaiting
			continue
		}
		name := fmt.Sprint("channel ", r.IntN(10))
		state[name] = append(bytes.Clone(state[name]), words(r, 100)...)
		d.Channels = []Change{{Name: name, Data: state[name]}}
	}
	if found < 3 {
		t.Errorf("%d saves stored channels again: the test shows little", found)
	}
	mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
}

func hasChange(d Draft, name string) bool {
	return slices.ContainsFunc(d.Channels, func(c Change) bool { return c.Name == name })
}

// storedAnew is how many channels the record of a checkpoint holds that its draft did not name.
func storedAnew(t *testing.T, f *fixture, cp *Checkpoint, d *Draft) (n int) {
	t.Helper()
	l, err := f.rlockThread(context.Background(), cp.Ref, false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.runlockThread()
	r, err := l.readRecord(context.Background(), cp.Seq)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range r.rec.Entries[1:] {
		if e.Mode != codec.Keep {
			n++
		}
	}
	return n - len(d.Channels)
}

// As many channels as there may be, with the longest names, can be changed, removed and added again
// within bounds.
func TestAsManyChannelsAsThereMayBe(t *testing.T) {
	runsAlone(t)
	channels := campaign(1500, codec.MaxChannels)
	ctx := context.Background()
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	r := rand.New(rand.NewPCG(9, 9))
	state := map[string][]byte{}
	name := func(i int) string { return fmt.Sprintf("%0*d", codec.MaxName, i) }
	save := func(d Draft) {
		t.Helper()
		cp, err := th.Save(ctx, d)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := loadCold(t, f, testRef("t"), cp.ID)
		if len(got.Channels) != len(state) {
			t.Fatalf("%d channels, want %d", len(got.Channels), len(state))
		}
		for _, ch := range got.Channels {
			if !bytes.Equal(ch.Data, state[ch.Name]) {
				t.Fatalf("%s differs", ch.Name)
			}
		}
	}
	var d Draft
	for i := range channels {
		state[name(i)] = words(r, i%200)
		d.Channels = append(d.Channels, Change{Name: name(i), Type: name(i), Data: state[name(i)]})
	}
	save(d)
	for i := range 4 {
		at := name(r.IntN(channels))
		state[at] = append(bytes.Clone(state[at]), "more"...)
		save(Draft{Keep: true, Step: int64(i), Channels: []Change{{Name: at, Data: state[at]}}})
		delete(state, at)
		save(Draft{Keep: true, Channels: []Change{{Name: at, Remove: true}}})
		state[at] = nil
		save(Draft{Keep: true, Channels: []Change{{Name: at}}})
	}
	meta := fmt.Appendf(nil, "%q", words(r, codec.MaxMeta-2))
	save(Draft{Keep: true, Meta: meta})
	save(Draft{Keep: true, Meta: []byte(`"short"`)})
}
