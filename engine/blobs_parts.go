package engine

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// sharedMin is the size from which the full encoding of a checkpoint without parent becomes a part:
// threads of one user start with the same prompts and tools, and so store them once.
const sharedMin = 1 << 10

// spillParts moves payloads that are too large for the record, or likely to be shared, into parts.
// They are written before the record that names them, or with it if they fit into its batch.
func (w *saving) spillParts(ctx context.Context, p *pending, root bool) error {
	inline := 0
	var parts []backend.Mut
	for i := range w.coded {
		e := &w.coded[i].e.entry
		shared := root && w.coded[i].c.number != 0 && e.Mode == codec.Full && len(e.Payload) >= sharedMin
		if !shared && inline+len(e.Payload) <= codec.MaxInline {
			inline += len(e.Payload)
			continue
		}
		ids, muts, err := w.u.newParts(ctx, e.Payload)
		if err != nil {
			return err
		}
		e.PartBytes, e.Parts, e.Payload = uint64(len(e.Payload)), ids, nil
		parts = append(parts, muts...)
	}
	// Channels with the same value name the same parts, which are stored once.
	slices.SortFunc(parts, func(a, b backend.Mut) int { return bytes.Compare(a.Key, b.Key) })
	parts = slices.CompactFunc(parts, func(a, b backend.Mut) bool { return bytes.Equal(a.Key, b.Key) })
	for i := range parts {
		p.parts += int64(len(parts[i].Value))
	}
	p.muts = append(p.muts, parts...)
	const room = backend.MaxBatchBytes / 2 // for the record and what goes with it
	size := 0
	for i := range p.muts {
		size += mutSize(&p.muts[i])
	}
	if size > room || len(p.muts) > backend.MaxBatchKeys/4 {
		if err := w.u.s.commitAll(ctx, p.muts); err != nil {
			return fmt.Errorf("storing parts: %w", err)
		}
		p.muts = nil
	}
	return nil
}

// partIDs splits data into parts and returns their digests.
func (u *user) partIDs(data []byte) (ids []codec.PartID, pieces [][]byte) {
	for piece := range slices.Chunk(data, codec.MaxPart) {
		mac := hmac.New(sha256.New, u.PartMAC[:])
		mac.Write(piece)
		ids = append(ids, codec.PartID(mac.Sum(nil)[:16]))
		pieces = append(pieces, piece)
	}
	return ids, pieces
}

// newParts names the parts of data, and returns the mutations that store the missing ones. The
// caller holds u.sweep for reading until a record that names them is durable.
func (u *user) newParts(ctx context.Context, data []byte) ([]codec.PartID, []backend.Mut, error) {
	ids, pieces := u.partIDs(data)
	u.naming.noteParts(ids)
	keys := make([][]byte, len(ids))
	for i := range ids {
		keys[i] = u.PartKey(ids[i])
	}
	have, err := u.s.be.Get(ctx, keys...)
	if err != nil {
		return nil, nil, fmt.Errorf("looking for parts: %w", err)
	}
	hour, err := u.s.hour()
	if err != nil {
		return nil, nil, err
	}
	var muts []backend.Mut
	var m space.Scratch
	for i, key := range keys {
		if have[i].Version != "" || slices.Contains(ids[:i], ids[i]) { // data may repeat itself
			continue
		}
		value, err := space.Parts.AppendSealed(nil, &m, u, key, space.Part{Hour: hour, Data: pieces[i]})
		if err != nil {
			return nil, nil, ofKeys(err)
		}
		muts = append(muts, backend.Mut{Key: key, Value: value, Version: space.Once})
	}
	return ids, muts, nil
}

// readParts reads the parts that are not in the cache, in one batch. A missing part is an error.
func (u *user) readParts(ctx context.Context, into map[codec.PartID][]byte, ids []codec.PartID) error {
	var keys [][]byte
	var want []codec.PartID
	for _, id := range ids {
		if _, ok := into[id]; ok {
			continue
		}
		into[id] = u.s.cache.part(partName{u.Tok, id})
		if into[id] == nil {
			keys, want = append(keys, u.PartKey(id)), append(want, id)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	got, err := u.s.be.Get(ctx, keys...)
	if err != nil {
		return fmt.Errorf("reading parts: %w", err)
	}
	for i, e := range got {
		if e.Version == "" {
			return corrupt(space.Describe(keys[i]), "missing, but a checkpoint names it", nil)
		}
		data, err := u.openPart(e)
		if err != nil {
			return err
		}
		into[want[i]] = data
		u.s.cache.keepPart(partName{u.Tok, want[i]}, data)
	}
	return nil
}

func (u *user) openPart(e backend.Entry) ([]byte, error) {
	p, err := unseal(u, space.Parts, e.Key, e.Value)
	return p.Data, err
}

// joinParts puts a payload together.
func joinParts(parts map[codec.PartID][]byte, ids []codec.PartID, size uint64) ([]byte, error) {
	out := make([]byte, 0, size)
	for _, id := range ids {
		out = append(out, parts[id]...)
	}
	if uint64(len(out)) != size {
		return nil, fmt.Errorf("parts have %d bytes, but the record says %d", len(out), size)
	}
	return out, nil
}
