package badger

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// watchOpens tells, when asked, whether a folder itself was opened, as it is to sync the names in
// it.
func watchOpens(t *testing.T, dir string) (opened func() bool) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	return func() bool {
		buf := make([]byte, 4096)
		for {
			n, err := unix.Read(fd, buf)
			if err != nil {
				return false // there is no more
			}
			for events := buf[:n]; len(events) > 0; {
				name := int(binary.NativeEndian.Uint32(events[12:])) // its length: 0 for dir itself
				if name == 0 {
					return true
				}
				events = events[unix.SizeofInotifyEvent+name:]
			}
		}
	}
}

// A new store is there after a power loss: the names of its folder and of those above it are
// synced, also where a process made them that was killed before it could do that.
func TestNewStoreHasADurableName(t *testing.T) {
	for name, made := range map[string]string{"nothing there": ".", "made before": "a/store"} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			dir := filepath.Join(top, "a", "store")
			if err := os.MkdirAll(filepath.Join(top, made), 0o700); err != nil {
				t.Fatal(err)
			}
			watched := map[string]func() bool{}
			for _, folder := range []string{top, filepath.Join(top, "a")} {
				if _, err := os.Stat(folder); err == nil {
					watched[folder] = watchOpens(t, folder)
				}
			}
			s, err := Open(dir, Options{MemTableSize: leastMemTable})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for folder, opened := range watched {
				if !opened() {
					t.Errorf("%s was not synced", folder)
				}
			}
		})
	}
}
