package backendtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ckptd/ckptd/backend"
)

func testLimits(s *store) {
	long := strings.Repeat("\xff", backend.MaxKey)
	version := strings.Repeat("v", backend.MaxVersion)
	s.commit(muts(put(long, "longest", version)))
	s.holds(long, "longest", version)
	s.commit(backend.Batch{
		Conds: []backend.Cond{match(long, version)},
		Muts:  []backend.Mut{put(long[1:], "long", version)},
	})
	// The pages of keys that long follow each other too.
	for _, reverse := range []bool{false, true} {
		if got := s.all(backend.Range{Limit: 1, Reverse: reverse}); len(got) != 2 {
			s.Errorf("scan of two long keys gave %d", len(got))
		}
	}
	s.commit(muts(del(long), del(long[1:])))

	var full []backend.Mut
	for i := range backend.MaxBatchKeys {
		key := fmt.Sprintf("key-%02d", i)
		size := backend.MaxBatchBytes/backend.MaxBatchKeys - len(key) - len(version)
		full = append(full, put(key, strings.Repeat(string(rune('a'+i%26)), size), version))
	}
	s.commit(muts(full...))
	entries := s.all(backend.Range{})
	if len(entries) != len(full) {
		s.Fatalf("a full batch wrote %d of %d keys", len(entries), len(full))
	}
	for i, e := range entries {
		if !bytes.Equal(e.Key, full[i].Key) || !bytes.Equal(e.Value, full[i].Value) {
			s.Errorf("entry %d of a full batch differs", i)
		}
	}
	one := put("one", strings.Repeat("1", backend.MaxBatchBytes-4), "v")
	s.commit(muts(one))
	s.holds("one", string(one.Value), "v")

	before := len(s.all(backend.Range{KeysOnly: true}))
	big := put("two", string(one.Value)+"1", "v")
	for what, b := range map[string]backend.Batch{
		"a key too long":     muts(put("ok", "", "v"), put(long+"k", "", "v")),
		"a version too long": muts(put("ok", "", "v"), put("long version", "", version+"v")),
		"too many keys":      muts(append(full, put("ok", "", "v"))...),
		"too many bytes":     muts(put("ok", "", "v"), big),
	} {
		s.refused(what, b, backend.ErrTooLarge)
		if got := len(s.all(backend.Range{KeysOnly: true})); got != before {
			s.Errorf("%s: refused, and the store went from %d to %d keys", what, before, got)
		}
	}
	if _, err := s.Get(s.Context(), []byte(long+"k")); !errors.Is(err, backend.ErrTooLarge) {
		s.Errorf("get of a key too long: %v", err)
	}
}

func testMalformed(s *store) {
	s.commit(muts(put("there", "1", "v")))
	for what, b := range map[string]backend.Batch{
		"empty key":                   muts(put("ok", "", "v"), put("", "", "v")),
		"empty version":               muts(put("ok", "", "v"), put("a", "", "")),
		"key written twice":           muts(put("ok", "", "v"), put("a", "1", "v"), put("a", "2", "v")),
		"key written and deleted":     muts(put("ok", "", "v"), del("ok")),
		"absent, not written":         {Conds: []backend.Cond{absent("a")}, Muts: []backend.Mut{put("ok", "", "v")}},
		"empty key in a condition":    {Conds: []backend.Cond{match("", "v")}, Muts: []backend.Mut{put("ok", "", "v")}},
		"two conditions on one key":   {Conds: []backend.Cond{match("there", "v"), match("there", "v")}},
		"malformed before conflicted": {Conds: []backend.Cond{match("there", "w")}, Muts: []backend.Mut{put("", "", "v")}},
	} {
		s.refused(what, b, backend.ErrInvalid)
	}
	if got := keysOf(s.all(backend.Range{})); len(got) != 1 {
		s.Errorf("after malformed batches the store holds %q", got)
	}
	if _, err := s.Get(s.Context(), []byte("there"), nil); !errors.Is(err, backend.ErrInvalid) {
		s.Errorf("get of an empty key: %v", err)
	}
	for _, r := range []backend.Range{{Limit: -1}, {Bytes: -1}} {
		if _, _, err := s.Scan(s.Context(), r); !errors.Is(err, backend.ErrInvalid) {
			s.Errorf("scan %+v: %v", r, err)
		}
	}
}

func testContextEnded(s *store) {
	s.commit(muts(put("a", "1", "v1")))
	why := errors.New("the caller left")
	ctx, cancel := context.WithCancelCause(s.Context())
	cancel(why)
	if err := s.Commit(ctx, muts(put("a", "2", "v2"))); !errors.Is(err, context.Canceled) {
		s.Errorf("commit: %v", err)
	}
	s.holds("a", "1", "v1")
	if _, err := s.Get(ctx, []byte("a")); !errors.Is(err, context.Canceled) {
		s.Errorf("get: %v", err)
	}
	if _, _, err := s.Scan(ctx, backend.Range{}); !errors.Is(err, context.Canceled) {
		s.Errorf("scan: %v", err)
	}
}

func testClosed(s *store) {
	s.commit(muts(put("a", "1", "v")))
	caps := s.Caps()
	if err := s.Close(); err != nil {
		s.Fatalf("closing: %v", err)
	}
	s.refused("commit", muts(put("a", "2", "v")), backend.ErrClosed)
	if _, err := s.Get(s.Context(), []byte("a")); !errors.Is(err, backend.ErrClosed) {
		s.Errorf("get: %v", err)
	}
	if _, _, err := s.Scan(s.Context(), backend.Range{}); !errors.Is(err, backend.ErrClosed) {
		s.Errorf("scan: %v", err)
	}
	if c, ok := s.Backend.(backend.Compactor); ok {
		if err := c.Compact(s.Context()); !errors.Is(err, backend.ErrClosed) {
			s.Errorf("compact: %v", err)
		}
	}
	if err := s.Close(); !errors.Is(err, backend.ErrClosed) {
		s.Errorf("second close: %v", err)
	}
	if s.Caps() != caps {
		s.Error("caps changed with Close")
	}
}
