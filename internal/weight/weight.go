// Package weight estimates the work that a value or a pattern of a caller can cause, before it is
// used.
//
// Values of JSON that a program built may share their parts: forty arrays, each of the one before
// twice, are forty pieces of memory and 2^40 values to walk. A weight is that of the walk.
package weight

import (
	"encoding/json"
	"math"
	"math/big"
	"regexp/syntax"
)

// MaxDepth is the maximum nesting of a value: a little more than that of a JSON text, since
// documents have states within them. A deeper value could overflow the stack of a walk, which no
// program survives.
const MaxDepth = 10_050

// Over is the weight of a value over a limit: of limited weights, and of sums and products too
// large to count.
const Over = math.MaxInt

const (
	// stringUnit is the number of bytes of a string that count as one step, and about the memory of
	// a value.
	stringUnit = 16
	// member is the weight of a member of an object in addition to its value.
	member = 3
)

// Of is the number of steps of a walk through v, Over if there are more than most or v is nested
// too deep. A step is a value, or 16 bytes of a string; a member of an object takes a few. A number
// of many digits takes the square of their number.
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

// Flat is the weight of a value without the values in it.
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

// Pattern is the number of instructions of a regular expression, each of which may look at every
// byte of a text, and the number of its groups. One with more than anybody needs has Over, without
// being compiled.
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

// expanded is the approximate number of instructions that an expression compiles to: at least half
// of them.
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

// JSON is the maximum number of values in a JSON text, and of objects among them: every value but
// the first follows a bracket or a comma.
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
