package badger_test

import (
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/backendtest"
	"github.com/ckptd/ckptd/backend/badger"
)

// small keeps a test's memory down.
var small = badger.Options{MemTableSize: 8 << 20}

func open(t *testing.T, dir string) backend.Backend {
	t.Helper()
	s, err := badger.Open(dir, small)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backend.Backend { return open(t, t.TempDir()) })
}

func TestReopen(t *testing.T) { backendtest.Reopen(t, open) }
