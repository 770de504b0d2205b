package engine

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// partState is the result for a part: its size, or its fault.
type partState struct {
	size int64
	bad  string
}

// partsAtOnce bounds the parts in memory.
const partsAtOnce = 16

// checkParts reads the parts not seen yet, bypassing the cache, and says why they do not make up
// size bytes, if so.
func (u *verifiedUser) checkParts(ctx context.Context, ids []codec.PartID, size uint64) (reason string, err error) {
	var want []codec.PartID
	for _, id := range ids {
		if _, seen := u.parts[id]; !seen {
			want = append(want, id)
		}
	}
	for len(want) > 0 {
		n := min(len(want), partsAtOnce)
		keys := make([][]byte, n)
		for i := range keys {
			keys[i] = u.PartKey(want[i])
		}
		got, err := u.s.be.Get(ctx, keys...)
		if err != nil {
			return "", err
		}
		for i := range got {
			u.parts[want[i]] = u.checkPart(want[i], got[i])
		}
		want = want[n:]
	}
	total := int64(0)
	for _, id := range ids {
		p := u.parts[id]
		if p.bad != "" {
			return fmt.Sprintf("refers to a part %x… that %s", id[:4], p.bad), nil
		}
		total += p.size
	}
	if uint64(total) != size {
		return fmt.Sprintf("names parts of %d bytes, but says %d", total, size), nil
	}
	return "", nil
}

func (u *verifiedUser) checkPart(id codec.PartID, e backend.Entry) partState {
	if e.Version == "" {
		return partState{bad: "is missing"}
	}
	data, err := u.openPart(e)
	if err != nil {
		return partState{bad: "does not open"}
	}
	if made, _ := u.partIDs(data); len(made) != 1 && len(data) > 0 || len(made) == 1 && made[0] != id {
		return partState{bad: "has a different digest"}
	}
	return partState{size: int64(len(data))}
}

// allParts reads the unreferenced parts, too. Damage in those matters: the next save of the same
// bytes would reference them.
func (u *verifiedUser) allParts(ctx context.Context) error {
	r := u.Parts()
	r.KeysOnly = true
	return u.s.scan(ctx, r, func(e backend.Entry) error {
		id, ok := space.PartOf(e.Key)
		if !ok {
			return u.problem(e.Key, "key has the wrong length")
		}
		if _, named := u.parts[id]; named {
			u.v.report.Parts++
			return nil
		}
		got, err := u.s.be.Get(ctx, e.Key)
		if err != nil || got[0].Version == "" {
			return err
		}
		u.v.report.Parts++
		u.v.report.Orphans++
		if p := u.checkPart(id, got[0]); p.bad != "" {
			return u.problem(e.Key, p.bad)
		}
		return nil
	})
}

func (u *verifiedUser) problem(key []byte, reason string) error {
	return u.v.problem(Ref{Tenant: u.tenant, User: u.name}, corrupt(space.Describe(key), reason, nil))
}

// blob verifies a blob that a checkpoint names, once.
func (u *verifiedUser) blob(ctx context.Context, id BlobID) error {
	if err, seen := u.blobs[id]; seen {
		return err
	}
	key := u.BlobKey(id)
	got, err := u.s.be.Get(ctx, key)
	if err != nil {
		return err
	}
	if got[0].Version == "" {
		err = corrupt(space.Describe(key), "missing", nil)
	} else if err = u.checkBlob(ctx, id, got[0]); err != nil && ctx.Err() != nil {
		return err
	}
	u.blobs[id] = err
	return err
}

// checkBlob reads the manifest of a blob and its parts, and with Deep its content.
func (u *verifiedUser) checkBlob(ctx context.Context, id BlobID, e backend.Entry) error {
	m, err := unseal(u.user, space.Blobs, e.Key, e.Value)
	if err != nil {
		return err
	}
	reason, err := u.checkParts(ctx, m.Parts, m.Size)
	if err != nil {
		return err
	}
	if reason != "" {
		return corrupt(space.Describe(e.Key), reason, nil)
	}
	if !u.v.o.Deep {
		return nil
	}
	mac := hmac.New(sha256.New, u.BlobMAC[:])
	for _, part := range m.Parts {
		parts := map[codec.PartID][]byte{}
		if err := u.readParts(ctx, parts, []codec.PartID{part}); err != nil {
			return err
		}
		mac.Write(parts[part])
	}
	if BlobID(mac.Sum(nil)) != id {
		return corrupt(space.Describe(e.Key), "has a different digest", nil)
	}
	return nil
}

// allBlobs reads the manifests of the user.
func (u *verifiedUser) allBlobs(ctx context.Context) error {
	r := u.Blobs()
	return u.s.scan(ctx, r, func(e backend.Entry) error {
		id, ok := space.BlobOf(e.Key)
		if !ok {
			return u.problem(e.Key, "key has the wrong length")
		}
		u.v.report.Blobs++
		if _, named := u.blobs[id]; named {
			return nil // reported with who names it
		}
		u.v.report.Orphans++
		err := u.checkBlob(ctx, id, e)
		if errors.Is(err, ErrCorrupt) {
			if now, gerr := u.s.be.Get(ctx, e.Key); gerr != nil || now[0].Version == "" {
				return gerr // collected meanwhile, parts and all
			}
		}
		return u.v.problem(Ref{Tenant: u.tenant, User: u.name}, err)
	})
}

// recheck forgets the faults of parts and blobs, so that they are checked again.
func (u *verifiedUser) recheck() {
	maps.DeleteFunc(u.parts, func(_ codec.PartID, p partState) bool { return p.bad != "" })
	maps.DeleteFunc(u.blobs, func(_ BlobID, err error) bool { return err != nil })
}
