package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// followTerms finds all matches by the blind index.
func (m *querying) followTerms(ctx context.Context, tenant string, u *user) error {
	groups, err := m.s.rarestTerm(ctx, tenant, u, m.q.terms())
	if err != nil || len(groups) == 0 {
		return err
	}
	return m.s.eachUser(ctx, tenant, u, func(name string, token crypto.Token) error {
		from, _ := slices.BinarySearchFunc(groups, token, func(g entryGroup, t crypto.Token) int { return slices.Compare(g.User[:], t[:]) })
		mine := groups[from:]
		if to := slices.IndexFunc(mine, func(g entryGroup) bool { return g.User != token }); to >= 0 {
			mine = mine[:to]
		}
		if len(mine) == 0 {
			return nil
		}
		k, err := m.s.user(ctx, userName{tenant, name}, false)
		for i := 0; err == nil && i < len(mine); i++ {
			err = m.follow(ctx, k, m.q, &mine[i])
		}
		return err
	})
}

// entryGroup stands for the index entries of one term in one lineage.
type entryGroup struct {
	space.Indexed
	key []byte // of the earliest entry
}

func parseIndexKey(key []byte) (entryGroup, error) {
	at, ok := space.ParseIndex(key)
	if !ok {
		return entryGroup{}, corrupt(space.Describe(key), "key has the wrong length", nil)
	}
	return entryGroup{at, key}, nil
}

// rarestTerm reads the index entries of all terms in parallel until it has all of one, the rarest.
// It returns those by lineage, in the order of tokens.
func (s *Store) rarestTerm(ctx context.Context, tenant string, u *user, ts []term) ([]entryGroup, error) {
	scans := make([]struct {
		r      backend.Range
		groups []entryGroup
	}, len(ts))
	for i, t := range ts {
		if scans[i].r = s.space.TermOf(tenant, t.field, t.value); u != nil {
			scans[i].r = u.TermOf(t.field, t.value)
		}
		scans[i].r.KeysOnly, scans[i].r.Limit = true, 256
	}
	for {
		for i := range scans {
			sc := &scans[i]
			page, next, err := s.be.Scan(ctx, sc.r)
			if err != nil {
				return nil, fmt.Errorf("reading the index: %w", err)
			}
			for _, e := range page {
				g, err := parseIndexKey(e.Key)
				if err != nil {
					return nil, err
				}
				if n := len(sc.groups); n == 0 || !sc.groups[n-1].SameLineage(&g.Indexed) {
					sc.groups = append(sc.groups, g)
				}
			}
			if next == nil {
				return sc.groups, nil
			}
			sc.r.Start = next
		}
	}
}

// follow finds the matches in the lineage that a group of index entries names.
func (m *querying) follow(ctx context.Context, u *user, q *Query, g *entryGroup) error {
	if over, err := u.startsAfter(ctx, g.key, q.Until); over || err != nil {
		return err
	}
	ref, err := u.lineageOf(ctx, g)
	if err != nil || ref.Thread == "" {
		return err
	}
	return u.s.withLineage(ctx, ref, func(l *lineage) error {
		if l.th.Epoch != g.Epoch {
			return nil
		}
		return m.walk(ctx, l, q, g.Seq)
	})
}

// startsAfter reports whether the entry with a key, the earliest of its lineage, excludes the whole
// lineage: time never decreases along it. The entry's step does not matter, since later checkpoints
// inherit the term.
func (u *user) startsAfter(ctx context.Context, key []byte, until time.Time) (bool, error) {
	if until.IsZero() {
		return false, nil
	}
	got, err := u.s.be.Get(ctx, key)
	if err != nil {
		return false, fmt.Errorf("reading the index: %w", err)
	}
	if got[0].Version == "" {
		return true, nil // removed in the meantime, with its checkpoint
	}
	entry, err := u.openIndexEntry(got[0])
	return err == nil && !time.UnixMilli(entry.Time).Before(until), err
}

func (u *user) openIndexEntry(e backend.Entry) (codec.IndexEntry, error) {
	return unseal(u, space.Index, e.Key, e.Value)
}

// lineageOf returns the lineage that an index entry points to. It is the zero Ref if the entry is a
// leftover of an epoch or thread that is gone.
func (u *user) lineageOf(ctx context.Context, g *entryGroup) (Ref, error) {
	key := u.ThreadKey(g.Thread)
	got, err := u.s.be.Get(ctx, key)
	if err != nil || got[0].Version == "" {
		return Ref{}, err
	}
	rec, err := u.openThread(key, got[0].Value)
	if err != nil || !u.s.live(rec) || uint32(rec.Epoch) != g.Epoch {
		return Ref{}, err
	}
	return u.namespaceOf(ctx, g, rec.ID)
}

// namespaceOf is lineageOf with the thread given.
func (u *user) namespaceOf(ctx context.Context, g *entryGroup, thread string) (found Ref, err error) {
	ref := Ref{Tenant: u.tenant, User: u.name, Thread: thread}
	if g.NS == space.None {
		return ref, nil
	}
	err = u.s.withLineage(ctx, ref, func(l *lineage) error {
		key := l.th.NamespaceKey(g.NS)
		got, err := u.s.be.Get(ctx, key)
		if err != nil || got[0].Version == "" || l.th.Epoch != g.Epoch {
			return err
		}
		n, err := l.th.openNamespace(got[0])
		if err == nil {
			found = ref
			found.Namespace = n.Name
		}
		return err
	})
	return found, err
}
