package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/bench/result"
)

// spaceMeasures are the columns of the table of storage costs; other measures are in the folded
// table.
func spaceMeasures() []string {
	return []string{result.DiskPerSave, result.WriteAmp, result.LoadWarm, result.LoadCold, result.LoadOld}
}

// glance shows ckptd's advantage over every rival at every workload, which is what most readers
// want to see first.
func (v *view) glance() section {
	groups := v.groups(result.Durable)
	writers := 0 // those of most goals, if measured
	for _, g := range groups {
		for _, n := range g.writers {
			if writers < 64 {
				writers = max(writers, n)
			}
		}
	}
	s := section{ID: "glance", Title: "At a glance", Lines: []string{
		"ckptd's advantage over each rival, durable: above 1 × it is better, below it is worse.",
	}}
	for _, o := range []struct{ title, kind, measure string }{
		{"Saves per second, " + counted(writers, "writer"), result.Speed, result.SaveRate},
		{"Bytes on disk per save", result.Space, result.DiskPerSave},
		{"Load of the newest state, cold", result.Space, result.LoadCold},
	} {
		if t := v.advantages(groups, o.kind, writers, o.measure); len(t.Rows) > 0 {
			s.Parts = append(s.Parts, part{Title: o.title, Table: t})
		}
	}
	if len(s.Parts) == 0 {
		return section{}
	}
	return s
}

// advantages has a row per rival and a column per group that was measured in that way.
func (v *view) advantages(groups []group, kind string, writers int, measure string) table {
	if kind == result.Space {
		writers = 0
	}
	groups = slices.DeleteFunc(slices.Clone(groups), func(g group) bool {
		_, ok := v.figure(g.key(kind, result.Ckptd, writers, 0), measure)
		return !ok
	})
	t := table{Head: []string{"rival"}}
	for _, g := range groups {
		t.Head = append(t.Head, state(g.workload, g.size))
	}
	for _, rival := range v.rivals {
		row, measured := words(rival), false
		for _, g := range groups {
			c := v.cell(g.key(kind, rival, writers, 0), measure)
			measured = measured || c.Note != ""
			c.Text, c.Note = cmp.Or(c.Note, "–"), ""
			row = append(row, c)
		}
		if measured {
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// costMeasures are the machine's resources that a save uses.
func costMeasures() []string {
	return []string{result.SaveCPU, result.SaveAllocs, result.SaveBytes, result.PeakRSS, result.PeakAnonymous}
}

// parts presents the groups of one table.
func (v *view) parts(table string, groups []group) []part {
	var parts []part
	for _, g := range groups {
		name := state(g.workload, g.size)
		if len(g.writers) > 0 {
			id := fmt.Sprintf("%s-%s-%d", table, g.workload, g.size)
			parts = append(parts,
				part{Title: name + ": saves per second", Table: v.byWriters(g, result.SaveRate, ""),
					Plots: []plot{v.writersPlot(g, id+"-rate", result.SaveRate), v.writersPlot(g, id+"-p99", result.SaveP99)}},
				part{Title: name + ": time of a save, p50 and p99", Table: v.byWriters(g, result.SaveP50, result.SaveP99)})
		}
		for _, o := range g.rates {
			title := fmt.Sprintf("%s: %s offered to %s, timed from when each save was due", name, value(o.rate, "saves/s"), counted(o.writers, "writer"))
			parts = append(parts, part{Title: title, Table: v.byMeasure(g, result.Speed, o.writers, o.rate,
				[]string{result.SaveRate, result.SaveP50, result.SaveP99, result.SaveP999})})
		}
		if n := len(g.writers); n > 0 {
			cost := v.byMeasure(g, result.Speed, g.writers[n-1], 0, costMeasures())
			parts = append(parts, part{Title: name + ": cost of a save, " + counted(g.writers[n-1], "writer"), Table: cost, Folded: true})
		}
		if g.space {
			parts = append(parts, part{Title: name + ": bytes and loads", Table: v.byMeasure(g, result.Space, 0, 0, spaceMeasures())})
		}
		parts = append(parts, part{Title: name + ": every figure, its spread and its limit", Table: v.every(g), Folded: true})
	}
	return slices.DeleteFunc(parts, func(p part) bool { return len(p.Table.Rows) == 0 })
}

// byWriters has a row per rival and a column per number of writers. With a second measure, a cell
// has both; otherwise it has the figure and ckptd's advantage.
func (v *view) byWriters(g group, measure, second string) table {
	t := table{Head: []string{"rival"}}
	for _, n := range g.writers {
		t.Head = append(t.Head, counted(n, "writer"))
	}
	for _, rival := range v.rivals {
		row, measured := words(rival), false
		for _, n := range g.writers {
			c := v.cell(g.key(result.Speed, rival, n, 0), measure)
			if f, ok := v.figure(g.key(result.Speed, rival, n, 0), second); ok {
				c.Note = value(f.Median, v.measures[second].Unit)
			}
			measured = measured || c.Text != "–"
			row = append(row, c)
		}
		if measured {
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// byMeasure has a row per rival and a column for each measure that any of them has.
func (v *view) byMeasure(g group, kind string, writers int, rate float64, measures []string) table {
	keyOf := func(rival string) key {
		if kind == result.Space {
			return g.key(kind, rival, 0, 0)
		}
		return g.key(kind, rival, writers, rate)
	}
	measures = slices.DeleteFunc(measures, func(m string) bool {
		return !slices.ContainsFunc(v.rivals, func(rival string) bool { _, ok := v.figure(keyOf(rival), m); return ok })
	})
	t := table{Head: []string{"rival"}}
	for _, m := range measures {
		t.Head = append(t.Head, v.measures[m].Title)
	}
	for _, rival := range v.rivals {
		if _, ok := v.point(keyOf(rival)); !ok {
			continue
		}
		row := words(rival)
		for _, m := range measures {
			row = append(row, v.cell(keyOf(rival), m))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// nearLimits shows how close ckptd's durable figures come to their limits: those of saves, of loads
// and of bytes. The folded tables show it for every rival.
func (v *view) nearLimits() (parts []part) {
	const title = "Share of its limit that ckptd reaches, durable (100 % is at the limit): "
	for _, of := range []struct {
		what     string
		measures []string
	}{
		{"saves", []string{result.SaveRate, result.SaveP50}},
		{"loads", []string{result.LoadWarm, result.LoadCold, result.LoadOld}},
		{"bytes", []string{result.DiskPerSave, result.WritePerSave}},
	} {
		t := table{Head: []string{"ckptd"}}
		for _, m := range of.measures {
			t.Head = append(t.Head, v.measures[m].Title)
		}
		for _, p := range v.run.Points {
			if p.Rival != result.Ckptd || p.Table != result.Durable || p.Rate > 0 {
				continue
			}
			row, near := words(place(p)), false
			if p.Kind == result.Space && of.what == "saves" {
				row[0].Text += ", in the measurements of bytes and loads"
			}
			for _, m := range of.measures {
				c := cell{Text: "–"}
				if f := p.Figures[m]; f.Limit != "" {
					c, near = cell{Text: percent(f.Fraction), Note: f.Limit}, true
				}
				row = append(row, c)
			}
			if near {
				t.Rows = append(t.Rows, row)
			}
		}
		if len(t.Rows) > 0 {
			parts = append(parts, part{Title: title + of.what, Table: t})
		}
	}
	return parts
}

// cell returns a figure with ckptd's advantage over it.
func (v *view) cell(k key, measure string) cell {
	f, ok := v.figure(k, measure)
	if !ok {
		return cell{Text: "–"}
	}
	c := cell{Text: value(f.Median, v.measures[measure].Unit)}
	ours := k
	ours.rival = result.Ckptd
	own, ok := v.figure(ours, measure)
	if !ok || k.rival == result.Ckptd || own.Median == 0 || f.Median == 0 {
		return c
	}
	ratio := v.advantage(own, f, measure)
	c.Note = times(ratio)
	if k.rival != result.CkptdWhole && ratio < 1 && apart(own, f) {
		c.Mood = "bad"
	}
	return c
}

// apart reports whether the ranges of two figures' rounds do not overlap.
func apart(a, b result.Figure) bool { return a.Max < b.Min || b.Max < a.Min }

// every lists all raw figures of a group.
func (v *view) every(g group) table {
	t := table{Head: []string{"rival", "writers", "measure", "median", "spread", "rounds", "limit", "of the limit"}}
	for _, p := range v.run.Points {
		if p.Table != g.table || p.Workload != g.workload || p.Size != g.size {
			continue
		}
		writers := digits(float64(p.Writers))
		if p.Rate > 0 {
			writers += ", " + value(p.Rate, "saves/s") + " offered"
		}
		for _, m := range result.Measures() {
			f, ok := p.Figures[m.Name]
			if !ok {
				continue
			}
			limit, fraction := "–", "–"
			if f.Limit != "" {
				limit, fraction = f.Limit, percent(f.Fraction)
			}
			t.Rows = append(t.Rows, words(p.Rival, writers, m.Title, value(f.Median, m.Unit), spread(f, m.Unit),
				digits(float64(len(f.Rounds))), limit, fraction))
		}
	}
	return t
}

// writersPlot plots a measure against the number of writers.
func (v *view) writersPlot(g group, id, measure string) plot {
	m := v.measures[measure]
	p := plot{ID: id, Title: state(g.workload, g.size) + ": " + m.Title, Caption: m.Title, X: "writers", Unit: m.Unit}
	for _, n := range g.writers {
		p.Ticks = append(p.Ticks, float64(n))
	}
	for i, rival := range v.rivals {
		l := line{Name: rival, Style: i}
		for _, n := range g.writers {
			if f, ok := v.figure(g.key(result.Speed, rival, n, 0), measure); ok {
				l.Spots = append(l.Spots, spotOf(float64(n), f))
			}
		}
		p.Lines = append(p.Lines, l)
	}
	if limit, ok := v.run.Limit(result.LimitSync); ok && m.Unit == "s" {
		p.Marks = append(p.Marks, mark{limit.Name, limit.Median})
	}
	return p
}

// growth plots every measure of the curves and lists them.
func (v *view) growth() section {
	s := section{ID: "growth", Title: "Growth", Lines: []string{
		"Both axes are logarithmic: a flat line means that the cost does not depend on the existing amount of data. Hollow markers are sampled: see Skipped and sampled.",
	}}
	for _, o := range []struct{ over, title string }{
		{result.OverSteps, "the length of the history"}, {result.OverSize, "the size of the state"}, {result.OverThreads, "the number of threads"},
	} {
		var workloads []string
		for _, c := range v.run.Curves {
			if c.Over == o.over && !slices.Contains(workloads, c.Workload) {
				workloads = append(workloads, c.Workload)
			}
		}
		for _, w := range workloads {
			for _, m := range result.Measures() {
				if p, t := v.curves(o.over, w, m); len(t.Rows) > 0 {
					main := m.Name == result.SaveP50 || m.Name == result.SaveRate
					s.Parts = append(s.Parts, part{Title: fmt.Sprintf("%s over %s (%s)", m.Title, o.title, w), Plots: []plot{p}, Table: t, Folded: !main, Behind: true})
				}
			}
		}
	}
	return s
}

func (v *view) curves(what, workload string, m result.Measure) (plot, table) {
	p := plot{ID: fmt.Sprintf("growth-%s-%s-%s", what, workload, m.Name), Title: m.Title + " over " + what, X: what, Unit: m.Unit}
	if what == result.OverSize {
		p.X, p.XUnit = "size of the state", "B"
	}
	var xs []float64
	for i, rival := range v.rivals {
		for _, c := range v.run.Curves {
			if c.Over != what || c.Workload != workload || c.Rival != rival {
				continue
			}
			l := line{Name: rival, Style: i}
			for _, at := range c.Points {
				if f, ok := at.Figures[m.Name]; ok {
					s := spotOf(at.X, f)
					s.Hollow = at.Sampled
					l.Spots = append(l.Spots, s)
					xs = append(xs, at.X)
				}
			}
			p.Lines = append(p.Lines, l)
		}
	}
	slices.Sort(xs)
	return p, curveTable(p, slices.Compact(xs), what)
}

// curveTable lists the figures in the plot of a curve.
func curveTable(p plot, xs []float64, what string) table {
	t := table{Head: []string{what}}
	for _, l := range p.Lines {
		if len(l.Spots) > 0 {
			t.Head = append(t.Head, l.Name)
		}
	}
	for _, x := range xs {
		row := words(over(what, x))
		for _, l := range p.Lines {
			if len(l.Spots) == 0 {
				continue
			}
			c := cell{Text: "–"}
			if i := slices.IndexFunc(l.Spots, func(s spot) bool { return s.X == x }); i >= 0 {
				c.Text = value(l.Spots[i].Y, p.Unit)
				if l.Spots[i].Hollow {
					c.Note = "sampled"
				}
			}
			row = append(row, c)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func spotOf(x float64, f result.Figure) spot {
	return spot{X: x, Y: f.Median, Min: f.Min, Max: f.Max}
}
