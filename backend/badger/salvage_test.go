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

// spread is a closed store whose one table has many blocks, and an oracle of it. Keys that were deleted are not in it.
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

// TestSalvageKeepsToItself: what stands beside the new directory is nobody's to remove, whatever its name.
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
