package report

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/bench/result"
)

func TestCompareSame(t *testing.T) {
	c := Compare(fakeRun(1, 1), fakeRun(2, 1), 0.1)
	if err := c.Err(); err != nil || c.count(Better) > 0 || len(c.Changes) < 100 || len(c.Control) < 100 || len(c.Unlimited)+len(c.Gone)+len(c.Added) > 0 {
		t.Errorf("%v, %d changes, %d of rivals, not compared %v %v %v", err, len(c.Changes), len(c.Control), c.Unlimited, c.Gone, c.Added)
	}
}

// A machine half as fast is not a regression, because its limits are half as well.
func TestCompareSlowMachine(t *testing.T) {
	c := Compare(fakeRun(1, 1), fakeRun(1, 0.5), 0.1)
	if err := c.Err(); err != nil {
		t.Error(err, c.Changes[0])
	}
	// It doesn't hide a regression either.
	slow := fakeRun(1, 2)
	scale(slow, result.Ckptd, result.SaveP50, 1.3)
	if err := Compare(fakeRun(1, 1), slow, 0.1).Err(); !errors.Is(err, ErrRegressed) {
		t.Errorf("30 %% slower on a machine twice as quick: %v", err)
	}
}

func TestCompareVerdicts(t *testing.T) {
	for _, tt := range []struct {
		name, rival, measure string
		by                   float64
		verdict              Verdict
	}{
		{"time", result.Ckptd, result.SaveP50, 1.3, Worse},
		{"rate", result.Ckptd, result.SaveRate, 0.7, Worse},
		{"bytes", result.CkptdWhole, result.DiskPerSave, 1.3, Worse},
		{"less time", result.Ckptd, result.LoadOld, 0.7, Better},
		{"within the threshold", result.Ckptd, result.SaveP50, 1.08, Same},
		{"within the noise", result.Ckptd, result.SaveP50, 1.115, Unsure},
		{"a rival", rawBadger, result.SaveP50, 2, Same},
	} {
		run := fakeRun(1, 1)
		if tt.verdict == Unsure { // one round is as fast as those of the old run
			scale(run, tt.rival, tt.measure, tt.by)
			run.Curves = nil
			for _, p := range run.Points {
				if f, ok := p.Figures[tt.measure]; ok && p.Rival == tt.rival {
					f.Rounds[0] /= 1.3
				}
			}
		} else {
			scale(run, tt.rival, tt.measure, tt.by)
		}
		c := Compare(fakeRun(1, 1), run, 0.1)
		if n := c.count(tt.verdict); n == 0 || tt.verdict == Worse != (c.Err() != nil) {
			t.Errorf("%s: %d are %s, %v", tt.name, n, tt.verdict, c.Err())
		}
		for _, other := range []Verdict{Better, Worse} {
			if n := c.count(other); other != tt.verdict && n > 0 {
				t.Errorf("%s: %d are %s", tt.name, n, other)
			}
		}
	}
}

// The limit of ckptd's own pipeline drops together with ckptd: it must not hide that.
func TestComparePipeline(t *testing.T) {
	old, slow := fakeRun(1, 1), fakeRun(1, 1)
	scale(slow, result.Ckptd, result.SaveRate, 0.7)
	for i, l := range slow.Limits {
		if l.Name == result.LimitPipeline {
			slow.Limits[i].Figure = mapped(l.Figure, func(v float64) float64 { return v * 0.7 })
		}
	}
	worse := map[string]bool{}
	for _, c := range Compare(old, slow, 0.1).Changes {
		if c.Verdict == Worse {
			worse[c.Where] = true
		}
	}
	if !worse["pipeline"] || !worse["durable, chat, 256 writers"] {
		t.Errorf("worse: %v", worse)
	}
	// Without the limit on one side there is no verdict.
	old.Limits = nil
	if c := Compare(old, slow, 0.1); len(c.Unlimited) == 0 {
		t.Error("compared with a limit that was not measured")
	}
}

// If the rivals became slower by as much, it was the machine, in a way that its limits do not show.
func TestCompareControl(t *testing.T) {
	run := fakeRun(1, 1)
	for name := range fakeRivals() {
		scale(run, name, result.SaveP50, 1.3)
	}
	if c := Compare(fakeRun(1, 1), run, 0.1); c.Err() != nil || c.count(Unsure) == 0 {
		t.Errorf("all are slower: %v, %d unsure", c.Err(), c.count(Unsure))
	}
	scale(run, result.Ckptd, result.SaveP50, 1.3)
	if err := Compare(fakeRun(1, 1), run, 0.1).Err(); err == nil {
		t.Error("all are slower, which hides that ckptd is by more")
	}
}

func TestCompareFewRounds(t *testing.T) {
	run := fakeRun(1, 1)
	run.Rounds = 1
	scale(run, result.Ckptd, result.SaveP50, 3)
	for _, p := range run.Points {
		for name, f := range p.Figures {
			one := result.FigureOf(f.Rounds[:1])
			one.Limit, one.Fraction = f.Limit, f.Fraction
			p.Figures[name] = one
		}
	}
	run.Curves = nil
	c := Compare(fakeRun(1, 1), run, 0.1)
	if c.Err() != nil || c.count(Unsure) == 0 || len(c.Gone) == 0 {
		t.Errorf("%v, %d unsure, %d gone", c.Err(), c.count(Unsure), len(c.Gone))
	}
	var b bytes.Buffer
	if err := c.Text(&b, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"do not tell noise from change", "only in the old run", "unsure", "± "} {
		if !strings.Contains(strings.ReplaceAll(b.String(), "\n", " "), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestCompareText(t *testing.T) {
	slow := fakeRun(2, 0.5)
	slow.Machine.Load = 7
	scale(slow, result.Ckptd, result.SaveP50, 1.5)
	c := Compare(fakeRun(1, 1), slow, 0.1)
	var some, all bytes.Buffer
	if err := errors.Join(c.Text(&some, false), c.Text(&all, true)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"worse ✗", "1.5 ×", "fdatasync", "the load was 7"} {
		if !strings.Contains(some.String(), want) {
			t.Errorf("no %q in\n%s", want, some.String())
		}
	}
	if strings.Contains(some.String(), "  same ") || !strings.Contains(all.String(), "  same ") {
		t.Error("unchanged figures are shown only with all")
	}
	if err := c.Text(full{}, false); !errors.Is(err, errFull) {
		t.Errorf("%v", err)
	}
}
