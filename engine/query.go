package engine

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
)

// Query selects checkpoints across threads. The zero value selects all.
type Query struct {
	Filter
	Limit int // at most this many; 0: no limit
}

// terms returns the index terms that all checkpoints matching f have.
func (f *Filter) terms() []term {
	return terms(&codec.Attrs{RunID: f.RunID, Labels: f.Labels}, f.Status)
}

// admits reports whether a record can match f, judged without its attributes.
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

// Query yields the matching checkpoints of the user's threads, newest first by time (within a
// millisecond by ref and seq, greatest first), headers only; for a user who never saved it yields
// none. After an error it ends.
//
// If the query asks for a label, a run id, or a status other than running, a blind index names the
// lineages with such a checkpoint, and nothing of any other thread is read or decrypted; of several
// such terms the rarest is used. Of those lineages, Query reads the records from the first indexed
// one on. Other queries go through the threads in order of activity and read the records of each,
// newest first, back to Since; they read only threads active since the checkpoints being yielded,
// or since Since. A match takes a few words of memory until its turn, when it is read again;
// checkpoints deleted, pruned or replaced in the meantime are left out.
func (u *User) Query(ctx context.Context, q Query) iter.Seq2[*Checkpoint, error] {
	return func(yield func(*Checkpoint, error) bool) {
		k, err := u.keys(ctx, false)
		if errors.Is(err, ErrNotFound) {
			return
		}
		if err == nil {
			err = u.s.query(ctx, &q, k.tenant, k, yield)
		}
		if err != nil && err != errStop {
			yield(nil, fmt.Errorf("querying: %w", err))
		}
	}
}

// QueryTenant is User.Query over all users of a tenant. With an index term, it reads only users
// that the index names. Otherwise, of users last active before the checkpoints being yielded, it
// reads only that time. A user whose keys are destroyed has no checkpoints.
func (s *Store) QueryTenant(ctx context.Context, tenant string, q Query) iter.Seq2[*Checkpoint, error] {
	return func(yield func(*Checkpoint, error) bool) {
		err := errors.Join(s.ready(ctx), checkName("tenant", tenant, false))
		if err == nil {
			err = s.query(ctx, &q, tenant, nil, yield)
		}
		if err != nil && err != errStop {
			yield(nil, fmt.Errorf("querying: %w", err))
		}
	}
}

// query yields the matches of q, of one user or, if u is nil, of all users of a tenant. It returns
// errStop if the caller wants no more.
func (s *Store) query(ctx context.Context, q *Query, tenant string, u *user, yield func(*Checkpoint, error) bool) error {
	m := &querying{s: s, q: q, yield: yield}
	defer m.reserved.release()
	find := m.followTerms
	if len(q.terms()) == 0 {
		find = m.walkActivity
	}
	if err := find(ctx, tenant, u); err != nil {
		return err
	}
	return m.yieldSince(ctx, math.MinInt64)
}

// matches are positions of checkpoints in lineages.
type matches struct {
	refs     []Ref
	found    []position
	reserved reservation // for found
}

// A query reserves memory for this many matches at a time: for each a position, and as much to
// grow.
const positionsAtOnce, bytesPerPosition = 256, 64

type position struct {
	time       int64
	seq        uint64
	generation uint64
	ref        int // index in refs
}

// querying is a query under way.
type querying struct {
	s     *Store
	q     *Query
	yield func(*Checkpoint, error) bool

	matches
	waiting []int // indexes of matches not yielded yet: a heap, newest first
	yielded int
}

// Len, Less, Swap, Push and Pop implement heap.Interface for waiting: by time, then by ref and seq.
func (m *querying) Len() int      { return len(m.waiting) }
func (m *querying) Swap(i, j int) { m.waiting[i], m.waiting[j] = m.waiting[j], m.waiting[i] }
func (m *querying) Push(i any)    { m.waiting = append(m.waiting, i.(int)) }

func (m *querying) Pop() any {
	last := len(m.waiting) - 1
	i := m.waiting[last]
	m.waiting = m.waiting[:last]
	return i
}

func (m *querying) Less(i, j int) bool {
	p, q := &m.found[m.waiting[i]], &m.found[m.waiting[j]]
	return cmp.Or(cmp.Compare(p.time, q.time), m.refs[p.ref].Compare(m.refs[q.ref]), cmp.Compare(p.seq, q.seq)) > 0
}

// walkActivity goes through the threads in order of activity. Each time it has seen four times as
// many as before, it yields the matches newer than any that can follow.
func (m *querying) walkActivity(ctx context.Context, tenant string, u *user) error {
	lists, err := m.s.activities(ctx, tenant, u)
	if err != nil {
		return err
	}
	for seen, enough := 0, activityPage; ; enough *= 4 {
		since, more := lists.since()
		for ; more && seen < enough; seen++ {
			if !m.q.Since.IsZero() && since+activeFor <= m.q.Since.UnixMilli() { // all that comes is older
				more = false
				break
			}
			k, th, err := lists.next(ctx)
			if err == nil {
				err = m.walkThread(ctx, k, th.id)
			}
			if err != nil {
				return err
			}
			since, more = lists.since()
		}
		for _, list := range lists.all {
			err := list.missed(ctx, since, func(th activeThread) error { return m.walkThread(ctx, list.u, th.id) })
			if err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
		if err := m.yieldSince(ctx, since+activeFor); err != nil {
			return err
		}
	}
}

// walkThread finds the matches in a thread.
func (m *querying) walkThread(ctx context.Context, u *user, id string) error {
	return m.s.eachLineage(ctx, Ref{Tenant: u.tenant, User: u.name, Thread: id}, func(l *lineage) error {
		return m.walk(ctx, l, m.q, 1)
	})
}

// eachUser calls fn with the user u or, if that is nil, with all users of a tenant.
func (s *Store) eachUser(ctx context.Context, tenant string, u *user, fn func(name string, token crypto.Token) error) error {
	if u != nil {
		return fn(u.name, u.Tok)
	}
	for name, err := range s.keys.Users(ctx, tenant) {
		if err != nil {
			return ofKeys(err)
		}
		if err := fn(name, s.keys.UserToken(tenant, name)); err != nil {
			return err
		}
	}
	return nil
}

// walk finds the matches in a lineage with seqs from from on. It reads them newest first, and stops
// at Since.
func (m *querying) walk(ctx context.Context, l *lineage, q *Query, from uint64) error {
	if _, there := l.th.record(); !there {
		return nil
	}
	generation := l.generation()
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
		return m.add(ctx, position{r.rec.Time, r.seq, generation, len(m.refs) - 1})
	}
	err := l.eachRecord(ctx, from, endSeq, true, func(r *record) error {
		top = max(top, r.seq)
		return see(r)
	})
	if err != nil {
		return err
	}
	// Checkpoints replaced before they were read are now above the seq where the walk began.
	return l.eachRecord(ctx, top+1, endSeq, true, func(r *record) error {
		if r.rec == nil || r.rec.Replaced == 0 {
			return nil
		}
		return see(r)
	})
}

func (m *querying) add(ctx context.Context, p position) error {
	if len(m.found)%positionsAtOnce == 0 {
		if err := m.reserved.reserve(ctx, positionsAtOnce*bytesPerPosition); err != nil {
			return err
		}
	}
	m.found = append(m.found, p)
	heap.Push(m, len(m.found)-1)
	return nil
}

// yieldSince reads the matches since a time and yields them. It returns errStop if the caller wants
// no more.
func (m *querying) yieldSince(ctx context.Context, since int64) error {
	for len(m.waiting) > 0 && m.found[m.waiting[0]].time >= since {
		cp, err := m.read(ctx, m.found[heap.Pop(m).(int)])
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if m.yielded++; !m.yield(cp, nil) || m.yielded == m.q.Limit {
			return errStop
		}
	}
	return nil
}

// read reads the match at p, or its replacement. If it is gone or no longer matches, that is
// ErrNotFound.
func (m *querying) read(ctx context.Context, p position) (cp *Checkpoint, err error) {
	err = m.s.withLineage(ctx, m.refs[p.ref], func(l *lineage) (err error) {
		if _, there := l.th.record(); !there || l.generation() != p.generation {
			return ErrNotFound
		}
		r, err := l.currentAt(ctx, p.seq)
		if err == nil && r.seq != p.seq {
			err = m.recheck(ctx, l, p, r)
		}
		if err == nil {
			rs := l.restorer()
			defer rs.reserved.release() // the caller has it, and will soon get the next one
			cp, err = rs.checkpoint(ctx, r, nil)
		}
		return err
	})
	if err == nil {
		err = m.s.applyLoadHooks(ctx, cp, false)
	}
	return cp, err
}

// recheck checks the replacement of the match at p: if it does not match, or is a match of its own,
// that is ErrNotFound.
func (m *querying) recheck(ctx context.Context, l *lineage, p position, r *record) error {
	rs := l.restorer()
	defer rs.reserved.release()
	meta, err := rs.meta(ctx, r)
	if err != nil {
		return err
	}
	found := slices.ContainsFunc(m.found, func(o position) bool { return o.ref == p.ref && o.seq == r.seq })
	if found || !m.q.admits(r.rec) || !m.q.describes(meta) {
		return ErrNotFound
	}
	return nil
}
