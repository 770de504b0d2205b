package torture

import (
	"bytes"
	"context"
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/badger"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// recorder keeps every value that was ever stored, as it was stored.
type recorder struct {
	*badger.Store
	mu     sync.Mutex
	values map[string][][]byte // by key
}

func (b *recorder) Commit(ctx context.Context, batch backend.Batch) error {
	b.mu.Lock()
	for _, m := range batch.Muts {
		if !m.Delete {
			b.values[string(m.Key)] = append(b.values[string(m.Key)], bytes.Clone(m.Value))
		}
	}
	b.mu.Unlock()
	return b.Store.Commit(ctx, batch)
}

// eraseRound saves, erases in one of the ways there are, and searches every byte of the directory
// for stored values that were erased.
func eraseRound(r *round) {
	ctx := context.Background()
	p := place(r.dir)
	rec := &recorder{values: map[string][][]byte{}}
	var s *engine.Store
	reopen := func() {
		var err error
		if s != nil {
			r.must(s.Close())
		}
		rec.Store, err = p.openBackend()
		r.must(err)
		s, err = p.openOn(rec, true)
		r.must(err)
	}
	reopen()
	found := map[string]thread{}
	work := func(cycle, n int) {
		t := &team{s: s, cycle: cycle, tell: func(line) error { return nil }, rare: true}
		for i := range 6 {
			w := t.writer(r.seed+uint64(cycle), i, found)
			for range n {
				r.must(w.step(ctx))
			}
			found[w.name] = w.now
		}
	}
	where := []string{"in the log", "in level 0", "in the last level"}[r.seed%3]
	work(0, 15)
	if where != "in the log" {
		reopen()
	}
	if where == "in the last level" {
		r.must(rec.Compact(ctx))
	}
	work(1, 5)
	there := rec.split(r)
	if seen := search(r, p, there.stored); len(seen) < len(there.stored)*9/10 {
		r.problem("%d of %d values are found before they are erased: the search is blind", len(seen), len(there.stored))
	}
	how := r.erase(ctx, s, found)
	gone := rec.split(r).gone
	check := func(when string) {
		for value, path := range search(r, p, gone) {
			r.problem("%s, %s, %s: a value of the key %.16x… that is erased is in %s", how, where, when, value.key, path)
		}
	}
	check("open")
	r.must(s.Close())
	check("closed")
	r.units = min(r.units, len(gone))
	for range r.units {
		r.did(how, where)
	}
}

// erase has the store erase deleted values.
func (r *round) erase(ctx context.Context, s *engine.Store, found map[string]thread) (how string) {
	var names []string // of some threads that are there
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if len(found[name].States) > 0 && len(names) < 3 {
			names = append(names, name)
		}
	}
	switch r.rnd.IntN(3) {
	case 0:
		how = "erased by prunes"
		for _, name := range names {
			rep, err := s.Thread(refOf(name)).Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 1, Erase: true})
			r.must(err)
			if !rep.Compacted {
				r.problem("an erasing prune left out the compaction")
			}
		}
	case 1:
		how = "deleted and collected"
		for _, name := range names {
			_, err := s.Thread(refOf(name)).Delete(ctx)
			r.must(err)
		}
		rep, err := s.Upkeep().GC(ctx, tenant, upkeep.GCOptions{Grace: -1, Compact: true})
		r.must(err)
		if !rep.Compacted {
			r.problem("a collection left out the compaction")
		}
	case 2:
		how = "pruned, deleted and compacted"
		_, err := s.Thread(refOf(names[0])).Delete(ctx)
		r.must(err)
		_, err = s.Thread(refOf(names[len(names)-1])).Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 1, Erase: true})
		r.must(err)
		_, err = s.Upkeep().GC(ctx, tenant, upkeep.GCOptions{Compact: true})
		r.must(err)
	}
	return how
}

// needle is a stored value to search for.
type needle struct {
	key   string
	parts [][]byte // any of them gives it away
}

const needleSize = 16

// remains are the recorded values: those that are left and those that are not.
type remains struct{ stored, gone []*needle }

// split makes needles of the recorded values. Short ones, which may come about by chance, are left
// out.
func (b *recorder) split(r *round) (all remains) {
	now, err := entries(r.Context(), b)
	r.must(err)
	for key, values := range b.values {
		for i, v := range values {
			if len(v) < 4*needleSize {
				continue
			}
			n := &needle{key: key}
			for range 4 { // behind the beginning, which values can share
				at := len(v)/4 + r.rnd.IntN(len(v)*3/4-needleSize)
				n.parts = append(n.parts, v[at:at+needleSize])
			}
			if i == len(values)-1 && bytes.Equal(now[key].Value, v) {
				all.stored = append(all.stored, n)
			} else {
				all.gone = append(all.gone, n)
			}
		}
	}
	return all
}

// search returns the needles that are in any file of a place, and where.
func search(r *round, p place, needles []*needle) map[*needle]string {
	type part struct {
		n    *needle
		text []byte
	}
	byStart := map[uint64][]part{}
	var filter [1 << 16]bool
	for _, n := range needles {
		for _, text := range n.parts {
			start := binary.LittleEndian.Uint64(text)
			byStart[start] = append(byStart[start], part{n, text})
			filter[uint16(start)] = true
		}
	}
	found := map[*needle]string{}
	paths, err := p.files()
	r.must(err)
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue // a file that the open store has removed
		}
		r.must(err)
		for i := 0; i+needleSize <= len(b); i++ {
			if !filter[binary.LittleEndian.Uint16(b[i:])] {
				continue
			}
			for _, p := range byStart[binary.LittleEndian.Uint64(b[i:])] {
				if bytes.HasPrefix(b[i:], p.text) {
					found[p.n] = filepath.Base(path)
				}
			}
		}
	}
	return found
}
