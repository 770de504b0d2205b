package engine

import (
	"cmp"
	"math"
	"slices"

	"github.com/ckptd/ckptd/codec"
)

// option is a way to encode a channel again, so that it needs fewer records.
type option struct {
	at   int // ordinal of the channel
	c    *channelState
	full bool    // else against its long base
	cost int64   // bytes of the entry
	rate float64 // the share of the bound that it frees, per byte of cost
}

// after is the seq of the newest record that the channel would still need.
func (o *option) after() uint64 {
	if o.full {
		return 0
	}
	return o.c.longBase
}

// cheapestOptions chooses the channels to encode again so that the cost per save, up to when the
// bound is reached again, is least. It takes options in the order of their rates, as many as pay
// off, and drops those that free nothing.
func (w *saving) cheapestOptions(t *checkpointState) (best []option) {
	all := options(t)
	slices.SortFunc(all, func(a, b option) int { return cmp.Compare(b.rate, a.rate) })
	p := w.newConsolidation(t)
	n, least := len(all), math.Inf(1)
	for i := range all {
		p.take(&all[i])
		if price := p.price(); price < least {
			n, least = i+1, price
		}
	}
	p = w.newConsolidation(t)
	for i := range all[:n] {
		p.take(&all[i])
	}
	for at := range p.taken {
		if o := p.needed(at); o.c != nil {
			best = append(best, o)
		}
	}
	return best
}

// options are the ways to encode the channels of t again.
func options(t *checkpointState) (all []option) {
	most := float64(pathFactor*t.wholeSize() + pathSlack)
	at := -1
	for c := range t.all {
		if at++; len(c.path) == 0 {
			continue
		}
		add := func(o option, upTo uint64) {
			o.at = at
			for s := range t.reads.on(c.path, o.after(), upTo) {
				o.rate += (float64(s.size)/most + 1.0/codec.MaxPath) / float64(s.channels)
			}
			o.rate /= float64(o.cost)
			all = append(all, o)
		}
		upTo := uint64(noLimit)
		if far, ok := c.consolidationOption(); ok {
			add(far, noLimit)
			upTo = c.longBase
		}
		add(option{c: c, full: true, cost: c.measured + entryEstimate}, upTo)
	}
	return all
}

// consolidationOption is the option to store c against its long base, if its path has newer records
// and the value still shares enough with that base.
func (c *channelState) consolidationOption() (o option, ok bool) {
	size := 16 + 8*int64(len(c.longSince.inner)) + int64(c.longSince.fresh(len(c.value)))*c.measured/int64(max(1, len(c.value)))
	ok = c.path[0].Last != c.longBase && c.path.From(c.longBase) != nil && 4*size < 3*c.measured
	return option{c: c, cost: size + entryEstimate}, ok
}

// consolidation is the cost of restoring t if some options were taken.
type consolidation struct {
	t       *checkpointState
	reads   reads
	parts   int64
	writes  int64 // by the save
	typical int64
	taken   []option     // by channel
	table   *keepEntries // nil: its size does not matter
}

func (w *saving) newConsolidation(t *checkpointState) *consolidation {
	p := &consolidation{t: t, parts: t.parts, writes: max(headerEstimate, w.newBytes()), typical: t.reads.typical(),
		taken: make([]option, 1+len(t.chans))}
	p.reads.copyFrom(&t.reads)
	for i := range w.coded {
		p.taken[t.ordinal(w.coded[i].c.number)].cost = w.coded[i].e.size()
	}
	if len(t.kept) > fewChannels {
		p.table = w.newKeepEntries(t)
	}
	return p
}

// take takes an option, unless one that frees more was taken.
func (p *consolidation) take(o *option) {
	c, had := o.c, p.taken[o.at]
	upTo, parts := uint64(noLimit), c.parts
	if had.full {
		return
	}
	if had.c != nil {
		upTo, parts = c.longBase, c.longParts
	}
	p.taken[o.at] = *o
	p.reads.drop(c.path, o.after(), upTo)
	p.writes += o.cost - had.cost
	if p.table != nil {
		p.table.move(o.at, o.full)
	}
	if p.parts -= parts; !o.full {
		p.parts += c.longParts
	}
}

// price is the cost of the save divided by the number of saves until the bound is reached again.
func (p *consolidation) price() float64 {
	room := pathFactor*p.t.wholeSize() + pathSlack - p.reads.bytes - p.parts - p.writes
	saves := min(float64(codec.MaxPath-1-p.reads.records), float64(room)/float64(p.typical))
	if saves < 1 {
		return math.Inf(1)
	}
	price := float64(p.writes) / saves
	if p.table != nil { // which each of these saves writes again
		price += keepEntryBytes * float64(p.table.count)
	}
	return price
}

// needed returns the smallest option for a channel that frees as much as the one taken, given the
// others. It has no channel if none is needed.
func (p *consolidation) needed(at int) option {
	o := p.taken[at]
	if o.c == nil {
		return o
	}
	upTo := uint64(noLimit)
	far, ok := o.c.consolidationOption()
	if ok {
		upTo = o.c.longBase
	}
	switch {
	case o.full && p.frees(o.c, 0, upTo):
		return o
	case ok && p.frees(o.c, o.c.longBase, noLimit):
		return far
	}
	return option{}
}

// frees reports whether some record that c dropped is needed by no other channel.
func (p *consolidation) frees(c *channelState, after, upTo uint64) bool {
	for s := range p.reads.on(c.path, after, upTo) {
		if s.channels == 0 {
			return true
		}
	}
	return false
}
