package main

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// results are benchmark metrics by name (without "Benchmark" and the number of threads) and unit.
type results struct {
	cpu    string
	values map[metric][]float64
}

type metric struct{ bench, unit string }

// median returns the median of a metric over its runs; ok is false if there is none.
func (r *results) median(bench, unit string) (value float64, ok bool) {
	list := slices.Sorted(slices.Values(r.values[metric{bench, unit}]))
	if len(list) == 0 {
		return 0, false
	}
	return list[len(list)/2], true
}

var threads = regexp.MustCompile(`-\d+$`)

// parse reads the output of go test -bench.
func parse(r io.Reader) (*results, error) {
	found := &results{cpu: "an unknown processor", values: map[metric][]float64{}}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if cpu, ok := strings.CutPrefix(line, "cpu: "); ok {
			found.cpu = cpu
		}
		if err := found.add(line); err != nil {
			return nil, err
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(found.values) == 0 {
		return nil, fmt.Errorf("no benchmark result in the output")
	}
	return found, nil
}

// add parses a line "BenchmarkName/sub=x-2  100  1.5 unit  2 unit". It ignores other lines.
func (r *results) add(line string) error {
	fields := strings.Fields(line)
	name, ok := strings.CutPrefix(line, "Benchmark")
	if !ok || len(fields) < 4 || len(fields)%2 != 0 {
		return nil
	}
	name, _, _ = strings.Cut(name, "\t")
	name = threads.ReplaceAllString(strings.TrimSpace(name), "")
	for i := 2; i < len(fields); i += 2 {
		value, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return fmt.Errorf("reading %q: %w", line, err)
		}
		key := metric{name, fields[i+1]}
		r.values[key] = append(r.values[key], value)
	}
	return nil
}
