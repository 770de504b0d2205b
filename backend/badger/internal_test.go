package badger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/commitlog"
)

func openSmall(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.TempDir(), Options{MemTableSize: leastMemTable})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func write(t *testing.T, s *Store, key, value string) {
	t.Helper()
	if err := s.Commit(t.Context(), single(key, value)); err != nil {
		t.Fatal(err)
	}
}

func single(key, value string) backend.Batch {
	return backend.Batch{Muts: []backend.Mut{{Key: []byte(key), Value: []byte(value), Version: "v"}}}
}

// After a write that failed nothing is served any more: its data can be visible without being
// durable.
func TestFailStop(t *testing.T) {
	s := openSmall(t)
	write(t, s, "a", "1")
	if err := s.db.Close(); err != nil { // Badger now refuses to write
		t.Fatal(err)
	}
	err := s.Commit(t.Context(), single("b", "1"))
	if !errors.Is(err, backend.ErrAmbiguous) || !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("the failing commit: %v, want ErrAmbiguous and ErrUnavailable", err)
	}
	err = s.Commit(t.Context(), single("c", "1"))
	if !errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrAmbiguous) {
		t.Errorf("a commit after it: %v, want ErrUnavailable alone", err)
	}
	if _, err := s.Get(t.Context(), []byte("a")); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("a get after it: %v", err)
	}
	if _, _, err := s.Scan(t.Context(), backend.Range{}); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("a scan after it: %v", err)
	}
	if err := s.Compact(t.Context()); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("a compaction after it: %v", err)
	}
}

// In a group that fails, a conflict is still a conflict, and everything else is told that it
// failed.
func TestFailStopInAGroup(t *testing.T) {
	s := openSmall(t)
	group := &request{next: &request{err: backend.ErrConflict, next: &request{}}}
	s.commits.fail(group, errors.New("the disk is on fire"))
	for r, want := group, []error{backend.ErrAmbiguous, backend.ErrConflict, backend.ErrAmbiguous}; r != nil; r, want = r.next, want[1:] {
		if !errors.Is(r.err, want[0]) {
			t.Errorf("%v, want %v", r.err, want[0])
		}
	}
	if err := s.usable(); !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "the disk is on fire") {
		t.Errorf("the store says %v", err)
	}
}

// A group is cut where a transaction would be too large, and no batch is split or left behind.
func TestGroupsFitTransactions(t *testing.T) {
	s := openSmall(t)
	var head, last *request
	const n = 40
	for i := range n {
		b := backend.Batch{}
		for k := range backend.MaxBatchKeys {
			b.Muts = append(b.Muts, single(fmt.Sprintf("%02d-%02d", i, k), strings.Repeat("x", i*200)).Muts...)
		}
		r := &request{batch: b, size: cost(&b)}
		if head == nil {
			head = r
		} else {
			last.next = r
		}
		last = r
	}
	s.commits.head, s.commits.tail = head, last
	groups := 0
	for s.commits.head != nil {
		group, size := s.commits.take()
		s.commits.run(group, size)
		for r := group; r != nil; r = r.next {
			if r.err != nil {
				t.Fatal(r.err)
			}
		}
		groups++
	}
	if groups < 5 {
		t.Errorf("%d batches of up to 500 kB went into %d transactions", n, groups)
	}
	for i := range n {
		entries, _, err := s.Scan(t.Context(), backend.Range{
			Start: fmt.Appendf(nil, "%02d-", i), End: fmt.Appendf(nil, "%02d.", i), KeysOnly: true,
		})
		if err != nil || len(entries) != backend.MaxBatchKeys {
			t.Errorf("batch %d has %d keys, %v", i, len(entries), err)
		}
	}
}

// Nor is a group larger than a frame of the log.
func TestLimitIsBelowAFrame(t *testing.T) {
	for _, size := range []int64{leastMemTable, defaultMemTable, 2 << 30} {
		s, err := newStore(t.TempDir(), Options{MemTableSize: size})
		if err != nil {
			t.Fatal(err)
		}
		if s.commits.limit > commitlog.MaxFrame {
			t.Errorf("groups of %d bytes where a memory table has %d", s.commits.limit, size)
		}
	}
}

// The largest transaction that the committer builds must pass Badger, with keys of a byte as with
// large values.
func TestLimitIsBelowBadgers(t *testing.T) {
	for _, size := range []int{0, 100, 16000} {
		s := openSmall(t)
		b := backend.Batch{}
		for i := range backend.MaxBatchKeys {
			b.Muts = append(b.Muts, single(string(rune('0'+i)), strings.Repeat("x", size)).Muts...)
		}
		group := &request{batch: b, size: cost(&b)}
		total := group.size
		for last := group; total+group.size < s.commits.limit; last = last.next {
			next := &request{batch: backend.Batch{}, size: group.size}
			for i := range b.Muts { // Badger keeps one entry of a key, so the keys must differ
				m := b.Muts[i]
				m.Key = fmt.Appendf(nil, "%s%d", m.Key, total)
				next.batch.Muts = append(next.batch.Muts, m)
			}
			next.size = cost(&next.batch)
			total += next.size
			last.next = next
		}
		s.commits.run(group, total)
		for r := group; r != nil; r = r.next {
			if r.err != nil {
				t.Fatalf("values of %d bytes: %v", size, r.err)
			}
		}
	}
}

// No value may go to the value log, not the longest that a batch can carry either.
func TestValueLogStaysEmpty(t *testing.T) {
	s := openSmall(t)
	write(t, s, "k", strings.Repeat("x", backend.MaxBatchBytes-2))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(s.dir, "*.vlog"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("%q, %v", logs, err)
	}
	for _, name := range logs {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > 20 { // its header
			t.Errorf("%s has %d bytes", filepath.Base(name), info.Size())
		}
	}
}

// Versions that compactions kept for a reader in the past lie in the last level, where nothing
// moves by itself.
func TestCompactFindsWhatReadersKept(t *testing.T) {
	s := openSmall(t)
	write(t, s, "over", "old value of over")
	write(t, s, "gone", "old value of gone")
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	reader := s.db.NewTransaction(false)
	write(t, s, "over", "new value")
	del := backend.Batch{Muts: []backend.Mut{{Key: []byte("gone"), Delete: true}}}
	if err := s.Commit(t.Context(), del); err != nil {
		t.Fatal(err)
	}
	flushWithReader(t, s)
	reader.Discard()
	if keys, err := s.superseded(nil); err != nil || len(keys) != 3 { // with the driver's own key
		t.Fatalf("the reader kept %q, %v; want both old values", keys, err)
	}
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if keys, err := s.superseded(nil); err != nil || len(keys) != 0 {
		t.Errorf("left: %q, %v", keys, err)
	}
	got, err := s.Get(t.Context(), []byte("over"), []byte("gone"))
	if err != nil || string(got[0].Value) != "new value" || got[1].Version != "" {
		t.Errorf("%+v, %v", got, err)
	}
}

// flushWithReader moves memory down to the last level while a transaction is open: it writes until
// the memory table is full and has become a table, and compacts that. The last write stays in
// memory; its key is behind the others, so that its table will have no business with theirs.
func flushWithReader(t *testing.T, s *Store) {
	t.Helper()
	for i := range 10 {
		write(t, s, fmt.Sprint("z-", i), strings.Repeat("x", 1<<20-100))
	}
	for deadline := time.Now().Add(10 * time.Second); s.db.Levels()[0].NumTables == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the memory table is not flushed")
		}
	}
	if err := s.db.Flatten(1); err != nil {
		t.Fatal(err)
	}
	if n := s.db.Levels()[0].NumTables; n != 0 {
		t.Fatalf("level 0 still has %d tables", n)
	}
}

func TestSplitRefusesDamage(t *testing.T) {
	for _, tt := range []struct {
		n      byte
		stored string
	}{{0, "value"}, {6, "value"}, {backend.MaxVersion + 1, strings.Repeat("x", 100)}, {1, ""}} {
		if _, _, err := split(tt.n, []byte(tt.stored)); !errors.Is(err, backend.ErrCorrupt) {
			t.Errorf("version of %d in %d bytes: %v", tt.n, len(tt.stored), err)
		}
	}
}

func TestGuard(t *testing.T) {
	call := func() (err error) {
		defer guard("reading", &err)()
		panic("table is\nbroken")
	}
	if err := call(); !errors.Is(err, backend.ErrCorrupt) || !strings.HasSuffix(err.Error(), "reading: table is") {
		t.Errorf("%v", err)
	}
}

// A commit without mutations is not taken for one that holds where those that share its group find
// no room.
func TestConditionsWithoutRoom(t *testing.T) {
	s := openSmall(t)
	write(t, s, "there", "value")
	for key, want := range map[string]error{"there": backend.ErrConflict, "absent": nil} {
		cond := &request{batch: backend.Batch{Conds: []backend.Cond{{Key: []byte(key)}}}, makesRoom: true}
		group := &request{batch: single("key", "value"), next: cond}
		group.size = cost(&group.batch)
		s.commits.space.minFree = 1 << 60
		s.commits.run(group, group.size)
		s.commits.space.minFree = s.opts.MinFree
		if !errors.Is(group.err, backend.ErrNoSpace) || !errors.Is(cond.err, want) {
			t.Errorf("%s: %v, %v", key, group.err, cond.err)
		}
	}
}

// What a process was killed in making is removed when the store is opened, or it would keep room
// that nobody gives up.
func TestUnfinishedBallastGoes(t *testing.T) {
	s := openSmall(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.dir, ballastNew)
	if err := os.WriteFile(path, []byte("not complete"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := least
	o.MinFree = 1 << 60 // no room to make one
	if _, err := Open(s.dir, o); !errors.Is(err, backend.ErrNoSpace) {
		t.Errorf("opening: %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}
