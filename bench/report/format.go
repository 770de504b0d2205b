package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/ckptd/ckptd/bench/result"
)

// value formats a figure in the unit of its measure, with three significant digits.
func value(v float64, unit string) string {
	switch unit {
	case "s":
		for _, u := range []struct {
			name string
			size float64
		}{{"s", 1}, {"ms", 1e-3}, {"µs", 1e-6}} {
			if math.Abs(v) >= u.size {
				return digits(v/u.size) + " " + u.name
			}
		}
		return digits(v*1e9) + " ns"
	case "B":
		return inBytes(v)
	case "B/s":
		return inBytes(v) + "/s"
	case "saves/s":
		return digits(v) + "/s"
	}
	return digits(v)
}

func inBytes(v float64) string {
	for _, u := range []struct {
		name string
		size float64
	}{{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}} {
		if math.Abs(v) >= u.size {
			return digits(v/u.size) + " " + u.name
		}
	}
	return digits(v) + " B"
}

// tick formats a round value for an axis, where there is little room.
func tick(v float64, unit string) string {
	if unit == "s" || unit == "B" || unit == "B/s" {
		return value(v, unit)
	}
	rate := strings.TrimPrefix(unit, "saves")
	for _, u := range []struct {
		name string
		size float64
	}{{"G", 1e9}, {"M", 1e6}, {"k", 1e3}} {
		if v >= u.size {
			return digits(v/u.size) + u.name + rate
		}
	}
	return digits(v) + rate
}

// times formats a ratio.
func times(v float64) string { return digits(v) + " ×" }

func percent(v float64) string { return digits(v*100) + " %" }

// digits formats a number with three significant digits and thousands separators.
func digits(v float64) string {
	switch size := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case size >= 99.95:
		return thousands(int64(math.Round(v)))
	case size >= 9.995:
		return trim(fmt.Sprintf("%.1f", v))
	case size >= 0.1 || size == 0:
		return trim(fmt.Sprintf("%.2f", v))
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

func trim(s string) string {
	if !strings.Contains(s, ".") {
		return s
	}
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

func thousands(n int64) string {
	sign := ""
	if n < 0 {
		sign, n = "-", -n
	}
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// spread formats the range of a figure's rounds.
func spread(f result.Figure, unit string) string {
	if f.Min == f.Max {
		return "–"
	}
	return value(f.Min, unit) + " … " + value(f.Max, unit)
}

// place describes a point without its rival: "chat 100 kB, 64 writers".
func place(p result.Point) string {
	s := state(p.Workload, p.Size)
	if p.Kind == result.Space {
		return s
	}
	s += ", " + counted(p.Writers, "writer")
	if p.Rate > 0 {
		s += fmt.Sprintf(", %s offered", value(p.Rate, "saves/s"))
	}
	return s
}

// state describes a workload and the size of its states.
func state(workload string, size int) string {
	if size == 0 {
		return workload
	}
	return workload + " " + inBytes(float64(size))
}

// over formats a position on a curve.
func over(what string, x float64) string {
	if what == result.OverSize {
		return inBytes(x)
	}
	return digits(x)
}
