package contain

import (
	"bytes"
	"strconv"
)

// equalNumbers compares two JSON numbers by value, exactly. Numbers with an exponent of more than
// 18 digits equal only those with the same spelling.
func equalNumbers(a, b []byte) bool {
	x, ok := parseNumber(a)
	y, also := parseNumber(b)
	if !ok || !also {
		return bytes.Equal(a, b)
	}
	return x.negative == y.negative && x.exponent == y.exponent && bytes.Equal(x.digits, y.digits)
}

// number is 0.digits × 10^exponent. The digits neither begin nor end with 0; those of zero are
// empty.
type number struct {
	negative bool
	digits   []byte
	exponent int64
}

func parseNumber(b []byte) (n number, ok bool) {
	if b[0] == '-' {
		n.negative, b = true, b[1:]
	}
	exponent := "0"
	if i := bytes.IndexAny(b, "eE"); i >= 0 {
		b, exponent = b[:i], string(b[i+1:])
	}
	whole, fraction, _ := bytes.Cut(b, []byte("."))
	n.digits = append(append(make([]byte, 0, len(b)), whole...), fraction...)
	n.exponent = int64(len(whole))
	significant := bytes.TrimLeft(n.digits, "0")
	n.exponent -= int64(len(n.digits) - len(significant))
	if n.digits = bytes.TrimRight(significant, "0"); len(n.digits) == 0 {
		return number{}, true
	}
	e, err := strconv.ParseInt(exponent, 10, 64)
	n.exponent += e
	return n, err == nil && e > -1e18 && e < 1e18
}
