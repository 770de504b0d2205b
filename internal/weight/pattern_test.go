package weight

import (
	"fmt"
	"math/rand/v2"
	"regexp/syntax"
	"runtime"
	"strings"
	"testing"
)

// TestPatternsAreNotExpanded: what a few bytes expand to is known before it is made.
func TestPatternsAreNotExpanded(t *testing.T) {
	for _, pattern := range []string{
		"(?:" + strings.Repeat("a", 3200) + "){1000}", strings.Repeat("a{1000}", 580), strings.Repeat(`\pL{1000}`, 450), strings.Repeat("(a*){1000}", 400),
		"(?:(?:a|bc){30}){30,33}" + strings.Repeat("(?i:[^k]{3,1000}){1}", 200),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		n, _, err := Pattern(pattern)
		runtime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; n != Over || err != nil || allocated > 16<<20 {
			t.Errorf("%.30s… has %d instructions, %v, and %d bytes were allocated to find that out", pattern, n, err, allocated)
		}
	}
	if n, groups, err := Pattern(`(a|b)+c{3,900}`); err != nil || n < 900 || n > 2000 || groups != 2 {
		t.Errorf("%d instructions, %d groups, %v", n, groups, err)
	}
}

// TestExpandedIsNoLess compares what was foreseen with what is compiled.
func TestExpandedIsNoLess(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var random func(depth int) string
	random = func(depth int) string {
		if depth == 0 {
			return []string{"a", "abc", ".", `\pL`, "[a-f]", "^", `\b`, "", "(?i:k)", "é"}[r.IntN(10)]
		}
		part := random(depth - 1)
		switch r.IntN(8) {
		case 0:
			return part + random(depth-1)
		case 1:
			return "(?:" + part + "|" + random(depth-1) + ")"
		case 2:
			return "(" + part + ")"
		case 3:
			return fmt.Sprintf("(?:%s){%d,%d}", part, r.IntN(4), 4+r.IntN(4))
		case 4:
			return fmt.Sprintf("(?:%s){%d,}", part, r.IntN(4))
		default:
			return "(?:" + part + ")" + []string{"*", "+", "?", "*?"}[r.IntN(4)]
		}
	}
	for range 20_000 {
		pattern := random(r.IntN(6))
		re, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			continue
		}
		foreseen := expanded(re)
		prog, err := syntax.Compile(re.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		if len(prog.Inst) > 2*foreseen+8 {
			t.Fatalf("%s: %d instructions, foreseen were %d", pattern, len(prog.Inst), foreseen)
		}
	}
}
