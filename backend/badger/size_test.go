package badger

import (
	"bytes"
	"context"
	"crypto/rand"
	"testing"

	"github.com/ckptd/ckptd/backend"
)

var _ backend.Sizer = (*Store)(nil)

// Written data is counted, in the memory file and in the log, which is made of whole segments.
func TestDiskBytes(t *testing.T) {
	ctx := context.Background()
	s, err := Open(t.TempDir(), Options{MemTableSize: leastMemTable})
	if err != nil {
		t.Fatal(err)
	}
	before, err := s.DiskBytes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	value := make([]byte, 512<<10)
	rand.Read(value)
	for i := range 4 {
		b := backend.Batch{ID: [16]byte{1, byte(i)}, Muts: []backend.Mut{{Key: bytes.Repeat([]byte{byte('a' + i)}, 8), Value: value, Version: "1"}}}
		if err := s.Commit(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	after, err := s.DiskBytes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if grown := after - before; grown < 4<<20 || grown > 3<<20+6*leastSegment { // with one begun and one ahead
		t.Errorf("2 MiB written took %d bytes", grown)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.DiskBytes(cancelled); err == nil {
		t.Error("a cancelled context is ignored")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.DiskBytes(ctx); err == nil {
		t.Error("a closed store has a size")
	}
}
