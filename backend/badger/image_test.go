package badger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/commitlog"
)

// killed is a copy of a store as a process leaves it that is killed now: in memory, and not on the
// device. It is made anew when Badger compacts tables meanwhile. Nothing may be flushed.
func killed(t *testing.T, dir string) string {
	t.Helper()
	for {
		before, left := listTables(t, dir), t.TempDir()
		copyStore(t, dir, left)
		if before == listTables(t, dir) {
			return left
		}
	}
}

// listTables changes when tables do.
func listTables(t *testing.T, dir string) string {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join(dir, "MANIFEST"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	names, err := filesIn(dir, ".sst")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x %q", manifest, names)
}

// copyStore copies a directory. Of memory files, which end in holes, it copies the written part and
// a bit more.
func copyStore(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // made ready meanwhile, and renamed
		}
		rel, _ := filepath.Rel(from, path)
		if err == nil && strings.HasPrefix(rel, ballastName) {
			return nil // to be quick
		}
		if err != nil || d.IsDir() {
			return errors.Join(err, os.MkdirAll(filepath.Join(to, rel), 0o700))
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if strings.HasSuffix(path, memorySuffix) {
			b = b[:min(len(b), used(b)+100)]
		}
		return errors.Join(err, os.WriteFile(filepath.Join(to, rel), b, 0o600))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// used is how many bytes come before zeros alone.
func used(b []byte) int {
	for n := len(b); n > 0; n-- {
		if b[n-1] != 0 {
			return n
		}
	}
	return 0
}

// oracle is the expected content of a store.
type oracle map[string]string

// commit writes a value and remembers it.
func (o oracle) commit(t *testing.T, s *Store, key, value string) {
	t.Helper()
	write(t, s, key, value)
	o[key] = value
}

// differs says how a store differs from the expected content, "" if it does not. May lists keys
// that it can hold in addition.
func (o oracle) differs(s *Store, may ...string) string {
	have := map[string]string{}
	for r := (backend.Range{Limit: 10_000}); ; {
		page, next, err := s.Scan(context.Background(), r)
		if err != nil {
			return err.Error()
		}
		for _, e := range page {
			if !slices.Contains(may, string(e.Key)) {
				have[string(e.Key)] = string(e.Value)
			}
		}
		if r.Start = next; next == nil {
			break
		}
	}
	for _, key := range slices.Sorted(maps.Keys(o)) {
		if got, ok := have[key]; !ok {
			return fmt.Sprintf("%s is missing, of %d keys %d are there", key, len(o), len(have))
		} else if got != o[key] {
			return fmt.Sprintf("%s has another value", key)
		}
	}
	if len(have) != len(o) {
		return fmt.Sprintf("%d keys are there, of %d", len(have), len(o))
	}
	return ""
}

// reopen opens a directory, and compares.
func (o oracle) reopen(t *testing.T, dir string, may ...string) {
	t.Helper()
	s, err := Open(dir, Options{MemTableSize: leastMemTable})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if diff := o.differs(s, may...); diff != "" {
		t.Fatal(diff)
	}
	for _, left := range []string{asideDir, asideNew, keptDir, keptNew} {
		if _, err := os.Lstat(filepath.Join(dir, left)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left, %v", left, err)
		}
	}
}

// crashed is the directory of a store that was killed, with some values in a table, and some in the
// log and in a memory file, among these new ones of keys that are in the table. All that is in the
// log is in one segment.
func crashed(t *testing.T) (dir, segment string, o oracle) {
	t.Helper()
	s := openSmall(t)
	o = oracle{}
	for i := range 20 {
		o.commit(t, s, fmt.Sprintf("key-%02d", i), strings.Repeat(fmt.Sprint("old", i), 20))
	}
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(s.dir, "000002.sst")); err != nil {
		return crashed(t) // Badger compacted once more, and tests name the table
	}
	for i := 10; i < 30; i++ { // with a key that every group writes, so that their order matters
		key, value, counter := fmt.Sprintf("key-%02d", i), strings.Repeat(fmt.Sprint("new", i), 40), fmt.Sprint(i)
		b := single(key, value)
		b.Muts = append(b.Muts, single("counter", counter).Muts...)
		if err := s.Commit(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		o[key], o["counter"] = value, counter
	}
	awaitAnchor(t, s)
	return killed(t, s.dir), filepath.Join(logDir, s.logs.Segment()), o
}

// awaitAnchor waits until the anchor says that all was acknowledged.
func awaitAnchor(t *testing.T, s *Store) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		l, err := commitlog.Open(commitlog.Dir(filepath.Join(s.dir, logDir)), commitlog.Options{Store: s.claim.id})
		if err == nil {
			if p, ok := l.Anchor(); ok && p == s.logs.Last() {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the anchor does not move: %v", err)
		}
	}
}

// contents reads a directory, to see that nothing in it changes.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if strings.HasPrefix(d.Name(), ballastName) {
			return nil
		}
		if d.Type() == fs.ModeSymlink {
			if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
				out[path] = "a link that leads nowhere"
				return nil
			} else if err == nil && info.IsDir() {
				maps.Copy(out, contents(t, path+string(filepath.Separator)))
				return nil
			}
		}
		b, err := os.ReadFile(path)
		out[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func flip(t *testing.T, path string, at int, bit byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= bit
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// writeUnsynced does the part of a commit before the sync.
func writeUnsynced(t *testing.T, s *Store, key, value string) {
	t.Helper()
	group := &request{batch: single(key, value)}
	group.size = cost(&group.batch)
	txn := s.db.NewTransaction(true)
	defer txn.Discard()
	defer s.commits.release()
	if err := errors.Join(s.commits.build(txn, group), group.err); err != nil {
		t.Fatal(err)
	}
	pos, err := s.logs.Prepare(&s.commits.frame, 1)
	if err != nil {
		t.Fatal(err)
	}
	err = txn.Set(positionName, appendPosition(nil, pos))
	if err := errors.Join(err, s.logs.Write(&s.commits.frame), txn.Commit()); err != nil {
		t.Fatal(err)
	}
}
