package badger

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file of a store that was killed is cut short, or removed, or replaced by an older version. The
// store is complete, or refused.
func TestChangedFiles(t *testing.T) {
	s := openSmall(t)
	want := oracle{}
	fill := func(tag string) {
		for i := range 20 {
			want.commit(t, s, fmt.Sprintf("key-%02d", i), strings.Repeat(tag, 50))
			want.commit(t, s, fmt.Sprintf("key-%s-%02d", tag, i), tag)
		}
		awaitAnchor(t, s)
	}
	fill("one")
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	fill("two")
	older := killed(t, s.dir)
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	fill("three")
	base := killed(t, s.dir)

	rnd := rand.New(rand.NewPCG(31, 32))
	opened, refused := 0, 0
	try := func(what, name string, change func(path string) error) {
		t.Helper()
		dir := t.TempDir()
		copyStore(t, base, dir)
		if err := change(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir, Options{MemTableSize: leastMemTable})
		if err != nil {
			refused++
			if !damageError(err) {
				t.Errorf("%s %s: %v", name, what, err)
			}
			return
		}
		defer s.Close()
		opened++
		if diff := want.differs(s); diff != "" {
			t.Errorf("%s %s: %s", name, what, diff)
		}
	}
	err := filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "LOCK" {
			return err
		}
		name, err := filepath.Rel(base, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		try("removed", name, os.Remove)
		for _, size := range []int64{0, rnd.Int64N(info.Size() + 1), max(0, info.Size()-1-rnd.Int64N(100))} {
			try(fmt.Sprintf("cut to %d of %d", size, info.Size()), name, func(path string) error { return os.Truncate(path, size) })
		}
		old, err := os.ReadFile(filepath.Join(older, name))
		if err == nil {
			try("replaced", name, func(path string) error { return os.WriteFile(path, old, 0o600) })
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d opened, %d refused", opened, refused)
}
