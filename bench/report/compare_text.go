package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"

	"github.com/ckptd/ckptd/bench/result"
)

// Text writes the comparison for a terminal: figures that are worse, unsure and better and, if all
// is set, also those that are the same.
func (c *Comparison) Text(w io.Writer, all bool) error {
	out := bufio.NewWriter(w)
	writeText(out, c.document(all))
	if err := out.Flush(); err != nil {
		return fmt.Errorf("writing the comparison: %w", err)
	}
	return nil
}

func (c *Comparison) document(all bool) document {
	doc := document{
		Title: "ckptd, " + version(c.Old) + " against " + version(c.New),
		Lead: fmt.Sprintf("%s compared: %d worse, %d better, %d unsure, by more than %s in units of each run's own limits.",
			counted(len(c.Changes), "figure"), c.count(Worse), c.count(Better), c.count(Unsure), percent(c.Threshold)),
	}
	t := table{Head: []string{"verdict", "where", "measure", "old", "new", "limit", "cost, new ÷ old"}}
	for _, ch := range c.Changes {
		if ch.Verdict == Same && !all {
			continue
		}
		unit := ch.Measure.Unit
		verdict := cell{Text: ch.Verdict.String()}
		if ch.Verdict == Worse {
			verdict.Mood = "bad"
		}
		t.Rows = append(t.Rows, append([]cell{verdict}, words(ch.Rival+", "+ch.Where, ch.Measure.Title,
			value(ch.Old.Median, unit)+swing(ch.Old), value(ch.New.Median, unit)+swing(ch.New), ch.Limit, times(ch.Ratio))...))
	}
	if len(t.Rows) > 0 {
		doc.Sections = append(doc.Sections, section{Title: "Changes", Parts: []part{{Table: t}}})
	}
	doc.Sections = append(doc.Sections, section{Title: "The machines", Lines: c.warnings(), Parts: []part{{Table: c.limits()}}})
	if lines := c.missing(); len(lines) > 0 {
		doc.Sections = append(doc.Sections, section{Title: "Not compared", Lines: lines})
	}
	return doc
}

// swing formats the spread of a figure, to go next to it.
func swing(f result.Figure) string {
	if f.Min == f.Max {
		return ""
	}
	return fmt.Sprintf(" ± %.0f %%", f.Spread()*50)
}

func version(run *result.Run) string {
	if run.Version == "" {
		return "of " + run.Began.UTC().Format("2006-01-02 15:04")
	}
	return run.Version
}

// limits shows how the machines differ, and how far the rivals moved by each limit.
func (c *Comparison) limits() table {
	t := table{Head: []string{"limit", "old", "new", "new ÷ old", "rivals' cost in units of it, median"}}
	for _, l := range c.New.Limits {
		old, ok := c.Old.Limit(l.Name)
		if !ok || old.Median == 0 {
			continue
		}
		t.Rows = append(t.Rows, words(l.Name, value(old.Median, l.Unit), value(l.Median, l.Unit), times(l.Median/old.Median), c.control(l.Name)))
	}
	return t
}

// control returns the median change of the rivals by a limit, "–" if none is divided by it.
func (c *Comparison) control(limit string) string {
	ratio, ok := c.drift(func(r Change) bool { return r.Limit == limit })
	if !ok {
		return "–"
	}
	return times(ratio)
}

// warnings returns reasons to doubt the comparison as a whole.
func (c *Comparison) warnings() []string {
	lines := []string{"The rivals are the control: a figure that moved no further than theirs by the same measure moved with the machine and is unsure."}
	if c.Old.Machine.CPU != c.New.Machine.CPU || c.Old.Machine.Cores != c.New.Machine.Cores {
		lines = append(lines, fmt.Sprintf("The machines differ: %s with %s, then %s with %s. Dividing by limits does not fully compensate for that.",
			c.Old.Machine.CPU, counted(c.Old.Machine.Cores, "core"), c.New.Machine.CPU, counted(c.New.Machine.Cores, "core")))
	}
	for _, r := range []struct {
		name string
		run  *result.Run
	}{{"old", c.Old}, {"new", c.New}} {
		if r.run.Machine.Load > 0.5*float64(r.run.Machine.Cores) {
			lines = append(lines, fmt.Sprintf("The machine was busy when the %s run began: the load was %s.", r.name, digits(r.run.Machine.Load)))
		}
		if r.run.Rounds < leastRounds {
			lines = append(lines, fmt.Sprintf("The %s run has %s: fewer than %d do not tell noise from change, so nothing is flagged.",
				r.name, counted(r.run.Rounds, "round"), leastRounds))
		}
	}
	return lines
}

// missing names figures that only one run has, and figures without a limit.
func (c *Comparison) missing() []string {
	var lines []string
	for _, m := range []struct {
		why   string
		names []string
	}{{"only in the old run", c.Gone}, {"only in the new run", c.Added}, {"limit not measured in both", c.Unlimited}} {
		const shown = 10
		for _, name := range m.names[:min(shown, len(m.names))] {
			lines = append(lines, name+" ("+m.why+")")
		}
		if rest := len(m.names) - shown; rest > 0 {
			lines = append(lines, fmt.Sprintf("and %s more (%s)", digits(float64(rest)), m.why))
		}
	}
	return slices.Clip(lines)
}
