package badger

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ckptd/ckptd/backend"
)

// Whatever is in the place of the ballast, the store opens, the ballast has its size afterwards if
// it can, and goes when it must.
func TestBallastAnything(t *testing.T) {
	base := openSmall(t)
	write(t, base, "key", "value")
	if err := base.Close(); err != nil {
		t.Fatal(err)
	}
	size := int64(defaultMinFree + leastMemTable/ballastShare)
	for name, tt := range map[string]struct {
		change func(path string) error
		size   int64
	}{
		"as it was": {func(string) error { return nil }, size},
		"missing":   {os.Remove, size},
		"empty":     {func(path string) error { return os.Truncate(path, 0) }, size},
		"smaller":   {func(path string) error { return os.Truncate(path, 1<<20) }, size},
		"a hole":    {func(path string) error { return errors.Join(os.Truncate(path, 0), os.Truncate(path, size)) }, size},
		"not complete": {func(path string) error {
			return os.Rename(path, filepath.Join(filepath.Dir(path), ballastNew))
		}, size},
		"a folder": {func(path string) error {
			return errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "in it"), 0o700))
		}, 0},
		"a link": {func(path string) error { return errors.Join(os.Remove(path), os.Symlink("nothing", path)) }, size},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			copyStore(t, base.dir, dir)
			path := filepath.Join(dir, ballastName)
			if err := errors.Join(os.WriteFile(path, make([]byte, size), 0o600), tt.change(path)); err != nil {
				t.Fatal(err)
			}
			s, err := Open(dir, least)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			info, err := os.Lstat(path)
			if err != nil || tt.size > 0 && (!info.Mode().IsRegular() || allocated(info) < tt.size) {
				t.Errorf("it takes %d bytes, %v", allocated(info), err)
			}
			if held := s.commits.space.ballast.held(); held < tt.size || tt.size == 0 && held != 0 {
				t.Errorf("it is taken for %d bytes", held)
			}
			write(t, s, "more", "value")
			s.commits.space.minFree = 1 << 60
			if err := s.Commit(backend.MakingRoom(t.Context()), single("key", "value")); !errors.Is(err, backend.ErrNoSpace) {
				t.Errorf("without room: %v", err)
			}
			s.commits.space.minFree = s.opts.MinFree
			if err := s.commits.space.ballast.release(); err != nil && tt.size > 0 {
				t.Error(err)
			}
		})
	}
}
