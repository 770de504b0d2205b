package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// uuidOf is a UUIDv7 of a time and some other bits.
func uuidOf(ms int64, rest uint64) string {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:], uint64(ms)<<16|7<<12|rest>>52)
	binary.BigEndian.PutUint64(id[8:], 2<<62|rest&(1<<62-1))
	return formatUUID(id)
}

// TestFreshIDs saves under UUIDs in and out of order, again and with other content, under the
// engine's own ids, with other saves under way, and after restarts, prunes and rewrites: an id is
// always one checkpoint, with the content saved last.
func TestFreshIDs(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			ctx := context.Background()
			r := rand.New(rand.NewPCG(seed, 7))
			f := newFixture(t, Options{})
			f.slowly(30)
			th := f.Thread(testRef("t"))
			want := map[string]string{} // id → content
			var ids []string
			pick := func() string {
				switch {
				case len(ids) > 0 && r.IntN(4) == 0:
					return ids[r.IntN(len(ids))]
				case r.IntN(5) == 0:
					return ""
				}
				return uuidOf(1_700_000_000_000+int64(len(ids))*10-int64(r.IntN(3))*50, r.Uint64()>>r.IntN(60))
			}
			for range 60 {
				batch := map[string]string{}
				var mu sync.Mutex
				var wg sync.WaitGroup
				for range 1 + r.IntN(6) {
					id, content := pick(), fmt.Sprint("content ", r.IntN(3))
					if _, taken := batch[id]; taken {
						continue
					}
					batch[id] = content
				}
				for id, content := range batch {
					wg.Go(func() {
						cp, err := th.Save(ctx, Draft{ID: id, Channels: []Change{{Name: "x", Data: []byte(content)}}})
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						defer mu.Unlock()
						if _, ok := want[cp.ID]; !ok {
							ids = append(ids, cp.ID)
						}
						want[cp.ID] = content
					})
				}
				wg.Wait()
				switch r.IntN(12) {
				case 0:
					f.reopen()
					f.slowly(30)
					th = f.Thread(testRef("t"))
				case 1:
					if len(ids) > 3 {
						report, err := th.Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 3 + r.IntN(10), Erase: r.IntN(3) == 0})
						if err != nil {
							t.Fatal(err)
						}
						for _, gone := range report.Removed {
							delete(want, gone.ID)
						}
						ids = slices.Sorted(maps.Keys(want))
					}
				}
			}
			have := map[string]string{}
			for cp, err := range th.History(ctx, HistoryOptions{Data: true}) {
				if err != nil {
					t.Fatal(err)
				}
				if _, twice := have[cp.ID]; twice {
					t.Errorf("%s is there twice", cp.ID)
				}
				have[cp.ID] = string(cp.Channels[0].Data)
			}
			for id, content := range want {
				if have[id] != content {
					t.Errorf("%s holds %q, want %q", id, have[id], content)
				}
				if cp, err := th.Load(ctx, At(id)); err != nil || string(cp.Channels[0].Data) != content {
					t.Errorf("loading %s: %v", id, err)
				}
			}
			if len(have) != len(want) {
				t.Errorf("%d checkpoints, want %d", len(have), len(want))
			}
		})
	}
}

// counting counts the keys that are read.
type counting struct {
	backend.Backend
	keys int
}

func (c *counting) Get(ctx context.Context, keys ...[]byte) ([]backend.Entry, error) {
	c.keys += len(keys)
	return c.Backend.Get(ctx, keys...)
}

// TestFreshIDReadsNothing saves under growing UUIDs: after the first of a lineage nothing is looked
// up.
func TestFreshIDReadsNothing(t *testing.T) {
	f := newFixture(t, Options{})
	c := &counting{Backend: f.Store.be}
	f.Store.be = c
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 20 {
		if i == 2 {
			c.keys = 0
		}
		mustSave(t, f, testRef("t"), Draft{ID: uuidOf(1_700_000_000_000+int64(i), r.Uint64())})
	}
	if c.keys != 0 {
		t.Errorf("%d keys were read", c.keys)
	}
}
