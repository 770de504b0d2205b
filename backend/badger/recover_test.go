package badger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/backend"
)

// One bit is flipped in a file of a store that was killed. In the log, a memory file, or the
// anchor, that costs nothing; in any other file it may have the store refused, and never gives a
// wrong, an old or a missing value.
func TestFlippedBits(t *testing.T) {
	base, _, want := crashed(t)
	rnd := rand.New(rand.NewPCG(11, 12))
	each := 10
	if testing.Short() {
		each = 6
	}
	for _, kind := range []struct {
		files    string
		repaired bool
	}{
		{"log/*.seg", true}, {"*.mem", true}, {"log/anchor", true},
		{"*.sst", false}, {"MANIFEST", false}, {"KEYREGISTRY", false}, {"CKPTD", false},
	} {
		paths, err := filepath.Glob(filepath.Join(base, kind.files))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v", kind.files, err)
		}
		refused := 0
		for i := range each {
			path := paths[rnd.IntN(len(paths))]
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if used(content) == 0 {
				continue // a segment that was made ready
			}
			at := i // the first bytes, where a memory file would keep Badger from opening
			if i > 0 {
				at = rnd.IntN(used(content))
			}
			dir := t.TempDir()
			copyStore(t, base, dir)
			rel, _ := filepath.Rel(base, path)
			flip(t, filepath.Join(dir, rel), at, 1<<rnd.IntN(8))
			s, err := Open(dir, Options{MemTableSize: leastMemTable})
			if err != nil {
				refused++
				if kind.repaired || strings.Contains(err.Error(), "\n") || !damageError(err) {
					t.Errorf("byte %d of %s: %v", at, rel, err)
				}
				continue
			}
			if diff := want.differs(s); diff != "" {
				t.Errorf("byte %d of %s: %s", at, rel, diff)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		t.Logf("%s: %d of %d refused", kind.files, refused, each)
	}
}

func damageError(err error) bool {
	for _, is := range []error{backend.ErrCorrupt, backend.ErrForeign, backend.ErrNewerFormat, backend.ErrOlderFormat} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

// Frames of the log are damaged in turn. Each comes from the memory file, and a warning says so;
// and the store goes on as if nothing had been.
func TestLogIsRepairedFromMemory(t *testing.T) {
	base, segment, want := crashed(t)
	content, err := os.ReadFile(filepath.Join(base, segment))
	if err != nil {
		t.Fatal(err)
	}
	frames := 0
	for at := 512; at < used(content); at += 512 {
		if string(content[at:at+4]) != "cKfr" {
			continue
		}
		if frames++; frames%3 != 1 && frames != 20 {
			continue
		}
		dir := t.TempDir()
		copyStore(t, base, dir)
		flip(t, filepath.Join(dir, segment), at+100, 1)
		warned := ""
		s, err := Open(dir, Options{MemTableSize: leastMemTable, Log: slog.New(onWarning{slog.DiscardHandler, &warned})})
		if err != nil {
			t.Fatalf("frame %d: %v", frames, err)
		}
		if !strings.Contains(warned, "is missing from the log or damaged in it") {
			t.Errorf("frame %d: the warning is %q", frames, warned)
		}
		more := maps.Clone(want)
		if diff := more.differs(s); diff != "" {
			t.Errorf("frame %d: %s", frames, diff)
		}
		more.commit(t, s, "more", "value")
		again := killed(t, s.dir)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		more.reopen(t, again)
		more.reopen(t, dir)
	}
	if frames != 20 {
		t.Errorf("%d frames, want 20", frames)
	}
}

type onWarning struct {
	slog.Handler
	text *string
}

func (h onWarning) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (h onWarning) Handle(_ context.Context, r slog.Record) error {
	*h.text = r.Message
	return nil
}

// The anchor is damaged, and so is the last frame. The memory file has its group.
func TestLastFrameIsRepairedWithoutAnAnchor(t *testing.T) {
	base, segment, want := crashed(t)
	anchor := filepath.Join(base, logDir, "anchor")
	b, err := os.ReadFile(anchor)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(anchor, make([]byte, len(b)), 0o600); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(base, segment))
	if err != nil {
		t.Fatal(err)
	}
	last := bytes.LastIndex(content, []byte("cKfr"))
	for at := last; at < used(content); at += 17 {
		dir := t.TempDir()
		copyStore(t, base, dir)
		flip(t, filepath.Join(dir, segment), at, 16)
		want.reopen(t, dir)
	}
}

// A group that is damaged in the log and in the memory file is lost. The error says how much is
// lost, and since when. Nothing is changed.
func TestLostCommits(t *testing.T) {
	base, segment, _ := crashed(t)
	memory := "00001.mem"
	content, err := os.ReadFile(filepath.Join(base, segment))
	if err != nil {
		t.Fatal(err)
	}
	inMemory, err := os.ReadFile(filepath.Join(base, memory))
	if err != nil {
		t.Fatal(err)
	}
	end := used(content)
	for name, damage := range map[string]func(t *testing.T, dir string){
		"a frame in the middle": func(t *testing.T, dir string) {
			flip(t, filepath.Join(dir, segment), end/2, 1)
			flip(t, filepath.Join(dir, memory), 30, 1)
		},
		"the last frame": func(t *testing.T, dir string) {
			flip(t, filepath.Join(dir, segment), end-10, 1)
			flip(t, filepath.Join(dir, memory), used(inMemory)-30, 1)
		},
		"the end, to the anchor alone": func(t *testing.T, dir string) {
			zeroFrom(t, filepath.Join(dir, segment), end-1100)
			zeroFrom(t, filepath.Join(dir, memory), used(inMemory)-700)
		},
		"all segments and all memory": func(t *testing.T, dir string) {
			for _, pattern := range []string{"log/*.seg", "*.mem"} {
				paths, _ := filepath.Glob(filepath.Join(dir, pattern))
				for _, path := range paths {
					if err := os.Remove(path); err != nil {
						t.Fatal(err)
					}
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			copyStore(t, base, dir)
			damage(t, dir)
			before := contents(t, dir)
			_, err := Open(dir, Options{MemTableSize: leastMemTable})
			if !errors.Is(err, backend.ErrLostCommits) || !errors.Is(err, backend.ErrCorrupt) {
				t.Fatalf("%v, want ErrLostCommits", err)
			}
			if !regexp.MustCompile(`: [0-9]+ groups? of commits since [0-9T:-]+Z, from number [0-9]+ on: .*copy`).MatchString(err.Error()) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("it says %q", err)
			}
			if !maps.Equal(before, contents(t, dir)) {
				t.Error("the directory changed")
			}
			goOnWithout(t, dir)
		})
	}
}

// goOnWithout opens a store without the lost groups. It continues from there, and the groups after
// the loss do not come back.
func goOnWithout(t *testing.T, dir string) {
	t.Helper()
	for range 2 {
		if _, err := AcceptLoss(dir, least); err != nil && !errors.Is(err, backend.ErrInvalid) {
			t.Fatal(err)
		}
		s, err := Open(dir, least)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Get(t.Context(), []byte("key-29"), []byte("key-00"))
		if err != nil || got[0].Version != "" || got[1].Version == "" {
			t.Errorf("%q, %v", got, err)
		}
		for i := range 40 { // more than were lost
			write(t, s, fmt.Sprint("after-", i), "value")
		}
		dir = killed(t, s.dir)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	s, err := Open(dir, Options{MemTableSize: leastMemTable}) // and needs no permission any more
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, err := s.Get(t.Context(), []byte("after-39"), []byte("key-29")); err != nil || got[0].Version == "" || got[1].Version != "" {
		t.Errorf("%q, %v", got, err)
	}
}

func zeroFrom(t *testing.T, path string, at int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	clear(b[at:])
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A log that is another store's, or a newer program's, or gone, is told apart, and nothing is
// changed.
func TestLogIsRefused(t *testing.T) {
	base, segment, _ := crashed(t)
	other, _, _ := crashed(t)
	for name, tt := range map[string]struct {
		change func(t *testing.T, dir string) error
		want   error
	}{
		"gone": {func(_ *testing.T, dir string) error { return os.RemoveAll(filepath.Join(dir, logDir)) }, backend.ErrNoLog},
		"another store's": {func(_ *testing.T, dir string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, logDir)),
				os.CopyFS(filepath.Join(dir, logDir), os.DirFS(filepath.Join(other, logDir))))
		}, backend.ErrForeignLog},
		"a newer program's": {func(t *testing.T, dir string) error {
			path := filepath.Join(dir, segment)
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			b[7] = 2 // the version, under a digest that fits
			sum := sha256.Sum256(append([]byte("ckptd/segment/2"), b[:96]...))
			copy(b[96:], sum[:])
			return os.WriteFile(path, b, 0o600)
		}, backend.ErrNewerFormat},
		"without tables": {func(_ *testing.T, dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "MANIFEST")), os.Remove(filepath.Join(dir, "000002.sst")))
		}, backend.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			copyStore(t, base, dir)
			if err := tt.change(t, dir); err != nil {
				t.Fatal(err, contents(t, dir))
			}
			before := contents(t, dir)
			_, err := Open(dir, Options{MemTableSize: leastMemTable})
			if !errors.Is(err, tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want %v", err, tt.want)
			}
			if !maps.Equal(before, contents(t, dir)) {
				t.Error("the directory changed")
			}
		})
	}
}

// Two copies of a store go on for themselves. The log of one does not fit the tables of the other,
// although its numbers do.
func TestLogOfADivergedCopy(t *testing.T) {
	base, _, _ := crashed(t)
	var dirs [2]string
	for i := range dirs {
		dirs[i] = t.TempDir()
		copyStore(t, base, dirs[i])
		s, err := Open(dirs[i], Options{MemTableSize: leastMemTable})
		if err != nil {
			t.Fatal(err)
		}
		write(t, s, "which", fmt.Sprint(i))
		if i == 0 {
			if err := s.Compact(t.Context()); err != nil { // so that it is in a table
				t.Fatal(err)
			}
		} else {
			write(t, s, "one", "more")
			awaitAnchor(t, s)
		}
		dirs[i] = killed(t, s.dir)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	to := filepath.Join(dirs[0], logDir)
	if err := errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(filepath.Join(dirs[1], logDir)))); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(dirs[0], Options{MemTableSize: leastMemTable}); !errors.Is(err, backend.ErrLostCommits) {
		t.Errorf("%v, want ErrLostCommits", err)
		s.Close()
	}
}

// An opening that was cut short after Badger removed a table starts over with the kept tables.
func TestKeptTables(t *testing.T) {
	base, _, want := crashed(t)
	if err := keepTables(base, nil); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(base, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	for _, path := range tables {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	want.reopen(t, base)
}

// Badger takes a MANIFEST that is damaged in a length for one that was cut off, and goes on without
// the rest.
func TestDamagedManifest(t *testing.T) {
	base, _, _ := crashed(t)
	b, err := os.ReadFile(filepath.Join(base, "MANIFEST"))
	if err != nil {
		t.Fatal(err)
	}
	if err := checkManifest(b); err != nil || len(b) < 30 {
		t.Fatalf("%d bytes: %v", len(b), err)
	}
	for at := manifestHead; at < len(b); at++ {
		for bit := range 8 {
			b[at] ^= 1 << bit
			if err := checkManifest(b); !errors.Is(err, backend.ErrCorrupt) {
				t.Errorf("bit %d of byte %d: %v", bit, at, err)
			}
			b[at] ^= 1 << bit
		}
		if err := checkManifest(b[:at]); err != nil {
			t.Errorf("cut to %d: %v", at, err)
		}
	}
}

// A group is in one transaction after a replay as it was before: a table can hold the first of two
// that share a group, and if a power loss takes the group from the log, where it was perhaps never
// synced, half of it would stay.
func TestReplayKeepsGroupsWhole(t *testing.T) {
	s := openSmall(t)
	rnd := rand.New(rand.NewPCG(11, 12))
	const pairs = 40
	name := func(side string, i int) string { return fmt.Sprintf("%s-%02d", side, i) }
	for i := range pairs {
		b := single(name("left", i), randomText(rnd, 1+rnd.IntN(200_000)))
		b.Muts = append(b.Muts, single(name("right", i), randomText(rnd, 1+rnd.IntN(200_000))).Muts...)
		if err := s.Commit(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	replayed, err := Open(killed(t, s.dir), least)
	if err != nil {
		t.Fatal(err)
	}
	defer replayed.Close()
	txn := replayed.db.NewTransaction(false)
	defer txn.Discard()
	for i := range pairs {
		left, err1 := txn.Get(appendName(nil, []byte(name("left", i))))
		right, err2 := txn.Get(appendName(nil, []byte(name("right", i))))
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if left.Version() != right.Version() {
			t.Errorf("group %d is in transactions %d and %d", i+1, left.Version(), right.Version())
		}
	}
}

// A log of another life of the store is refused though its anchor is gone: the headers of its
// segments tell.
func TestLogOfAnotherLifeWithoutAnchor(t *testing.T) {
	base, segment, _ := crashed(t)
	dir := withoutEnd(t, base, segment)
	if _, err := AcceptLoss(dir, least); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, logDir)
	if err := errors.Join(os.RemoveAll(log), os.CopyFS(log, os.DirFS(filepath.Join(base, logDir))), os.Remove(filepath.Join(log, "anchor"))); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, least); !errors.Is(err, backend.ErrLostCommits) {
		t.Errorf("opening: %v", err)
	}
}
