package badger

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/backend"
)

// flushed is a store that was killed, with tables of a compaction and, behind them, one that
// was flushed, whose groups the log has.
func flushed(t *testing.T) (dir, flush string, want oracle) {
	t.Helper()
	s := openSmall(t)
	want = oracle{}
	rnd := rand.New(rand.NewPCG(3, 4))
	for i := range 20 {
		want.commit(t, s, fmt.Sprint("old-", i), strings.Repeat("old", 1000))
	}
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := listTables(t, s.dir)
	for i := 0; listTables(t, s.dir) == before; i++ {
		if i == 100 {
			t.Fatal("nothing was flushed")
		}
		value := make([]byte, 150_000) // that does not pack, or a flipped bit can unpack to the same
		for i := range value {
			value[i] = byte(rnd.Uint32())
		}
		want.commit(t, s, fmt.Sprint("new-", i), string(value))
		awaitFlush(t, s)
	}
	want.commit(t, s, "last", "value")
	dir = killed(t, s.dir)
	paths, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(paths) < 2 {
		t.Fatal(paths, err)
	}
	return dir, filepath.Base(paths[len(paths)-1]), want
}

// The MANIFEST names a table that was flushed and is missing, or damaged. The log has its groups,
// so the store is opened without it.
func TestFlushedTableFromTheLog(t *testing.T) {
	base, flush, want := flushed(t)
	for name, damage := range map[string]func(path string) error{
		"missing": os.Remove,
		"cut":     func(path string) error { return os.Truncate(path, 1000) },
		"flipped": func(path string) error { flip(t, path, 5000, 1); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			copyStore(t, base, dir)
			if err := damage(filepath.Join(dir, flush)); err != nil {
				t.Fatal(err)
			}
			d, err := Diagnose(dir, least)
			if err != nil || d.Outcome != OpensRepairs || !strings.Contains(strings.Join(d.Repairs, "; "), flush) {
				t.Errorf("%+v, %v", d, err)
			}
			want.reopen(t, dir)
			want.reopen(t, dir)
		})
	}
}

// Where the log does not continue from an earlier set of tables, or that set has lost tables
// itself, the store is refused and nothing changes.
func TestMissingTableIsRefused(t *testing.T) {
	base, flush, _ := flushed(t)
	remove := func(paths ...string) func(dir string) error {
		return func(dir string) (err error) {
			for _, path := range paths {
				err = errors.Join(err, os.Remove(filepath.Join(dir, path)))
			}
			return err
		}
	}
	segments, err := filepath.Glob(filepath.Join(base, logDir, "*.seg"))
	if err != nil || len(segments) < 3 {
		t.Fatal(segments, err)
	}
	tables, _ := filepath.Glob(filepath.Join(base, "*.sst"))
	oldest := filepath.Join(logDir, filepath.Base(segments[0]))
	for name, damage := range map[string]func(dir string) error{
		"the log begins after it":    remove(flush, oldest),
		"the anchor is gone":         remove(flush, filepath.Join(logDir, "anchor")),
		"one of a compaction":        remove(filepath.Base(tables[0])),
		"one of a compaction, too":   remove(flush, filepath.Base(tables[0])),
		"all of the log but the end": remove(flush, oldest, filepath.Join(logDir, filepath.Base(segments[1]))),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			copyStore(t, base, dir)
			if err := damage(dir); err != nil {
				t.Fatal(err)
			}
			before := contents(t, dir)
			s, err := Open(dir, least)
			if !errors.Is(err, backend.ErrCorrupt) || !strings.Contains(err.Error(), "table is missing") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want ErrCorrupt", err)
			}
			if s != nil {
				s.Close()
			}
			if !maps.Equal(before, contents(t, dir)) {
				t.Error("the directory changed")
			}
		})
	}
}

// Badger fails to sync the MANIFEST after a flush, and removes the table that it names by then. The
// next flush succeeds, and Close with it: the log stays, and from it the store is whole again.
func TestCloseAfterTroubleKeepsTheLog(t *testing.T) {
	s := openSmall(t)
	want := oracle{}
	want.commit(t, s, "a", "1")
	s.log.Errorf("something that Badger only logs")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(s.dir, "*.sst"))
	if err != nil || len(tables) != 1 {
		t.Fatal(tables, err)
	}
	if err := os.Remove(tables[0]); err != nil {
		t.Fatal(err)
	}
	want.reopen(t, s.dir)
}
