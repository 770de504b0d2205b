package engine

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ckptd/ckptd/codec"
)

// A save that changes one channel, at random, stores it and the runs of kept ones. Runs become
// shorter with each save until it pays to encode all channels again, so the size of a save grows
// with the square root of their number.
func TestCostFollowsTheChange(t *testing.T) {
	runsAlone(t)
	ctx := context.Background()
	steps := 1000
	if testing.Short() {
		steps = 200
	}
	few := 0.0
	for _, n := range []int{8, 64, 256, 1024, codec.MaxChannels} {
		f := newFixture(t, Options{})
		ref := testRef("t")
		th := f.Thread(ref)
		value := func(i, step int) []byte { return fmt.Appendf(nil, "value %d of step %d, and some more", i, step) }
		d := Draft{}
		for i := range n {
			d.Channels = append(d.Channels, Change{Name: fmt.Sprintf("channel-%04d", i), Data: value(i, 0)})
		}
		mustSave(t, f, ref, d)
		r := rand.New(rand.NewPCG(1, uint64(n)))
		stored, entries := int64(0), 0
		for step := range steps {
			i := r.IntN(n)
			cp, err := th.Save(ctx, Draft{Keep: true, Step: int64(step), Channels: []Change{{Name: fmt.Sprintf("channel-%04d", i), Data: value(i, step)}}})
			if err != nil {
				t.Fatal(err)
			}
			stored += cp.Cost.Stored
			entries += entriesAt(t, f, ref, cp.Seq)
		}
		bytes, runs := float64(stored)/float64(steps), float64(entries)/float64(steps)
		if n == 8 {
			few = bytes
		}
		t.Logf("%d channels: %.0f B a step, in %.0f entries", n, bytes, runs)
		if most := 1.5*few + 48*math.Sqrt(float64(n)); bytes > most {
			t.Errorf("%d channels: %.0f B a step in %.0f entries, at most %.0f B are wanted", n, bytes, runs, most)
		}
	}
}

func entriesAt(t *testing.T, f *fixture, ref Ref, seq uint64) int {
	t.Helper()
	ctx := context.Background()
	l, err := f.rlockThread(ctx, ref, false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.runlockThread()
	r, err := l.readRecord(ctx, seq)
	if err != nil {
		t.Fatal(err)
	}
	return len(r.rec.Entries)
}

// Channels that come, go and change in any order leave a table that restores, and a hash that does
// not tell how it was stored.
func TestTablesOfManyChannels(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	ref := testRef("t")
	r := rand.New(rand.NewPCG(7, 7))
	state := map[string]string{}
	name := func() string { return fmt.Sprintf("c%d", r.IntN(60)) }
	for step := range 400 {
		d := Draft{Keep: true, Step: int64(step)}
		for range 1 + r.IntN(4) {
			at := name()
			if _, there := findChange(d.Channels, at); there {
				continue
			}
			if _, has := state[at]; has && r.IntN(3) == 0 {
				d.Channels = append(d.Channels, Change{Name: at, Remove: true})
				delete(state, at)
				continue
			}
			state[at] = fmt.Sprint("value ", step, r.IntN(100))
			d.Channels = append(d.Channels, Change{Name: at, Data: []byte(state[at])})
		}
		saved, err := f.Thread(ref).Save(ctx, d)
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		if step%20 != 0 {
			continue
		}
		got, _ := loadCold(t, f, ref, saved.ID)
		if got.Hash != saved.Hash || len(got.Channels) != len(state) {
			t.Fatalf("step %d: it loads with %d channels, not %d; its hash is the same: %v", step, len(got.Channels), len(state), got.Hash == saved.Hash)
		}
		for _, c := range got.Channels {
			if string(c.Data) != state[c.Name] {
				t.Fatalf("step %d: %s is %q, not %q", step, c.Name, c.Data, state[c.Name])
			}
		}
		if step%100 == 0 {
			f.reopen()
		}
	}
}

func findChange(changes []Change, name string) (at int, there bool) {
	for i := range changes {
		if changes[i].Name == name {
			return i, true
		}
	}
	return 0, false
}
