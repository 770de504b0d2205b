package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// sweeper removes the unreferenced blobs and parts of a user, by mark and sweep. Saves continue in
// the meantime: the parts that they name are in user.inFlight, which the sweeper asks under
// user.sweep right before each deletion.
//
// Records of epochs under construction are not marked: the rewrite holds inFlight until the thread
// record names the epoch.
type sweeper struct {
	u                    *user
	blobGrace, partGrace time.Duration   // 0 is none
	erased               map[BlobID]bool // these have no grace
	dry                  bool

	parts map[codec.PartID]struct{} // marked
	blobs map[BlobID]struct{}
	swept struct {
		blobs, parts int
		bytes        int64
	}
}

// sweepNow removes all unreferenced parts, and those blobs among erased that no checkpoint names.
func (u *user) sweepNow(ctx context.Context, erased map[BlobID]bool) error {
	sw := &sweeper{u: u, blobGrace: upkeep.DefaultGrace, erased: erased}
	return sw.run(ctx)
}

func (sw *sweeper) run(ctx context.Context) error {
	u := sw.u
	sw.parts, sw.blobs = map[codec.PartID]struct{}{}, map[BlobID]struct{}{}
	if err := u.sweep.lock(ctx); err != nil { // then records of saves under way are durable
		return err
	}
	u.naming.begin()
	u.sweep.unlock()
	defer u.naming.end()
	if err := sw.mark(ctx); err != nil {
		return fmt.Errorf("marking parts: %w", err)
	}
	if err := sw.sweepBlobs(ctx); err != nil {
		return fmt.Errorf("removing blobs: %w", err)
	}
	if err := sw.sweepParts(ctx); err != nil {
		return fmt.Errorf("removing parts: %w", err)
	}
	return nil
}

// mark finds the parts and blobs that records and pending writes name.
func (sw *sweeper) mark(ctx context.Context) error {
	var ids []string
	err := sw.u.eachThread(ctx, func(_ crypto.Token, rec *codec.Thread) error {
		if !rec.Deleted {
			ids = append(ids, rec.ID)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := sw.markThread(ctx, id); err != nil {
			return err
		}
	}
	return sw.u.eachEpoch(ctx, func(tok crypto.Token, epoch uint32) error {
		th, err := sw.u.stored(tok, epoch)
		if err != nil {
			return err
		}
		return sw.u.s.eachWrites(ctx, th, th.Writes(), func(_ backend.Entry, w *codec.Writes, _ *codec.WritesLedger) error {
			if w != nil {
				for i := range w.Writes {
					sw.markParts(w.Writes[i].Parts)
				}
			}
			return nil
		})
	})
}

func (sw *sweeper) markParts(ids []codec.PartID) {
	for _, id := range ids {
		sw.parts[id] = struct{}{}
	}
}

func (sw *sweeper) markThread(ctx context.Context, id string) error {
	l, err := sw.u.s.rlockThread(ctx, Ref{Tenant: sw.u.tenant, User: sw.u.name, Thread: id}, false)
	if err != nil {
		return err
	}
	defer l.runlockThread()
	rec, _ := l.th.record()
	for _, epoch := range []uint64{uint64(l.th.Epoch), rec.Kept} {
		if epoch == 0 {
			continue
		}
		at := l.th.in(uint32(epoch))
		names, err := at.namespaces(ctx)
		if err != nil {
			return err
		}
		for _, n := range names {
			if err := sw.markLineage(ctx, at.lineage(n.Name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (sw *sweeper) markLineage(ctx context.Context, l *storedLineage) error {
	rs := l.restorer()
	done := map[uint64]bool{} // holders of attributes
	return l.eachRecord(ctx, 1, endSeq, false, func(r *record) error {
		if r.rec == nil {
			return nil
		}
		for i := range r.rec.Entries {
			sw.markParts(r.rec.Entries[i].Parts)
		}
		holder := r.seq
		if e := &r.rec.Entries[0]; e.Mode == codec.Keep {
			holder = e.Path[0].Last
		}
		if !r.keepsBlobs() || done[holder] {
			return nil
		}
		rs = rs.next()
		rs.remember(r)
		meta, err := rs.meta(ctx, r)
		if err != nil {
			return err
		}
		done[holder] = true
		for _, id := range meta.Blobs {
			sw.blobs[id] = struct{}{}
		}
		return nil
	})
}

// old reports whether something created in an hour is past a grace time, which starts at the end of
// the hour.
func (sw *sweeper) old(hour uint64, grace time.Duration) bool {
	return grace <= 0 || !sw.u.s.now().Before(time.Unix(int64(hour+1)*3600, 0).Add(grace))
}

// sweepBlobs removes unreferenced manifests, and marks the parts of the others.
func (sw *sweeper) sweepBlobs(ctx context.Context) error {
	u := sw.u
	var victims []victim
	err := u.s.scan(ctx, u.Blobs(), func(e backend.Entry) error {
		m, err := unseal(u, space.Blobs, e.Key, e.Value)
		if err != nil {
			return err
		}
		id := BlobID(space.Tail(e.Key))
		if _, marked := sw.blobs[id]; marked || !sw.erased[id] && !sw.old(m.Hour, sw.blobGrace) {
			sw.markParts(m.Parts)
			return nil
		}
		v := victim{key: e.Key, size: int64(len(e.Value)), named: func() bool {
			if !u.naming.hasBlob(id) {
				return false
			}
			sw.markParts(m.Parts)
			return true
		}}
		if victims = append(victims, v); len(victims) == sweepBatch {
			sw.swept.blobs += sw.delete(ctx, &victims, &err)
		}
		return err
	})
	if err == nil {
		sw.swept.blobs += sw.delete(ctx, &victims, &err)
	}
	return err
}

// sweepBatch is how many keys are deleted, and how many parts are read, at a time.
const sweepBatch = 32

// victim is a blob or part that seems unreferenced.
type victim struct {
	key   []byte
	size  int64
	named func() bool // whether something has named it since
}

// delete deletes those victims that are still unreferenced, and returns their number.
func (sw *sweeper) delete(ctx context.Context, victims *[]victim, err *error) (n int) {
	u := sw.u
	if *err = u.sweep.lock(ctx); *err != nil {
		return 0
	}
	defer u.sweep.unlock()
	var muts []backend.Mut
	var size int64
	for _, v := range *victims {
		if !v.named() {
			muts = append(muts, backend.Mut{Key: v.key, Delete: true})
			size += v.size
		}
	}
	*victims = (*victims)[:0]
	if !sw.dry {
		if *err = u.s.commitAll(ctx, muts); *err != nil {
			return 0
		}
		u.s.cache.forgetParts(u.Tok)
	}
	sw.swept.bytes += size
	return len(muts)
}

// sweepParts removes the parts that are not marked.
func (sw *sweeper) sweepParts(ctx context.Context) error {
	r := sw.u.Parts()
	r.KeysOnly = true
	var keys [][]byte
	err := sw.u.s.scan(ctx, r, func(e backend.Entry) error {
		if _, marked := sw.parts[codec.PartID(space.Tail(e.Key))]; marked {
			return nil
		}
		if keys = append(keys, e.Key); len(keys) < sweepBatch {
			return nil
		}
		defer func() { keys = keys[:0] }()
		return sw.sweepKeys(ctx, keys)
	})
	if err != nil {
		return err
	}
	return sw.sweepKeys(ctx, keys)
}

// sweepKeys removes the parts at keys that are old enough.
func (sw *sweeper) sweepKeys(ctx context.Context, keys [][]byte) error {
	u := sw.u
	if len(keys) == 0 {
		return nil
	}
	got, err := u.s.be.Get(ctx, keys...)
	if err != nil {
		return err
	}
	var victims []victim
	for _, e := range got {
		if e.Version == "" {
			continue
		}
		if sw.partGrace > 0 {
			p, err := unseal(u, space.Parts, e.Key, e.Value)
			if err != nil {
				return err
			}
			if !sw.old(p.Hour, sw.partGrace) {
				continue
			}
		}
		id := codec.PartID(space.Tail(e.Key))
		victims = append(victims, victim{e.Key, int64(len(e.Value)), func() bool { return u.naming.hasPart(id) }})
	}
	sw.swept.parts += sw.delete(ctx, &victims, &err)
	return err
}
