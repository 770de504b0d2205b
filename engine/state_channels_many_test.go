package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ckptd/ckptd/backend/mem"
	. "github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// TestTablesOfChannels saves states whose channels come, go, come again, and change in all ways, on
// the newest checkpoint and on older ones, with many and few of them: the state that a save changed
// in memory equals the one that another store reads.
func TestTablesOfChannels(t *testing.T) {
	ctx := context.Background()
	rounds := max(12, longRun())
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 21))
		b, o := keepsOpen{mem.Open()}, withKeys(t, Options{})
		if r.IntN(4) == 0 {
			o.CacheBytes = -1
		}
		s := open(t, b, o)
		th := s.Thread(refOf("t"))
		most := []int{3, 14, 20, 40, 300}[r.IntN(5)]
		name := func() string { return fmt.Sprintf("c%03d", r.IntN(most)) }
		value := func() []byte {
			if r.IntN(12) == 0 {
				return randomText(r, r.IntN(40_000))
			}
			return randomText(r, r.IntN(60))
		}
		type point struct {
			id     string
			hash   [32]byte
			labels map[string]string
			state  map[string][]byte
			types  map[string]string
		}
		line := []*point{{}}
		for step := range 60 {
			p := line[len(line)-1]
			if r.IntN(6) == 0 {
				p = line[r.IntN(len(line))]
			}
			n := &point{labels: maps.Clone(p.labels), state: maps.Clone(p.state), types: maps.Clone(p.types)}
			if n.state == nil {
				n.state, n.types = map[string][]byte{}, map[string]string{}
			}
			d := Draft{Keep: true, Step: int64(step), Parent: p.id, Root: p.id == ""}
			if r.IntN(5) == 0 {
				n.labels = map[string]string{"l": fmt.Sprint(r.IntN(3))}
				d.Labels = n.labels
			}
			had, err := (*Checkpoint)(nil), error(nil)
			if p.id != "" {
				if had, err = th.Load(ctx, At(p.id)); err != nil {
					t.Fatal(err)
				}
			}
			for range []int{0, 1, 1, 2, 5, most}[r.IntN(6)] {
				c := Change{Name: name(), Type: "bytes"}
				if slices.ContainsFunc(d.Channels, func(o Change) bool { return o.Name == c.Name }) {
					continue
				}
				old, there := p.state[c.Name]
				switch k := r.IntN(10); {
				case k < 3:
					c.Remove = true
					delete(n.state, c.Name)
					delete(n.types, c.Name)
				case k < 7 && there:
					c.Type = p.types[c.Name]
					ch, _ := had.Channel(c.Name)
					c.Base, c.Prefix = ch.Version, r.IntN(len(old)+1)
					c.Suffix = r.IntN(len(old) - c.Prefix + 1)
					c.Data = randomText(r, r.IntN(20))
					n.state[c.Name] = slices.Concat(old[:c.Prefix], c.Data, old[len(old)-c.Suffix:])
				default:
					if r.IntN(10) == 0 {
						c.Type = "other"
					}
					c.Data = value()
					n.state[c.Name], n.types[c.Name] = bytes.Clone(c.Data), c.Type
				}
				d.Channels = append(d.Channels, c)
			}
			if r.IntN(8) == 0 { // a whole state
				d.Keep, d.Channels = false, nil
				n.labels = d.Labels
				for _, name := range slices.Sorted(maps.Keys(n.state)) {
					d.Channels = append(d.Channels, Change{Name: name, Type: n.types[name], Data: n.state[name]})
				}
				r.Shuffle(len(d.Channels), func(i, j int) { d.Channels[i], d.Channels[j] = d.Channels[j], d.Channels[i] })
			}
			cp, err := th.Save(ctx, d)
			if err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			n.id, n.hash = cp.ID, cp.Hash
			line = append(line, n)
			if r.IntN(20) == 0 {
				s = open(t, b, o)
				th = s.Thread(refOf("t"))
			}
		}
		th = open(t, b, o).Thread(refOf("t"))
		for _, p := range line[1:] {
			for _, opts := range []LoadOptions{{}, {HeadersOnly: true}} {
				cp, err := th.Load(ctx, At(p.id), opts)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if cp.Hash != p.hash || len(cp.Channels) != len(p.state) || !maps.Equal(cp.Labels, p.labels) {
					t.Fatalf("seed %d, seq %d: %d channels, hash %x; wanted %d, %x", seed, cp.Seq, len(cp.Channels), cp.Hash, len(p.state), p.hash)
				}
				for _, ch := range cp.Channels {
					if !opts.HeadersOnly && !bytes.Equal(ch.Data, p.state[ch.Name]) || ch.Type != p.types[ch.Name] {
						t.Fatalf("seed %d, seq %d, channel %s differs", seed, cp.Seq, ch.Name)
					}
				}
			}
		}
		checkDeep(t, open(t, b, o))
		// Copies, and checkpoints based on pruned ones, are the same.
		if _, err := th.Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 10, Erase: r.IntN(2) == 0}); err != nil {
			t.Fatal(err)
		}
		if err := th.Copy(ctx, refOf("copy")); err != nil {
			t.Fatal(err)
		}
		s = open(t, b, o)
		checkDeep(t, s)
		for cp, err := range s.Thread(refOf("copy")).History(ctx, HistoryOptions{Data: true}) {
			if err != nil {
				t.Fatal(err)
			}
			p := line[slices.IndexFunc(line, func(p *point) bool { return p.id == cp.ID })]
			if cp.Hash != p.hash || len(cp.Channels) != len(p.state) {
				t.Fatalf("seed %d, seq %d of the copy differs", seed, cp.Seq)
			}
			for _, ch := range cp.Channels {
				if !bytes.Equal(ch.Data, p.state[ch.Name]) {
					t.Fatalf("seed %d, seq %d of the copy, channel %s differs", seed, cp.Seq, ch.Name)
				}
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
