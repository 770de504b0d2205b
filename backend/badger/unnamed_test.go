package badger

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/ckptd/ckptd/backend"
)

// The process was killed between a table and its entry in the MANIFEST, and later the log lost its
// end. The table has nothing that the log lacks, and so it is no reason not to accept the loss.
func TestUnnamedTableThatTheLogCovers(t *testing.T) {
	s := openSmall(t)
	want := oracle{}
	for i := range 10 {
		want.commit(t, s, fmt.Sprint("key-", i), "value")
	}
	flushed := killed(t, s.dir)
	again, err := Open(flushed, least)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		write(t, s, fmt.Sprint("later-", i), "value")
	}
	awaitAnchor(t, s)
	dir := withoutEnd(t, killed(t, s.dir), filepath.Join(logDir, s.logs.Segment()))
	if err := os.Rename(filepath.Join(flushed, "000001.sst"), filepath.Join(dir, "000001.sst")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, least); !errors.Is(err, backend.ErrLostCommits) {
		t.Errorf("%v, want ErrLostCommits", err)
	}
	if _, err := AcceptLoss(dir, least); err != nil {
		t.Fatal(err)
	}
	want.reopen(t, dir)
}

// The groups that the log and the tables lack are in a damaged table that an older MANIFEST does
// not name. A loss is not offered, since a salvage finds most of them.
func TestUnnamedTableIsDamaged(t *testing.T) {
	rnd := rand.New(rand.NewPCG(13, 14))
	s := openSmall(t)
	write(t, s, "first", "value")
	err := s.Compact(t.Context())
	manifest, err2 := os.ReadFile(filepath.Join(s.dir, "MANIFEST"))
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	before, _ := filepath.Glob(filepath.Join(s.dir, "*.sst"))
	for i := range 5 {
		write(t, s, fmt.Sprint("key-", i), randomText(rnd, 50_000))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	after, _ := filepath.Glob(filepath.Join(s.dir, "*.sst"))
	if len(after) != len(before)+1 {
		t.Fatal(before, after)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "MANIFEST"), manifest, 0o600); err != nil {
		t.Fatal(err)
	}
	flip(t, after[len(after)-1], 100, 1)
	if _, err := Open(s.dir, least); !errors.Is(err, backend.ErrCorrupt) || errors.Is(err, backend.ErrLostCommits) {
		t.Errorf("%v, want ErrCorrupt", err)
	}
	if a, err := AcceptLoss(s.dir, least); !errors.Is(err, backend.ErrCorrupt) {
		t.Errorf("%v, %v, want ErrCorrupt", a, err)
	}
}
