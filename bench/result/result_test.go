package result

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFigureOf(t *testing.T) {
	for _, tt := range []struct {
		rounds                   []float64
		median, min, max, spread float64
	}{{nil, 0, 0, 0, 0}, {[]float64{7}, 7, 7, 7, 0}, {[]float64{9, 1, 5}, 5, 1, 9, 1.6}, {[]float64{4, 2, 8, 6}, 5, 2, 8, 1.2}} {
		f := FigureOf(tt.rounds)
		if f.Median != tt.median || f.Min != tt.min || f.Max != tt.max || f.Spread() != tt.spread {
			t.Errorf("%v: %+v, spread %v", tt.rounds, f, f.Spread())
		}
		if !cmp.Equal(f.Rounds, tt.rounds) {
			t.Errorf("%v: rounds are told as %v", tt.rounds, f.Rounds)
		}
	}
}

func TestReadWrite(t *testing.T) {
	run := &Run{
		Set:     "smoke",
		Limits:  []Limit{{Name: LimitSync, Unit: "s", Figure: FigureOf([]float64{1e-3, 2e-3})}},
		Points:  []Point{{Kind: Speed, Rival: Ckptd, Figures: map[string]Figure{SaveRate: FigureOf([]float64{10, 12})}}},
		Curves:  []Curve{{Over: OverSteps, Points: []CurvePoint{{X: 10, Sampled: true}}}},
		Skipped: []Skip{{"redis", "not installed"}},
	}
	var b bytes.Buffer
	if err := Write(&b, run); err != nil {
		t.Fatal(err)
	}
	got, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(run, got); diff != "" {
		t.Error(diff)
	}
	if limit, ok := got.Limit(LimitSync); !ok || limit.Median != 1.5e-3 {
		t.Errorf("limit %+v, %v", limit, ok)
	}
	if _, err := Read(strings.NewReader(`{"schema":999}`)); !errors.Is(err, ErrSchema) {
		t.Errorf("another schema: %v", err)
	}
}

func TestMeasuresAreNamedOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range Measures() {
		if seen[m.Name] || m.Title == "" {
			t.Errorf("measure %+v", m)
		}
		seen[m.Name] = true
	}
}
