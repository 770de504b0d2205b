package run

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/bench/result"
)

// growth measures a curve of every rival.
func (r *runner) growth(ctx context.Context, g Growth) error {
	r.log.Info("measuring growth", "over", g.Over, "to", g.At[len(g.At)-1])
	switch g.Over {
	case result.OverSteps:
		return r.overSteps(ctx, g.At)
	case result.OverSize:
		return r.overSize(ctx, g.At)
	case result.OverThreads:
		return r.overThreads(ctx, g.At)
	}
	return fmt.Errorf("no growth over %q", g.Over)
}

// curves holds the contenders' curves by name.
type curves map[string]*result.Curve

func (r *runner) newCurves(over string, e *entrants) curves {
	list := curves{}
	for _, c := range e.list {
		list[c.Name] = &result.Curve{Over: over, Workload: "chat", Rival: c.Name}
	}
	return list
}

// done adds curves to the result, in the order of the rivals.
func (r *runner) done(list curves) {
	for _, v := range r.rivals {
		if c := list[v.Name]; c != nil && len(c.Points) > 0 {
			r.out.Curves = append(r.out.Curves, *c)
		}
	}
}

const (
	window      = 20       // saves to measure before each point of a curve
	longWindow  = 100      // for rivals that do not store whole states
	windowBytes = 64 << 20 // approximate limit of the whole states handed to a rival in a window
)

// windowBefore returns the number of saves to measure before step x: fewer if states are large, but
// at least one per round.
func (r *runner) windowBefore(c *contender, x int) int {
	saves := longWindow
	if c.Whole {
		saves = min(window, max(windowBytes/(x*messageBytes), r.plan.Rounds))
	}
	return min(saves, x)
}

// overSteps grows a single thread. A rival that stores whole states and exceeds Plan.Fill skips
// ahead to each next window.
func (r *runner) overSteps(ctx context.Context, at []int) (err error) {
	e, err := r.enter(ctx, "growth over steps", r.rivals, OpenArgs{Durable: true, Workload: "chat", Writers: 1, Threads: 1, Settles: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.leave()) }()
	list := r.newCurves(result.OverSteps, e)
	histories := map[string]*history{}
	for _, c := range e.list {
		histories[c.Name] = &history{}
	}
	for _, x := range at {
		found := map[string]tally{}
		err = e.each(ctx, 0, func(c *contender) error {
			found[c.Name] = tally{}
			h := histories[c.Name]
			h.sampled = h.sampled || c.Whole && float64(messageBytes*x)*float64(x)/2 > float64(r.plan.Fill)
			return c.call(ctx, "Advance", AdvanceArgs{To: x - r.windowBefore(c, x), Save: !h.sampled}, &struct{}{})
		})
		for round := 0; round < r.plan.Rounds && err == nil; round++ {
			err = e.each(ctx, round, func(c *contender) error {
				steps := r.windowBefore(c, x)
				return r.growthRound(ctx, c, found[c.Name], steps*(round+1)/r.plan.Rounds-steps*round/r.plan.Rounds)
			})
		}
		if err == nil {
			err = e.each(ctx, 0, func(c *contender) error { return r.settleAt(ctx, c, found[c.Name], histories[c.Name], x) })
		}
		if err != nil {
			return err
		}
		for _, c := range e.list {
			figures := found[c.Name].figures()
			r.compareSaves(figures, 1, messageBytes, false)
			list[c.Name].Points = append(list[c.Name].Points, result.CurvePoint{X: float64(x), Figures: figures, Sampled: histories[c.Name].sampled})
		}
	}
	r.done(list)
	return nil
}

const messageBytes = 1036 // approximate size of a step of the chat

// growthRound measures some saves, and loads of the newest state.
func (r *runner) growthRound(ctx context.Context, c *contender, t tally, steps int) error {
	turn, err := c.turn(ctx, TurnArgs{Steps: steps})
	if err != nil {
		return err
	}
	t.turn(turn)
	loaded, err := c.load(ctx, LoadArgs{Loads: 3})
	if err == nil && loaded.Loads > 0 {
		t.add(result.LoadWarm, loaded.P50)
	}
	return err
}

// history is the disk usage of a contender's thread, saved in full or in windows.
type history struct {
	sampled bool
	at      float64 // the previous point
	disk    float64 // bytes of the entire history up to there, extrapolated if it was sampled
	real    float64 // actual bytes
	slope   float64 // bytes per save at that point
}

// grow advances to step x, where the actual size is real after a window of some saves. The size of
// a sampled history would be the sum of the sizes of its saves. Those are known in the windows and
// are assumed to grow linearly from one to the next.
func (h *history) grow(real, x, saves float64) {
	steps := x - h.at
	if h.sampled {
		slope := max(0, real-h.real) / saves
		h.disk += (h.slope + slope) / 2 * steps
		h.slope = slope
	} else {
		h.slope = max(0, real-h.disk) / steps
		h.disk = real
	}
	h.real, h.at = real, x
}

// settleAt measures memory and disk.
func (r *runner) settleAt(ctx context.Context, c *contender, t tally, h *history, x int) error {
	if err := c.memory(ctx, t); err != nil {
		return err
	}
	settled, err := c.settle(ctx)
	if err != nil {
		return err
	}
	h.grow(float64(settled.Disk), float64(x), float64(r.windowBefore(c, x)))
	t.add(result.DiskBytes, h.disk)
	t.add(result.DiskPerSave, h.disk/float64(x))
	return nil
}

// overSize measures chats of constant size.
func (r *runner) overSize(ctx context.Context, at []int) error {
	all := curves{}
	for _, size := range at {
		if err := r.atSize(ctx, size, all); err != nil {
			return err
		}
	}
	r.done(all)
	return nil
}

func (r *runner) atSize(ctx context.Context, size int, all curves) (err error) {
	e, err := r.enter(ctx, fmt.Sprintf("states of %d bytes", size), r.rivals,
		OpenArgs{Durable: true, Workload: "chat", Size: size, Filled: true, Writers: 1, Threads: 1, Settles: true})
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
	for round := 0; round < r.plan.Rounds && err == nil; round++ {
		err = e.each(ctx, round, func(c *contender) error {
			turn, err := c.turn(ctx, TurnArgs{Steps: window / 2, Seconds: 2})
			if err == nil {
				found[c.Name].turn(turn)
				sums[c.Name].add(turn)
			}
			return err
		})
	}
	if err == nil {
		err = r.loads(ctx, e, found, sums)
	}
	if err != nil {
		return err
	}
	for name, c := range r.newCurves(result.OverSize, e) {
		if all[name] == nil {
			all[name] = c
		}
		figures := found[name].figures()
		r.compareSaves(figures, 1, messageBytes, false)
		r.compareLoads(figures, sums[name])
		all[name].Points = append(all[name].Points, result.CurvePoint{X: float64(size), Figures: figures})
	}
	return nil
}

const populators = 64 // writers that create threads

// overThreads measures saves of random threads in stores with more and more of them.
func (r *runner) overThreads(ctx context.Context, at []int) (err error) {
	e, err := r.enter(ctx, "growth over threads", r.rivals, OpenArgs{Durable: true, Workload: "chat", Writers: populators, Settles: true, Small: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.leave()) }()
	list, reached := r.newCurves(result.OverThreads, e), 0
	for _, x := range at {
		found := map[string]tally{}
		var late []*contender
		err = e.each(ctx, 0, func(c *contender) error {
			found[c.Name] = tally{}
			var p Populated
			err := c.call(ctx, "Populate", PopulateArgs{From: reached, To: x, Seconds: r.plan.Patience}, &p)
			if err == nil && p.Threads < x {
				list[c.Name].Note = fmt.Sprintf("ended before %d threads: after %.1f s of %.0f there were %d", x, p.Seconds, r.plan.Patience, p.Threads)
				late = append(late, c)
			}
			return err
		})
		if err != nil {
			return err
		}
		for _, c := range late {
			if err := c.leave(); err != nil {
				return err
			}
		}
		e.list = slices.DeleteFunc(e.list, func(c *contender) bool { return slices.Contains(late, c) })
		if err := r.atThreads(ctx, e, found, x); err != nil {
			return err
		}
		for _, c := range e.list {
			figures := found[c.Name].figures()
			r.compareSaves(figures, 1, messageBytes, false)
			list[c.Name].Points = append(list[c.Name].Points, result.CurvePoint{X: float64(x), Figures: figures})
		}
		reached = x
	}
	r.done(list)
	return nil
}

func (r *runner) atThreads(ctx context.Context, e *entrants, found map[string]tally, x int) error {
	for round := range r.plan.Rounds + 1 {
		if err := e.each(ctx, round, func(c *contender) error {
			var turn Turn
			err := c.call(ctx, "Sample", SampleArgs{Threads: x, Saves: 2 * window}, &turn)
			if err == nil && round > 0 { // the first round is a warm-up
				found[c.Name].turn(turn)
			}
			return err
		}); err != nil {
			return err
		}
	}
	return e.each(ctx, 0, func(c *contender) error {
		t := found[c.Name]
		if err := c.memory(ctx, t); err != nil {
			return err
		}
		settled, err := c.settle(ctx)
		if err != nil {
			return err
		}
		t.add(result.DiskBytes, float64(settled.Disk))
		return nil
	})
}
