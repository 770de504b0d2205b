package badger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/badger/v4/y"
	"google.golang.org/protobuf/proto"

	"github.com/ckptd/ckptd/backend"
)

// expectRefused wants Open and Diagnose to refuse a store that would open without some of its data.
func expectRefused(t *testing.T, dir string) {
	t.Helper()
	if d, err := Diagnose(dir, least); err != nil || d.Outcome != OpensNot {
		t.Errorf("%+v, %v, want a refusal", d, err)
	}
	s, err := Open(dir, least)
	if s != nil {
		s.Close()
	}
	if !errors.Is(err, backend.ErrCorrupt) {
		t.Errorf("%v, want ErrCorrupt", err)
	}
}

// No log has the data of a salvaged store, so a table of it that is missing or damaged cannot be
// left out, whether the store was opened since or not.
func TestSalvagedTablesAreNotLeftOut(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	s := openSmall(t)
	for i := range 120 { // several memory tables
		write(t, s, fmt.Sprintf("key-%03d", i), randomText(rnd, 150_000))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, used := range []bool{false, true} {
		_, s := salvaged(t, s.dir)
		if used {
			write(t, s, "later", "value")
		}
		dir := killed(t, s.dir)
		tables, _ := filepath.Glob(filepath.Join(dir, "*.sst"))
		if len(tables) < 2 {
			t.Fatal(tables)
		}
		for _, table := range tables {
			for name, damage := range map[string]func(path string) error{
				"missing": os.Remove,
				"cut":     func(path string) error { return os.Truncate(path, 1000) },
			} {
				t.Run(fmt.Sprint(used, " ", name, " ", filepath.Base(table)), func(t *testing.T) {
					dir := damaged(t, dir, func(dir string) error { return damage(filepath.Join(dir, filepath.Base(table))) })
					expectRefused(t, dir)
				})
			}
		}
	}
}

// A damaged table has groups that the log lost with its end, and the anchor is behind. The table
// still says how far it goes, so the store is not opened without them.
func TestDamagedTableBeyondTheLog(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10))
	s := openSmall(t)
	write(t, s, "first", "value")
	awaitAnchor(t, s)
	anchor, err := os.ReadFile(filepath.Join(s.dir, logDir, "anchor"))
	if err != nil {
		t.Fatal(err)
	}
	before := listTables(t, s.dir)
	for i := 0; listTables(t, s.dir) == before; i++ {
		if i == 100 {
			t.Fatal("nothing was flushed")
		}
		write(t, s, fmt.Sprint("key-", i), randomText(rnd, 150_000))
		awaitFlush(t, s)
	}
	dir := killed(t, s.dir)
	segments, _ := filepath.Glob(filepath.Join(dir, logDir, "*.seg"))
	memory, _ := filepath.Glob(filepath.Join(dir, "*.mem"))
	for _, path := range append(memory, segments[2:]...) {
		err = errors.Join(err, os.Remove(path))
	}
	err = errors.Join(err, os.WriteFile(filepath.Join(dir, logDir, "anchor"), anchor, 0o600))
	tables, _ := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) != 1 {
		t.Fatal(tables, err)
	}
	flip(t, tables[0], 5000, 1)
	expectRefused(t, dir)
}

// A table of an earlier set was removed, and its number given to another one. The earlier set is
// not there any more.
func TestTableNumberGivenAgain(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"000001.sst", "000002.sst", "000003.sst", "000008.sst"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	create := func(id uint64) *pb.ManifestChange {
		return &pb.ManifestChange{Id: id, Op: pb.ManifestChange_CREATE}
	}
	content := append([]byte{}, manifestHeader...)
	for _, change := range []*pb.ManifestChange{
		create(1), create(8), {Id: 8, Op: pb.ManifestChange_DELETE}, create(2), create(3), create(8),
	} {
		content = appendManifest(t, content, change)
	}
	for _, set := range tableSets(content, inDir(dir)) {
		_, two := set.tables[2]
		if _, eight := set.tables[8]; eight && !two {
			t.Errorf("a set of %d tables has the new table 8", len(set.tables))
		}
	}
}

// An entry that was written in part is left out, however much of it there is, and a flipped bit
// makes no entry look like that.
func TestTornManifestEntry(t *testing.T) {
	create := func(ids ...uint64) (changes []*pb.ManifestChange) {
		for _, id := range ids {
			changes = append(changes, &pb.ManifestChange{Id: id, Op: pb.ManifestChange_CREATE})
		}
		return changes
	}
	before := appendManifest(t, appendManifest(t, slices.Clone(manifestHeader)), create(1)...)
	entry := appendManifest(t, nil, create(2, 3, 4, 5, 6)...)
	after := appendManifest(t, appendManifest(t, nil, create(7)...), create(8, 9, 10, 11, 12, 13, 14, 15)...)
	for n := 1; n < len(entry); n++ {
		if got := withoutTorn(slices.Concat(before, entry[:n], after)); !bytes.Equal(got, slices.Concat(before, after)) {
			t.Errorf("%d of %d bytes: %x", n, len(entry), got)
		}
	}
	whole := slices.Concat(before, entry, after)
	if got := withoutTorn(whole); got != nil {
		t.Errorf("nothing is torn: %x", got)
	}
	for at := manifestHead; at < len(whole); at++ {
		for bit := range 8 {
			b := slices.Clone(whole)
			b[at] ^= 1 << bit
			if got := withoutTorn(b); got != nil {
				t.Errorf("bit %d of byte %d: %x", bit, at, got)
			}
		}
	}
	for n := len(before); n < len(whole); n++ {
		if got := withoutTorn(whole[:n]); got != nil {
			t.Errorf("cut after %d bytes: %x", n, got)
		}
	}
}

// Damage makes an entry look as if it had been written in part. The table that it named is there, and
// no log has its groups, so the store is not opened without it.
func TestTornEntryOfATable(t *testing.T) {
	dir, before, _ := twoTables(t)
	s, err := Open(dir, least)
	if err != nil {
		t.Fatal(err)
	}
	write(t, s, "third", "value")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "MANIFEST")
	whole, err := os.ReadFile(path)
	if err != nil || !bytes.HasPrefix(whole, before) {
		t.Fatal(err)
	}
	_, second, ok := manifestChanges(whole, len(before))
	if !ok || second == len(whole) {
		t.Fatal("no two tables were flushed since")
	}
	torn := slices.Concat(whole[:len(before)+10], whole[second:])
	if withoutTorn(torn) == nil {
		t.Fatal("it does not look like that")
	}
	if err := os.WriteFile(path, torn, 0o600); err != nil {
		t.Fatal(err)
	}
	expectRefused(t, dir)
}

func appendManifest(t *testing.T, to []byte, changes ...*pb.ManifestChange) []byte {
	t.Helper()
	b, err := proto.Marshal(&pb.ManifestChangeSet{Changes: changes})
	if err != nil {
		t.Fatal(err)
	}
	to = binary.BigEndian.AppendUint32(to, uint32(len(b)))
	to = binary.BigEndian.AppendUint32(to, crc32.Checksum(b, y.CastagnoliCrcTable))
	return append(to, b...)
}

// After a loss was accepted, tables have positions of the life before. A table that was flushed
// since is replaced from the log all the same.
func TestFlushedTableAfterAcceptedLoss(t *testing.T) {
	base, segment, _ := crashed(t)
	dir := withoutEnd(t, base, segment)
	if _, err := AcceptLoss(dir, least); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir, least)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	rnd := rand.New(rand.NewPCG(7, 8))
	before := listTables(t, dir)
	for i := 0; listTables(t, dir) == before; i++ {
		if i == 100 {
			t.Fatal("nothing was flushed")
		}
		write(t, s, fmt.Sprint("new-", i), randomText(rnd, 150_000))
		awaitFlush(t, s)
	}
	write(t, s, "last", "value")
	dir = killed(t, dir)
	tables, _ := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err := os.Remove(tables[len(tables)-1]); err != nil {
		t.Fatal(err)
	}
	d, err := Diagnose(dir, least)
	if err != nil || d.Outcome != OpensRepairs {
		t.Errorf("%s, %v, %s", d.Outcome, d.Err, strings.Join(d.Repairs, "; "))
	}
}

// A salvaged store is cleanly closed, so its tables and its anchor are all there is. A flipped bit
// in the anchor leaves no older position, from which an empty store would do.
func TestSalvagedAnchor(t *testing.T) {
	base, _, _ := crashed(t)
	to := filepath.Join(t.TempDir(), "new")
	if _, err := Salvage(base, to, least); err != nil {
		t.Fatal(err)
	}
	for slot := range 2 {
		expectRefused(t, damaged(t, to, func(dir string) (err error) {
			flip(t, filepath.Join(dir, logDir, "anchor"), slot*4096+30, 1)
			tables, _ := filepath.Glob(filepath.Join(dir, "*.sst"))
			for _, path := range tables {
				err = errors.Join(err, os.Remove(path))
			}
			return err
		}))
	}
}
