// Package run measures rivals side by side: each performs the same saves of the same workloads, in
// turns, and the limits of the machine are measured in between. So a machine that becomes slower or
// faster affects all of them.
//
// Every rival runs in its own process, served by a Worker. A program that calls Run must therefore
// call Main before anything else, because it is started again as a worker.
package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/ckptd/ckptd/bench/result"
	"github.com/ckptd/ckptd/bench/rival"
)

// Run carries out a plan and logs progress. A rival that cannot be measured somewhere is listed as
// skipped. An error of a driver, or a state that comes back different from the saved one, ends the
// run unless keepOn is set.
func Run(ctx context.Context, p Plan, log *slog.Logger, keepOn bool) (*result.Run, error) {
	base, err := os.MkdirTemp(p.Dir, "ckptd-bench-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for the stores: %w", err)
	}
	defer os.RemoveAll(base)
	if err := os.Chmod(base, 0o711); err != nil { // servers run as other users
		return nil, fmt.Errorf("opening the folder of the stores: %w", err)
	}
	r := &runner{plan: p, base: base, log: log, keepOn: keepOn, limits: limits{rounds: tally{}}, out: &result.Run{
		Began: time.Now().UTC().Truncate(time.Second), Command: p.Command, Version: version(), Set: p.Set, Seed: p.Seed, Rounds: p.Rounds,
		Turn: p.Seconds, Cache: p.Cache, Machine: machine(base),
	}}
	if err := r.field(); err != nil {
		return nil, err
	}
	began := time.Now()
	for _, part := range r.parts() {
		if err := errors.Join(r.limitsAmid(ctx), ctx.Err()); err != nil {
			return nil, err
		}
		if err := part(ctx); err != nil {
			return nil, err
		}
	}
	if err := r.limitsDone(ctx); err != nil {
		return nil, err
	}
	r.out.Took = since(began)
	return r.out, nil
}

// parts returns the measurements of the plan, to run in sequence.
func (r *runner) parts() (list []func(context.Context) error) {
	for _, s := range r.plan.Speed {
		list = append(list, func(ctx context.Context) error { return r.speed(ctx, s) })
	}
	for _, s := range r.plan.Space {
		list = append(list, func(ctx context.Context) error { return r.space(ctx, s) })
	}
	for _, g := range r.plan.Growth {
		list = append(list, func(ctx context.Context) error { return r.growth(ctx, g) })
	}
	return list
}

// runner carries out a run.
type runner struct {
	plan   Plan
	base   string
	log    *slog.Logger
	keepOn bool
	rivals []rival.Rival // installed and selected rivals
	limits limits
	out    *result.Run

	// compare holds the comparisons of figures with limits, which are known only at the end.
	compare []func()
}

// field determines the participants.
func (r *runner) field() error {
	for _, name := range r.plan.Rivals {
		if _, err := rival.Lookup(name); err != nil {
			return err
		}
	}
	for _, name := range r.plan.workloads() {
		if _, err := r.plan.Input.lookup(name); err != nil {
			return err
		}
	}
	for _, v := range rival.All() {
		if len(r.plan.Rivals) > 0 && !slices.Contains(r.plan.Rivals, v.Name) {
			continue
		}
		entry := result.Rival{Name: v.Name, What: v.What, Durable: v.Durable, Default: v.Default}
		if v.Installed != nil {
			var err error
			if entry.Version, err = v.Installed(); errors.Is(err, rival.ErrNotInstalled) {
				r.skip(v.Name, err)
				continue
			} else if err != nil {
				return err
			}
		}
		r.rivals = append(r.rivals, v)
		r.out.Rivals = append(r.out.Rivals, entry)
	}
	return nil
}

func (r *runner) skip(what string, why error) {
	r.log.Warn("skipped", "what", what, "why", why.Error())
	r.out.Skipped = append(r.out.Skipped, result.Skip{What: what, Why: why.Error()})
}

// failed handles the error of a rival at some point. It returns nil if the run continues without
// the rival.
func (r *runner) failed(ctx context.Context, name, where string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !r.keepOn {
		return fmt.Errorf("measuring %s: %w", where, err)
	}
	r.skip(name+" at "+where, err)
	return nil
}

// entrants are the contenders in one measurement; their order rotates every round.
type entrants struct {
	r     *runner
	where string
	list  []*contender
}

// enter starts a worker for each of the given rivals.
func (r *runner) enter(ctx context.Context, where string, rivals []rival.Rival, a OpenArgs) (*entrants, error) {
	a.Seed, a.Cache, a.Input = r.plan.Seed, r.plan.Cache, r.plan.Input
	e := &entrants{r: r, where: where}
	for _, v := range rivals {
		c, err := enter(ctx, r.base, v, a)
		if err == nil {
			e.list = append(e.list, c)
			continue
		}
		if err := r.failed(ctx, v.Name, where, err); err != nil {
			return nil, errors.Join(err, e.leave())
		}
	}
	return e, nil
}

// each calls do for every contender, starting with a different one each round. A contender that
// fails is removed, if the run continues at all.
func (e *entrants) each(ctx context.Context, round int, do func(*contender) error) error {
	if len(e.list) == 0 {
		return nil
	}
	first := round % len(e.list)
	for _, c := range slices.Concat(e.list[first:], e.list[:first]) {
		if err := do(c); err != nil {
			if err := e.r.failed(ctx, c.Name, e.where, err); err != nil {
				return err
			}
			c.leave()
			e.list = slices.DeleteFunc(e.list, func(o *contender) bool { return o == c })
		}
	}
	return nil
}

// leave ends all workers.
func (e *entrants) leave() (err error) {
	for _, c := range e.list {
		err = errors.Join(err, c.leave())
	}
	e.list = nil
	return err
}

// tally collects the rounds of one contender's measures.
type tally map[string][]float64

func (t tally) add(measure string, value float64) { t[measure] = append(t[measure], value) }

// turn adds the result of a turn of saves.
func (t tally) turn(turn Turn) {
	if turn.Saves == 0 {
		return
	}
	n := float64(turn.Saves)
	t.add(result.SaveRate, n/turn.Seconds)
	t.add(result.SaveP50, turn.P50)
	t.add(result.SaveP99, turn.P99)
	t.add(result.SaveP999, turn.P999)
	t.add(result.SaveCPU, max(0, turn.Usage.CPU/n))
	t.add(result.SaveAllocs, max(0, turn.Usage.Allocs/n))
	t.add(result.SaveBytes, max(0, turn.Usage.AllocBytes/n))
}

func (t tally) figures() map[string]result.Figure {
	figures := make(map[string]result.Figure, len(t))
	for measure, rounds := range t {
		figures[measure] = result.FigureOf(rounds)
	}
	return figures
}
