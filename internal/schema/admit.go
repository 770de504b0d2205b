package schema

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/ckptd/ckptd/internal/weight"
)

// maxDigits bounds a number in characters.
const maxDigits = 400

// admit checks the numbers of a value, and returns its weight and its depth of nesting. The library
// converts numbers to fractions: one far outside the range of float64 would use up all memory, or
// become a nil pointer.
func admit(v any) (size, depth int, err error) {
	switch v := v.(type) {
	case map[string]any:
		size = 1 + len(v)
		for name, e := range v {
			n, deep, err := admit(e)
			if err != nil {
				return 0, 0, within(name, err)
			}
			size, depth = size+n, max(depth, deep)
		}
	case []any:
		size = 1
		for i, e := range v {
			n, deep, err := admit(e)
			if err != nil {
				return 0, 0, within(strconv.Itoa(i), err)
			}
			size, depth = size+n, max(depth, deep)
		}
	case json.Number:
		if !modest(string(v)) {
			return 0, 0, &Error{Reason: fmt.Sprintf("the number %.40s is out of range and cannot be checked", v)}
		}
		size = 1
	default:
		size = weight.Flat(v)
	}
	return size, depth + 1, nil
}

func within(name string, err error) error {
	e := err.(*Error)
	return &Error{Path: "/" + escaped(name) + e.Path, Reason: e.Reason}
}

// modest reports whether a number is short and about as large as a float64 can be.
func modest(number string) bool {
	if len(number) > maxDigits {
		return false
	}
	f, _, err := big.ParseFloat(number, 10, 64, big.ToNearestEven)
	if err != nil || f.IsInf() {
		return false
	}
	if f.Sign() == 0 { // truly, and not because it is so small
		digits, _, _ := strings.Cut(strings.ToLower(number), "e")
		return strings.Trim(digits, "-0.") == ""
	}
	exponent := f.MantExp(nil)
	return exponent > -1100 && exponent < 1100
}
