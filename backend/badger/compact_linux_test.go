package badger

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ckptd/ckptd/backend"
)

// tearManifest writes a part of an entry to the MANIFEST as Badger does on a full device: the next
// entry follows it.
func tearManifest(t *testing.T, dir string) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	want, _ := filepath.EvalSymlinks(filepath.Join(dir, "MANIFEST"))
	for _, e := range fds {
		path, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || path != want {
			continue
		}
		var fd int
		fmt.Sscan(e.Name(), &fd)
		if _, err := syscall.Write(fd, []byte{0, 0, 0, 50, 1, 2, 3, 4, 5, 6, 7}); err != nil { // of 58 bytes
			t.Fatal(err)
		}
		return
	}
	t.Fatal("no MANIFEST is open")
}

// Badger failed to write an entry of its MANIFEST, and only logged it. A table that it flushed
// since is named behind the torn entry. A compaction must not open Badger, which would lose that
// table, and then erase the log that has its groups.
func TestCompactAfterTornManifest(t *testing.T) {
	rnd := rand.New(rand.NewPCG(11, 12))
	s := openSmall(t)
	want := oracle{}
	want.commit(t, s, "first", "value")
	s.log.Warningf("While running doCompact: %v\n", syscall.ENOSPC)
	tearManifest(t, s.dir)
	before := listTables(t, s.dir)
	for i := 0; listTables(t, s.dir) == before; i++ {
		want.commit(t, s, fmt.Sprint("key-", i), randomText(rnd, 150_000))
		awaitFlush(t, s)
	}
	if err := s.Compact(t.Context()); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
	if diff := want.differs(s); diff != "" {
		t.Errorf("the store was to stay open: %s", diff)
	}
	want.reopen(t, killed(t, s.dir))
}

// Badger logs an error while a compaction closes it. The compaction does not open it again.
func TestCompactAfterTroubleInClosing(t *testing.T) {
	var s *Store
	closing := func() { s.flushes.trouble.Store(true) }
	o := least
	o.Log = slog.New(onMessage{slog.DiscardHandler, "Lifetime L0 stalled", closing}) // Badger's message when it is closed
	s, err := Open(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	want := oracle{}
	want.commit(t, s, "key", "value")
	if err := s.Compact(t.Context()); !errors.Is(err, backend.ErrUnavailable) || s.db != nil {
		t.Errorf("%v, want ErrUnavailable", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	want.reopen(t, s.dir)
}

// An error that Badger logs while it opens counts: it compacts tables by then.
func TestTroubleWhileOpening(t *testing.T) {
	var s *Store
	o := least
	o.Log = slog.New(onMessage{slog.DiscardHandler, "All ", func() { s.flushes.trouble.Store(true) }}) // "tables opened"
	s, err := newStore(t.TempDir(), o)
	if err == nil {
		err = s.start(s.settings(), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !s.flushes.trouble.Load() {
		t.Error("it was forgotten")
	}
	if err := s.stopBadger(); err != nil {
		t.Error(err)
	}
}

// Badger failed to write an entry of its MANIFEST, and compacted tables later: they are named behind
// the torn entry, and the tables named before it are gone. Nothing is lost.
func TestOpenAfterTornManifest(t *testing.T) {
	rnd := rand.New(rand.NewPCG(11, 12))
	s := openSmall(t)
	want := oracle{}
	for i := range 20 {
		want.commit(t, s, fmt.Sprint("key-", i), randomText(rnd, 1500))
	}
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.log.Warningf("While running doCompact: %v\n", syscall.ENOSPC)
	tearManifest(t, s.dir)
	before := listTables(t, s.dir)
	for i := 0; listTables(t, s.dir) == before; i++ {
		want.commit(t, s, fmt.Sprint("key-", i), randomText(rnd, 150_000))
		awaitFlush(t, s)
	}
	if err := s.flattenLevels(); err != nil {
		t.Fatal(err)
	}
	dir := killed(t, s.dir)
	if d, err := Diagnose(dir, least); err != nil || d.Outcome != OpensRepairs {
		t.Errorf("%+v, %v, want a repair", d, err)
	}
	want.reopen(t, dir)
}
