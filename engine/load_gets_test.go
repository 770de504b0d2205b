package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ckptd/ckptd/backend"
)

// getCounter counts the reads of a backend.
type getCounter struct {
	backend.Backend
	gets atomic.Int64
}

func (g *getCounter) Get(ctx context.Context, keys ...[]byte) ([]backend.Entry, error) {
	g.gets.Add(1)
	return g.Backend.Get(ctx, keys...)
}

// TestGetsOfALoad counts the reads of a load of uncached data from an existing thread: one for the
// record that it names, and one for all records that this one needs, including the parent's.
func TestGetsOfALoad(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	g := &getCounter{Backend: f.be}
	f.be = g
	f.reopen()
	th := f.Thread(testRef("t"))
	own := map[int]string{}
	for i := range 20 {
		d := Draft{Keep: i > 0, Step: int64(i), Channels: []Change{{Name: fmt.Sprint("c", i%3), Data: fmt.Appendf(nil, "%d", i)}}}
		if i%5 == 0 {
			d.Labels = map[string]string{"turn": fmt.Sprint(i)}
		}
		if i == 12 {
			d.ID = "mine"
		}
		own[i+1] = mustSave(t, f, testRef("t"), d).ID
	}
	for _, c := range []struct {
		name string
		w    Which
		o    LoadOptions
		most int64
	}{
		{"whole, by seq", AtSeq(18), LoadOptions{}, 2},
		{"whole, by id of the engine's own", At(own[18]), LoadOptions{}, 2},
		{"whole, by id of the caller's", At("mine"), LoadOptions{}, 3},
		{"whole, of the newest", Latest, LoadOptions{}, 0},
		{"headers, by seq", AtSeq(18), LoadOptions{HeadersOnly: true}, 2},
		{"headers, by id of the engine's own", At(own[18]), LoadOptions{HeadersOnly: true}, 2},
		{"headers, by id of the caller's", At("mine"), LoadOptions{HeadersOnly: true}, 3},
		{"headers, of the first", AtSeq(1), LoadOptions{HeadersOnly: true}, 1},
		{"headers, of the newest", Latest, LoadOptions{HeadersOnly: true}, 0},
		{"a channel, by seq", AtSeq(18), LoadOptions{Channels: []string{"c0"}}, 3},
	} {
		before := g.gets.Load()
		cp, err := th.Load(ctx, c.w, c.o)
		if err != nil {
			t.Fatal(err)
		}
		if n := g.gets.Load() - before; n > c.most {
			t.Errorf("%s: %d reads, want at most %d", c.name, n, c.most)
		}
		if cp.Parent != own[int(cp.Seq)-1] || len(cp.Channels) != min(3, int(cp.Seq)) {
			t.Errorf("%s: it has the parent %q and the channels %v", c.name, cp.Parent, cp.Channels)
		}
	}
}
