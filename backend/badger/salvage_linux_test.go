package badger_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/badger"
)

// Salvage to a device without room for it fails with ErrNoSpace and leaves nothing: Badger writes
// through memory maps, and would be killed. Neither does it begin to a mount point, which the
// finished store could not replace.
func TestSalvageWithoutRoom(t *testing.T) {
	dir := t.TempDir()
	s, err := badger.Open(dir, tight)
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(51, 52))
	value := make([]byte, 500_000)
	for i := range 160 {
		for k := range value {
			value[k] = byte(rnd.Uint32())
		}
		if err := s.Commit(t.Context(), backend.Batch{Muts: []backend.Mut{put(fmt.Sprint("key-", i), string(value))}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, size := range []string{"4m", "40m", "80m", "110m"} {
		device := tmpfs(t, size)
		if _, err := badger.Salvage(dir, filepath.Join(device, "new"), tight); !errors.Is(err, backend.ErrNoSpace) {
			t.Errorf("on a device of %s: %v", size, err)
		}
		if entries, err := os.ReadDir(device); err != nil || len(entries) > 0 {
			t.Errorf("on a device of %s %v are left, %v", size, entries, err)
		}
	}
	device := tmpfs(t, "400m")
	if _, err := badger.Salvage(dir, device, tight); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("to a mount point: %v", err)
	}
	if _, err := badger.Salvage(dir, filepath.Join(device, "new"), tight); err != nil {
		t.Errorf("with room: %v", err)
	}
}
