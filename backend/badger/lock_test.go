package badger

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/ckptd/ckptd/backend"
)

// A store whose marker was removed or replaced while it is open stays locked: a second process
// would move its memory files away and replace the MANIFEST under it, and commits that were
// acknowledged later would be in tables that no MANIFEST names.
func TestLockOutlivesMarker(t *testing.T) {
	if !locksDirs {
		t.Skip("directories cannot be locked here")
	}
	for name, change := range map[string]func(path string) error{
		"removed":  os.Remove,
		"replaced": func(path string) error { return replaceByCopy(path) },
	} {
		t.Run(name, func(t *testing.T) {
			s := openSmall(t)
			want := oracle{}
			for i := range 20 {
				want.commit(t, s, fmt.Sprintf("key-%02d", i), "value")
			}
			awaitAnchor(t, s)
			path := filepath.Join(s.dir, markerName)
			content, err := os.ReadFile(path)
			if err == nil {
				err = change(path)
			}
			if err != nil {
				t.Fatal(err)
			}
			before := contents(t, s.dir)
			for call, f := range map[string]func() error{
				"Diagnose":     func() error { _, err := Diagnose(s.dir, least); return err },
				"Repair":       func() error { _, err := Repair(s.dir, least); return err },
				"AcceptLoss":   func() error { _, err := AcceptLoss(s.dir, least); return err },
				"Salvage":      func() error { _, err := Salvage(s.dir, filepath.Join(t.TempDir(), "new"), least); return err },
				"Open":         func() error { _, err := Open(s.dir, least); return err },
				"repairMarker": func() error { return repairMarker(s.dir, s.claim.id) },
			} {
				err := f()
				if errors.Is(err, backend.ErrForeign) && name == "removed" && (call == "Open" || call == "AcceptLoss") {
					continue
				}
				if !errors.Is(err, backend.ErrLocked) {
					t.Errorf("%s: %v", call, err)
				}
			}
			if !maps.Equal(before, contents(t, s.dir)) {
				t.Error("something changed")
			}
			for i := range 20 {
				want.commit(t, s, fmt.Sprintf("more-%02d", i), "value")
			}
			if err := errors.Join(s.Close(), os.WriteFile(path, content, 0o600)); err != nil {
				t.Fatal(err)
			}
			want.reopen(t, s.dir)
		})
	}
}

// replaceByCopy replaces a file by another one with the same content, as many editors and copying
// tools do.
func replaceByCopy(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(path+".copy", content, 0o600), os.Rename(path+".copy", path))
}
