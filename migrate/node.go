package migrate

import (
	"encoding/json"
	"maps"
	"math"
	"math/big"
	"slices"

	"github.com/ckptd/ckptd/internal/weight"
)

// node is a value and where it stands in the bytes that it was decoded from.
type node struct {
	value      any // nil, bool, json.Number, string, []any, map[string]any
	start, end int
	kids       []kid // of an array or an object, in their order
}

// kid is an element of an array, or a member of an object with its key.
type kid struct {
	key      string
	keyStart int // of the element itself in an array
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

// equal reports whether two values mean the same. Numbers are compared as numbers: 1, 1.0 and 1e0 are equal.
func equal(a, b any) bool { return (&comparer{left: math.MaxInt}).equal(a, b) }

// comparer compares values, and encodes those that are as they were with the bytes that they had. What takes more work in
// all than is left counts as different, and is encoded anew.
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
	if c.left -= weight.Flat(a); c.left < 0 { // one of many digits
		return false
	}
	return equalNumbers(a, b)
}

func equalNumbers(a, b any) bool {
	if x, ok := a.(float64); ok && x != x { // no JSON value, but the same twice
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
	// A literal such as 1e999999999 must not be expanded to its digits.
	if len(la) > maxDigits || len(lb) > maxDigits || !modest(la) || !modest(lb) {
		return false
	}
	x, okx := new(big.Rat).SetString(la)
	y, oky := new(big.Rat).SetString(lb)
	return okx && oky && x.Cmp(y) == 0
}

// maxDigits bounds the literals that are compared by value and not by their text.
const maxDigits = 400

// modest reports whether the exponent of a literal is one of a float64.
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

// literal is the JSON text of a number, as steps may return it; not ok if v is none.
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

// clone copies a value, so that a function may change what it is given.
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

// firstDifference is the JSON pointer of a place at which two values differ, "" if that is the top or nowhere.
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
