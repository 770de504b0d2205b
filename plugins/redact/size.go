package redact

import (
	"fmt"
	"regexp/syntax"
)

// The patterns of a configuration run at the expense of whoever redacts for its author. So their
// size is bounded, and the bytes that they examine count in proportion to it.

const (
	maxRules    = 200     // of a configuration
	maxSource   = 4 << 10 // bytes of a pattern
	maxProgram  = 10000   // instructions of all patterns of a configuration
	costlySteps = 64      // instructions that cost as much as a pass of a built-in pattern
)

// budget is the number of instructions left for the patterns of a configuration.
type budget struct{ left int }

// take counts a pattern and returns its cost per byte examined.
func (b *budget) take(pattern string) (cost int, err error) {
	if len(pattern) > maxSource {
		return 0, fmt.Errorf("has %d bytes: use at most %d", len(pattern), maxSource)
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, fmt.Errorf("%w: write it in RE2 syntax", err)
	}
	n := instructions(re)
	if b.left -= n; b.left < 0 {
		return 0, fmt.Errorf("makes all patterns together larger than %d instructions: use fewer repetitions or fewer patterns", maxProgram)
	}
	return 1 + n/costlySteps, nil
}

// instructions estimates the number of instructions that a pattern compiles to, without compiling
// it. It stops counting above the limit of a configuration.
func instructions(re *syntax.Regexp) int {
	n := 1
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpCharClass:
		n += len(re.Rune) / 64 // searched by bisection, but copied
	}
	for _, sub := range re.Sub {
		n = min(n+instructions(sub), maxProgram+1)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1) + 1
	}
	return min(n, maxProgram+1)
}
