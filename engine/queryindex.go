package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
)

// followTerms finds all matches by the blind index.
func (m *querying) followTerms(ctx context.Context, tenant string, u *user) error {
	groups, err := m.s.rarest(ctx, tenant, u, m.q.terms())
	if err != nil || len(groups) == 0 {
		return err
	}
	return m.s.eachUser(ctx, tenant, u, func(name string, token crypto.Token) error {
		from, _ := slices.BinarySearchFunc(groups, token, func(g entryGroup, t crypto.Token) int { return slices.Compare(g.user[:], t[:]) })
		mine := groups[from:]
		if to := slices.IndexFunc(mine, func(g entryGroup) bool { return g.user != token }); to >= 0 {
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

// entryGroup is what the index says of one term in one lineage: where it begins.
type entryGroup struct {
	user, thread, ns crypto.Token
	epoch            uint32
	first            uint64 // seq of the earliest entry
	key              []byte // of that entry
}

const indexKeyLen = prefixLen + 16 + 16 + 4 + 16 + 8

// parseIndexKey is the inverse of lineage.indexKey, but for the term.
func parseIndexKey(key []byte) (g entryGroup, err error) {
	if len(key) != indexKeyLen {
		return g, corrupt(place(key), "key has a wrong length", nil)
	}
	tail := key[prefixLen:]
	g = entryGroup{user: crypto.Token(tail[:16]), thread: crypto.Token(tail[16:32]), epoch: binary.BigEndian.Uint32(tail[32:]),
		ns: crypto.Token(tail[36:52]), first: binary.BigEndian.Uint64(tail[52:]), key: key}
	return g, nil
}

// rarest reads the index entries of all terms side by side until it has all of one, the rarest, and returns those by
// lineage, in the order of tokens.
func (s *Store) rarest(ctx context.Context, tenant string, u *user, ts []term) ([]entryGroup, error) {
	scans := make([]struct {
		r      backend.Range
		groups []entryGroup
	}, len(ts))
	for i, t := range ts {
		p := keyPrefix(s.keys.TenantToken(tenant), s.keys.IndexToken(tenant, t.field, t.value), 0, kindIndex)
		if u != nil {
			p = append(p, u.tok[:]...)
		}
		scans[i].r = prefixRange(p)
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
				if n := len(sc.groups); n == 0 || !sc.groups[n-1].sameLineage(&g) {
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

func (g *entryGroup) sameLineage(h *entryGroup) bool {
	return g.user == h.user && g.thread == h.thread && g.epoch == h.epoch && g.ns == h.ns
}

// follow finds the matches in the lineage that index entries name.
func (m *querying) follow(ctx context.Context, u *user, q *Query, g *entryGroup) error {
	if over, err := u.after(ctx, g.key, q.Until); over || err != nil {
		return err
	}
	ref, err := u.lineageOf(ctx, g)
	if err != nil || ref.Thread == "" {
		return err
	}
	return u.s.with(ctx, ref, func(l *lineage) error {
		if l.th.epoch != g.epoch {
			return nil
		}
		return m.walk(ctx, l, q, g.first)
	})
}

// after reports whether the entry with a key, the earliest of its lineage, rules out everything from it on: time never
// decreases along a lineage. Its step says nothing of later checkpoints that inherit the term.
func (u *user) after(ctx context.Context, key []byte, until time.Time) (bool, error) {
	if until.IsZero() {
		return false, nil
	}
	got, err := u.s.be.Get(ctx, key)
	if err != nil {
		return false, fmt.Errorf("reading the index: %w", err)
	}
	if got[0].Version == "" {
		return true, nil // removed meanwhile with what it led to
	}
	entry, err := u.openIndexEntry(got[0])
	return err == nil && !time.UnixMilli(entry.Time).Before(until), err
}

func (u *user) openIndexEntry(e backend.Entry) (codec.IndexEntry, error) {
	return unseal(u.index, indexLayout, e.Key, e.Value)
}

// lineageOf names the lineage that an index entry leads to. It is the zero Ref if the entry is left over from an epoch or
// a thread that is gone.
func (u *user) lineageOf(ctx context.Context, g *entryGroup) (Ref, error) {
	key := u.threadKey(g.thread)
	got, err := u.s.be.Get(ctx, key)
	if err != nil || got[0].Version == "" {
		return Ref{}, err
	}
	rec, err := u.openThread(key, got[0].Value)
	if err != nil || !u.s.live(rec) || uint32(rec.Epoch) != g.epoch {
		return Ref{}, err
	}
	return u.namespaceOf(ctx, g, rec.ID)
}

// namespaceOf names the lineage that an index entry leads to in a thread, as lineageOf.
func (u *user) namespaceOf(ctx context.Context, g *entryGroup, thread string) (found Ref, err error) {
	ref := Ref{Tenant: u.tenant, User: u.name, Thread: thread}
	if g.ns == zeroToken {
		return ref, nil
	}
	err = u.s.with(ctx, ref, func(l *lineage) error {
		key := l.th.nsKey(kindNamespace, g.ns)
		got, err := u.s.be.Get(ctx, key)
		if err != nil || got[0].Version == "" || l.th.epoch != g.epoch {
			return err
		}
		found = ref
		found.Namespace, err = l.th.openNamespace(got[0])
		return err
	})
	return found, err
}
