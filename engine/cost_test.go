package engine

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
)

// The price that writers pay for bounded restores: the bytes written by histories that append once
// a step. The limits are the figures of the same histories when each channel had a bound of its
// own, and restores of many channels had none.
func TestAppendsCost(t *testing.T) {
	runsAlone(t)
	for _, c := range []struct {
		channels, size, add, steps int
		most                       int64
	}{
		{1, 0, 1000, 1000, 981_540},
		{1, 300, 20, 1000, 247_796},
		{1, 10_000, 300, 1000, 501_395},
		{3, 300, 20, 1000, 414_178},
		{3, 10_000, 300, 1000, 835_199},
		{10, 300, 20, 1000, 603_658},
		{10, 10_000, 300, 1000, 997_851},
		{30, 300, 20, 1000, 864_674},
		{30, 10_000, 300, 1000, 1_359_418},
		{100, 300, 20, 1000, 1_559_432},
		{100, 3000, 100, 1000, 1_907_932},
		{1000, 300, 20, 2000, 14_012_769 * 12 / 10},
	} {
		t.Run(fmt.Sprintf("%d channels of %d, %d more", c.channels, c.size, c.add), func(t *testing.T) {
			if testing.Short() && c.channels >= 100 {
				t.Skip("takes a second")
			}
			t.Parallel()
			written := appendsCost(t, c.channels, c.size, c.add, c.steps)
			if written > c.most {
				t.Errorf("%d bytes were written, want at most %d", written, c.most)
			}
			t.Logf("%d bytes were written, %.2f of the limit", written, float64(written)/float64(c.most))
		})
	}
}

func appendsCost(t *testing.T, channels, size, add, steps int) (written int64) {
	ctx := context.Background()
	r := rand.New(rand.NewPCG(1, 2))
	f := newFixture(t, Options{})
	m := newMeter(f.be)
	s, err := Open(ctx, m, f.opts)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	th := s.Thread(testRef("t"))
	state := make([][]byte, channels)
	var d Draft
	for i := range state {
		state[i] = words(r, size)
		d.Channels = append(d.Channels, Change{Name: fmt.Sprintf("ch-%04d", i), Data: state[i]})
	}
	var last *Checkpoint
	for i := range steps + 1 {
		if last, err = th.Save(ctx, d); err != nil {
			t.Fatal(err)
		}
		at := i * 7919 % channels
		state[at] = append(bytes.Clone(state[at]), words(r, add)...)
		d = Draft{Keep: true, Step: int64(i), Channels: []Change{{Name: fmt.Sprintf("ch-%04d", at), Data: state[at]}}}
	}
	loadCold(t, f, testRef("t"), last.ID)
	return m.written
}
