package engine

import (
	"context"
	"errors"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
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
		byToken[u.tok] = u
	}
	var g indexed
	flush := func() error {
		if len(g.entries) == 0 {
			return nil
		}
		u := byToken[g.user]
		err := u.compare(ctx, &g)
		g.entries = g.entries[:0]
		return v.problem(Ref{Tenant: tenant, User: u.name}, err)
	}
	tok := v.s.keys.TenantToken(tenant)
	err := v.s.scan(ctx, prefixRange(tok[:]), func(e backend.Entry) error {
		if len(e.Key) < prefixLen || e.Key[prefixLen-1] != kindIndex {
			return nil
		}
		at, err := parseIndexKey(e.Key)
		if err != nil {
			return v.problem(Ref{Tenant: tenant}, err)
		}
		u := byToken[at.user]
		if u == nil || v.o.Thread != "" && at.thread != u.keys.ThreadToken(v.o.Thread) {
			if v.o.User == "" {
				v.report.Orphans++ // of a user whose keys are gone
			}
			return nil
		}
		if len(g.entries) == indexPage || len(g.entries) > 0 && (!g.sameLineage(&at) || g.term() != at.term()) {
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

func (g *entryGroup) term() crypto.Token { return crypto.Token(g.key[16:32]) }

// compare compares entries with the records of their lineage.
func (u *verifiedUser) compare(ctx context.Context, g *indexed) error {
	u.v.report.IndexEntries += len(g.entries)
	rec := u.threads[g.thread]
	if rec == nil {
		u.v.report.Orphans += len(g.entries)
		return nil
	}
	if uint64(g.epoch) == rec.Kept {
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
		if l.th.epoch != g.epoch {
			u.v.report.Orphans += len(g.entries)
			return nil
		}
		seqs := make([]uint64, len(g.entries))
		for i := range g.entries {
			seqs[i] = keySeq(g.entries[i].Key)
		}
		rs := l.restorer()
		if err := l.readRecords(ctx, rs.records, seqs); err != nil {
			return damageReported(err)
		}
		for i, e := range g.entries {
			if err := u.compareOne(ctx, rs, rs.records[seqs[i]], g.term(), e); err != nil {
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
		if u.s.keys.IndexToken(u.tenant, t.field, t.value) == term {
			return nil
		}
	}
	return u.v.problem(rs.l.ref, corrupt(place(e.Key), "stands at a checkpoint that does not have its term", nil))
}
