package engine

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// MaxBlob is the maximum size of a blob in bytes: its manifest, 16 bytes for every 256 KiB, must
// fit into one batch.
const MaxBlob = 15 << 30

// blobStep is how much of a blob is in memory at a time: as much as fits into one batch.
const blobStep = 3 * codec.MaxPart

// BlobInfo describes a blob.
type BlobInfo struct {
	ID      BlobID
	Size    int64     // bytes
	Created time.Time // when it was last put, to the hour
}

// PutBlob stores the bytes of r up to its end, and returns their digest and size when they are
// durable. It does not store content again that the user has stored before, in a blob or in part of
// one. Memory is bounded at any size. On an error, including one of r, there is no blob, and GC
// collects its parts.
//
// Text runs through the hooks, whole and so in memory, and their output becomes the blob; a text
// too large for that is ErrRejected while there are hooks. A blob is text if its first 64 KiB are
// UTF-8 without zero bytes.
//
// A blob is kept as long as a checkpoint names it (Draft.Blobs), and for GC's grace time after it
// was last put, so there is time to save the checkpoint that names it.
func (u *User) PutBlob(ctx context.Context, r io.Reader) (BlobID, int64, error) {
	us, err := u.keys(ctx, true)
	if err != nil {
		return BlobID{}, 0, fmt.Errorf("storing a blob: %w", err)
	}
	var text reservation
	defer text.release()
	if r, err = us.hookBlob(ctx, &text, r); err != nil {
		return BlobID{}, 0, fmt.Errorf("storing a blob: %w", err)
	}
	us.naming.begin() // no sweep takes a part of the blob, new or old, before its manifest is stored
	defer us.naming.end()
	p := newBlobPut(us, MaxBlob)
	id, err := p.put(ctx, r)
	if err != nil {
		return BlobID{}, 0, fmt.Errorf("storing a blob: %w", err)
	}
	return id, int64(p.manifest.Size), nil
}

// blobPut is a blob being stored.
type blobPut struct {
	u        *user
	most     int64
	mac      hash.Hash
	manifest codec.Blob
}

func newBlobPut(u *user, most int64) *blobPut {
	return &blobPut{u: u, most: most, mac: hmac.New(sha256.New, u.BlobMAC[:])}
}

func (p *blobPut) put(ctx context.Context, r io.Reader) (id BlobID, err error) {
	var room reservation
	defer room.release()
	if err := room.reserve(ctx, blobStep); err != nil {
		return id, err
	}
	buf := make([]byte, blobStep)
	for last := false; !last; {
		n, err := io.ReadFull(r, buf)
		last = errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return id, err
		}
		if size := int64(p.manifest.Size) + int64(n); size > p.most {
			return id, &LimitError{"blob", size, p.most}
		}
		if err := p.add(ctx, buf[:n]); err != nil {
			return id, err
		}
	}
	p.mac.Sum(id[:0])
	return id, p.finish(ctx, id)
}

// add stores the next bytes of the blob: whole parts, or the rest.
func (p *blobPut) add(ctx context.Context, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	if err := p.u.sweep.rLock(ctx); err != nil {
		return err
	}
	defer p.u.sweep.rUnlock()
	return p.addLocked(ctx, data)
}

// putLocked stores a whole blob. The caller holds u.sweep for reading until a record that names the
// blob is durable.
func (p *blobPut) putLocked(ctx context.Context, data []byte) error {
	for piece := range slices.Chunk(data, blobStep) {
		if err := p.addLocked(ctx, piece); err != nil {
			return err
		}
	}
	return p.finishLocked(ctx, BlobID(p.mac.Sum(nil)))
}

// addLocked is add of at least one byte. The caller holds u.sweep for reading.
func (p *blobPut) addLocked(ctx context.Context, data []byte) error {
	p.mac.Write(data)
	ids, muts, err := p.u.newParts(ctx, data)
	if err != nil {
		return err
	}
	p.manifest.Size += uint64(len(data))
	p.manifest.Parts = append(p.manifest.Parts, ids...)
	return p.u.s.commitAll(ctx, muts)
}

// finish writes the manifest. It rewrites an existing one, since its hour keeps the blob until a
// checkpoint names it.
func (p *blobPut) finish(ctx context.Context, id BlobID) error {
	if err := p.u.sweep.rLock(ctx); err != nil {
		return err
	}
	defer p.u.sweep.rUnlock()
	return p.finishLocked(ctx, id)
}

func (p *blobPut) finishLocked(ctx context.Context, id BlobID) error {
	u := p.u
	u.naming.noteBlobs([][32]byte{id})
	hour, err := u.s.hour()
	if err != nil {
		return err
	}
	p.manifest.Hour = hour
	old, err := u.manifest(ctx, id)
	if err == nil && old.Hour >= p.manifest.Hour {
		return nil
	}
	if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrCorrupt) { // a damaged one is replaced
		return err
	}
	mut, err := sealMut(u, space.Blobs, u.BlobKey(id), &p.manifest, space.Once)
	if err != nil {
		return err
	}
	return u.s.commit(ctx, []backend.Mut{mut}, nil)
}

// StatBlob describes a blob without reading it. A missing one is ErrNotFound.
func (u *User) StatBlob(ctx context.Context, id BlobID) (BlobInfo, error) {
	us, err := u.keys(ctx, false)
	var m *codec.Blob
	if err == nil {
		m, err = us.manifest(ctx, id)
	}
	if err != nil {
		return BlobInfo{}, fmt.Errorf("inspecting a blob: %w", err)
	}
	return BlobInfo{ID: id, Size: int64(m.Size), Created: time.Unix(int64(m.Hour)*3600, 0).UTC()}, nil
}

// GetBlob writes the content of a blob to w, 256 KiB at a time, and returns the number of bytes
// written. It verifies every piece before writing it, and returns nil only if all pieces together
// match the digest. After an error w may have received part of the content. A missing blob is
// ErrNotFound.
func (u *User) GetBlob(ctx context.Context, id BlobID, w io.Writer) (int64, error) {
	us, err := u.keys(ctx, false)
	n := int64(0)
	if err == nil {
		n, err = us.copyBlob(ctx, id, w)
	}
	if err != nil {
		return n, fmt.Errorf("reading a blob: %w", err)
	}
	return n, nil
}

func (u *user) copyBlob(ctx context.Context, id BlobID, w io.Writer) (n int64, err error) {
	m, err := u.manifest(ctx, id)
	if err != nil {
		return 0, err
	}
	var room reservation
	defer room.release()
	if err := room.reserve(ctx, int64(codec.MaxPart+len(m.Parts)*len(codec.PartID{}))); err != nil {
		return 0, err
	}
	mac := hmac.New(sha256.New, u.BlobMAC[:])
	for _, part := range m.Parts {
		data, err := u.blobPart(ctx, id, part)
		if err != nil {
			return n, err
		}
		mac.Write(data)
		written, err := w.Write(data)
		if n += int64(written); err != nil {
			return n, err
		}
	}
	if BlobID(mac.Sum(nil)) != id || uint64(n) != m.Size {
		return n, corrupt(space.Describe(u.BlobKey(id)), "content differs from its digest", nil)
	}
	return n, nil
}

// blobPart reads one part, bypassing the cache: the reader of a large blob needs each part once.
func (u *user) blobPart(ctx context.Context, id BlobID, part codec.PartID) ([]byte, error) {
	key := u.PartKey(part)
	got, err := u.s.be.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	if got[0].Version == "" {
		if _, err := u.manifest(ctx, id); err != nil { // collected meanwhile
			return nil, err
		}
		return nil, corrupt(space.Describe(key), "missing, but a blob names it", nil)
	}
	data, err := u.openPart(got[0])
	if err != nil {
		return nil, err
	}
	if ids, _ := u.partIDs(data); len(ids) != 1 || ids[0] != part {
		return nil, corrupt(space.Describe(key), "content differs from its digest", nil)
	}
	return data, nil
}

func (u *user) manifest(ctx context.Context, id BlobID) (*codec.Blob, error) {
	got, err := u.s.be.Get(ctx, u.BlobKey(id))
	if err != nil {
		return nil, err
	}
	if got[0].Version == "" {
		return nil, fmt.Errorf("%w: blob %v", ErrNotFound, id)
	}
	return unseal(u, space.Blobs, got[0].Key, got[0].Value)
}
