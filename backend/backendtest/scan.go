package backendtest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/ckptd/ckptd/backend"
)

// scanKeys are in order, and hold what sorts wrongly when a driver escapes, terminates or
// interprets keys.
var scanKeys = []string{
	"\x00", "\x00\x00", "\x00\x01", "\x00\xff", "!badger!", "A", "a", "a\x00", "a\x00b", "aa", "ab", "b", "b\xff",
	"b\xff\x00", "b\xff\xff", "é", "\xff", "\xff\x00", "\xff\xff", "\xff\xff\xff",
}

func (s *store) fill(keys []string) {
	shuffled := slices.Clone(keys)
	for i := range shuffled { // a fixed shuffle: 7 has no factor in common with the counts used here
		shuffled[i] = keys[i*7%len(keys)]
	}
	for i, k := range shuffled {
		s.commit(muts(put(k, "value of "+k, fmt.Sprint("v", i))))
	}
}

// within is what a scan of sorted keys must give.
func within(keys []string, r backend.Range) []string {
	out := []string{}
	for _, k := range keys {
		if k >= string(r.Start) && (len(r.End) == 0 || k < string(r.End)) {
			out = append(out, k)
		}
	}
	if r.Reverse {
		slices.Reverse(out)
	}
	return out
}

func testScanBounds(s *store) {
	if got, next, err := s.Scan(s.Context(), backend.Range{}); err != nil || len(got) != 0 || next != nil {
		s.Errorf("scan of an empty store: %d entries, next %q, %v", len(got), next, err)
	}
	s.fill(scanKeys)
	bounds := append(slices.Clone(scanKeys), "", "\x00\x00\x00", "aaa", "c", "\xfe", "\xff\xff\xff\xff")
	for _, start := range bounds {
		for _, end := range bounds {
			for _, reverse := range []bool{false, true} {
				r := backend.Range{Start: []byte(start), End: []byte(end), Reverse: reverse}
				if got, want := keysOf(s.all(r)), within(scanKeys, r); !slices.Equal(got, want) {
					s.Errorf("scan [%q, %q) reverse %v gave %q, want %q", start, end, reverse, got, want)
				}
			}
		}
	}
	for _, e := range s.all(backend.Range{}) {
		if string(e.Value) != "value of "+string(e.Key) || e.Version == "" {
			s.Errorf("%q holds %q version %q", e.Key, e.Value, e.Version)
		}
	}
}

func testScanPages(s *store) {
	s.fill(scanKeys)
	whole := backend.Range{}
	inner := backend.Range{Start: []byte("\x00\x00"), End: []byte("\xff")}
	for _, r := range []backend.Range{whole, inner} {
		for _, r.Reverse = range []bool{false, true} {
			for _, r.KeysOnly = range []bool{false, true} {
				for limit := range len(scanKeys) + 2 {
					for _, size := range []int{0, 1, 13, 40, 100, 10_000} {
						r.Limit, r.Bytes = limit, size
						s.checkPages(r)
					}
				}
			}
		}
	}
}

// checkPages follows a range page by page: each as long as the limits allow, next where the
// following one starts.
func (s *store) checkPages(r backend.Range) {
	s.Helper()
	first, want := r, within(scanKeys, r)
	for len(want) > 0 {
		page, next, err := s.Scan(s.Context(), r)
		if err != nil {
			s.Fatalf("scan %+v: %v", r, err)
		}
		n := pageLen(want, r)
		if got := keysOf(page); !slices.Equal(got, want[:n]) {
			s.Fatalf("a page of %+v gave %q, want %q", first, got, want[:n])
		}
		for _, e := range page {
			if r.KeysOnly != (e.Value == nil) || e.Version == "" {
				s.Fatalf("scan %+v: %q has value %q and version %q", r, e.Key, e.Value, e.Version)
			}
		}
		want = want[n:]
		if (next == nil) != (len(want) == 0) {
			s.Fatalf("scan %+v: %d entries are left and next is %q", first, len(want), next)
		}
		if r.Reverse {
			r.End = next
		} else {
			r.Start = next
		}
	}
}

// pageLen is how many of the keys belong on the page of a small store.
func pageLen(keys []string, r backend.Range) int {
	size := 0
	for i, k := range keys {
		size += len(k)
		if !r.KeysOnly {
			size += len("value of " + k)
		}
		if i+1 == r.Limit || r.Bytes > 0 && size >= r.Bytes {
			return i + 1
		}
	}
	return len(keys)
}

// testScanDefaultPage reads more than a driver puts on a page, with values of very different sizes.
func testScanDefaultPage(s *store) {
	const n = 3000
	var batch []backend.Mut
	for i := range n {
		size := 10
		if i%500 == 0 {
			size = 300_000
		}
		batch = append(batch, put(fmt.Sprintf("key-%04d", i), strings.Repeat("x", size), "v"))
		if len(batch) == 50 {
			s.commit(muts(batch...))
			batch = nil
		}
	}
	for _, r := range []backend.Range{{}, {KeysOnly: true}, {Limit: n}, {Bytes: 1 << 19}, {Reverse: true}} {
		got := s.all(r)
		if len(got) != n {
			s.Errorf("scan %+v gave %d of %d", r, len(got), n)
		}
		inOrder := slices.IsSortedFunc(got, func(a, b backend.Entry) int {
			if r.Reverse {
				a, b = b, a
			}
			return bytes.Compare(a.Key, b.Key)
		})
		if !inOrder {
			s.Errorf("scan %+v is out of order", r)
		}
	}
	page, next, err := s.Scan(s.Context(), backend.Range{Limit: n})
	if err != nil || len(page) != n || next != nil {
		s.Errorf("one page of %d: %d entries, next %q, %v", n, len(page), next, err)
	}
}
