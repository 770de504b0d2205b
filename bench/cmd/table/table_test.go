package main

import (
	"strings"
	"testing"
)

const output = `goos: linux
goarch: amd64
pkg: github.com/ckptd/ckptd/bench
cpu: A Processor
BenchmarkOneWriter-2   	       3	        60.00 badger-p50-µs	       1.100 splice/badger	        66.00 splice-p50-µs	       1.5 full/badger
BenchmarkOneWriter-2   	       3	        70.00 badger-p50-µs	       1.300 splice/badger	        91.00 splice-p50-µs	       1.5 full/badger
BenchmarkOneWriter-2   	       3	        65.00 badger-p50-µs	       1.200 splice/badger	        78.00 splice-p50-µs	       1.5 full/badger
BenchmarkPipeline/hand=splice-2         	    1000	     15001 ns/op	    2000 B/op	      9 allocs/op
PASS
`

func TestTable(t *testing.T) {
	found, err := parse(strings.NewReader(output))
	if err != nil {
		t.Fatal(err)
	}
	if found.cpu != "A Processor" {
		t.Errorf("cpu %q", found.cpu)
	}
	lines := map[string]string{}
	for _, r := range rows {
		lines[r.bench+" "+r.unit] = r.line(found)
	}
	for key, want := range map[string]string{
		"OneWriter splice/badger":        "| 1.2 ×, 78 to 65 µs (full state: 1.5 ×) | ≤ 1.25 × its p50 | `make bench BENCH=OneWriter` |",
		"Pipeline/hand=splice ns/op":     "| ✗ 15,001 ns | ≤ 15 µs |",
		"Pipeline/hand=splice allocs/op": "| 9 (full state: ?) | ≤ 10 |",
		"Writers256 splice/badger":       "| not measured | ≥ 6 ×",
	} {
		if !strings.Contains(lines[key], want) {
			t.Errorf("%s:\n got %s\nwant %s", key, lines[key], want)
		}
	}
}

func TestParseRefusesNothing(t *testing.T) {
	for _, text := range []string{"", "PASS\n", "BenchmarkX-2 1 abc ns/op\n"} {
		if _, err := parse(strings.NewReader(text)); err == nil {
			t.Errorf("%q gives no error", text)
		}
	}
}

func TestMet(t *testing.T) {
	for _, tt := range []struct {
		row   row
		value float64
		want  bool
	}{
		{row{atMost: 3}, 3, true},
		{row{atMost: 3}, 3.01, false},
		{row{atLeast: 3}, 3, true},
		{row{atLeast: 3}, 2.99, false},
	} {
		if got := tt.row.met(tt.value); got != tt.want {
			t.Errorf("%+v met by %v: %v", tt.row, tt.value, got)
		}
	}
}

func TestFormat(t *testing.T) {
	for v, want := range map[float64]string{
		0.5: "0.5", 1.204: "1.2", 2: "2", 10: "10", 12.34: "12.3", 99.96: "100", 520.4: "520", 5308: "5,308", 76000: "76,000", 1234567: "1,234,567",
	} {
		if got := format(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}
