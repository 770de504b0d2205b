package badger

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"slices"

	"github.com/ckptd/ckptd/backend/commitlog"
)

// collect finds the groups of the log and of memory files, whether there are gaps between them or
// not.
func (v *salvager) collect() (map[uint64]group, error) {
	paths, err := memoryFiles(v.s.dir)
	if err != nil {
		return nil, err
	}
	var memory []memoryGroup
	for _, path := range paths {
		b, unreadable, err := readAround(path)
		if errors.Is(err, fs.ErrPermission) {
			return nil, dirError(err)
		}
		if err != nil || unreadable > 0 {
			v.unread(path, unreadable, err)
		}
		r := memoryReader{in: bytes.NewReader(b)}
		r.transactions(func(muts []commitlog.Mutation) {
			if g, ok := groupOf(muts); ok {
				memory = append(memory, g.clone())
			}
		})
	}
	incarnation := v.incarnation(memory)
	groups := map[uint64]group{}
	for _, m := range memory {
		if m.pos.Incarnation == incarnation {
			groups[m.pos.N] = group{pos: m.pos, memory: &m}
		}
	}
	if v.s.logs == nil {
		return groups, nil
	}
	tail, err := v.s.logs.Scan(commitlog.Position{Incarnation: incarnation})
	if err != nil {
		return nil, dirError(err)
	}
	for _, f := range tail.Frames {
		groups[f.Pos.N] = group{pos: f.Pos, frame: f}
	}
	return groups, nil
}

// incarnation is that of the tables or, if none says it, of the log or of the memory files. Where a
// table is damaged the newest position may have been in it, and the log says more.
func (v *salvager) incarnation(memory []memoryGroup) commitlog.ID {
	of, ok := v.incarnationOfLog()
	for _, m := range memory {
		if !ok && m.pos.N == 1 {
			of = m.pos.Incarnation
		}
	}
	if v.at == 0 {
		return of
	}
	if ok && of != v.pos.Incarnation && v.damaged {
		v.missing("the tables that can be read are of another life of the store than its log: both were taken")
		return of
	}
	if ok && of != v.pos.Incarnation && v.report.Lost == nil {
		v.missing("the log is of another life of the store than its tables, and was left out")
	}
	return v.pos.Incarnation
}

func (v *salvager) incarnationOfLog() (id commitlog.ID, ok bool) {
	if v.s.logs == nil {
		return id, false
	}
	if p, ok := v.s.logs.Anchor(); ok {
		return p.Incarnation, true
	}
	return v.s.logs.Incarnation()
}

func (v *salvager) apply(groups map[uint64]group) error {
	reader := v.s.logs.Reader()
	defer reader.Close()
	last := v.pos
	for _, n := range v.worthwhile(slices.Sorted(maps.Keys(groups))) {
		g := groups[n]
		muts, err := g.mutations(reader)
		if err != nil {
			return err
		}
		v.newest++
		for _, m := range muts {
			if err := v.mutation(m, v.newest); err != nil {
				return err
			}
		}
		v.report.Groups++
		if last.N < n {
			last = g.pos
		}
	}
	v.lack(last)
	return nil
}

// lack says what the anchor knows of behind the last group that there is.
func (v *salvager) lack(last commitlog.Position) {
	if v.s.logs == nil || v.report.Lost != nil {
		return
	}
	if p, ok := v.s.logs.Anchor(); ok && p.N > last.N && (last.N == 0 || p.Incarnation == last.Incarnation) {
		v.report.Lost = &Loss{Groups: p.N - last.N, After: last, Why: "neither the tables, nor the log, nor Badger's memory files have them"}
	}
}

// worthwhile are the numbers of the groups to apply. Those that follow each other to the last one
// are, though tables have them too, since they then change nothing, and mend what is damaged there;
// but not if the tables go beyond the last one, or they would replace what is newer. Before a gap
// only those are that tables lack.
func (v *salvager) worthwhile(sorted []uint64) []uint64 {
	first := len(sorted)
	if first > 0 && sorted[first-1] >= v.pos.N {
		for first--; first > 0 && sorted[first-1]+1 == sorted[first]; first-- {
		}
	}
	for first > 0 && sorted[first-1] > v.pos.N {
		first--
	}
	have := v.pos.N
	for _, n := range sorted[first:] {
		switch {
		case n == have+2:
			v.missing("group %d is missing", have+1)
		case n > have+2:
			v.missing("groups %d to %d are missing", have+1, n-1)
		}
		have = max(have, n)
	}
	return sorted[first:]
}
