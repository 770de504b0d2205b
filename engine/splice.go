package engine

import (
	"fmt"

	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
)

// MaxSplices is how many splices a Change may have.
const MaxSplices = 1024

// checkSplices checks what can be told of a change without its base.
func (c *Change) checkSplices() error {
	switch {
	case c.Prefix < 0 || c.Suffix < 0 || c.Base == 0 && (c.Prefix != 0 || c.Suffix != 0):
		return fmt.Errorf("%w: channel %q: prefix and suffix require a base and must not be negative", ErrInvalid, c.Name)
	case c.Splices == nil:
		return nil
	case c.Base == 0:
		return fmt.Errorf("%w: channel %q: splices require a base", ErrInvalid, c.Name)
	case c.Prefix != 0 || c.Suffix != 0 || len(c.Data) > 0:
		return fmt.Errorf("%w: channel %q: splices exclude data, prefix and suffix", ErrInvalid, c.Name)
	case len(c.Splices) > MaxSplices:
		return fmt.Errorf("%w: channel %q: %d splices, at most %d are allowed", ErrInvalid, c.Name, len(c.Splices), MaxSplices)
	}
	end := 0
	for i, s := range c.Splices {
		if s.From < end || s.To < s.From {
			return fmt.Errorf("%w: channel %q: splice %d covers %d to %d, but the one before it ends at %d", ErrInvalid, c.Name, i+1, s.From, s.To, end)
		}
		end = s.To
	}
	return nil
}

// given is how many bytes the change brings or keeps, as far as that is known without its base.
func (c *Change) given() int {
	n := c.Prefix + len(c.Data) + c.Suffix
	for i := range c.Splices {
		n += len(c.Splices[i].Data)
	}
	return n
}

// edits appends what the change, which has a base, does to a base of size bytes.
func (s *Store) edits(dst []codec.Edit, c *Change, size int) ([]codec.Edit, error) {
	if c.Splices == nil {
		if c.Prefix > size || c.Suffix > size-c.Prefix {
			return dst, fmt.Errorf("%w: channel %q has %d bytes, but the splice keeps %d and %d", ErrInvalid, c.Name, size, c.Prefix, c.Suffix)
		}
		return append(dst, codec.Edit{From: c.Prefix, To: size - c.Suffix, Data: c.Data}), nil
	}
	if n := len(c.Splices); n > 0 && c.Splices[n-1].To > size {
		return dst, fmt.Errorf("%w: channel %q has %d bytes, but the last splice ends at %d", ErrInvalid, c.Name, size, c.Splices[n-1].To)
	}
	start := len(dst)
	for _, p := range c.Splices {
		dst = append(dst, codec.Edit(p))
	}
	return dst, s.checkSize(c.Name, codec.Edited(size, dst[start:]))
}

// spliced is the value that the change, which has a base, makes of it.
func (s *Store) spliced(base []byte, c *Change) ([]byte, error) {
	var room [4]codec.Edit
	edits, err := s.edits(room[:0], c, len(base))
	if err != nil {
		return nil, err
	}
	return codec.AppendEdited(make([]byte, 0, codec.Edited(len(base), edits)), base, edits), nil
}

// Splices finds what makes now of was, for Change.Splices, in time that is about that of comparing them, and of hashing
// what is between the first and the last place where they differ. The data of the splices is that of now.
func Splices(was, now []byte) []Splice {
	e := whole(was, now)
	var index codec.Index
	var chunks crypto.Chunks
	var finder crypto.Finder
	base := was[e.From:e.To]
	index.Extend(base)
	chunks.Splice(base, 0, 0)
	finder.In(&chunks)
	edits := codec.NewDiffer(nil).Edits(base, codec.Edit{To: len(base), Data: e.Data}, &index, &finder)
	splices := make([]Splice, 0, len(edits))
	for _, p := range edits {
		if p.From < p.To || len(p.Data) > 0 {
			splices = append(splices, Splice{From: e.From + p.From, To: e.From + p.To, Data: p.Data})
		}
	}
	return splices
}
