package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend/badger"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// On a full device states can be loaded, threads deleted and pruned, and garbage collected; then
// saving goes on.
func TestFullDevice(t *testing.T) {
	device := t.TempDir()
	if err := syscall.Mount("ckptd-test", device, "tmpfs", 0, "size=96m"); err != nil {
		t.Skipf("mounting a small file system is not permitted here: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(device, 0) })
	root, err := crypto.GenerateRootKey()
	if err != nil {
		t.Fatal(err)
	}
	keystore, err := crypto.OpenFileKeystore(filepath.Join(t.TempDir(), "keys"), true)
	if err != nil {
		t.Fatal(err)
	}
	be, err := badger.Open(filepath.Join(device, "data"), badger.Options{MemTableSize: 8 << 20, MinFree: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	s, err := engine.Open(t.Context(), be, engine.Options{Root: root, Keystore: keystore, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	thread := func(i int) *engine.Thread {
		return s.Thread(engine.Ref{Tenant: "acme", User: "u", Thread: fmt.Sprint(i)})
	}
	rnd := rand.New(rand.NewPCG(51, 52))
	save := func(i int) error {
		data := make([]byte, 100<<10)
		for j := range data {
			data[j] = byte(rnd.Uint32())
		}
		_, err := thread(i).Save(t.Context(), engine.Draft{Channels: []engine.Change{{Name: "state", Data: data}}})
		return err
	}
	saves := 0
	for ; err == nil; saves++ {
		err = save(saves % 10)
	}
	if !errors.Is(err, engine.ErrNoSpace) || saves < 20 {
		t.Fatalf("save %d: %v", saves, err)
	}
	for i := range 10 {
		if _, err := thread(i).Load(t.Context(), engine.Latest); err != nil {
			t.Errorf("loading: %v", err)
		}
	}
	for i := range 7 {
		if _, err := thread(i).Delete(t.Context()); err != nil {
			t.Fatalf("deleting: %v", err)
		}
	}
	if r, err := thread(8).Upkeep().Prune(t.Context(), upkeep.PruneOptions{KeepLast: 1}); err != nil || len(r.Removed) == 0 {
		t.Fatalf("pruning: %+v, %v", r, err)
	}
	if _, err := s.Upkeep().GC(t.Context(), "acme", upkeep.GCOptions{Grace: time.Nanosecond, Compact: true}); err != nil {
		t.Fatalf("collecting: %v", err)
	}
	if err := save(9); err != nil {
		t.Fatalf("with room again: %v", err)
	}
	if r, err := s.Upkeep().Verify(t.Context(), upkeep.VerifyOptions{Deep: true}); err != nil || !r.Clean() {
		t.Errorf("%+v, %v", r, err)
	}
}
