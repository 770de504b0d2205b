package migrate

import (
	"encoding/json"
	"maps"
	"math"
	"math/big"
	"slices"

	"github.com/ckptd/ckptd/internal/weight"
)

// node is a value and its position in the bytes that it was decoded from.
type node struct {
	value      any // nil, bool, json.Number, string, []any, map[string]any
	start, end int
	kids       []kid // of an array or an object, in order
}

// kid is an element of an array, or a member of an object with its key.
type kid struct {
	key      string
	keyStart int // in an array, start of the element itself
	node
}

// at finds a member of an object.
func (n *node) at(key string) *node {
	for i := range n.kids {
		if n.kids[i].key == key {
			return &n.kids[i].node
		}
	}
	return nil
}

// equal reports whether two values are semantically equal. Numbers are compared as numbers: 1, 1.0
// and 1e0 are equal.
func equal(a, b any) bool { return (&comparer{left: math.MaxInt}).equal(a, b) }

// comparer compares values and encodes unchanged ones with their original bytes. Once the work
// exceeds left, values count as different and are encoded again.
type comparer struct{ left, depth int }

func (c *comparer) equal(a, b any) bool {
	if c.left--; c.left < 0 || c.depth > weight.MaxDepth {
		return false
	}
	c.depth++
	same := c.equalParts(a, b)
	c.depth--
	return same
}

func (c *comparer) equalParts(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		c.left -= len(a)
		for k, v := range a {
			w, ok := b[k]
			if !ok || !c.equal(v, w) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, c.equal)
	case string:
		c.left -= len(a) / inArray
		b, ok := b.(string)
		return ok && a == b
	case nil, bool:
		switch b.(type) {
		case nil, bool:
			return a == b
		}
		return false
	}
	if c.left -= weight.Flat(a); c.left < 0 { // it has many digits
		return false
	}
	return equalNumbers(a, b)
}

func equalNumbers(a, b any) bool {
	if x, ok := a.(float64); ok && x != x { // not a JSON value, but the same both times
		y, ok := b.(float64)
		return ok && y != y
	}
	la, oka := literal(a)
	lb, okb := literal(b)
	if !oka || !okb {
		return false
	}
	if la == lb {
		return true
	}
	// Never expand a literal such as 1e999999999 to its digits.
	if len(la) > maxDigits || len(lb) > maxDigits || !modest(la) || !modest(lb) {
		return false
	}
	x, okx := new(big.Rat).SetString(la)
	y, oky := new(big.Rat).SetString(lb)
	return okx && oky && x.Cmp(y) == 0
}

// maxDigits bounds the literals that are compared by value rather than as text.
const maxDigits = 400

// modest reports whether a float64 could have the exponent of a literal.
func modest(literal string) bool {
	f, _, err := big.ParseFloat(literal, 10, 64, big.ToNearestEven)
	if err != nil {
		return false
	}
	if f.Sign() == 0 {
		return true
	}
	exp := f.MantExp(nil)
	return exp > -1100 && exp < 1100
}

// literal returns the JSON text of a number, in any of the types that steps may return. It is not
// ok if v isn't a number.
func literal(v any) (string, bool) {
	switch v := v.(type) {
	case json.Number:
		return string(v), true
	case *big.Int:
		return v.String(), true
	case int, int64, uint64, float64:
		b, err := json.Marshal(v)
		return string(b), err == nil
	}
	return "", false
}

// clone copies a value, so that a function can modify its input.
func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := maps.Clone(v)
		for k := range m {
			m[k] = clone(m[k])
		}
		return m
	case []any:
		s := slices.Clone(v)
		for i := range s {
			s[i] = clone(s[i])
		}
		return s
	}
	return v
}

// firstDifference returns the JSON pointer of a position at which two values differ, or "" if that
// is the root or they are equal.
func firstDifference(a, b any) string {
	path, _ := difference(a, b)
	return path
}

func difference(a, b any) (path string, differ bool) {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok {
			return "", true
		}
		for _, k := range slices.Sorted(maps.Keys(a)) {
			w, ok := b[k]
			if path, differ := difference(a[k], w); differ || !ok {
				return "/" + escapePointer(k) + path, true
			}
		}
		for _, k := range slices.Sorted(maps.Keys(b)) {
			if _, ok := a[k]; !ok {
				return "/" + escapePointer(k), true
			}
		}
		return "", false
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return "", true
		}
		for i := range a {
			if path, differ := difference(a[i], b[i]); differ {
				return "/" + itoa(i) + path, true
			}
		}
		return "", false
	}
	return "", !equal(a, b)
}
