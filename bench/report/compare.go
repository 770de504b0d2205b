package report

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/bench/result"
)

// ErrRegressed matches the error of Comparison.Err.
var ErrRegressed = errors.New("regressed")

// leastRounds is the number of rounds from which their range separates noise from change.
const leastRounds = 3

// Verdict is the result of comparing one figure.
type Verdict int

const (
	Same   Verdict = iota // within the threshold
	Better                // by more than the threshold, and no round of one run lies within the range of the other
	Worse                 // the same in the other direction
	Unsure                // beyond the threshold but within the noise: rounds overlap or are too few, or the rivals moved as far
)

func (v Verdict) String() string {
	return [...]string{"same", "better", "worse", "unsure"}[v]
}

// Change compares one figure of two runs.
type Change struct {
	Where   string
	Rival   string
	Measure result.Measure
	Old     result.Figure
	New     result.Figure
	Limit   string // divisor of both, measured in their own runs; "" for bytes and counts, which need none
	// Ratio is the cost of the new run, in units of the limit, over that of the old run. Above 1 is
	// worse, whichever direction of the measure is better.
	Ratio   float64
	Verdict Verdict
}

// Comparison compares ckptd in two runs.
type Comparison struct {
	Old, New  *result.Run
	Threshold float64
	// Changes are all figures of ckptd that are in both runs, worst first.
	Changes []Change
	// Control holds the changes of the rivals. Their code is the same, so any change of theirs is
	// due to the machine.
	Control []Change
	// Gone and Added are figures of ckptd that are only in the old run and only in the new run.
	Gone, Added []string
	// Unlimited are times and rates that cannot be compared because their limit was not measured in
	// both runs.
	Unlimited []string
}

// Compare compares two runs in units of the limits that each measured of its machine, so that a
// slower disk is not a regression. A change counts if it is beyond the threshold (0.1 is a tenth)
// and exceeds the noise.
func Compare(old, new *result.Run, threshold float64) *Comparison {
	c := &Comparison{Old: old, New: new, Threshold: threshold}
	before, after := figures(old), figures(new)
	byName := map[figureKey]figure{}
	for _, f := range before {
		byName[f.figureKey] = f
	}
	for _, f := range after {
		was, ok := byName[f.figureKey]
		delete(byName, f.figureKey)
		own := f.rival == result.Ckptd || f.rival == result.CkptdWhole
		if !ok {
			if own {
				c.Added = append(c.Added, f.String())
			}
			continue
		}
		change, ok := c.change(was, f)
		switch {
		case !ok && own:
			c.Unlimited = append(c.Unlimited, f.String())
		case ok && own:
			c.Changes = append(c.Changes, change)
		case ok:
			c.Control = append(c.Control, change)
		}
	}
	for _, f := range before {
		if _, left := byName[f.figureKey]; left && (f.rival == result.Ckptd || f.rival == result.CkptdWhole) {
			c.Gone = append(c.Gone, f.String())
		}
	}
	c.doubt()
	slices.SortStableFunc(c.Changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(rank(a.Verdict), rank(b.Verdict)), cmp.Compare(b.Ratio, a.Ratio))
	})
	return c
}

// doubt marks a change as unsure if the rivals moved as far, by the same measure and the same
// limit. Limits are measured once per run, but rivals alternate with ckptd.
func (c *Comparison) doubt() {
	for i, ch := range c.Changes {
		rivals, ok := c.drift(func(r Change) bool { return r.Measure.Name == ch.Measure.Name && r.Limit == ch.Limit })
		if ok && ch.Limit != "" && c.within(ch.Ratio/rivals) && ch.Verdict != Same {
			c.Changes[i].Verdict = Unsure
		}
	}
}

// drift returns the median change of the rivals' figures that only selects; it is not ok if there
// are none.
func (c *Comparison) drift(only func(Change) bool) (float64, bool) {
	var ratios []float64
	for _, r := range c.Control {
		if only(r) {
			ratios = append(ratios, r.Ratio)
		}
	}
	return result.FigureOf(ratios).Median, len(ratios) > 0
}

// within reports whether a change is within the threshold in either direction.
func (c *Comparison) within(ratio float64) bool {
	return ratio <= 1+c.Threshold && ratio >= 1/(1+c.Threshold)
}

// rank orders verdicts by importance.
func rank(v Verdict) int { return slices.Index([]Verdict{Worse, Unsure, Better, Same}, v) }

// Err returns nil if nothing of ckptd is worse; otherwise the error matches ErrRegressed.
func (c *Comparison) Err() error {
	if n := c.count(Worse); n > 0 {
		return fmt.Errorf("%w: %s of ckptd by more than %s", ErrRegressed, counted(n, "figure"), percent(c.Threshold))
	}
	return nil
}

func (c *Comparison) count(v Verdict) int {
	n := 0
	for _, change := range c.Changes {
		if change.Verdict == v {
			n++
		}
	}
	return n
}

// figure is a figure of a run and the place where it was measured.
type figure struct {
	figureKey
	result.Figure
	measure result.Measure
}

// figureKey is equal for the same figure in two runs.
type figureKey struct{ where, rival, measure string }

func (f figure) String() string { return f.rival + ", " + f.where + ": " + f.measure.Title }

// figures lists all figures of a run. The pipeline limit of ckptd is included: as a divisor of
// other figures it would hide a regression of its own.
func figures(run *result.Run) []figure {
	var all []figure
	add := func(where, rival string, of map[string]result.Figure) {
		for _, m := range result.Measures() {
			if f, ok := of[m.Name]; ok && f.Median > 0 {
				all = append(all, figure{figureKey{where, rival, m.Name}, f, m})
			}
		}
	}
	for _, p := range run.Points {
		p.Size = sizeAsked(p)
		add(p.Table+", "+place(p), p.Rival, p.Figures)
	}
	for _, c := range run.Curves {
		for _, p := range c.Points {
			add(fmt.Sprintf("%s, %s %s", c.Workload, over(c.Over, p.X), c.Over), c.Rival, p.Figures)
		}
	}
	if l, ok := run.Limit(result.LimitPipeline); ok {
		m := result.Measure{Name: result.LimitPipeline, Unit: l.Unit, Title: "saves/s allowed by the CPU", More: true}
		all = append(all, figure{figureKey{"pipeline", result.Ckptd, m.Name}, l.Figure, m})
	}
	return all
}

// change compares a figure of the old run with that of the new one; it is not ok if their limit is
// missing.
func (c *Comparison) change(old, new figure) (Change, bool) {
	limit := yardstick(new)
	before, ok := inLimits(c.Old, old, limit)
	after, has := inLimits(c.New, new, limit)
	if !ok || !has {
		return Change{}, false
	}
	change := Change{Where: new.where, Rival: new.rival, Measure: new.measure, Old: old.Figure, New: new.Figure, Limit: limit, Ratio: after.Median / before.Median}
	clear := len(before.Rounds) >= leastRounds && len(after.Rounds) >= leastRounds && apart(before, after)
	switch {
	case c.within(change.Ratio):
	case !clear:
		change.Verdict = Unsure
	case change.Ratio > 1:
		change.Verdict = Worse
	default:
		change.Verdict = Better
	}
	return change, true
}

// yardstick names the limit to divide a figure by. The limit set by ckptd's own pipeline isn't
// used; such figures are divided by the limits that the pipeline itself depends on.
func yardstick(f figure) string {
	timed := f.measure.Unit == "s" || f.measure.Unit == "saves/s"
	switch {
	case !timed:
		return ""
	case f.Limit != "" && f.Limit != result.LimitPipeline:
		return f.Limit
	case f.Limit == result.LimitPipeline || f.measure.Name == result.LimitPipeline || f.measure.Name == result.SaveCPU:
		return result.LimitZstd
	case f.measure.Name == result.LoadCold:
		return result.LimitRead
	case f.measure.Name == result.LoadWarm || f.measure.Name == result.LoadOld:
		return result.LimitCopy
	}
	return result.LimitSync
}

// inLimits returns the cost of a figure in units of a limit of its run, round by round.
func inLimits(run *result.Run, f figure, name string) (result.Figure, bool) {
	speed := 1.0
	if name != "" {
		limit, ok := run.Limit(name)
		if !ok || limit.Median <= 0 {
			return result.Figure{}, false
		}
		speed = limit.Median
		if limit.Unit == "s" {
			speed = 1 / limit.Median
		}
	}
	return mapped(f.Figure, func(v float64) float64 {
		if f.measure.More {
			return speed / v
		}
		return speed * v
	}), true
}

// mapped applies f to the rounds of a figure, or to its median if it has none.
func mapped(fig result.Figure, f func(float64) float64) result.Figure {
	if len(fig.Rounds) == 0 {
		return result.FigureOf([]float64{f(fig.Median)})
	}
	rounds := make([]float64, len(fig.Rounds))
	for i, v := range fig.Rounds {
		rounds[i] = f(v)
	}
	return result.FigureOf(rounds)
}
