// Package weight tells how much work a value or a pattern of a caller can make, before anything is done with it.
//
// Values of JSON that a program built may share their parts: forty arrays, each of the one before twice, are forty
// pieces of memory and 2^40 values to whoever walks them. A weight is that of the walk.
package weight

import (
	"encoding/json"
	"math"
	"math/big"
	"regexp/syntax"
)

// MaxDepth is how deep a value may be nested: a little more than a JSON text may be, since documents have states within
// them. What is deeper could take all the stack of whoever walks it, which no program survives.
const MaxDepth = 10_050

// Over is the weight of what is over a limit: of weights that were limited, and of sums and products too large to count.
const Over = math.MaxInt

const (
	// stringUnit is how many bytes of a string are one step, and about what a value takes in memory.
	stringUnit = 16
	// member is what a member of an object takes beside its value.
	member = 3
)

// Of is how many steps a walk through v takes, Over if there are more than most or v is nested too deep. A step is
// a value, or 16 bytes of a string; a member of an object takes a few. A number of many digits takes the square of their number.
func Of(v any, most int) int {
	s := scale{left: most}
	if !s.add(v, 0) {
		return Over
	}
	return most - s.left
}

type scale struct{ left int }

func (s *scale) add(v any, depth int) bool {
	if s.left -= Flat(v); s.left < 0 || depth > MaxDepth {
		return false
	}
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if !s.add(e, depth+1) {
				return false
			}
		}
	case map[string]any:
		for k, e := range v {
			s.left -= member + len(k)/stringUnit
			if !s.add(e, depth+1) {
				return false
			}
		}
	}
	return true
}

// Flat is the weight of a value without what is in it.
func Flat(v any) int {
	switch v := v.(type) {
	case string:
		return 1 + len(v)/stringUnit
	case json.Number:
		return 1 + Times(len(v), len(v))/(stringUnit*stringUnit)
	case *big.Int:
		words := v.BitLen() / 64
		return Plus(1, Times(words, words))
	}
	return 1
}

// Plus adds weights.
func Plus(weights ...int) int {
	sum := 0
	for _, w := range weights {
		if sum += w; sum < 0 || w == Over {
			return Over
		}
	}
	return sum
}

// Times multiplies two weights.
func Times(a, b int) int {
	if a != 0 && b > Over/a {
		return Over
	}
	return a * b
}

// maxInstructions bounds a regular expression: a few bytes of one can stand for millions.
const maxInstructions = 1 << 17

// Pattern is how many instructions a regular expression has, each of which may look at every byte of a text, and how
// many groups. One that has more than anybody needs has Over, and is not compiled to find out.
func Pattern(pattern string) (instructions, groups int, err error) {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, 0, err
	}
	if expanded(re) > maxInstructions {
		return Over, re.MaxCap(), nil
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return 0, 0, err
	}
	return len(prog.Inst), prog.NumCap / 2, nil
}

// expanded is about how many instructions an expression is compiled to: no less than half of them.
func expanded(re *syntax.Regexp) int {
	n := max(1, len(re.Sub))
	for _, sub := range re.Sub {
		n = Plus(n, expanded(sub))
	}
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpCapture, syntax.OpStar:
		n = Plus(n, 1)
	case syntax.OpRepeat:
		n = Times(n, max(re.Min, re.Max, 1))
	}
	return n
}

// JSON is how many values a JSON text has at most, and how many of them are objects: every value but the first stands behind a
// bracket or a comma.
func JSON(text []byte) (values, objects int) {
	values = 1
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{':
			values++
			objects++
		case '[', ',':
			values++
		}
	}
	return values, objects
}
