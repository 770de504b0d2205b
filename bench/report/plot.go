package report

import (
	"cmp"
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strings"
)

// plot is a chart with logarithmic axes and one line per rival. Values of 0 or less cannot be on
// such an axis and are left out; the table next to the plot has them.
type plot struct {
	ID      string // of the element; unique in the page
	Title   string
	Caption string // if there are several plots in a row
	X       string // title of the x axis
	XUnit   string
	Unit    string // of y
	Ticks   []float64
	Lines   []line
	Marks   []mark // limits, drawn as horizontal lines
}

type line struct {
	Name  string
	Style int // color and marker; a rival has the same in every plot
	Spots []spot
}

// spot is a figure with its spread.
type spot struct {
	X, Y, Min, Max float64
	Hollow         bool
}

type mark struct {
	Name string
	Y    float64
}

// Dimensions in the drawing's own units. Letters are 12 high, so that a page as narrow as a phone
// can show all of it.
const (
	plotWidth, plotHeight  = 440.0, 300.0
	plotLeft, plotRight    = 52.0, 130.0
	plotTop, plotBottom    = 12.0, 40.0
	labelHeight            = 13.0
	plotStyles             = 10 // number of colors in the page
	leastDecades, padding  = 0.7, 0.06
	longestName, nameShort = 18, 17
)

// axis maps logarithms to positions.
type axis struct {
	lo, hi   float64 // log10
	from, to float64
}

func (a axis) at(v float64) float64 {
	return a.from + (math.Log10(v)-a.lo)/(a.hi-a.lo)*(a.to-a.from)
}

// axisOf spans values with a margin, but never so closely that noise looks like a difference.
func axisOf(values []float64, from, to float64) axis {
	lo, hi := math.Log10(slices.Min(values)), math.Log10(slices.Max(values))
	if gap := leastDecades - (hi - lo); gap > 0 {
		lo, hi = lo-gap/2, hi+gap/2
	}
	room := (hi - lo) * padding
	return axis{lo - room, hi + room, from, to}
}

// ticks returns the values that an axis labels and those that it only marks: powers of ten or, if
// there are few, 1, 2 and 5 of each.
func (a axis) ticks() (named, drawn []float64) {
	tens := math.Floor(a.hi) - math.Ceil(a.lo) + 1
	every := max(1, math.Ceil(tens/8))
	for e := math.Floor(a.lo); e <= a.hi; e++ {
		for _, m := range []float64{1, 2, 5} {
			log := e + math.Log10(m)
			if log < a.lo || log > a.hi {
				continue
			}
			v := m * math.Pow(10, e)
			switch {
			case tens < 3 || m == 1 && math.Mod(math.Abs(e), every) == 0:
				named = append(named, v)
			case tens < 6:
				drawn = append(drawn, v)
			}
		}
	}
	return named, drawn
}

// SVG draws the plot; "" if there is nothing to draw.
func (p plot) SVG() template.HTML {
	p.Lines = slices.Clone(p.Lines)
	var xs, ys []float64
	for i := range p.Lines {
		p.Lines[i].Spots = drawable(p.Lines[i].Spots)
		for _, s := range p.Lines[i].Spots {
			xs, ys = append(xs, s.X), append(ys, s.Y, s.Min, s.Max)
		}
	}
	if len(xs) == 0 {
		return ""
	}
	p.Marks = slices.DeleteFunc(slices.Clone(p.Marks), func(m mark) bool { return !positive(m.Y) })
	for _, m := range p.Marks {
		ys = append(ys, m.Y)
	}
	ys = slices.DeleteFunc(ys, func(y float64) bool { return !positive(y) })
	x := axisOf(xs, plotLeft, plotWidth-plotRight)
	y := axisOf(ys, plotHeight-plotBottom, plotTop)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="plot" viewBox="0 0 %g %g" role="img" aria-labelledby="%[3]s-t %[3]s-d"><title id="%[3]s-t">%[4]s</title><desc id="%[3]s-d">%[5]s</desc>`,
		plotWidth, plotHeight, html.EscapeString(p.ID), html.EscapeString(p.Title), html.EscapeString(p.describe()))
	p.axes(&b, x, y)
	for _, m := range p.Marks {
		fmt.Fprintf(&b, `<g class="mark"><path d="M%.1f %.1fH%.1f"/><text x="%.1f" y="%.1f">%s</text></g>`,
			plotLeft, y.at(m.Y), plotWidth-plotRight, plotLeft+4, y.at(m.Y)-4, html.EscapeString(m.Name))
	}
	for i := len(p.Lines) - 1; i >= 0; i-- { // in reverse, so that the first is on top
		p.line(&b, p.Lines[i], x, y)
	}
	p.labels(&b, x, y)
	b.WriteString("</svg>")
	return template.HTML(b.String()) // #nosec: every text in it is escaped above and below
}

// drawable keeps values that have a logarithm.
func drawable(spots []spot) []spot {
	return slices.DeleteFunc(slices.Clone(spots), func(s spot) bool { return !positive(s.X) || !positive(s.Y) })
}

func positive(v float64) bool { return v > 0 && !math.IsInf(v, 0) }

// describe describes the plot in words for readers who cannot see it.
func (p plot) describe() string {
	var ends []string
	for _, l := range p.Lines {
		if n := len(l.Spots); n > 0 {
			first, last := l.Spots[0], l.Spots[n-1]
			ends = append(ends, fmt.Sprintf("%s: %s at %s, %s at %s", l.Name,
				value(first.Y, p.Unit), value(first.X, p.XUnit), value(last.Y, p.Unit), value(last.X, p.XUnit)))
		}
	}
	return fmt.Sprintf("Against %s, both axes logarithmic. %s.", p.X, strings.Join(ends, "; "))
}

func (p plot) axes(b *strings.Builder, x, y axis) {
	named, drawn := y.ticks()
	for _, v := range drawn {
		fmt.Fprintf(b, `<path class="grid fine" d="M%.1f %.1fH%.1f"/>`, plotLeft, y.at(v), plotWidth-plotRight)
	}
	for _, v := range named {
		fmt.Fprintf(b, `<path class="grid" d="M%.1f %.1fH%.1f"/><text class="tick y" x="%.1f" y="%.1f">%s</text>`,
			plotLeft, y.at(v), plotWidth-plotRight, plotLeft-6, y.at(v)+4, html.EscapeString(tick(v, p.Unit)))
	}
	ticks := p.Ticks
	if len(ticks) == 0 {
		ticks, _ = x.ticks()
	}
	for _, v := range ticks {
		fmt.Fprintf(b, `<path class="grid fine" d="M%.1f %.1fV%.1f"/><text class="tick x" x="%.1f" y="%.1f">%s</text>`,
			x.at(v), plotTop, plotHeight-plotBottom, x.at(v), plotHeight-plotBottom+16, html.EscapeString(tick(v, p.XUnit)))
	}
	fmt.Fprintf(b, `<text class="tick x" x="%.1f" y="%.1f">%s</text>`, (plotLeft+plotWidth-plotRight)/2, plotHeight-6, html.EscapeString(p.X))
}

// line draws the spreads, the line and its markers. Each marker shows its figure when pointed at.
func (p plot) line(b *strings.Builder, l line, x, y axis) {
	if len(l.Spots) == 0 {
		return
	}
	fmt.Fprintf(b, `<g class="s%d">`, l.Style%plotStyles)
	for i, s := range l.Spots {
		move := "L"
		if i == 0 {
			b.WriteString(`<path class="line" d="`)
			move = "M"
		}
		fmt.Fprintf(b, "%s%.1f %.1f", move, x.at(s.X), y.at(s.Y))
	}
	b.WriteString(`"/>`)
	for _, s := range l.Spots {
		if positive(s.Min) && positive(s.Max) && s.Min < s.Max {
			fmt.Fprintf(b, `<path class="spread" d="M%.1f %.1fV%.1f"/>`, x.at(s.X), y.at(s.Min), y.at(s.Max))
		}
		class, note := "spot", ""
		if s.Hollow {
			class, note = "spot hollow", ", sampled"
		}
		says := fmt.Sprintf("%s at %s: %s%s", l.Name, value(s.X, p.XUnit), value(s.Y, p.Unit), note)
		fmt.Fprintf(b, `<path class="%s" d="%s"><title>%s</title></path>`, class, marker(l.Style, x.at(s.X), y.at(s.Y)), html.EscapeString(says))
	}
	b.WriteString("</g>")
}

// marker returns the outline of a style's marker, so that lines can be distinguished without
// colors.
func marker(style int, x, y float64) string {
	switch style % 5 {
	case 0:
		return fmt.Sprintf("M%.1f %.1fa3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z", x-3.5, y)
	case 1:
		return fmt.Sprintf("M%.1f %.1fh6v6h-6z", x-3, y-3)
	case 2:
		return fmt.Sprintf("M%.1f %.1fl4 7h-8z", x, y-4)
	case 3:
		return fmt.Sprintf("M%.1f %.1fl4 4l-4 4l-4 -4z", x, y-4)
	}
	return fmt.Sprintf("M%.1f %.1fl4 -7h-8z", x, y+4)
}

// labels names each line at its end and moves overlapping labels apart.
func (p plot) labels(b *strings.Builder, x, y axis) {
	type label struct {
		name          string
		style         int
		x, end, place float64
	}
	var labels []label
	for _, l := range p.Lines {
		if n := len(l.Spots); n > 0 {
			end := y.at(l.Spots[n-1].Y)
			labels = append(labels, label{short(l.Name), l.Style, x.at(l.Spots[n-1].X), end, end})
		}
	}
	slices.SortStableFunc(labels, func(a, b label) int { return cmp.Compare(a.end, b.end) })
	for i := range labels {
		if i > 0 {
			labels[i].place = max(labels[i].place, labels[i-1].place+labelHeight)
		}
	}
	floor := plotHeight - plotBottom + 4
	for i := len(labels) - 1; i >= 0; i-- {
		labels[i].place = min(labels[i].place, floor)
		floor = labels[i].place - labelHeight
	}
	right := plotWidth - plotRight
	for _, l := range labels {
		fmt.Fprintf(b, `<g class="s%d"><path class="lead" d="M%.1f %.1fL%.1f %.1f"/><text class="name" x="%.1f" y="%.1f">%s</text></g>`,
			l.style%plotStyles, l.x+5, l.end, right+10, l.place, right+13, l.place+4, html.EscapeString(l.name))
	}
}

func short(name string) string {
	if r := []rune(name); len(r) > longestName {
		return string(r[:nameShort]) + "…"
	}
	return name
}
