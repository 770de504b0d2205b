// Package backendtest holds the conformance suite that every backend driver passes, and a wrapper
// that makes a backend fail on demand. It is test support: nothing that ships imports it.
package backendtest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/backend"
)

// Run checks a driver against every sentence of the backend contract. open returns a new, empty
// backend each time; Run closes it.
func Run(t *testing.T, open func(t *testing.T) backend.Backend) {
	for _, c := range []struct {
		name string
		test func(s *store)
	}{
		{"Caps", testCaps},
		{"Get", testGet},
		{"GetNeighbours", testGetNeighbours},
		{"Versions", testVersions},
		{"Conditions", testConditions},
		{"ConflictAppliesNothing", testConflictAppliesNothing},
		{"Delete", testDelete},
		{"Ownership", testOwnership},
		{"Limits", testLimits},
		{"Malformed", testMalformed},
		{"ContextEnded", testContextEnded},
		{"ScanBounds", testScanBounds},
		{"ScanPages", testScanPages},
		{"ScanDefaultPage", testScanDefaultPage},
		{"Counter", testCounter},
		{"OneCreatorWins", testOneCreatorWins},
		{"Snapshots", testSnapshots},
		{"Compact", testCompact},
		{"Closed", testClosed},
		{"CloseWaits", testCloseWaits},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(newStore(t, open(t))) })
	}
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("Model/%d", seed), func(t *testing.T) {
			m := newModel(newStore(t, open(t)), seed)
			m.run(1500)
			m.compareAll()
		})
	}
}

// store is a backend under test with the calls that must succeed.
type store struct {
	*testing.T
	backend.Backend
}

func newStore(t *testing.T, b backend.Backend) *store {
	t.Helper()
	t.Cleanup(func() {
		if err := b.Close(); err != nil && !errors.Is(err, backend.ErrClosed) {
			t.Errorf("closing: %v", err)
		}
	})
	return &store{T: t, Backend: b}
}

func put(key, value, version string) backend.Mut {
	return backend.Mut{Key: []byte(key), Value: []byte(value), Version: version}
}

func del(key string) backend.Mut { return backend.Mut{Key: []byte(key), Delete: true} }

func absent(key string) backend.Cond { return backend.Cond{Key: []byte(key)} }

func match(key, version string) backend.Cond {
	return backend.Cond{Key: []byte(key), Version: version}
}

func muts(m ...backend.Mut) backend.Batch { return backend.Batch{Muts: m} }

func (s *store) commit(b backend.Batch) {
	s.Helper()
	if err := s.Commit(s.Context(), b); err != nil {
		s.Fatalf("commit: %v", err)
	}
}

// refused requires a commit to fail with want.
func (s *store) refused(what string, b backend.Batch, want error) {
	s.Helper()
	if err := s.Commit(s.Context(), b); !errors.Is(err, want) {
		s.Errorf("%s: %v, want %v", what, err, want)
	}
}

func (s *store) get(key string) backend.Entry {
	s.Helper()
	entries, err := s.Get(s.Context(), []byte(key))
	if err != nil || len(entries) != 1 {
		s.Fatalf("get %q: %d entries, %v", key, len(entries), err)
	}
	return entries[0]
}

// holds requires a key to have a value and version; an empty version requires it to be absent.
func (s *store) holds(key, value, version string) {
	s.Helper()
	if e := s.get(key); string(e.Value) != value || e.Version != version {
		s.Errorf("%.40q holds %.40q version %q, want %.40q version %q", key, e.Value, e.Version, value, version)
	}
}

// all reads a range to its end and checks that its pages make sense.
func (s *store) all(r backend.Range) []backend.Entry {
	s.Helper()
	var out []backend.Entry
	for {
		page, next, err := s.Scan(s.Context(), r)
		if err != nil {
			s.Fatalf("scan %+v: %v", r, err)
		}
		out = append(out, page...)
		if next == nil {
			return out
		}
		if len(page) == 0 {
			s.Fatalf("scan %+v: an empty page that continues at %q", r, next)
		}
		if bytes.Equal(next, r.Start) && !r.Reverse || bytes.Equal(next, r.End) && r.Reverse {
			s.Fatalf("scan %+v: continues where it began", r)
		}
		if r.Reverse {
			r.End = next
		} else {
			r.Start = next
		}
	}
}

func keysOf(entries []backend.Entry) []string {
	keys := []string{}
	for _, e := range entries {
		keys = append(keys, string(e.Key))
	}
	return keys
}

func testCaps(s *store) {
	before := s.Caps()
	if before.Name == "" {
		s.Error("the driver has no name")
	}
	s.commit(muts(put("a", "1", "v")))
	if after := s.Caps(); after != before {
		s.Errorf("caps changed from %+v to %+v", before, after)
	}
}

func testGet(s *store) {
	s.commit(muts(put("a", "1", "v1"), put("b", "", "v2"), put("c", "3", "v3")))
	ask := [][]byte{[]byte("c"), []byte("x"), []byte("a"), []byte("b"), []byte("c")}
	got, err := s.Get(s.Context(), ask...)
	if err != nil {
		s.Fatal(err)
	}
	want := []string{"c 3 v3", "x  ", "a 1 v1", "b  v2", "c 3 v3"}
	for i, e := range got {
		if line := fmt.Sprintf("%s %s %s", e.Key, e.Value, e.Version); line != want[i] {
			s.Errorf("entry %d is %q, want %q", i, line, want[i])
		}
	}
	if len(got) != len(want) {
		s.Errorf("%d entries for %d keys", len(got), len(want))
	}
	if got, err := s.Get(s.Context()); err != nil || len(got) != 0 {
		s.Errorf("get of no keys: %d entries, %v", len(got), err)
	}

	var many [][]byte
	for i := range 300 {
		key := fmt.Sprintf("many-%03d", i)
		s.commit(muts(put(key, strings.Repeat("x", i), "v")))
		many = append(many, []byte(key))
	}
	got, err = s.Get(s.Context(), many...)
	if err != nil || len(got) != len(many) {
		s.Fatalf("get of %d keys: %d entries, %v", len(many), len(got), err)
	}
	for i, e := range got {
		if len(e.Value) != i || !bytes.Equal(e.Key, many[i]) {
			s.Errorf("entry %d is %q with %d bytes", i, e.Key, len(e.Value))
		}
	}
}

// Keys that differ in their last bytes only are asked for in any order, with gaps of all sizes,
// twice, deleted, overwritten, and missing.
func testGetNeighbours(s *store) {
	rng := rand.New(rand.NewPCG(7, 7))
	key := func(i int) string { return "lineage-" + string([]byte{byte(i >> 8), byte(i)}) }
	want := map[string]string{}
	for i := 0; i < 2000; i += 1 + rng.IntN(1+rng.IntN(80)) {
		s.commit(muts(put(key(i), fmt.Sprint("old ", i), "v1")))
		want[key(i)] = fmt.Sprintf("old %d v1", i)
		switch rng.IntN(4) {
		case 0:
			s.commit(muts(del(key(i))))
			delete(want, key(i))
		case 1:
			s.commit(muts(put(key(i), fmt.Sprint("new ", i), "v2")))
			want[key(i)] = fmt.Sprintf("new %d v2", i)
		}
	}
	s.commit(muts(put("lineage", "shorter", "v"), put("lineage-\x00\x00\x00", "longer", "v")))
	there := slices.Sorted(maps.Keys(want))
	for range 40 {
		var ask [][]byte
		for range 1 + rng.IntN(100) {
			ask = append(ask, []byte(key(rng.IntN(2100))))
		}
		for range 20 {
			ask = append(ask, []byte(there[rng.IntN(len(there))]))
		}
		got, err := s.Get(s.Context(), ask...)
		if err != nil || len(got) != len(ask) {
			s.Fatalf("get of %d keys: %d entries, %v", len(ask), len(got), err)
		}
		for i, e := range got {
			line := ""
			if e.Version != "" {
				line = string(e.Value) + " " + e.Version
			}
			if !bytes.Equal(e.Key, ask[i]) || line != want[string(ask[i])] {
				s.Fatalf("entry %d of %d is %q %q, want %q %q", i, len(ask), e.Key, line, ask[i], want[string(ask[i])])
			}
		}
	}
}

func testVersions(s *store) {
	versions := []string{"1", "\x00", "\x00\x00", "\xff\xfe", "1", strings.Repeat("\x80", backend.MaxVersion), "é"}
	for i, v := range versions {
		value := fmt.Sprint("value ", i)
		s.commit(muts(put("k", value, v), put("empty", "", v)))
		s.holds("k", value, v)
		s.holds("empty", "", v)
		entries := s.all(backend.Range{KeysOnly: true})
		if len(entries) != 2 || entries[1].Version != v || entries[1].Value != nil {
			s.Errorf("keys-only scan gave %+v, want version %q and no value", entries, v)
		}
	}
}

func testConditions(s *store) {
	conflict := func(what string, b backend.Batch) { s.Helper(); s.refused(what, b, backend.ErrConflict) }

	s.commit(backend.Batch{Conds: []backend.Cond{absent("a")}, Muts: []backend.Mut{put("a", "1", "v1")}})
	conflict("absent on a key that exists",
		backend.Batch{Conds: []backend.Cond{absent("a")}, Muts: []backend.Mut{put("a", "2", "v2")}})
	s.holds("a", "1", "v1")

	for _, wrong := range []string{"v", "v11", "v2", "\x00"} {
		conflict("another version",
			backend.Batch{Conds: []backend.Cond{match("a", wrong)}, Muts: []backend.Mut{put("a", "2", "v2")}})
	}
	s.commit(backend.Batch{Conds: []backend.Cond{match("a", "v1")}, Muts: []backend.Mut{put("a", "2", "v2")}})
	s.holds("a", "2", "v2")
	conflict("the version before",
		backend.Batch{Conds: []backend.Cond{match("a", "v1")}, Muts: []backend.Mut{put("a", "3", "v3")}})

	conflict("a version on an absent key",
		backend.Batch{Conds: []backend.Cond{match("x", "v1")}, Muts: []backend.Mut{put("x", "1", "v1")}})
	s.holds("x", "", "")

	// A key that is only read.
	s.commit(backend.Batch{Conds: []backend.Cond{match("a", "v2")}, Muts: []backend.Mut{put("b", "1", "v1")}})
	conflict("a read key changed",
		backend.Batch{Conds: []backend.Cond{match("a", "v1")}, Muts: []backend.Mut{put("b", "2", "v2")}})
	s.commit(backend.Batch{Conds: []backend.Cond{match("a", "v2"), match("b", "v1")}})
	conflict("nothing written", backend.Batch{Conds: []backend.Cond{match("a", "v2"), match("b", "v2")}})
	s.commit(backend.Batch{})

	// The version counts, not the value; a delete makes a key absent.
	s.commit(muts(put("a", "other", "v2")))
	s.commit(backend.Batch{Conds: []backend.Cond{match("a", "v2")}, Muts: []backend.Mut{del("a")}})
	conflict("a deleted key", backend.Batch{Conds: []backend.Cond{match("a", "v2")}})
	s.commit(backend.Batch{Conds: []backend.Cond{absent("a")}, Muts: []backend.Mut{put("a", "new", "v2")}})
	s.commit(backend.Batch{Conds: []backend.Cond{absent("y")}, Muts: []backend.Mut{del("y")}})
	s.commit(muts(put("empty", "", "v1")))
	conflict("an empty value is not an absent one",
		backend.Batch{Conds: []backend.Cond{absent("empty")}, Muts: []backend.Mut{put("empty", "", "v2")}})
}

func testConflictAppliesNothing(s *store) {
	s.commit(muts(put("keep", "1", "v1"), put("drop", "1", "v1"), put("seen", "1", "v1")))
	writes := []backend.Mut{put("keep", "2", "v2"), del("drop"), put("new", "2", "v2")}
	good := []backend.Cond{match("keep", "v1"), match("drop", "v1"), absent("new"), match("seen", "v1")}
	for i := range good {
		conds := slices.Clone(good)
		conds[i].Version = "wrong"
		s.refused(fmt.Sprint("condition ", i), backend.Batch{Conds: conds, Muts: writes}, backend.ErrConflict)
		s.holds("keep", "1", "v1")
		s.holds("drop", "1", "v1")
		s.holds("new", "", "")
	}
	if got := keysOf(s.all(backend.Range{})); !slices.Equal(got, []string{"drop", "keep", "seen"}) {
		s.Errorf("after conflicts the store holds %q", got)
	}
	s.commit(backend.Batch{Conds: good, Muts: writes})
	if got := keysOf(s.all(backend.Range{})); !slices.Equal(got, []string{"keep", "new", "seen"}) {
		s.Errorf("after the commit the store holds %q", got)
	}
}

func testDelete(s *store) {
	s.commit(muts(del("never there")))
	s.commit(muts(put("a", "1", "v"), put("b", "1", "v"), put("c", "1", "v")))
	// What a delete carries besides its key means nothing.
	s.commit(muts(backend.Mut{Key: []byte("b"), Value: []byte("ignored"), Version: "v2", Delete: true}))
	s.holds("b", "", "")
	for _, reverse := range []bool{false, true} {
		got := keysOf(s.all(backend.Range{Reverse: reverse}))
		slices.Sort(got)
		if !slices.Equal(got, []string{"a", "c"}) {
			s.Errorf("after a delete the store holds %q", got)
		}
	}
	// Paging counts what exists, not what was deleted.
	page, next, err := s.Scan(s.Context(), backend.Range{Limit: 2})
	if err != nil || len(page) != 2 || next != nil {
		s.Errorf("a page over a deleted key: %q, next %q, %v", keysOf(page), next, err)
	}
	s.commit(muts(put("b", "2", "v2")))
	s.holds("b", "2", "v2")
}

func testOwnership(s *store) {
	scribble := func(b []byte) {
		for i := range b[:cap(b)] {
			b[:cap(b)][i] = '#'
		}
	}
	check := func() {
		s.Helper()
		s.holds("key-a", "value-a", "v")
		s.holds("key-b", "value-b", "v")
		if got := keysOf(s.all(backend.Range{})); !slices.Equal(got, []string{"key-a", "key-b"}) {
			s.Errorf("the store holds %q", got)
		}
	}
	b := backend.Batch{
		Muts:  []backend.Mut{put("key-a", "value-a", "v"), put("key-b", "value-b", "v")},
		Conds: []backend.Cond{absent("key-a")},
	}
	s.commit(b)
	for _, m := range b.Muts {
		scribble(m.Key)
		scribble(m.Value)
	}
	scribble(b.Conds[0].Key)
	check()

	ask := []byte("key-a")
	entries, err := s.Get(s.Context(), ask, []byte("key-b"))
	if err != nil {
		s.Fatal(err)
	}
	if &entries[0].Key[0] != &ask[0] {
		s.Error("Get returned a key other than the slice it was asked for")
	}
	for _, e := range entries {
		scribble(e.Value)
	}
	check()

	for _, reverse := range []bool{false, true} {
		page, next, err := s.Scan(s.Context(), backend.Range{Reverse: reverse, Limit: 1})
		if err != nil || next == nil {
			s.Fatalf("scan: next %q, %v", next, err)
		}
		want := bytes.Clone(next)
		scribble(page[0].Key)
		scribble(page[0].Value)
		if !bytes.Equal(next, want) {
			s.Error("next shares memory with an entry")
		}
		scribble(next)
		check()
	}
}
