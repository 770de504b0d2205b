package engine

import (
	"context"
	"errors"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// indexed is the index entries of one term in one lineage, or a page of them.
type indexed struct {
	entryGroup
	entries []backend.Entry
}

// indexPage is how many entries of a group are compared with their records at a time.
const indexPage = 64

// index compares the index entries of a tenant with the records that they stand for.
func (v *verifier) index(ctx context.Context, tenant string, users []*verifiedUser) error {
	byToken := map[crypto.Token]*verifiedUser{}
	for _, u := range users {
		byToken[u.Tok] = u
	}
	var g indexed
	flush := func() error {
		if len(g.entries) == 0 {
			return nil
		}
		u := byToken[g.User]
		err := u.compare(ctx, &g)
		g.entries = g.entries[:0]
		return v.problem(Ref{Tenant: tenant, User: u.name}, err)
	}
	err := v.s.scan(ctx, v.s.space.OfTenant(tenant), func(e backend.Entry) error {
		if !space.IsIndex(e.Key) {
			return nil
		}
		at, err := parseIndexKey(e.Key)
		if err != nil {
			return v.problem(Ref{Tenant: tenant}, err)
		}
		u := byToken[at.User]
		if u == nil || v.o.Thread != "" && at.Thread != u.ThreadToken(v.o.Thread) {
			if v.o.User == "" {
				v.report.Orphans++ // of a user whose keys are gone
			}
			return nil
		}
		if len(g.entries) == indexPage || len(g.entries) > 0 && (!g.SameLineage(&at.Indexed) || g.Term != at.Term) {
			if err := flush(); err != nil {
				return err
			}
		}
		g.entryGroup, g.entries = at, append(g.entries, e)
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}

// compare compares entries with the records of their lineage.
func (u *verifiedUser) compare(ctx context.Context, g *indexed) error {
	u.v.report.IndexEntries += len(g.entries)
	rec := u.threads[g.Thread]
	if rec == nil {
		u.v.report.Orphans += len(g.entries)
		return nil
	}
	if uint64(g.Epoch) == rec.Kept {
		return nil // nobody follows them; those that must be there were looked for with their records
	}
	ref, err := u.namespaceOf(ctx, &g.entryGroup, rec.ID)
	if err != nil {
		return err
	}
	if ref.Thread == "" {
		u.v.report.Orphans += len(g.entries)
		return nil
	}
	return u.s.with(ctx, ref, func(l *lineage) error {
		if l.th.Epoch != g.Epoch {
			u.v.report.Orphans += len(g.entries)
			return nil
		}
		seqs := make([]uint64, len(g.entries))
		for i := range g.entries {
			seqs[i] = space.SeqOf(g.entries[i].Key)
		}
		rs := l.restorer()
		if err := l.readRecords(ctx, rs.records, seqs); err != nil {
			return damageReported(err)
		}
		for i, e := range g.entries {
			if err := u.compareOne(ctx, rs, rs.records[seqs[i]], g.Term, e); err != nil {
				return err
			}
		}
		return nil
	})
}

// damageReported forgives damage that was found when the records themselves were verified.
func damageReported(err error) error {
	if errors.Is(err, ErrCorrupt) || errors.Is(err, ErrKeyDestroyed) || errors.Is(err, ErrNewerFormat) {
		return nil
	}
	return err
}

// compareOne compares an entry with its record, nil if there is none. An entry that speaks of another time or step is
// left from a save that did not come to its end, and leads nobody astray.
func (u *verifiedUser) compareOne(ctx context.Context, rs *restorer, r *record, term crypto.Token, e backend.Entry) error {
	entry, err := u.openIndexEntry(e)
	if err != nil {
		return u.v.problem(rs.l.ref, err)
	}
	if r == nil || entry != (codec.IndexEntry{Time: r.rec.Time, Step: r.rec.Step}) {
		u.v.report.Orphans++
		return nil
	}
	meta, err := rs.meta(ctx, r)
	if err != nil {
		return damageReported(err)
	}
	for _, t := range terms(meta, r.rec.Status) {
		if u.Term(u.tenant, t.field, t.value) == term {
			return nil
		}
	}
	return u.v.problem(rs.l.ref, corrupt(space.Place(e.Key), "refers to a checkpoint without its term", nil))
}
