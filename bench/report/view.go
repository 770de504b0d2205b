package report

import (
	"slices"

	"github.com/ckptd/ckptd/bench/result"
	"github.com/ckptd/ckptd/bench/workload"
)

// view gives access to the measurements of a run.
type view struct {
	run      *result.Run
	rivals   []string // in the order of the run, ckptd first
	measures map[string]result.Measure
	points   map[key]result.Point
	same     map[string]bool // rivals that are durable by default
}

// key identifies a point.
type key struct {
	kind, table, workload string
	size                  int
	rival                 string
	writers               int
	rate                  float64
}

func keyOf(p result.Point) key {
	k := key{p.Kind, p.Table, p.Workload, p.Size, p.Rival, p.Writers, p.Rate}
	if p.Kind == result.Space {
		k.writers, k.rate = 0, 0 // always one writer, in a closed loop
	}
	return k
}

func newView(run *result.Run) *view {
	own := *run
	own.Points = slices.Clone(run.Points)
	for i, p := range own.Points {
		own.Points[i].Size = sizeAsked(p)
	}
	run = &own
	v := &view{run: run, measures: map[string]result.Measure{}, points: map[key]result.Point{}, same: map[string]bool{}}
	for _, m := range result.Measures() {
		v.measures[m.Name] = m
	}
	names := []string{result.Ckptd, result.CkptdWhole}
	for _, r := range run.Rivals {
		names = append(names, r.Name)
		v.same[r.Name] = r.Default == ""
	}
	took := map[string]bool{}
	for _, p := range run.Points {
		took[p.Rival] = true
		names = append(names, p.Rival)
		if _, ok := v.points[keyOf(p)]; !ok {
			v.points[keyOf(p)] = p
		}
	}
	for _, c := range run.Curves {
		took[c.Rival] = true
		names = append(names, c.Rival)
	}
	for _, name := range names {
		if took[name] && !slices.Contains(v.rivals, name) {
			v.rivals = append(v.rivals, name)
		}
	}
	return v
}

// point finds a point. In the table of defaults, a rival that is durable by default uses its
// durable point.
func (v *view) point(k key) (result.Point, bool) {
	p, ok := v.points[k]
	if !ok && k.table == result.Default && v.same[k.rival] {
		k.table = result.Durable
		p, ok = v.points[k]
	}
	return p, ok
}

// figure returns a measure of a point; it is not ok if it was not measured.
func (v *view) figure(k key, measure string) (result.Figure, bool) {
	p, ok := v.point(k)
	if !ok {
		return result.Figure{}, false
	}
	f, ok := p.Figures[measure]
	return f, ok
}

// advantage is the factor by which ckptd is better than a rival at a measure.
func (v *view) advantage(ckptd, rival result.Figure, measure string) float64 {
	if v.measures[measure].More {
		return ckptd.Median / rival.Median
	}
	return rival.Median / ckptd.Median
}

// group is one workload with states of one size, in one table.
type group struct {
	table, workload string
	size            int
	writers         []int     // of closed loops, ascending
	rates           []offered // of open loops
	space           bool
}

type offered struct {
	writers int
	rate    float64
}

// groups returns the groups of a table, in the order in which they were measured.
func (v *view) groups(table string) []group {
	var groups []group
	for _, p := range v.run.Points {
		if p.Table != table {
			continue
		}
		i := slices.IndexFunc(groups, func(g group) bool { return g.workload == p.Workload && g.size == p.Size })
		if i < 0 {
			i = len(groups)
			groups = append(groups, group{table: table, workload: p.Workload, size: p.Size})
		}
		g := &groups[i]
		switch o := (offered{p.Writers, p.Rate}); {
		case p.Kind == result.Space:
			g.space = true
		case p.Rate > 0 && !slices.Contains(g.rates, o):
			g.rates = append(g.rates, o)
		case p.Rate == 0 && !slices.Contains(g.writers, p.Writers):
			g.writers = append(g.writers, p.Writers)
		}
	}
	for _, g := range groups {
		slices.Sort(g.writers)
	}
	return groups
}

func (g group) key(kind, rival string, writers int, rate float64) key {
	return key{kind, g.table, g.workload, g.size, rival, writers, rate}
}

// sizeAsked returns the requested size of a point's states, or 0 if it is the workload's own,
// however it was requested.
func sizeAsked(p result.Point) int {
	if w, err := workload.Lookup(p.Workload); err == nil && w.Size == p.Size {
		return 0
	}
	return p.Size
}

// stateSize returns the approximate size of a point's states; it is not ok for real runs, which
// have all sizes.
func stateSize(p result.Point) (int, bool) {
	if p.Size > 0 {
		return p.Size, true
	}
	w, err := workload.Lookup(p.Workload)
	return w.Size, err == nil
}
