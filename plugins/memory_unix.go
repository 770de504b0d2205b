//go:build linux || darwin

package plugins

import (
	"fmt"
	"syscall"
)

// space is reserved address space at a fixed address.
type space struct{ all []byte }

// reserve takes address space but no memory.
func reserve(size uint64) (space, error) {
	all, err := syscall.Mmap(-1, 0, int(size), syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON|mapNoReserve)
	if err != nil {
		return space{}, fmt.Errorf("reserving %d bytes of address space: %w", size, err)
	}
	hide(all)
	return space{all}, nil
}

// commit makes the bytes from one offset to another usable. They are zero.
func (s *space) commit(from, to uint64) error {
	if err := syscall.Mprotect(s.all[from:to], syscall.PROT_READ|syscall.PROT_WRITE); err != nil {
		return fmt.Errorf("committing memory: %w", err)
	}
	return populate(s.all[from:to])
}

func (s *space) bytes(size uint64) []byte { return s.all[:size:size] }

// release gives the address space back. It can be called more than once.
func (s *space) release() {
	if s.all != nil {
		// It fails only for wrong arguments, and nothing could be done then.
		_ = syscall.Munmap(s.all)
		s.all = nil
	}
}
