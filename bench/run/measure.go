package run

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/bench/result"
	"github.com/ckptd/ckptd/bench/rival"
)

// speed measures concurrent writers.
func (r *runner) speed(ctx context.Context, s Speed) (err error) {
	where := fmt.Sprintf("%s, %d writers, %s", s.Workload, s.Writers, s.Table)
	r.log.Info("measuring saves", "workload", s.Workload, "size", s.Size, "writers", s.Writers, "table", s.Table, "rate", s.Rate)
	rivals := r.rivals
	if s.Table == result.Default { // rivals that are durable by default are in the other table
		rivals = slices.DeleteFunc(slices.Clone(rivals), func(v rival.Rival) bool { return v.Default == "" })
	}
	threads := max(s.Writers, 16)
	e, err := r.enter(ctx, where, rivals, OpenArgs{Durable: s.Table == result.Durable, Workload: s.Workload, Size: s.Size, Filled: true,
		Writers: s.Writers, Threads: threads})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.leave()) }()
	args := TurnArgs{Seconds: r.plan.Seconds, Bytes: r.plan.Bytes, Rate: s.Rate}
	found := map[string]tally{}
	points := map[string]*result.Point{}
	changed := map[string]float64{}
	err = e.each(ctx, 0, func(c *contender) error {
		found[c.Name] = tally{}
		points[c.Name] = &result.Point{Kind: result.Speed, Table: s.Table, Workload: s.Workload, Size: sizeOf(s.Size, c), Rival: c.Name,
			Writers: s.Writers, Threads: threads, Rate: s.Rate}
		if err := c.call(ctx, "Begin", struct{}{}, &Turn{}); err != nil {
			return err
		}
		_, err := c.turn(ctx, TurnArgs{Seconds: r.plan.Seconds / 4, Bytes: r.plan.Bytes / 4}) // warm
		return err
	})
	for round := 0; round < r.plan.Rounds && err == nil; round++ {
		err = e.each(ctx, round, func(c *contender) error {
			turn, err := c.turn(ctx, args)
			if err != nil {
				return err
			}
			found[c.Name].turn(turn)
			changed[c.Name] += float64(turn.Changed) / float64(max(turn.Saves, 1)) / float64(r.plan.Rounds)
			note(points[c.Name], turn)
			return nil
		})
	}
	if err != nil {
		return err
	}
	for _, c := range e.list {
		p := points[c.Name]
		p.Figures = found[c.Name].figures()
		r.compareSaves(p.Figures, s.Writers, changed[c.Name], s.Rate > 0)
		r.out.Points = append(r.out.Points, *p)
	}
	return nil
}

func note(p *result.Point, t Turn) {
	switch {
	case t.Late > 0:
		p.Note = "fell behind the rate: saves that never began count with their wait"
	case t.Full && p.Note == "":
		p.Note = "turns ended early, so as not to fill the disk"
	}
}

func sizeOf(asked int, c *contender) int {
	if asked == 0 {
		return c.size
	}
	return asked
}

// space makes one writer perform the same saves with every rival, in as many parts as there are
// rounds, and then measures loads.
func (r *runner) space(ctx context.Context, s Space) (err error) {
	where := s.Workload + ", the same saves"
	r.log.Info("measuring space and loads", "workload", s.Workload, "threads", s.Threads, "steps", s.Steps)
	e, err := r.enter(ctx, where, r.rivals, OpenArgs{Durable: true, Workload: s.Workload, Size: s.Size, Filled: s.Filled,
		Writers: 1, Threads: s.Threads, Settles: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.leave()) }()
	found, sums := map[string]tally{}, map[string]*spent{}
	err = e.each(ctx, 0, func(c *contender) error {
		found[c.Name], sums[c.Name] = tally{}, &spent{}
		var begun Turn
		err := c.call(ctx, "Begin", struct{}{}, &begun)
		sums[c.Name].add(begun)
		return err
	})
	rounds := r.plan.Rounds
	for round := 0; round < rounds && err == nil; round++ {
		steps := s.Threads * (s.Steps*(round+1)/rounds - s.Steps*round/rounds)
		err = e.each(ctx, round, func(c *contender) error {
			turn, err := c.turn(ctx, TurnArgs{Steps: steps})
			if err != nil {
				return err
			}
			found[c.Name].turn(turn)
			sums[c.Name].add(turn)
			return nil
		})
	}
	if err == nil {
		err = r.loads(ctx, e, found, sums)
	}
	if err != nil {
		return err
	}
	for _, c := range e.list {
		figures := found[c.Name].figures()
		sum := sums[c.Name]
		r.compareSaves(figures, 1, float64(sum.changed)/float64(max(sum.saves, 1)), false)
		r.compareLoads(figures, sum)
		r.out.Points = append(r.out.Points, result.Point{Kind: result.Space, Table: result.Durable, Workload: s.Workload,
			Size: sizeOf(s.Size, c), Rival: c.Name, Writers: 1, Threads: s.Threads, Figures: figures,
			Note: fmt.Sprintf("%d steps in each of %d threads", s.Steps+1, s.Threads)})
	}
	return nil
}

// spent is the cost of all saves of a contender.
type spent struct {
	saves   int
	changed int64
	written float64
	state   float64 // bytes of a loaded state
}

func (s *spent) add(t Turn) {
	s.saves += t.Saves
	s.changed += t.Changed
	s.written += t.Usage.Written
}

// loadsARound is the number of loads for a p50.
const loadsARound = 20

// loads measures the memory, loads, and the final disk usage.
func (r *runner) loads(ctx context.Context, e *entrants, found map[string]tally, sums map[string]*spent) error {
	load := func(c *contender, measure string, a LoadArgs) error {
		l, err := c.load(ctx, a)
		if err == nil && l.Loads > 0 {
			found[c.Name].add(measure, l.P50)
			sums[c.Name].state = float64(l.Bytes) / float64(l.Loads)
		}
		return err
	}
	for round := range r.plan.Rounds {
		if err := e.each(ctx, round, func(c *contender) error {
			return load(c, result.LoadWarm, LoadArgs{Loads: loadsARound})
		}); err != nil {
			return err
		}
	}
	if err := e.each(ctx, 0, func(c *contender) error {
		t := found[c.Name]
		if err := c.memory(ctx, t); err != nil {
			return err
		}
		settled, err := c.settle(ctx)
		if err != nil {
			return err
		}
		sum := sums[c.Name]
		sum.written += settled.Written
		t.add(result.DiskBytes, float64(settled.Disk))
		t.add(result.DiskPerSave, float64(settled.Disk)/float64(max(sum.saves, 1)))
		t.add(result.WriteAmp, sum.written/float64(max(sum.changed, 1)))
		t.add(result.WritePerSave, sum.written/float64(max(sum.saves, 1)))
		return nil
	}); err != nil {
		return err
	}
	for round := range r.plan.Rounds {
		if err := e.each(ctx, round, func(c *contender) error {
			if err := c.call(ctx, "Cool", struct{}{}, &struct{}{}); err != nil {
				return err
			}
			if err := load(c, result.LoadCold, LoadArgs{Loads: loadsARound}); err != nil {
				return err
			}
			return load(c, result.LoadOld, LoadArgs{Loads: loadsARound, Old: true})
		}); err != nil {
			return err
		}
	}
	return nil
}

func (c *contender) memory(ctx context.Context, t tally) error {
	var m Memory
	if err := c.call(ctx, "Memory", struct{}{}, &m); err != nil {
		return err
	}
	t.add(result.PeakRSS, m.RSS)
	t.add(result.PeakAnonymous, m.Anonymous)
	return nil
}

func (c *contender) settle(ctx context.Context) (s Settled, err error) {
	err = c.call(ctx, "Settle", struct{}{}, &s)
	return s, err
}

// compareSaves sets the limits of save figures once they are known: a save must wait for one
// fdatasync and write the changed bytes. In an open loop the rate is given and says nothing.
func (r *runner) compareSaves(figures map[string]result.Figure, writers int, changed float64, open bool) {
	r.compare = append(r.compare, func() {
		setLimit(figures, result.DiskPerSave, result.LimitChanged, changed)
		setLimit(figures, result.WritePerSave, result.LimitChanged, changed)
		setLimit(figures, result.WriteAmp, result.LimitChanged, 1)
		sync, measured := r.out.Limit(result.LimitSync)
		write, too := r.out.Limit(result.LimitWrite)
		if !measured || !too {
			return
		}
		setLimit(figures, result.SaveP50, result.LimitSync, sync.Median)
		if rate, ok := figures[result.SaveRate]; ok && !open {
			name, limit := result.LimitSync, float64(writers)/sync.Median
			if most := write.Median / max(changed, 1); most < limit {
				name, limit = result.LimitWrite, most
			}
			rate.Limit, rate.Fraction = name, rate.Median/limit
			figures[result.SaveRate] = rate
		}
	})
}

// compareLoads sets the limits of load figures: a warm load copies the state, a cold one reads it.
func (r *runner) compareLoads(figures map[string]result.Figure, s *spent) {
	r.compare = append(r.compare, func() {
		if memory, ok := r.out.Limit(result.LimitCopy); ok {
			setLimit(figures, result.LoadWarm, result.LimitCopy, s.state/memory.Median)
		}
		if read, ok := r.out.Limit(result.LimitRead); ok {
			setLimit(figures, result.LoadCold, result.LimitRead, s.state/read.Median)
			setLimit(figures, result.LoadOld, result.LimitRead, s.state/read.Median)
		}
	})
}

// setLimit compares a figure for which less is better with the least possible value.
func setLimit(figures map[string]result.Figure, measure, name string, least float64) {
	f, ok := figures[measure]
	if !ok || f.Median == 0 || least == 0 {
		return
	}
	f.Limit, f.Fraction = name, least/f.Median
	figures[measure] = f
}
