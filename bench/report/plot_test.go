package report

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestPlot(t *testing.T) {
	p := plot{ID: "p", Title: `a < "b"`, X: "steps", Unit: "s", Marks: []mark{{"fdatasync", 1e-4}}, Lines: []line{
		{"slow & steady", 0, []spot{{X: 10, Y: 1, Min: 0.9, Max: 1.1}, {X: 1000, Y: 10, Min: 10, Max: 10}}},
		{"quick", 1, []spot{{X: 10, Y: 1e-3}, {X: 1000, Y: 1e-3, Hollow: true}, {X: 0, Y: 1}, {X: 5, Y: 0}}},
	}}
	svg := string(p.SVG())
	wellFormed(t, svg)
	for want, n := range map[string]int{`class="spot"`: 3, `class="spot hollow"`: 1, `class="spread"`: 1, `class="mark"`: 1, ", sampled</title>": 1} {
		if got := strings.Count(svg, want); got != n {
			t.Errorf("%d of %s, want %d", got, want, n)
		}
	}
	if !strings.Contains(svg, "quick: 1 ms at 10, 1 ms at 1,000") {
		t.Errorf("not described: %s", svg)
	}
	if svg := (plot{Lines: []line{{"none", 0, []spot{{X: 1, Y: 0}}}}}).SVG(); svg != "" {
		t.Errorf("nothing is drawn as %s", svg)
	}
}

func TestAxis(t *testing.T) {
	a := axisOf([]float64{1, 10, 100}, 0, 100)
	if one, ten, hundred := a.at(1), a.at(10), a.at(100); one >= ten || ten-one-(hundred-ten) > 1e-9 || one < 0 || hundred > 100 {
		t.Errorf("1, 10, 100 stand at %v %v %v", one, ten, hundred)
	}
	// Two figures one percent apart do not fill the height.
	if a := axisOf([]float64{1, 1.01}, 0, 100); a.at(1.01)-a.at(1) > 5 {
		t.Errorf("noise takes %v of 100", a.at(1.01)-a.at(1))
	}
	for _, span := range [][]float64{{1, 1}, {3, 4}, {1, 1e3}, {1e-6, 1e12}, {1e-9, 1e-9}} {
		named, _ := axisOf(span, 0, 100).ticks()
		if len(named) < 2 || len(named) > 12 {
			t.Errorf("%v has the ticks %v", span, named)
		}
	}
}

// Names of lines that end close together are stacked within the drawing.
func TestLabelsStandApart(t *testing.T) {
	for _, y := range []float64{1, 1000} {
		p := plot{ID: "p", X: "x", Lines: []line{{"far", 0, []spot{{X: 1, Y: 1}, {X: 2, Y: 1001 - y}}}}}
		for i := range 9 {
			p.Lines = append(p.Lines, line{"rival", i, []spot{{X: 1, Y: 1}, {X: 2, Y: y}}})
		}
		last := -1000.0
		places := regexp.MustCompile(`class="name" x="[^"]*" y="([^"]*)"`).FindAllStringSubmatch(string(p.SVG()), -1)
		for _, m := range places {
			at, _ := strconv.ParseFloat(m[1], 64)
			if at-last < labelHeight-0.2 || at < 10 || at > plotHeight-plotBottom+9 {
				t.Errorf("lines that end at %v: a name at %v after %v", y, at, last)
			}
			last = at
		}
		if len(places) != 10 {
			t.Errorf("%d names", len(places))
		}
	}
}

func TestValue(t *testing.T) {
	for _, tt := range []struct {
		v          float64
		unit, want string
	}{
		{1.5, "s", "1.5 s"}, {2e-3, "s", "2 ms"}, {123.4e-6, "s", "123 µs"}, {5e-9, "s", "5 ns"}, {0, "s", "0 ns"},
		{999, "B", "999 B"}, {1234, "B", "1.23 kB"}, {5e9, "B/s", "5 GB/s"}, {12345.6, "saves/s", "12,346/s"},
		{0.0123, "", "0.012"}, {99.96, "", "100"}, {9.996, "", "10"}, {-1234567, "", "-1,234,567"}, {100, "", "100"}, {0.5, "", "0.5"},
	} {
		if got := value(tt.v, tt.unit); got != tt.want {
			t.Errorf("%v %s is %q, want %q", tt.v, tt.unit, got, tt.want)
		}
	}
	for v, want := range map[float64]string{1: "1/s", 1e3: "1k/s", 2e5: "200k/s", 5e6: "5M/s"} {
		if got := tick(v, "saves/s"); got != want {
			t.Errorf("the tick of %v is %q, want %q", v, got, want)
		}
	}
}
