package badger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/ckptd/ckptd/backend"
)

// spread is a closed store whose one table has many blocks, and an oracle of it. Keys that were
// deleted are not in it.
func spread(t *testing.T) (dir string, o oracle) {
	t.Helper()
	s := openSmall(t)
	o = oracle{}
	rnd := rand.New(rand.NewPCG(41, 42))
	for i := range 100 {
		o.commit(t, s, fmt.Sprintf("key-%03d", i), randomText(rnd, 2000))
	}
	for i := range 10 {
		key := fmt.Sprintf("key-%03d", 10*i)
		if err := s.Commit(t.Context(), backend.Batch{Muts: []backend.Mut{{Key: []byte(key), Delete: true}}}); err != nil {
			t.Fatal(err)
		}
		delete(o, key)
	}
	if err := s.Compact(t.Context()); err != nil { // so that the log has nothing of it
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return s.dir, o
}

func randomText(rnd *rand.Rand, size int) string {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return string(b)
}

func TestSalvage(t *testing.T) {
	crashedDir, segment, crashedWant := crashed(t)
	spreadDir, spreadWant := spread(t)
	tables, _ := filepath.Glob(filepath.Join(spreadDir, "*.sst"))
	if len(tables) != 1 {
		t.Fatalf("tables: %q", tables)
	}
	name, size := filepath.Base(tables[0]), len(contents(t, spreadDir)[tables[0]])
	for what, tt := range map[string]struct {
		base   string
		want   oracle
		least  int // keys that are left of it
		change func(t *testing.T, dir string)
		says   string
	}{
		"nothing wrong": {crashedDir, crashedWant, len(crashedWant), func(*testing.T, string) {}, ""},
		"a table": {spreadDir, spreadWant, 70, func(t *testing.T, dir string) {
			flip(t, filepath.Join(dir, name), 100_000, 1)
		}, name + ": 1 of "},
		"the first block": {spreadDir, spreadWant, 80, func(t *testing.T, dir string) {
			flip(t, filepath.Join(dir, name), 40, 1)
		}, name + ": 1 of "},
		"the last block": {spreadDir, spreadWant, 80, func(t *testing.T, dir string) {
			flip(t, filepath.Join(dir, name), size-4000, 1)
		}, name + ": 1 of "},
		"the index of a table": {spreadDir, spreadWant, 0, func(t *testing.T, dir string) {
			flip(t, filepath.Join(dir, name), size-50, 1)
		}, name + ": its index is damaged"},
		"a table that is gone": {crashedDir, crashedWant, 21, func(t *testing.T, dir string) {
			os.Remove(filepath.Join(dir, "000002.sst"))
		}, "the table is missing"},
		"the MANIFEST": {crashedDir, crashedWant, len(crashedWant), func(t *testing.T, dir string) {
			os.WriteFile(filepath.Join(dir, "MANIFEST"), []byte("what"), 0o600)
		}, "the MANIFEST cannot be read"},
		"no log": {crashedDir, crashedWant, len(crashedWant), func(t *testing.T, dir string) {
			os.RemoveAll(filepath.Join(dir, logDir))
		}, ""},
		"no memory": {crashedDir, crashedWant, len(crashedWant), func(t *testing.T, dir string) {
			os.Remove(filepath.Join(dir, "00001.mem"))
		}, ""},
		"a group in the middle": {crashedDir, crashedWant, len(crashedWant) - 1, func(t *testing.T, dir string) {
			flip(t, filepath.Join(dir, segment), 512+15*512+100, 1)
			zeroFrom(t, filepath.Join(dir, "00001.mem"), 30)
		}, "group 36 is missing"},
	} {
		t.Run(what, func(t *testing.T) {
			dir := damaged(t, tt.base, func(string) error { return nil })
			tt.change(t, dir)
			before := contents(t, dir)
			to := filepath.Join(t.TempDir(), "new")
			r, err := Salvage(dir, to, least)
			if err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(before, contents(t, dir)) {
				t.Error("it changed something")
			}
			said := strings.Join(r.Missing, "; ")
			if !strings.Contains(said, tt.says) || tt.says == "" && said != "" {
				t.Errorf("missing: %q", said)
			}
			left := maps.Clone(tt.want)
			s, err := Open(to, least)
			if err != nil {
				t.Fatal(err)
			}
			for key := range left {
				if e, err := s.Get(t.Context(), []byte(key)); err != nil || e[0].Version == "" {
					delete(left, key)
				}
			}
			if diff := left.differs(s); diff != "" || len(left) < tt.least || len(left) == len(tt.want) != (tt.least == len(tt.want)) {
				t.Errorf("%d of %d keys are left, %s", len(left), len(tt.want), diff)
			}
			left.commit(t, s, "more", "value") // and it goes on
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			left.reopen(t, to)
		})
	}
	if _, err := Salvage(crashedDir, spreadDir, least); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("into a directory that has something: %v", err)
	}
}

// TestSalvageKeepsToItself: what stands beside the new directory is nobody's to remove, whatever
// its name.
func TestSalvageKeepsToItself(t *testing.T) {
	dir, _, want := crashed(t)
	place := t.TempDir()
	mine := filepath.Join(place, "new.new", "letter")
	if err := os.Mkdir(filepath.Dir(mine), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mine, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Salvage(dir, filepath.Join(place, "new")+string(filepath.Separator), Options{}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(mine); err != nil || string(b) != "mine" {
		t.Errorf("a file beside it is %q, %v", b, err)
	}
	if entries, err := os.ReadDir(place); err != nil || len(entries) != 2 {
		t.Errorf("%d entries are left, want the new store and what was there: %v, %v", len(entries), entries, err)
	}
	s, err := Open(filepath.Join(place, "new"), Options{MustExist: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for key := range want {
		if got, err := s.Get(t.Context(), []byte(key)); err != nil || got[0].Version == "" {
			t.Fatalf("%q is not there: %v", key, err)
		}
	}
}

// twoTables is a closed store of two tables, with the MANIFEST as it was before the second one, and
// an oracle.
func twoTables(t *testing.T) (dir string, manifest []byte, o oracle) {
	t.Helper()
	s := openSmall(t)
	o = oracle{}
	for i := range 20 {
		o.commit(t, s, fmt.Sprintf("key-%02d", i), strings.Repeat(fmt.Sprint("old", i), 20))
	}
	err := s.Compact(t.Context())
	if err == nil {
		manifest, err = os.ReadFile(filepath.Join(s.dir, "MANIFEST"))
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := 10; i < 30; i++ {
		o.commit(t, s, fmt.Sprintf("key-%02d", i), strings.Repeat(fmt.Sprint("new", i), 20))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return s.dir, manifest, o
}

// salvaged is what is salvaged of a store, in which nothing changes.
func salvaged(t *testing.T, dir string) (*Salvaged, *Store) {
	t.Helper()
	before := contents(t, dir)
	to := filepath.Join(t.TempDir(), "new")
	r, err := Salvage(dir, to, least)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(before, contents(t, dir)) {
		t.Error("it changed something")
	}
	s, err := Open(to, least)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return r, s
}

// Tables that an older MANIFEST does not name are taken, and the damage is listed.
func TestSalvageUnnamedTables(t *testing.T) {
	dir, manifest, want := twoTables(t)
	if err := os.WriteFile(filepath.Join(dir, "MANIFEST"), manifest, 0o600); err != nil {
		t.Fatal(err)
	}
	r, s := salvaged(t, dir)
	if said := strings.Join(r.Missing, "; "); !strings.Contains(said, "the MANIFEST does not name 000003.sst") {
		t.Errorf("missing: %q", said)
	}
	if diff := want.differs(s); diff != "" {
		t.Error(diff)
	}
}

// An old log does not replace what newer tables have.
func TestSalvageOldLog(t *testing.T) {
	s := openSmall(t)
	want := oracle{}
	for i := range 20 {
		want.commit(t, s, fmt.Sprintf("key-%02d", i), fmt.Sprint("old", i))
	}
	awaitAnchor(t, s)
	old := killed(t, s.dir)
	for i := range 30 {
		want.commit(t, s, fmt.Sprintf("key-%02d", i), fmt.Sprint("new", i))
	}
	log := filepath.Join(s.dir, logDir)
	if err := errors.Join(s.Close(), os.RemoveAll(log), os.CopyFS(log, os.DirFS(filepath.Join(old, logDir)))); err != nil {
		t.Fatal(err)
	}
	r, n := salvaged(t, s.dir)
	if diff := want.differs(n); diff != "" || len(r.Missing) > 0 || r.Lost != nil {
		t.Errorf("%s, missing: %q, lost: %v", diff, r.Missing, r.Lost)
	}
}

// A copy that an opening left which was cut short is used for a table that is damaged.
func TestSalvageKeptTable(t *testing.T) {
	base, _, want := crashed(t)
	r, s := salvaged(t, damaged(t, base, func(dir string) error {
		err := errors.Join(setAside(dir, true), keepTables(dir, func(int64) error { return nil }), replaceByCopy(filepath.Join(dir, "000002.sst")))
		flip(t, filepath.Join(dir, "000002.sst"), 50, 1)
		return err
	}))
	if diff := want.differs(s); diff != "" || len(r.Missing) > 0 {
		t.Errorf("%s, missing: %q", diff, r.Missing)
	}
}

// All that is missing is listed, whatever else is damaged, and one file that cannot be read does
// not end it.
func TestSalvageListsWhatIsMissing(t *testing.T) {
	base, segment, want := crashed(t)
	noLog := func(dir string) error {
		return errors.Join(os.Remove(filepath.Join(dir, "00001.mem")), os.Remove(filepath.Join(dir, segment)))
	}
	folder := func(name string) func(string) error {
		return func(dir string) error {
			path := filepath.Join(dir, name)
			return errors.Join(os.RemoveAll(path), os.Mkdir(path, 0o700))
		}
	}
	for name, tt := range map[string]struct {
		damage []func(dir string) error
		says   string // of what is missing or lost
		least  int    // keys that are left
	}{
		"the end, with a damaged table": {[]func(string) error{noLog, func(dir string) error {
			flip(t, filepath.Join(dir, "000002.sst"), 50, 1)
			return nil
		}}, "from number 1 on", 0},
		"the end, without a MANIFEST": {[]func(string) error{noLog, folder("MANIFEST")}, "20 groups of commits", 20},
		"a table":                     {[]func(string) error{folder("000002.sst")}, "000002.sst is not a regular file", 21},
		"a segment": {[]func(string) error{folder(segment), func(dir string) error {
			return os.Remove(filepath.Join(dir, "00001.mem"))
		}}, segment + " is not a regular file", 20},
		"the anchor":    {[]func(string) error{folder("log/anchor")}, "log/anchor is not a regular file", 31},
		"a memory file": {[]func(string) error{folder("00001.mem")}, "00001.mem is not a regular file", 31},
		"the log": {[]func(string) error{func(dir string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, logDir)), os.WriteFile(filepath.Join(dir, logDir), nil, 0o600))
		}}, "log: ", 31},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := salvaged(t, damaged(t, base, func(dir string) (err error) {
				for _, damage := range tt.damage {
					err = errors.Join(err, damage(dir))
				}
				return err
			}))
			if said := fmt.Sprint(r.Missing, r.Lost); !strings.Contains(said, tt.says) {
				t.Errorf("missing: %q, lost: %v", r.Missing, r.Lost)
			}
			left := 0
			for key := range want {
				if e, err := s.Get(t.Context(), []byte(key)); err == nil && e[0].Version != "" {
					left++
				}
			}
			if left != tt.least {
				t.Errorf("%d keys are left, want %d", left, tt.least)
			}
		})
	}
}

// Any damage at the end of a table costs the table at most.
func TestSalvageTableEnd(t *testing.T) {
	base, _, _ := crashed(t)
	table := filepath.Join(base, "000002.sst")
	size := len(contents(t, base)[table])
	step := 1
	if testing.Short() {
		step = 7
	}
	for at := size - 60; at < size; at += step {
		dir := damaged(t, base, func(dir string) error { flip(t, filepath.Join(dir, "000002.sst"), at, 0x80); return nil })
		if r, err := Salvage(dir, filepath.Join(t.TempDir(), "new"), least); err != nil || len(r.Missing) == 0 {
			t.Errorf("byte %d of %d: %+v, %v", at, size, r, err)
		}
	}
}

// Groups behind an accepted loss are taken though the table that has the new incarnation is
// damaged.
func TestSalvageBehindAcceptedLoss(t *testing.T) {
	base, segment, _ := crashed(t)
	dir := withoutEnd(t, base, segment)
	if _, err := AcceptLoss(dir, least); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir, least)
	if err != nil {
		t.Fatal(err)
	}
	write(t, s, "behind", "value")
	awaitAnchor(t, s)
	left := killed(t, s.dir)
	tables, err := filesIn(left, ".sst")
	err = errors.Join(err, os.Remove(filepath.Join(left, "00001.mem")), os.Truncate(tables[len(tables)-1], 400), s.Close())
	if err != nil {
		t.Fatal(err)
	}
	_, n := salvaged(t, left)
	if e, err := n.Get(t.Context(), []byte("behind")); err != nil || e[0].Version == "" {
		t.Errorf("it is not there: %v", err)
	}
}

// What cannot work is refused before anything is written.
func TestSalvageTarget(t *testing.T) {
	base, _, want := crashed(t)
	place := t.TempDir()
	in := func(name string) string { return filepath.Join(place, name) }
	err := errors.Join(os.Symlink("nothing", in("dangling")), os.Symlink(base, in("alias")), os.Mkdir(in("empty"), 0o700), os.Symlink("empty", in("link")))
	if err != nil {
		t.Fatal(err)
	}
	before := contents(t, base)
	for _, to := range []string{in("dangling"), in("alias/new"), in("alias/more/new"), filepath.Join(base, "new"), base} {
		if _, err := Salvage(base, to, least); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("to %s: %v", to, err)
		}
	}
	if !maps.Equal(before, contents(t, base)) {
		t.Error("it changed something")
	}
	if _, err := Salvage(base, in("link"), least); err != nil {
		t.Fatal(err)
	}
	want.reopen(t, in("empty"))
	if entries, _ := os.ReadDir(place); len(entries) != 4 {
		t.Errorf("left: %v", entries)
	}
}

// failingReader cannot read some bytes.
type failingReader struct {
	content  string
	from, to int64
}

func (f failingReader) ReadAt(b []byte, at int64) (int, error) {
	if at < f.to && at+int64(len(b)) > f.from {
		return 0, syscall.EIO
	}
	return strings.NewReader(f.content).ReadAt(b, at)
}

func TestReadAround(t *testing.T) {
	content := strings.Repeat("content.", 5000)
	for _, tt := range []struct{ from, to, at, size, lost int64 }{
		{-2, -1, 0, 40_000, 0}, {0, 1, 0, 40_000, 4096}, {5000, 5001, 0, 40_000, 4096}, {39_999, 40_000, 0, 40_000, 40_000 % 4096},
		{10_000, 20_000, 9000, 20_000, 12_288}, {0, 40_000, 0, 40_000, 40_000},
	} {
		b := make([]byte, tt.size)
		n, lost, err := readAroundAt(failingReader{content, tt.from, tt.to}, b, tt.at)
		if int64(n) != tt.size || lost != tt.lost || err != nil {
			t.Errorf("%+v: %d, %d, %v", tt, n, lost, err)
		}
		for i, c := range b {
			if c != content[tt.at+int64(i)] && c != 0 {
				t.Fatalf("%+v: byte %d is wrong", tt, i)
			}
		}
	}
}

// A block that claims to be of gigabytes is damaged, and is not unpacked.
func TestBlockOfGigabytes(t *testing.T) {
	packed := append(binary.AppendUvarint(nil, 1<<32-1), "what is packed"...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := wholeBlock(packed, 0, len(packed))
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, backend.ErrCorrupt) || took > 1<<20 {
		t.Errorf("%v, after taking %d bytes", err, took)
	}
}
