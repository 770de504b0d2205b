package redact

import (
	"fmt"
	"regexp/syntax"
)

// Patterns of a configuration are compiled and run by whoever redacts for its author: how large they may be is bounded,
// and what they look at counts by their size.

const (
	maxRules    = 200     // of one's own
	maxSource   = 4 << 10 // bytes of a pattern
	maxProgram  = 10000   // instructions of all patterns of a configuration
	costlySteps = 64      // instructions that cost as much as a pass of a built-in pattern
)

// budget is how many instructions the patterns of a configuration may still have.
type budget struct{ left int }

// take counts a pattern, and returns what a byte costs that it looks at.
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

// instructions estimates how many instructions a pattern compiles to, without compiling it. What is more than a
// configuration may have is not counted further.
func instructions(re *syntax.Regexp) int {
	n := 1
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpCharClass:
		n += len(re.Rune) / 64 // looked through by halves, but copied
	}
	for _, sub := range re.Sub {
		n = min(n+instructions(sub), maxProgram+1)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1) + 1
	}
	return min(n, maxProgram+1)
}
