package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// randomSplices draws splices of n bytes, in order.
func randomSplices(r *rand.Rand, n int) []Splice {
	most := 4
	if r.IntN(4) == 0 {
		most = 60 // so many that the value is rebuilt
	}
	places := make([]int, 2*r.IntN(most+1))
	for i := range places {
		places[i] = r.IntN(n + 1)
	}
	slices.Sort(places)
	splices := []Splice{}
	for p := range slices.Chunk(places, 2) {
		if p[1] > p[0]+300 && r.IntN(4) > 0 {
			p[1] = p[0] + r.IntN(300)
		}
		splices = append(splices, Splice{p[0], p[1], words(r, r.IntN(200))})
	}
	return splices
}

// applied applies splices to base in the obvious way.
func applied(base []byte, splices []Splice) []byte {
	var out []byte
	at := 0
	for _, s := range splices {
		out = append(append(out, base[at:s.From]...), s.Data...)
		at = s.To
	}
	return append(out, base[at:]...)
}

// A list of splices has its defined result, whatever came before, and so do splices found between
// two values.
func TestSplicesAgainstReference(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 21))
		f := newFixture(t, Options{})
		th := f.Thread(testRef("t"))
		value := words(r, 30_000)
		cp := mustSave(t, f, testRef("t"), Draft{Channels: []Change{{Name: "state", Data: value}, {Name: "other", Data: []byte("x")}}})
		states := map[string]map[string][]byte{}
		for step := range 120 {
			splices := randomSplices(r, len(value))
			next := applied(value, splices)
			if r.IntN(4) == 0 {
				splices = Splices(value, next)
			}
			if r.IntN(40) == 0 {
				f.reopen()
				th = f.Thread(testRef("t"))
			}
			ch, _ := cp.Channel("state")
			d := Draft{ID: fmt.Sprint(seed, step), Keep: true, Channels: []Change{{Name: "state", Base: ch.Version, Splices: splices}}}
			var err error
			if cp, err = th.Save(ctx, d); err != nil {
				t.Fatalf("seed %d step %d: %v", seed, step, err)
			}
			if again, err := th.Save(ctx, d); err != nil || again.Hash != cp.Hash {
				t.Fatalf("seed %d step %d: saved again: %v", seed, step, err)
			}
			value = next
			states[cp.ID] = map[string][]byte{"state": value, "other": []byte("x")}
		}
		f.reopen()
		for id, want := range states {
			checkState(t, f, id, want)
		}
		checkBounds(t, f, testRef("t"))
	}
}

func TestSplicesOfTwoValues(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	was := words(r, 200_000)
	for range 100 {
		now := applied(was, randomSplices(r, len(was)))
		if r.IntN(3) == 0 {
			now = mutate(r, now)
		}
		splices := Splices(was, now)
		if err := (&Change{Base: 1, Splices: splices}).checkSplices(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(applied(was, splices), now) {
			t.Fatalf("%d splices make something else", len(splices))
		}
	}
	if got := Splices(was, slices.Clone(was)); got == nil || len(got) != 0 {
		t.Errorf("the same bytes are %v", got)
	}
	// A counter at the head, and a message at the end and one in the middle.
	now := slices.Concat([]byte("12"), was[3:90_000], words(r, 1000), was[90_000:], words(r, 1000))
	n := 0
	for _, s := range Splices(was, now) {
		n += len(s.Data)
	}
	if n > 2010 {
		t.Errorf("%d bytes for 2,002 that changed", n)
	}
}

// Lists that say nothing sound are refused, in a line that says why, and change nothing.
func TestBadSplices(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{MaxChannel: 1000})
	th := f.Thread(testRef("t"))
	cp := mustSave(t, f, testRef("t"), Draft{Channels: []Change{{Name: "a", Data: []byte("0123456789")}}})
	base := cp.Channels[0].Version
	large := bytes.Repeat([]byte("x"), 995)
	for want, c := range map[string]Change{
		`channel "a": splices need a base`:                                          {Splices: []Splice{}},
		`channel "a": splices exclude data, prefix and suffix`:                      {Base: base, Prefix: 1, Splices: []Splice{}},
		`channel "a": 1025 splices, at most 1024 are allowed`:                       {Base: base, Splices: make([]Splice, MaxSplices+1)},
		`channel "a": splice 1 is from -1 to 0, but the one before it ends at 0`:    {Base: base, Splices: []Splice{{-1, 0, nil}}},
		`channel "a": splice 1 is from 5 to 4, but the one before it ends at 0`:     {Base: base, Splices: []Splice{{5, 4, nil}}},
		`channel "a": splice 2 is from 3 to 5, but the one before it ends at 4`:     {Base: base, Splices: []Splice{{2, 4, nil}, {3, 5, nil}}},
		`channel "a" has 10 bytes, but the last splice ends at 11`:                  {Base: base, Splices: []Splice{{2, 4, nil}, {10, 11, nil}}},
		`channel "a" is 1005 bytes, over the limit of 1000`:                         {Base: base, Splices: []Splice{{2, 2, large}}},
		`channel "a" is 1990 bytes, over the limit of 1000`:                         {Base: base, Splices: []Splice{{2, 2, large}, {3, 3, large}}},
		`base of the splice is not the parent's version: send channels ["a"] whole`: {Base: base + 1, Splices: []Splice{{2, 2, nil}}},
		`channel "a" has 10 bytes, but the splice keeps 9 and 2`:                    {Base: base, Prefix: 9, Suffix: 2},
		`channel "a": prefix and suffix need a base and must not be negative`:       {Base: base, Prefix: -1},
	} {
		c.Name = "a"
		_, err := th.Save(ctx, Draft{Keep: true, Channels: []Change{c}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q, want %q", err, want)
		}
		if class := errors.Is(err, ErrInvalid) || errors.Is(err, ErrTooLarge) || errors.Is(err, ErrNeedFull); !class {
			t.Errorf("%v has no class", err)
		}
	}
	// Adjacent splices do not overlap; an empty list changes nothing.
	for _, c := range []struct {
		splices []Splice
		want    string
	}{
		{[]Splice{}, "0123456789"},
		{[]Splice{{0, 0, []byte("a")}, {0, 0, []byte("b")}, {0, 2, []byte("c")}, {2, 10, nil}, {10, 10, []byte("d")}}, "abcd"},
	} {
		cp := mustSave(t, f, testRef("t"), Draft{Keep: true, Channels: []Change{{Name: "a", Base: base, Splices: c.splices}}})
		if got := valueOf(mustLoad(t, th, At(cp.ID)), "a"); got != c.want {
			t.Errorf("%v make %q, want %q", c.splices, got, c.want)
		}
	}
}
