package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/engine/internal/space"
)

// makeID builds the id of the checkpoint at seq (docs/format.md §14). It is a function of the
// lineage, the seq and the time, so it need not be stored, and it contains the seq, so it needs no
// index.
func (l *storedLineage) makeID(seq uint64, ms int64) (id [16]byte) {
	const label = "ckptd/id/1"
	var b [len(label) + 32 + 16 + 16 + 4 + 8 + 8]byte
	n := copy(b[:], label)
	n += copy(b[n:], l.u.IDKey[:])
	n += copy(b[n:], l.Tok[:])
	n += copy(b[n:], l.NS[:])
	binary.BigEndian.PutUint32(b[n:], l.Epoch)
	binary.BigEndian.PutUint64(b[n+4:], seq)
	binary.BigEndian.PutUint64(b[n+12:], uint64(ms))
	sum := sha256.Sum256(b[:])
	return idOf(seq, ms, binary.BigEndian.Uint64(sum[:])>>(64-idTagBits))
}

// idTagBits is the length of the tag in an id made by the engine, its last part.
const idTagBits = 34

// idOf is the id with a seq, a time and a tag.
func idOf(seq uint64, ms int64, tag uint64) (id [16]byte) {
	hi := uint64(ms)<<16 | 7<<12 | seq>>28&0xfff
	lo := 2<<62 | seq&(1<<28-1)<<34 | tag
	binary.BigEndian.PutUint64(id[:], hi)
	binary.BigEndian.PutUint64(id[8:], lo)
	return id
}

// idSeq is the seq in an id made by the engine. Only the record can tell whether the engine made
// it.
func idSeq(id [16]byte) uint64 {
	hi, lo := binary.BigEndian.Uint64(id[:]), binary.BigEndian.Uint64(id[8:])
	return hi&0xfff<<28 | lo>>34&(1<<28-1)
}

// idTime is the time in an id made by the engine, in Unix milliseconds.
func idTime(id [16]byte) int64 { return int64(binary.BigEndian.Uint64(id[:]) >> 16) }

func formatUUID(id [16]byte) string {
	var b [36]byte
	hex.Encode(b[:], id[:4])
	for _, p := range [...]struct{ at, from, to int }{{9, 4, 6}, {14, 6, 8}, {19, 8, 10}, {24, 10, 16}} {
		b[p.at-1] = '-'
		hex.Encode(b[p.at:], id[p.from:p.to])
	}
	return string(b[:])
}

// isFresh reports whether an id is certainly unused without looking for it: callers whose ids are
// ordered UUIDs choose a greater one each time. Unless the backend is exclusive, another process
// could have added it. The caller holds l.mu.
func (l *lineage) isFresh(ctx context.Context, id string) (bool, error) {
	uuid, ok := space.ParseUUID(id)
	if !ok || !l.s.caps.Exclusive {
		return false, nil
	}
	if seq := idSeq(uuid); seq >= 1 && seq <= l.head {
		return false, nil // the engine may have made it
	}
	if l.greatest == nil {
		r := l.ChosenIDs()
		r.Reverse, r.Limit, r.KeysOnly = true, 1, true
		page, _, err := l.s.be.Scan(ctx, r)
		if err != nil {
			return false, fmt.Errorf("looking for ids: %w", err)
		}
		l.greatest = &[16]byte{}
		if len(page) > 0 {
			key := page[0].Key
			copy(l.greatest[:], key[len(key)-len(l.greatest):])
		}
		for _, p := range slices.Concat(l.committing, l.queue) {
			l.noteID(p.event.ID)
		}
	}
	return bytes.Compare(uuid[:], l.greatest[:]) > 0, nil
}

// noteID notes the id of a new pending checkpoint. The caller holds l.mu.
func (l *lineage) noteID(id string) {
	if uuid, ok := space.ParseUUID(id); ok && l.greatest != nil && bytes.Compare(uuid[:], l.greatest[:]) > 0 {
		*l.greatest = uuid
	}
}
