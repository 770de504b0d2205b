//go:build !(linux || darwin)

package plugins

// space is memory of the Go heap, for systems without a way to reserve address space alone. It
// moves when it grows.
type space struct{ all []byte }

func reserve(uint64) (space, error) { return space{}, nil }

// commit makes the bytes from one offset to another usable. They are zero.
func (s *space) commit(from, to uint64) error {
	if uint64(cap(s.all)) < to {
		all := make([]byte, to, max(to, 2*from))
		copy(all, s.all)
		s.all = all
	}
	s.all = s.all[:to]
	return nil
}

func (s *space) bytes(size uint64) []byte { return s.all[:size:size] }

func (s *space) release() { s.all = nil }
