// Package alike measures how much of two texts is the same: most of two consecutive states of an
// agent is. It compares whole words at a time, because it runs on whole states at each save.
package alike

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// step is how much bytes.Equal, which is the quickest, is handed at a time.
const step = 4096

// Prefix is the length of the longest common prefix of a and b.
func Prefix(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for i+step <= n && bytes.Equal(a[i:i+step], b[i:i+step]) {
		i += step
	}
	for ; i+8 <= n; i += 8 {
		if x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// Suffix is the length of the longest common suffix of a and b.
func Suffix(a, b []byte) int {
	n := min(len(a), len(b))
	a, b = a[len(a)-n:], b[len(b)-n:]
	i := 0
	for i+step <= n && bytes.Equal(a[n-i-step:n-i], b[n-i-step:n-i]) {
		i += step
	}
	for ; i+8 <= n; i += 8 {
		if x := binary.LittleEndian.Uint64(a[n-i-8:]) ^ binary.LittleEndian.Uint64(b[n-i-8:]); x != 0 {
			return i + bits.LeadingZeros64(x)/8
		}
	}
	for i < n && a[n-1-i] == b[n-1-i] {
		i++
	}
	return i
}
