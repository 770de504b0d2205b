package engine

import (
	"cmp"
	"math"
	"slices"

	"github.com/ckptd/ckptd/codec"
)

// option is a way to store a channel anew, so that it stands on less.
type option struct {
	at   int // place of the channel in plan.chans
	c    *chanState
	full bool    // else against its far record
	cost int64   // bytes of the entry
	rate float64 // what it lets go of, as a share of the bound, for each byte of that
}

// after is the seq of the newest record that the channel still stands on.
func (o *option) after() uint64 {
	if o.full {
		return 0
	}
	return o.c.far
}

// cheapest finds what to store anew so that it costs least for each save that comes until the bound is reached again. It
// takes the options in the order of their rates, as many as is best, and leaves out those that let go of nothing.
func (w *saving) cheapest(t *tip) (best []option) {
	all := options(t)
	slices.SortFunc(all, func(a, b option) int { return cmp.Compare(b.rate, a.rate) })
	p := w.newPlan(t)
	n, least := len(all), math.Inf(1)
	for i := range all {
		p.take(&all[i])
		if price := p.price(); price < least {
			n, least = i+1, price
		}
	}
	p = w.newPlan(t)
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

// options are the ways to store the channels of t anew.
func options(t *tip) (all []option) {
	most := float64(chainFactor*t.wholeSize() + chainSlack)
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
		upTo := uint64(newest)
		if far, ok := c.consolidated(); ok {
			add(far, newest)
			upTo = c.far
		}
		add(option{c: c, full: true, cost: c.measured + entryEstimate}, upTo)
	}
	return all
}

// consolidated is the option to store c against its far record, if it stands on newer ones and has enough of that.
func (c *chanState) consolidated() (o option, ok bool) {
	size := 16 + 8*int64(len(c.farSince.inner)) + int64(c.farSince.fresh(len(c.value)))*c.measured/int64(max(1, len(c.value)))
	ok = c.path[0].Last != c.far && c.path.From(c.far) != nil && 4*size < 3*c.measured
	return option{c: c, cost: size + entryEstimate}, ok
}

// plan is what a restore of t would take if some options were taken.
type plan struct {
	t       *tip
	reads   reads
	parts   int64
	writes  int64 // by the save
	typical int64
	taken   []option // by channel
	table   *runs    // nil: its size does not matter
}

func (w *saving) newPlan(t *tip) *plan {
	p := &plan{t: t, parts: t.parts, writes: max(headerEstimate, w.adding()), typical: t.reads.typical(),
		taken: make([]option, 1+len(t.chans))}
	p.reads.copyFrom(&t.reads)
	for i := range w.coded {
		p.taken[t.at(w.coded[i].c.number)].cost = w.coded[i].e.size()
	}
	if len(t.kept) > fewChannels {
		p.table = w.newRuns(t)
	}
	return p
}

// take takes an option, unless one was taken that lets go of more.
func (p *plan) take(o *option) {
	c, had := o.c, p.taken[o.at]
	upTo, parts := uint64(newest), c.parts
	if had.full {
		return
	}
	if had.c != nil {
		upTo, parts = c.far, c.farParts
	}
	p.taken[o.at] = *o
	p.reads.release(c.path, o.after(), upTo)
	p.writes += o.cost - had.cost
	if p.table != nil {
		p.table.move(o.at, o.full)
	}
	if p.parts -= parts; !o.full {
		p.parts += c.farParts
	}
}

// price is what the save costs for each of those that can follow before the bound is reached again.
func (p *plan) price() float64 {
	room := chainFactor*p.t.wholeSize() + chainSlack - p.reads.bytes - p.parts - p.writes
	saves := min(float64(codec.MaxPath-1-p.reads.records), float64(room)/float64(p.typical))
	if saves < 1 {
		return math.Inf(1)
	}
	price := float64(p.writes) / saves
	if p.table != nil { // which each of these saves writes again
		price += runBytes * float64(p.table.count)
	}
	return price
}

// needed is the option for a channel that lets go of no less than the one that was taken, given what else was taken. It has
// no channel if none is needed.
func (p *plan) needed(at int) option {
	o := p.taken[at]
	if o.c == nil {
		return o
	}
	upTo := uint64(newest)
	far, ok := o.c.consolidated()
	if ok {
		upTo = o.c.far
	}
	switch {
	case o.full && p.frees(o.c, 0, upTo):
		return o
	case ok && p.frees(o.c, o.c.far, newest):
		return far
	}
	return option{}
}

// frees reports whether nothing stands any more on some of the records that c let go of.
func (p *plan) frees(c *chanState, after, upTo uint64) bool {
	for s := range p.reads.on(c.path, after, upTo) {
		if s.channels == 0 {
			return true
		}
	}
	return false
}
