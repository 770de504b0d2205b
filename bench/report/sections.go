package report

import (
	"cmp"
	"fmt"

	"github.com/ckptd/ckptd/bench/result"
	"github.com/ckptd/ckptd/bench/workload"
)

// goalsSection shows for every goal whether it is met, and where and by how much it is missed.
func goalsSection(run *result.Run, goals []Goal) section {
	t := table{Head: []string{"against", "goal", "verdict", "met at", "worst", "where", "handed whole states"}}
	missed := table{Head: []string{"against", "goal", "where", "measured", "missed by"}}
	for _, g := range goals {
		t.Rows = append(t.Rows, goalRow(g))
		for _, c := range g.Checks {
			if !c.Met() {
				missed.Rows = append(missed.Rows, words(g.Against, g.Want, c.at(g), times(c.Got), times(c.Short())))
			}
		}
	}
	s := section{ID: "goals", Title: "Goals", Lines: []string{
		"Each goal is checked wherever it applies; the table shows the worst result. ckptd receives changes, as its " +
			"clients send them; the last column is the worst result when it receives whole states and finds the change itself.",
	}, Parts: []part{{Table: t}}}
	if run.Rounds < leastRounds {
		s.Lines = append(s.Lines, fmt.Sprintf("This run had %s: enough to check that everything works, but too few for a verdict.", counted(run.Rounds, "round")))
	}
	if len(missed.Rows) > 0 {
		s.Parts = append(s.Parts, part{Title: "Every miss", Table: missed})
	}
	return s
}

func goalRow(g Goal) []cell {
	row := words(g.Against, g.Want)
	worst, ok := g.Worst()
	if !ok {
		return append(row, words("not measured", "–", "–", "–", "–")...)
	}
	verdict := cell{Text: "met", Mood: "good"}
	if worst.Short() > 1 {
		verdict = cell{Text: "missed", Note: "by " + times(worst.Short()), Mood: "bad"}
	}
	met, of := g.Tally()
	row = append(row, verdict, cell{Text: fmt.Sprintf("%d of %d", met, of)}, cell{Text: times(worst.Got)}, cell{Text: worst.at(g)})
	whole, ok := worstOf(g.Whole)
	if !ok {
		return append(row, cell{Text: "–"})
	}
	mood := "good"
	if !whole.Met() {
		mood = "bad"
	}
	return append(row, cell{Text: times(whole.Got), Mood: mood})
}

// at names the place and, if there are several, the rival.
func (c Check) at(g Goal) string {
	for _, other := range g.Checks {
		if other.Rival != c.Rival {
			return c.Rival + ", " + c.Where
		}
	}
	return c.Where
}

func machineSection(v *view) section {
	run := v.run
	m := run.Machine
	s := section{ID: "machine", Title: "The machine and its limits", Parts: []part{{Table: table{
		Head: []string{"machine", ""},
		Rows: [][]cell{
			words("CPU", m.CPU), words("cores", digits(float64(m.Cores))), words("memory", inBytes(float64(m.Memory))),
			words("system", m.System), words("file system", m.FileSystem), words("Go", m.Go),
			words("load at the start", digits(m.Load)),
			words("ckptd", cmp.Or(run.Version, "unknown version")), words("started", run.Began.UTC().Format("2006-01-02 15:04 UTC")), words("command", run.Command),
			words("set", fmt.Sprintf("%s, seed %d, %s of %s per rival", run.Set, run.Seed, counted(run.Rounds, "round"), value(run.Turn, "s"))),
			words("cache of ckptd", inBytes(float64(run.Cache))),
		},
	}}}}
	if m.Load > 0.5*float64(m.Cores) {
		s.Lines = append(s.Lines, "The machine was busy when the run began: do not rely on its figures.")
	}
	if len(run.Limits) == 0 {
		return s
	}
	limits := table{Head: []string{"limit", "measured in the same run", "spread", "how"}}
	for _, l := range run.Limits {
		limits.Rows = append(limits.Rows, words(l.Name, value(l.Median, l.Unit), spread(l.Figure, l.Unit), l.What))
	}
	s.Parts = append(s.Parts, part{Title: "Limits", Table: limits})
	s.Parts = append(s.Parts, v.nearLimits()...)
	return s
}

func rivalsSection(run *result.Run) section {
	t := table{Head: []string{"rival", "description", "durable", "default settings", "version"}}
	for _, r := range run.Rivals {
		asItComes := r.Default
		if asItComes == "" {
			asItComes = "the same"
		}
		t.Rows = append(t.Rows, words(r.Name, r.What, r.Durable, asItComes, r.Version))
	}
	if len(t.Rows) == 0 {
		return section{}
	}
	return section{ID: "rivals", Title: "Rivals and workloads", Parts: []part{{Table: t}, {Table: workloadTable(run)}}}
}

// workloadTable describes the workloads of the run.
func workloadTable(run *result.Run) table {
	t := table{Head: []string{"workload", "description", "state, if no size is given"}}
	seen := map[string]bool{}
	for _, p := range run.Points {
		if seen[p.Workload] {
			continue
		}
		seen[p.Workload] = true
		if w, err := workload.Lookup(p.Workload); err == nil {
			t.Rows = append(t.Rows, words(w.Name, w.What, inBytes(float64(w.Size))))
		} else {
			t.Rows = append(t.Rows, words(p.Workload, "real runs, from a file", "as they are"))
		}
	}
	return t
}

// gapsSection lists what was not measured or only partly measured, and other caveats about single
// figures.
func gapsSection(run *result.Run) section {
	t := table{Head: []string{"measurement", "reason or note"}}
	for _, s := range run.Skipped {
		t.Rows = append(t.Rows, words("skipped: "+s.What, s.Why))
	}
	for _, c := range run.Curves {
		what := fmt.Sprintf("%s over %s, %s", c.Rival, c.Over, c.Workload)
		if sampled := sampledFrom(c); sampled != "" {
			t.Rows = append(t.Rows, words("sampled: "+what, "from "+sampled+" on: windows of the history, because its full size is quadratic in its length"))
		}
		if c.Note != "" {
			t.Rows = append(t.Rows, words(what, c.Note))
		}
	}
	for _, p := range run.Points {
		if p.Note != "" {
			t.Rows = append(t.Rows, words(fmt.Sprintf("%s, %s (%s)", p.Rival, place(p), p.Table), p.Note))
		}
	}
	s := section{ID: "gaps", Title: "Skipped and sampled", Lines: []string{"Nothing was skipped, and nothing was sampled."}}
	if len(t.Rows) > 0 {
		s.Lines, s.Parts = nil, []part{{Table: t}}
	}
	return s
}

func sampledFrom(c result.Curve) string {
	for _, p := range c.Points {
		if p.Sampled {
			return over(c.Over, p.X)
		}
	}
	return ""
}
