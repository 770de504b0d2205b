package badger

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/backend"
)

// withoutEnd is a copy of a store that lacks the end of its log.
func withoutEnd(t *testing.T, base, segment string) string {
	t.Helper()
	return damaged(t, base, func(dir string) error {
		return errors.Join(os.Remove(filepath.Join(dir, "00001.mem")), os.Truncate(filepath.Join(dir, segment), 512+10*512))
	})
}

// Links to a store and in it are followed: the evidence is all that there was.
func TestEvidenceThroughLinks(t *testing.T) {
	base, segment, _ := crashed(t)
	for name, link := range map[string]func(t *testing.T, dir, elsewhere string) (open string, err error){
		"to the directory": func(_ *testing.T, dir, elsewhere string) (string, error) {
			return elsewhere, os.Symlink(dir, elsewhere)
		},
		"to the log": func(_ *testing.T, dir, elsewhere string) (string, error) {
			log := filepath.Join(dir, logDir)
			return dir, errors.Join(os.Rename(log, elsewhere), os.Symlink(elsewhere, log))
		},
		"to nothing, from within": func(t *testing.T, dir, _ string) (string, error) {
			t.Chdir(dir)
			return ".", os.Symlink("nothing", filepath.Join(dir, "link"))
		},
		"to nothing, and folders of others": func(_ *testing.T, dir, _ string) (string, error) {
			return dir, errors.Join(os.Symlink("nothing", filepath.Join(dir, "link")), os.Mkdir(filepath.Join(dir, "lost+found"), 0))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := withoutEnd(t, base, segment)
			before := contents(t, dir)
			elsewhere := filepath.Join(t.TempDir(), "elsewhere")
			open, err := link(t, dir, elsewhere)
			if err != nil {
				t.Fatal(err)
			}
			a, err := AcceptLoss(open, least)
			if err != nil {
				t.Fatal(err)
			}
			kept := map[string]string{}
			for path, content := range contents(t, a.Evidence) {
				rel, _ := filepath.Rel(a.Evidence, path)
				kept[filepath.Join(dir, rel)] = content
			}
			if !maps.Equal(before, kept) {
				t.Errorf("the evidence has %d files, of %d", len(kept), len(before))
			}
			if info, err := os.Lstat(filepath.Join(dir, logDir)); name == "to the log" && (err != nil || info.Mode().Type() != os.ModeSymlink) {
				t.Errorf("the log is not where it was: %v", err)
			}
			if d := diagnoseOnly(t, open); d.Outcome != OpensClean {
				t.Errorf("afterwards: %+v", d)
			}
		})
	}
}

// Evidence that cannot be kept ends the attempt, which changes nothing and leaves nothing. Names
// that are taken do not.
func TestEvidenceThatFails(t *testing.T) {
	base, segment, _ := crashed(t)
	dir := withoutEnd(t, base, segment)
	before := contents(t, filepath.Dir(dir))
	if _, err := keepEvidence(dir, 1<<60); !errors.Is(err, backend.ErrNoSpace) {
		t.Errorf("without room: %v", err)
	}
	if !maps.Equal(before, contents(t, filepath.Dir(dir))) {
		t.Error("something is left")
	}
	var names []string
	for range 3 {
		to, err := keepEvidence(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, to)
	}
	if names[0] == names[1] || names[1] == names[2] || !strings.HasPrefix(names[2], dir+".lost-") {
		t.Errorf("the evidence is in %q", names)
	}
}
