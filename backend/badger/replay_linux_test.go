package badger

import (
	"os"
	"path/filepath"
	"testing"
)

// A process is killed after it wrote a transaction to its log and before it synced it. The next one
// shows it, so by then it is durable, and in a table: a log whose sync failed looks like one that
// was synced.
func TestReplayIsDurableBeforeItIsSeen(t *testing.T) {
	const replayed = "written and not synced"
	old := openSmall(t)
	write(t, old, "a", "1")
	writeUnsynced(t, old, "b", replayed)
	dir := killed(t, old.dir)

	s, err := Open(dir, Options{MemTableSize: leastMemTable})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := s.Get(t.Context(), []byte("a"), []byte("b"))
	if err != nil || string(got[0].Value) != "1" || string(got[1].Value) != replayed {
		t.Fatalf("%q, %v", got, err)
	}
	if n := newestMemory(t, dir); n != 1 { // Badger counts on from the files that it finds
		t.Errorf("memory file %d is written to, so those before it are still replayed", n)
	}
	if stat, tables := pagesOf(t, dir, "*.sst"); stat.Dirty+stat.Writeback != 0 {
		t.Errorf("%d pages of %q are not on the device", stat.Dirty+stat.Writeback, tables)
	}
}

// The same holds for the list of tables, whose end may be in memory alone: tables that it does not
// name are removed.
func TestManifestIsDurableBeforeItIsUsed(t *testing.T) {
	old := openSmall(t)
	write(t, old, "a", "1")
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	dir := killed(t, old.dir)
	path := filepath.Join(dir, "MANIFEST")
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir, Options{MemTableSize: leastMemTable})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if after, err := os.Stat(path); err != nil || os.SameFile(before, after) {
		t.Errorf("it was not written anew: %v", err)
	}
	if got, err := s.Get(t.Context(), []byte("a")); err != nil || string(got[0].Value) != "1" {
		t.Errorf("%q, %v", got, err)
	}

	dir = killed(t, old.dir)
	if err := settleManifest(dir); err != nil {
		t.Fatal(err)
	}
	if stat, _ := pagesOf(t, dir, "MANIFEST"); stat.Dirty+stat.Writeback != 0 {
		t.Errorf("%d pages are not on the device", stat.Dirty+stat.Writeback)
	}
}
