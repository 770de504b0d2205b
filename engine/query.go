package engine

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
)

// Query chooses checkpoints over many threads. The zero value is all of them.
type Query struct {
	Filter
	Limit int // at most this many; 0 is no limit
}

// terms are the terms that every checkpoint that matches f has.
func (f *Filter) terms() []term {
	return terms(&codec.Attrs{RunID: f.RunID, Labels: f.Labels}, f.Status)
}

// admits reports whether a record may match f, by what is in the record itself.
func (f *Filter) admits(rec *codec.Record) bool {
	at := time.UnixMilli(rec.Time)
	return (f.Status == "" || rec.Status == f.Status) && (f.MinStep == nil || rec.Step >= *f.MinStep) &&
		(f.MaxStep == nil || rec.Step <= *f.MaxStep) && (f.Since.IsZero() || !at.Before(f.Since)) &&
		(f.Until.IsZero() || at.Before(f.Until))
}

// describes reports whether attributes match f.
func (f *Filter) describes(meta *codec.Attrs) bool {
	for k, v := range f.Labels {
		if have, ok := meta.Labels[k]; !ok || have != v {
			return false
		}
	}
	return f.RunID == "" || meta.RunID == f.RunID
}

// Query yields the checkpoints of the user's threads that match, newest first by time (those of the same millisecond by
// ref and seq, the greatest first), headers only; none for a user who never saved. After an error it ends.
//
// If the query asks for a label, a run id, or a status other than running, a blind index names the lineages with such a
// checkpoint, and nothing of any other thread is read or decrypted; of several such terms the rarest is used. Of those
// lineages the records from the first one named on are read. Other queries read the records of all threads, newest first
// until before Since. What matches is remembered with a few words each until all of it is in order, then read again one
// by one; what is deleted, pruned or replaced meanwhile is left out.
func (u *User) Query(ctx context.Context, q Query) iter.Seq2[*Checkpoint, error] {
	return func(yield func(*Checkpoint, error) bool) {
		k, err := u.keys(ctx, false)
		if errors.Is(err, ErrNotFound) {
			return
		}
		var m matches
		defer m.room.give()
		if err == nil {
			err = u.s.match(ctx, &m, &q, k.tenant, k)
		}
		if err != nil {
			yield(nil, fmt.Errorf("querying: %w", err))
			return
		}
		u.s.yieldMatches(ctx, &m, &q, yield)
	}
}

// QueryTenant is User.Query over all users of a tenant. Only the users that the index names are looked at, if one is
// used. A user whose keys are destroyed has no checkpoints.
func (s *Store) QueryTenant(ctx context.Context, tenant string, q Query) iter.Seq2[*Checkpoint, error] {
	return func(yield func(*Checkpoint, error) bool) {
		err := errors.Join(s.ready(ctx), checkName("tenant", tenant, false))
		var m matches
		defer m.room.give()
		if err == nil {
			err = s.match(ctx, &m, &q, tenant, nil)
		}
		if err != nil {
			yield(nil, fmt.Errorf("querying: %w", err))
			return
		}
		s.yieldMatches(ctx, &m, &q, yield)
	}
}

// matches are positions of checkpoints in lineages.
type matches struct {
	refs  []Ref
	found []position
	room  taken // for found
}

// For so many matches a query takes room at a time. Each has a position, and room to grow.
const positionsAtOnce, bytesPerPosition = 256, 64

type position struct {
	time       int64
	seq        uint64
	generation uint64
	ref        int // index in refs
}

// match finds what matches q, of one user or, if u is nil, of all users of a tenant.
func (s *Store) match(ctx context.Context, m *matches, q *Query, tenant string, u *user) (err error) {
	ts := q.terms()
	var groups []entryGroup
	if len(ts) > 0 {
		if groups, err = s.rarest(ctx, tenant, u, ts); err != nil {
			return err
		}
	}
	err = s.eachUser(ctx, tenant, u, func(name string, token crypto.Token) error {
		mine := groups
		if len(ts) > 0 {
			from, _ := slices.BinarySearchFunc(groups, token, func(g entryGroup, t crypto.Token) int { return slices.Compare(g.user[:], t[:]) })
			mine = groups[from:]
			to := slices.IndexFunc(mine, func(g entryGroup) bool { return g.user != token })
			if to >= 0 {
				mine = mine[:to]
			}
			if len(mine) == 0 {
				return nil
			}
		}
		k, err := s.user(ctx, userName{tenant, name}, false)
		if err != nil {
			return err
		}
		if len(ts) == 0 {
			return m.walkUser(ctx, k, q)
		}
		for i := range mine {
			if err := m.follow(ctx, k, q, &mine[i]); err != nil {
				return err
			}
		}
		return nil
	})
	slices.SortFunc(m.found, func(a, b position) int { return -m.compare(a, b) })
	return err
}

// compare orders by time, and what was saved at the same time by ref and seq.
func (m *matches) compare(p, q position) int {
	if p.time != q.time {
		return cmp.Compare(p.time, q.time)
	}
	return cmp.Or(m.refs[p.ref].Compare(m.refs[q.ref]), cmp.Compare(p.seq, q.seq))
}

// eachUser calls fn with the user u or, if that is nil, with all users of a tenant.
func (s *Store) eachUser(ctx context.Context, tenant string, u *user, fn func(name string, token crypto.Token) error) error {
	if u != nil {
		return fn(u.name, u.tok)
	}
	for name, err := range s.keys.Users(ctx, tenant) {
		if err == nil {
			err = fn(name, s.keys.UserToken(tenant, name))
		}
		if err != nil {
			return err
		}
	}
	return nil
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
func (m *matches) follow(ctx context.Context, u *user, q *Query, g *entryGroup) error {
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

// walkUser finds the matches in all threads of a user.
func (m *matches) walkUser(ctx context.Context, u *user, q *Query) error {
	ids, err := u.liveThreads(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		err := u.s.eachLineage(ctx, Ref{Tenant: u.tenant, User: u.name, Thread: id}, func(l *lineage) error {
			return m.walk(ctx, l, q, 1)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// walk finds the matches in a lineage from seq from on. It reads them newest first, and stops where time ends it.
func (m *matches) walk(ctx context.Context, l *lineage, q *Query, from uint64) error {
	rec, there := l.th.record()
	if !there {
		return nil
	}
	m.refs = append(m.refs, l.ref)
	rs, top := l.restorer(), from-1
	see := func(r *record) error {
		if r.rec == nil {
			return nil
		}
		if !q.Since.IsZero() && time.UnixMilli(r.rec.Time).Before(q.Since) {
			return errStop
		}
		if r.rec.Ghost || !q.admits(r.rec) {
			return nil
		}
		rs = rs.next()
		meta, err := rs.meta(ctx, r)
		if err != nil || !q.describes(meta) {
			return err
		}
		if len(m.found)%positionsAtOnce == 0 {
			if err := m.room.take(ctx, positionsAtOnce*bytesPerPosition); err != nil {
				return err
			}
		}
		m.found = append(m.found, position{r.rec.Time, r.seq, rec.Generation, len(m.refs) - 1})
		return nil
	}
	err := l.eachRecord(ctx, from, endSeq, true, func(r *record) error {
		top = max(top, r.seq)
		return see(r)
	})
	if err != nil {
		return err
	}
	// What was replaced before it was read stands behind where the reading began.
	return l.eachRecord(ctx, top+1, endSeq, true, func(r *record) error {
		if r.rec == nil || r.rec.Replaced == 0 {
			return nil
		}
		return see(r)
	})
}

// yieldMatches reads what was found and yields it.
func (s *Store) yieldMatches(ctx context.Context, m *matches, q *Query, yield func(*Checkpoint, error) bool) {
	n := 0
	for _, p := range m.found {
		var cp *Checkpoint
		err := s.with(ctx, m.refs[p.ref], func(l *lineage) (err error) {
			if rec, there := l.th.record(); !there || rec.Generation != p.generation {
				return ErrNotFound
			}
			r, err := l.standsAt(ctx, p.seq)
			if err == nil && r.seq != p.seq {
				err = m.again(ctx, l, q, p, r)
			}
			if err == nil {
				rs := l.restorer()
				defer rs.taken.give() // the caller has it, and soon the next one
				cp, err = rs.checkpoint(ctx, r, nil)
			}
			return err
		})
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err == nil {
			err = s.give(ctx, cp, false)
		}
		if err != nil {
			yield(nil, fmt.Errorf("querying: %w", err))
			return
		}
		if n++; !yield(cp, nil) || n == q.Limit {
			return
		}
	}
}

// again checks a checkpoint that replaced what was found at p: one that does not match, or that was found too, is ErrNotFound.
func (m *matches) again(ctx context.Context, l *lineage, q *Query, p position, r *record) error {
	rs := l.restorer()
	defer rs.taken.give()
	meta, err := rs.meta(ctx, r)
	if err != nil {
		return err
	}
	found := slices.ContainsFunc(m.found, func(o position) bool { return o.ref == p.ref && o.seq == r.seq })
	if found || !q.admits(r.rec) || !q.describes(meta) {
		return ErrNotFound
	}
	return nil
}
