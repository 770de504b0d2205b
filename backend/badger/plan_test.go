package badger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/backend"
)

// The end of the log is gone, in the moment in which the anchor does not know of it yet, so that
// the rest looks like a whole log. The memory files have the rest.
func TestLogWithoutItsEnd(t *testing.T) {
	s := openSmall(t)
	want := oracle{}
	log := filepath.Join(s.dir, logDir)
	var parts [2]string // the log after each ten groups
	for part := range 3 {
		for i := range 10 {
			want.commit(t, s, fmt.Sprintf("key-%d-%d", part, i), strings.Repeat("value", 100))
		}
		if part == 0 {
			if err := s.Compact(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if part < 2 {
			parts[part] = filepath.Join(t.TempDir(), logDir)
			if err := os.CopyFS(parts[part], os.DirFS(log)); err != nil {
				t.Fatal(err)
			}
		}
	}
	base := killed(t, s.dir)
	for name, of := range map[string]struct{ anchor, segments string }{
		"put back with its anchor":  {parts[1], parts[1]},
		"put back, the anchor lags": {parts[0], parts[1]},
		"the newest segment gone":   {parts[0], parts[0]},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			copyStore(t, base, dir)
			log := filepath.Join(dir, logDir)
			err := errors.Join(os.RemoveAll(log), os.CopyFS(log, os.DirFS(of.segments)),
				os.Remove(filepath.Join(log, "anchor")), copyFile(filepath.Join(of.anchor, "anchor"), filepath.Join(log, "anchor")))
			if err != nil {
				t.Fatal(err)
			}
			want.reopen(t, dir)
		})
	}
}

// Two copies of a store continue separately. The memory files of one do not fit the log of the
// other, although their numbers do.
func TestMemoryFilesOfADivergedCopy(t *testing.T) {
	base, _, _ := crashed(t)
	var dirs [2]string
	for i := range dirs {
		dirs[i] = t.TempDir()
		copyStore(t, base, dirs[i])
		s, err := Open(dirs[i], least)
		if err != nil {
			t.Fatal(err)
		}
		for range i + 1 {
			write(t, s, "which", fmt.Sprint(i))
		}
		dirs[i] = killed(t, s.dir)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	path := func(i int) string { return filepath.Join(dirs[i], "00001.mem") }
	if err := copyFile(path(1), path(0)); err != nil {
		t.Fatal(err)
	}
	before := contents(t, dirs[0])
	if s, err := Open(dirs[0], least); !errors.Is(err, backend.ErrLostCommits) {
		t.Errorf("%v, want ErrLostCommits", err)
		s.Close()
	}
	if after := contents(t, dirs[0]); len(after) != len(before) {
		t.Error("the directory changed")
	}
}

// An opening is cut short in a replay, whose memory files hold several groups in one transaction.
// They do not count, also where the store had no memory files.
func TestMemoryFilesOfAReplayDoNotCount(t *testing.T) {
	base, _, want := crashed(t)
	if err := os.Remove(filepath.Join(base, "00001.mem")); err != nil {
		t.Fatal(err)
	}
	if err := setAside(base, true); err != nil {
		t.Fatal(err)
	}
	other, _, _ := crashed(t)
	if err := copyFile(filepath.Join(other, "00001.mem"), filepath.Join(base, "00001.mem")); err != nil {
		t.Fatal(err)
	}
	paths, err := memoryFiles(base)
	if err != nil || len(paths) > 0 {
		t.Errorf("%q, %v", paths, err)
	}
	want.reopen(t, base)
}
