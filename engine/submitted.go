package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
	"strings"
)

// submission is the commitment to what a caller gave to a save (docs/format.md §11): by it a save that is repeated is
// recognised, whatever hooks make of it by then. The id and the parent are compared by themselves.
func submission(key *[32]byte, d *Draft) (sum [32]byte) {
	w := listing{sha256.New()}
	w.h.Write([]byte("ckptd/submitted/1"))
	w.h.Write(key[:])
	w.number(uint64(d.Step))
	w.text(d.status())
	w.number(d.SchemaVersion)
	w.text(d.RunID)
	w.text(d.Branch)
	w.flag(d.Keep)
	w.flag(d.Labels != nil)
	w.number(uint64(len(d.Labels)))
	for _, k := range sorted(d.Labels) {
		w.text(k)
		w.text(d.Labels[k])
	}
	w.flag(d.Meta != nil)
	w.bytes(d.Meta)
	w.flag(d.Blobs != nil)
	blobs := slices.Clone(d.Blobs)
	slices.SortFunc(blobs, func(a, b BlobID) int { return bytes.Compare(a[:], b[:]) })
	blobs = slices.Compact(blobs)
	w.number(uint64(len(blobs)))
	for _, id := range blobs {
		w.h.Write(id[:])
	}
	changes := slices.Clone(d.Channels)
	slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.Name, b.Name) })
	w.number(uint64(len(changes)))
	for i := range changes {
		c := &changes[i]
		w.text(c.Name)
		w.text(c.Type)
		w.flag(c.Remove)
		w.number(uint64(c.Base))
		w.number(uint64(c.Prefix))
		w.number(uint64(c.Suffix))
		w.bytes(c.Data)
	}
	if d.Kind != "" {
		w.text(d.Kind)
	}
	w.h.Sum(sum[:0])
	return sum
}

// listing writes fields so that no two lists of fields are the same bytes.
type listing struct{ h hash.Hash }

func (w listing) number(n uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	w.h.Write(b[:])
}

func (w listing) bytes(p []byte) {
	w.number(uint64(len(p)))
	w.h.Write(p)
}

func (w listing) text(s string) { w.bytes([]byte(s)) }

func (w listing) flag(on bool) {
	b := byte(0)
	if on {
		b = 1
	}
	w.h.Write([]byte{b})
}
