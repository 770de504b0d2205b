package mem_test

import (
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/backendtest"
	"github.com/ckptd/ckptd/backend/mem"
)

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(*testing.T) backend.Backend { return mem.Open() })
}
