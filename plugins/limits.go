package plugins

import (
	"cmp"
	"fmt"
	"time"

	"github.com/ckptd/ckptd/hook"
)

// Limits bound a plugin. Sizes are in bytes. A zero field means the default.
type Limits struct {
	Binary int64 // size of the module
	Memory int64 // size of a guest's memory
	Input  int64 // size of a payload
	Output int64 // size of an output; if 0, four times the input plus 64 KiB, at most 64 MiB

	Fuel uint64 // of a call, and of the initialization; four to ten per nanosecond (docs/metering.md)

	Call    time.Duration // of a call, once it has its slot
	Init    time.Duration // of _initialize and ckptd_configure
	Compile time.Duration

	LogLines, LogLine int // log lines per call, and bytes per line
}

// DefaultLimits returns the limits that zero fields stand for.
func DefaultLimits() Limits {
	return Limits{
		Binary: 16 << 20, Memory: 128 << 20, Input: 32 << 20, Output: 64 << 20, Fuel: 1e10,
		Call: 2 * time.Second, Init: time.Second, Compile: 20 * time.Second, LogLines: 64, LogLine: 1 << 10,
	}
}

// HardLimits returns the upper bound of every field.
func HardLimits() Limits {
	return Limits{
		Binary: 64 << 20, Memory: 1 << 30, Input: 256 << 20, Output: 256 << 20, Fuel: 1e12,
		Call: time.Minute, Init: 10 * time.Second, Compile: 2 * time.Minute, LogLines: 1000, LogLine: 16 << 10,
	}
}

// Check reports a field that is negative or above its hard limit, as a *hook.Error of the kind
// ErrLimit.
func (l Limits) Check() error {
	h := HardLimits()
	for _, f := range []struct {
		name      string
		got, most int64
		unit      string
	}{
		{"binary", l.Binary, h.Binary, " bytes"}, {"memory", l.Memory, h.Memory, " bytes"},
		{"input", l.Input, h.Input, " bytes"}, {"output", l.Output, h.Output, " bytes"},
		{"log_lines", int64(l.LogLines), int64(h.LogLines), ""}, {"log_line", int64(l.LogLine), int64(h.LogLine), " bytes"},
	} {
		if f.got < 0 || f.got > f.most {
			return limitError("the limit %s of %d is not between 0 and %d%s", f.name, f.got, f.most, f.unit)
		}
	}
	for _, f := range []struct {
		name      string
		got, most time.Duration
	}{
		{"call", l.Call, h.Call}, {"init", l.Init, h.Init}, {"compile", l.Compile, h.Compile},
	} {
		if f.got < 0 || f.got > f.most {
			return limitError("the limit %s of %v is not between 0 and %v", f.name, f.got, f.most)
		}
	}
	if l.Fuel > h.Fuel {
		return limitError("the limit fuel of %d is above %d", l.Fuel, h.Fuel)
	}
	return nil
}

func limitError(format string, args ...any) error {
	return &hook.Error{Kind: hook.ErrLimit, Reason: fmt.Sprintf(format, args...)}
}

// orDefault fills in the defaults, except for Output, which depends on the input.
func (l Limits) orDefault() Limits {
	d := DefaultLimits()
	return Limits{
		Binary: cmp.Or(l.Binary, d.Binary), Memory: cmp.Or(l.Memory, d.Memory), Input: cmp.Or(l.Input, d.Input), Output: l.Output,
		Fuel: cmp.Or(l.Fuel, d.Fuel), Call: cmp.Or(l.Call, d.Call), Init: cmp.Or(l.Init, d.Init), Compile: cmp.Or(l.Compile, d.Compile),
		LogLines: cmp.Or(l.LogLines, d.LogLines), LogLine: cmp.Or(l.LogLine, d.LogLine),
	}
}

// output returns the output limit of a call with an input of the given size.
func (l Limits) output(input int) int64 {
	if l.Output > 0 {
		return l.Output
	}
	return min(DefaultLimits().Output, 4*int64(input)+64<<10)
}
