package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/ckptd/ckptd/engine"
)

// goneKnown is the number of removed checkpoints that operations may still refer to.
const goneKnown = 6

// next builds the model of the next round from the contents of the store.
func (f *facts) next() {
	m := f.m
	m.swept = f.blobsInDoubt()
	for ref, l := range f.lines {
		for _, r := range l.revs {
			if r.by != nil {
				at := place{line{ref, r.gen}, r.seq}
				m.given[at] = given{r.id, r.by.name}
				m.highest[at.line] = max(m.highest[at.line], r.seq)
			}
		}
	}
	was := m.lines
	m.lines = map[engine.Ref]*state{}
	for ref, d := range f.dump.lines {
		m.lines[ref] = f.nextLine(ref, d)
	}
	for ref := range was {
		if m.lines[ref] == nil {
			m.known[ref] = m.known[ref][max(0, len(m.known[ref])-goneKnown):]
		}
	}
	f.nextLives()
}

func (f *facts) nextLine(ref engine.Ref, d *lineDump) *state {
	m := f.m
	st := &state{branches: d.branches, writes: d.writes}
	names := map[revKey]*known{}
	for _, k := range m.known[ref] {
		names[revKey{k.cp.Generation, k.cp.Seq}] = k
	}
	var here, gone []*known
	for _, cp := range d.cps {
		r := f.find(ref, cp)
		n := &rev{born: span{-1, -1}, want: []*content{contentOf(cp)}, wanted: true, origin: r.origin, headOf: r.headOf}
		if n.take(cp); r.parentSeq != 0 && n.parentSeq == 0 {
			n.parent, n.parentSeq = r.parent, r.parentSeq
		}
		if f.quietHistory(ref) {
			n.draft = r.draft
		}
		st.revs = append(st.revs, n)
		k := names[revKey{cp.Generation, cp.Seq}]
		if k == nil {
			k = &known{name: "seen " + cp.ID}
		}
		delete(names, revKey{cp.Generation, cp.Seq})
		head := *cp // without data
		head.Channels = slices.Clone(cp.Channels)
		for i := range head.Channels {
			head.Channels[i].Data = nil
		}
		here = append(here, &known{k.name, &head, n.draft, k.chosen})
	}
	slices.SortFunc(st.revs, func(a, b *rev) int { return cmp.Compare(a.seq, b.seq) })
	slices.SortFunc(here, func(a, b *known) int { return cmp.Compare(a.cp.Seq, b.cp.Seq) })
	for _, k := range names {
		gone = append(gone, k)
	}
	slices.SortFunc(gone, func(a, b *known) int {
		return cmp.Or(cmp.Compare(a.cp.Generation, b.cp.Generation), cmp.Compare(a.cp.Seq, b.cp.Seq), cmp.Compare(a.name, b.name))
	})
	m.known[ref] = append(gone[max(0, len(gone)-goneKnown):], here...)
	return st
}

func (f *facts) nextLives() {
	m := f.m
	for thread, life := range m.lives {
		if life.there = false; f.dump.threads[thread] == nil { // it may begin again as a new generation
			life.ttl, life.expires = 0, time.Time{}
		}
	}
	for thread, info := range f.dump.threads {
		life := m.lives[thread]
		if life == nil || life.gen != info.Generation {
			life = newLife()
			m.lives[thread] = life
		}
		least, most, none := f.ttlRange(thread, f.ttls[thread])
		sure := !none && least == most && !info.Expires.IsZero() && len(f.began[thread]) == 0 && f.followed(thread, f.end)
		if life.ttl = 0; sure {
			life.ttl = least
		}
		life.there, life.gen, life.expires = true, info.Generation, info.Expires
		f.nextKept(thread, life)
	}
}

// nextKept remembers the states from before a history migration.
func (f *facts) nextKept(thread string, life *life) {
	keeps := f.dump.keeps[thread]
	switch {
	case !keeps:
		life.kept = nil
	case life.kept == nil:
		life.kept = map[keptKey]*content{}
		for ref, l := range f.lines {
			if ref.Thread != thread {
				continue
			}
			for _, r := range l.revs {
				if threadOf(r.gen) != life.gen || l.newest() != r.gen { // a new generation began in this round
					continue
				}
				if all := f.contents(ref, r); len(all) > 0 {
					life.kept[keptKey{ref.Namespace, r.seq}] = all[0]
				}
			}
		}
	}
	life.keeps = keeps
}
