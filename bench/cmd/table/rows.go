package main

import (
	"fmt"
	"math"
	"strings"
)

// row is one line of the table: a target, and text around the metrics that show whether it is met.
type row struct {
	what    string
	bench   string // benchmark to run
	unit    string // metric to compare with the target
	atMost  float64
	atLeast float64 // used if atMost is 0
	target  string
	figure  string // template of the figure; {unit} is a metric of the benchmark, {bench:unit} one of another
}

var rows = []row{
	{
		what:  "200 real agent runs, 5,308 checkpoints: data directory after close, keys and indexes included",
		bench: "Import200/via=ckptd", unit: "disk-MB", atMost: 2.65,
		target: "≤ 2.65 MB",
		figure: "{disk-MB} MB, {B/checkpoint} B per checkpoint (SQLite saver {Import200/via=engine:sqlite-disk-MB} MB)",
	},
	{
		what:  "import of the same runs, 16 threads at once, every save durable",
		bench: "Import200/via=engine", unit: "saves/s", atLeast: 8000,
		target: "≥ 8,000 saves/s",
		figure: "{saves/s} saves/s, {Import200/via=ckptd:saves/s} with start, parsing and close of `ckptd import`",
	},
	{
		what:  "peak memory of `ckptd import --cache 64MiB`",
		bench: "Import200/via=ckptd", unit: "rss-MB", atMost: 300,
		target: "≤ 300 MB",
		figure: "{rss-MB} MB",
	},
	{
		what:  "one thread, 1,000 steps, 1 kB per step, final state 1.04 MB: whole directory",
		bench: "Thread1000/hand=full", unit: "ckptd-disk-MB", atMost: 1.2,
		target: "≤ 1.2 MB",
		figure: "{ckptd-disk-MB} MB (SQLite saver {sqlite-disk-MB} MB)",
	},
	{
		what:  "the same: save p50 at step 1,000 ÷ that at step 10, as a splice",
		bench: "Thread1000/hand=splice", unit: "ckptd-last/first", atMost: 1.3,
		target: "≤ 1.3 ×",
		figure: "{ckptd-last/first} ×, {ckptd-first-µs} → {ckptd-last-µs} µs" +
			" (SQLite saver {Thread1000/hand=full:sqlite-first-µs} → {Thread1000/hand=full:sqlite-last-µs} µs)",
	},
	{
		what:  "the same, full state passed in",
		bench: "Thread1000/hand=full", unit: "ckptd-last/first", atMost: 1.3,
		target: "≤ 1.3 ×",
		figure: "{ckptd-last/first} ×, {ckptd-first-µs} → {ckptd-last-µs} µs",
	},
	{
		what:  "one writer, durable, 1 kB change of 100 kB, against a plain synced Badger `Update` of 1 kB",
		bench: "OneWriter", unit: "splice/badger", atMost: 1.25,
		target: "≤ 1.25 × its p50",
		figure: "{splice/badger} ×, {splice-p50-µs} to {badger-p50-µs} µs (full state: {full/badger} ×)",
	},
	{
		what:  "256 writers, 1,024 threads of 100 kB, durable, 1 kB change as a splice, against plain Badger",
		bench: "Writers256", unit: "splice/badger", atLeast: 6,
		target: "≥ 6 ×, 60,000/s",
		figure: "{splice/badger} ×, {splice-saves/s}/s to {badger-saves/s}/s",
	},
	{
		what:  "the same, full state passed in",
		bench: "Writers256", unit: "full/badger", atLeast: 3,
		target: "≥ 3 ×",
		figure: "{full/badger} ×, {full-saves/s}/s",
	},
	{
		what:  "save without commit, 1 kB change of 100 kB, as a splice",
		bench: "Pipeline/hand=splice", unit: "ns/op", atMost: 15_000,
		target: "≤ 15 µs",
		figure: "{ns/op} ns",
	},
	{
		what:  "the same, full state passed in",
		bench: "Pipeline/hand=full", unit: "ns/op", atMost: 40_000,
		target: "≤ 40 µs",
		figure: "{ns/op} ns",
	},
	{
		what:  "allocations of such a save",
		bench: "Pipeline/hand=splice", unit: "allocs/op", atMost: 10,
		target: "≤ 10",
		figure: "{allocs/op} (full state: {Pipeline/hand=full:allocs/op})",
	},
	{
		what:  "load of a 1 MB state, 1,000 steps deep, engine cache cold",
		bench: "LoadCold", unit: "ckptd-p50-ms", atMost: 3,
		target: "≤ 3 ms",
		figure: "{ckptd-p50-ms} ms (SQLite saver {sqlite-p50-ms} ms)",
	},
	{
		what:  "through the daemon on a Unix socket, one client, durable, 1 kB splice of a 100 kB thread, against the same embedded",
		bench: "DaemonOneClient/ids=client", unit: "daemon/embedded", atMost: 1.6,
		target: "≤ 1.6 × its p50",
		figure: "{daemon/embedded} ×, {daemon-p50-µs} to {embedded-p50-µs} µs (with the engine's ids {DaemonOneClient/ids=engine:daemon/embedded} ×)",
	},
	{
		what:  "64 clients of the daemon, durable, clients on the same cores",
		bench: "Daemon64/ids=client", unit: "daemon-saves/s", atLeast: 15_000,
		target: "≥ 15,000 saves/s",
		figure: "{daemon-saves/s} saves/s, p50 {daemon-p50-ms} ms, p99 {daemon-p99-ms} ms" +
			" (with the engine's ids {Daemon64/ids=engine:daemon-saves/s}; embedded {embedded-saves/s})",
	},
	{
		what:  "load of the newest 1 MB state by a client that already has it: bytes on the wire, both ways",
		bench: "DaemonLoadKnown", unit: "wire-B", atMost: 2000,
		target: "≤ 2 kB",
		figure: "{wire-B} B (without it {whole-wire-B} B)",
	},
}

// line returns the row as Markdown.
func (r row) line(results *results) string {
	name, _, _ := strings.Cut(r.bench, "/")
	figure := r.fill(results)
	if value, ok := results.median(r.bench, r.unit); ok && !r.met(value) {
		figure = "✗ " + figure
	}
	return fmt.Sprintf("| %s | %s | %s | `make bench BENCH=%s` |", r.what, figure, r.target, name)
}

func (r row) met(value float64) bool {
	if r.atMost > 0 {
		return value <= r.atMost
	}
	return value >= r.atLeast
}

// fill inserts metrics into the template of the figure.
func (r row) fill(results *results) string {
	if _, ok := results.median(r.bench, r.unit); !ok {
		return "not measured"
	}
	var out strings.Builder
	rest := r.figure
	for {
		before, after, found := strings.Cut(rest, "{")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		name, tail, _ := strings.Cut(after, "}")
		rest = tail
		bench, unit, other := strings.Cut(name, ":")
		if !other {
			bench, unit = r.bench, name
		}
		if value, ok := results.median(bench, unit); ok {
			out.WriteString(format(value))
		} else {
			out.WriteString("?")
		}
	}
}

// format writes a number with three significant digits and thousands separators.
func format(v float64) string {
	switch {
	case v >= 100:
		return thousands(int64(math.Round(v)))
	case v >= 10:
		return trim(fmt.Sprintf("%.1f", v))
	}
	return trim(fmt.Sprintf("%.2f", v))
}

func trim(s string) string { return strings.TrimSuffix(strings.TrimRight(s, "0"), ".") }

func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
