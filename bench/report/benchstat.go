package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/ckptd/ckptd/bench/result"
)

// Benchstat writes the points and curves of a run in the format of Go benchmarks, one line per
// round, for benchstat and other tools. A figure without rounds appears once, as its median.
func Benchstat(w io.Writer, run *result.Run) error {
	out := bufio.NewWriter(w)
	system, _, _ := strings.Cut(run.Machine.System, " ")
	goos, goarch, _ := strings.Cut(system, "/")
	fmt.Fprintf(out, "goos: %s\ngoarch: %s\npkg: github.com/ckptd/ckptd/bench\ncpu: %s\n", goos, goarch, run.Machine.CPU)
	for _, m := range result.Measures() {
		if m.More {
			fmt.Fprintf(out, "Unit %s better=higher\n", unitOf(m))
		}
	}
	for _, l := range run.Limits {
		name := "BenchmarkLimit/limit=" + l.Name
		writeRounds(out, name, map[string]result.Figure{"": l.Figure}, []result.Measure{{Name: "", Unit: l.Unit}})
	}
	for _, p := range run.Points {
		kind := map[string]string{result.Speed: "Speed", result.Space: "Space"}[p.Kind]
		name := fmt.Sprintf("Benchmark%s/table=%s/workload=%s/size=%d/rival=%s/writers=%d", kind, p.Table, p.Workload, p.Size, p.Rival, p.Writers)
		if p.Rate > 0 {
			name += fmt.Sprintf("/offered=%g", p.Rate)
		}
		writeRounds(out, name, p.Figures, result.Measures())
	}
	for _, c := range run.Curves {
		for _, p := range c.Points {
			name := fmt.Sprintf("BenchmarkGrowth/over=%s/workload=%s/rival=%s/at=%g", c.Over, c.Workload, c.Rival, p.X)
			writeRounds(out, name, p.Figures, result.Measures())
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("writing the lines for benchstat: %w", err)
	}
	return nil
}

// writeRounds writes a line for each round, with the measures that have a value.
func writeRounds(w *bufio.Writer, name string, figures map[string]result.Figure, measures []result.Measure) {
	name = strings.Join(strings.Fields(name), "_") // a name ends at a space
	lines := 0
	for _, f := range figures {
		lines = max(lines, len(f.Rounds), 1)
	}
	for i := range lines {
		fmt.Fprintf(w, "%s 1", name)
		for _, m := range measures {
			f, ok := figures[m.Name]
			rounds := f.Rounds
			if ok && len(rounds) == 0 {
				rounds = []float64{f.Median}
			}
			if i < len(rounds) {
				fmt.Fprintf(w, " %s %s", strconv.FormatFloat(rounds[i], 'g', -1, 64), unitOf(m))
			}
		}
		w.WriteByte('\n')
	}
}

// unitOf returns a measure as a benchstat unit: "save-p50-sec".
func unitOf(m result.Measure) string {
	unit := m.Unit
	if unit == "s" {
		unit = "sec"
	}
	return strings.Join(slices.DeleteFunc([]string{strings.ReplaceAll(m.Name, ".", "-"), unit}, func(s string) bool { return s == "" }), "-")
}
