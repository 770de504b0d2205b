package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// edges draws drafts and writes whose parts are at their limits, one below, or one above.
type edges struct {
	*rand.Rand
	over bool // something is above its limit
}

// near is a number at a limit or next to it; above it seldom, since that hides everything else.
func (e *edges) near(most int) int {
	switch e.IntN(40) {
	case 0:
		e.over = true
		return most + 1
	case 1, 2, 3:
		return most
	case 4, 5:
		return most - 1
	}
	return e.IntN(3)
}

// name is a name for calls that use names, at most as long as names may be, or longer.
func (e *edges) name(what string) string { return e.nameUpTo(what, codec.MaxName) }

func (e *edges) nameUpTo(what string, most int) string {
	n := e.near(most)
	if n < 3 {
		return fmt.Sprint(what, n)
	}
	s := what + strings.Repeat("é", (n-len(what))/2) + "x"
	if len(s) > n {
		s = s[:len(s)-1]
	}
	return s + strings.Repeat("y", n-len(s))
}

func (e *edges) integer() int64 {
	return []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, 127, 128, 1 << 31, 1<<48 - 1, 1 << 48, math.MaxInt64 - 1, math.MaxInt64}[e.IntN(12)]
}

const edgeChannel = 40_000 // bytes of a channel, by Options

func (e *edges) channel(i int) Change {
	c := Change{Name: e.name(fmt.Sprint("c", i, "-")), Type: e.name("t")}
	c.Data = noise(e.Rand, e.near(edgeChannel))
	return c
}

func (e *edges) draft() Draft {
	e.over = false
	d := Draft{Step: e.integer(), SchemaVersion: uint64(e.integer()), TTL: time.Duration(e.integer()), Keep: e.IntN(2) == 0}
	for _, s := range []*string{&d.ID, &d.Status, &d.RunID, &d.Branch} {
		if e.IntN(3) == 0 {
			*s = e.name("n")
		}
	}
	if e.IntN(4) == 0 {
		d.Parent, d.AllowDangling = e.name("gone"), true
	}
	switch n := e.near(codec.MaxChannels); {
	case n < 10:
		for i := range n + 1 {
			d.Channels = append(d.Channels, e.channel(i))
		}
	case e.IntN(4) == 0: // it takes long
		d.Keep = false
		for i := range n {
			d.Channels = append(d.Channels, Change{Name: fmt.Sprint("many", i)})
		}
	default:
		e.over = e.over && n <= codec.MaxChannels
	}
	if e.IntN(3) == 0 {
		d.Labels = map[string]string{}
		for i := range e.near(codec.MaxLabels) {
			d.Labels[fmt.Sprint("l", i)] = "v"
		}
		d.Labels[e.name("l")] = e.name("v")
		e.over = e.over || len(d.Labels) > codec.MaxLabels
	}
	if e.IntN(3) == 0 {
		n := e.near(codec.MaxMeta)
		d.Meta = append(append([]byte{'"'}, bytes.Repeat([]byte("m"), max(0, n-2))...), '"')
	}
	return d
}

// allowed reports whether an error says that something is above its limit.
func allowed(err error) bool { return errors.Is(err, ErrInvalid) || errors.Is(err, ErrTooLarge) }

// Input at its limits is saved and can be read after a restart; larger input is refused as such,
// and never by the last check before a commit.
func TestDraftsAtTheirLimits(t *testing.T) {
	runsAlone(t)
	e := &edges{Rand: rand.New(rand.NewPCG(7, 7))}
	rounds := 600
	if testing.Short() {
		rounds = 120
	}
	var refused, saved int
	f := newFixture(t, Options{MaxChannel: edgeChannel, Now: (&testClock{1_700_000_000_000}).now})
	for i := range rounds {
		ref := testRef(fmt.Sprint("t", i/10))
		d := e.draft()
		cp, err := f.Thread(ref).Save(context.Background(), d)
		if e.over != (err != nil) && !(d.Keep && allowed(err)) || err != nil && !allowed(err) {
			t.Fatalf("round %d: something is over its limit: %v; the answer is %v", i, e.over, err)
		}
		if err != nil {
			refused++
			continue
		}
		saved++
		f.reopen()
		got, err := f.Thread(ref).Load(context.Background(), AtSeq(cp.Seq))
		if err != nil {
			t.Fatalf("round %d: acknowledged, and then: %v", i, err)
		}
		if got.Hash != cp.Hash || got.Step != d.Step || got.SchemaVersion != d.SchemaVersion || !bytes.Equal(got.Meta, d.Meta) && d.Meta != nil {
			t.Fatalf("round %d: loads as something else", i)
		}
		for _, c := range d.Channels {
			if ch, _ := got.Channel(c.Name); !bytes.Equal(ch.Data, c.Data) {
				t.Fatalf("round %d: channel %q differs", i, c.Name)
			}
		}
	}
	if refused < rounds/30 || saved < rounds/3 {
		t.Errorf("%d were refused, %d saved", refused, saved)
	}
	mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
}

// The same of pending writes.
func TestWritesAtTheirLimits(t *testing.T) {
	ctx := context.Background()
	e := &edges{Rand: rand.New(rand.NewPCG(8, 8))}
	f := newFixture(t, Options{MaxChannel: edgeChannel, Now: (&testClock{1_700_000_000_000}).now})
	th := f.Thread(testRef("t"))
	for i := range 100 {
		e.over = false
		id, task, path := fmt.Sprint("cp", i), e.name("task"), e.nameUpTo("path", codec.MaxLongName)
		var ws []Write
		if n := e.near(codec.MaxWrites); n > 10 {
			for i := range n {
				ws = append(ws, Write{Index: int64(i), Channel: "c"})
			}
		} else {
			for range n + 1 {
				ws = append(ws, Write{Index: e.integer(), Channel: e.name("c"), Type: e.name("t"), Data: noise(e.Rand, e.near(edgeChannel))})
			}
		}
		_, err := th.PutWrites(ctx, id, task, path, Upsert, ws, 0)
		if e.over != (err != nil) || err != nil && !allowed(err) {
			t.Fatalf("round %d: something is over its limit: %v; the answer is %v", i, e.over, err)
		}
		if err != nil {
			continue
		}
		f.reopen()
		th = f.Thread(testRef("t"))
		got, err := th.Writes(ctx, id)
		want := map[int64][]byte{}
		for _, w := range ws {
			want[w.Index] = w.Data
		}
		if err != nil || len(got) != len(want) {
			t.Fatalf("round %d: acknowledged, and then %d of %d writes, %v", i, len(got), len(want), err)
		}
		for _, w := range got {
			if !bytes.Equal(w.Data, want[w.Index]) || w.Task != task || w.Path != path {
				t.Fatalf("round %d: write %d differs", i, w.Index)
			}
		}
	}
	mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
}
