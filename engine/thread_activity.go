package engine

import (
	"container/heap"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// Every thread has one activity entry (docs/format.md §13), ordered by time. It moves at most once
// an hour, together with the thread record, which holds its time. So the entries of a user, newest
// first, are the user's threads in order of activity, to the hour, and a search for the newest need
// not read the rest.

// activeFor is how much newer than its activity entry a thread's checkpoints can be, in
// milliseconds.
const activeFor = int64(time.Hour / time.Millisecond)

// activeSince is the new time of a thread's activity entry when there is something new at now and
// the entry was at since; 0: there was none.
func activeSince(since, now int64) int64 {
	if since == 0 || now >= since+activeFor {
		return max(now, 1)
	}
	return since
}

// moveActivity adds the mutations that move the activity entry of the thread; 0 means none.
func (t *thread) moveActivity(muts []backend.Mut, from, to int64) ([]backend.Mut, error) {
	if from == to {
		return muts, nil
	}
	if from != 0 {
		muts = append(muts, backend.Mut{Key: t.u.ActivityKey(from, t.Tok), Delete: true})
	}
	if to == 0 {
		return muts, nil
	}
	key := t.u.ActivityKey(to, t.Tok)
	mut, err := sealMut(t.u, space.Activity, key, t.id, space.Once)
	return append(muts, mut), err
}

// activeThread is a thread as its activity entry names it.
type activeThread struct {
	id    string
	since int64
}

// activeAt parses the key of an activity entry.
func activeAt(key []byte) (since int64, thread crypto.Token, err error) {
	since, thread, ok := space.ActiveThread(key)
	if !ok {
		err = corrupt(space.Describe(key), "key has the wrong length", nil)
	}
	return since, thread, err
}

func (u *user) openActivity(e backend.Entry) (th activeThread, tok crypto.Token, err error) {
	if th.since, tok, err = activeAt(e.Key); err != nil {
		return th, tok, err
	}
	th.id, err = unseal(u, space.Activity, e.Key, e.Value)
	if err == nil && u.ThreadToken(th.id) != tok {
		err = corrupt(space.Describe(e.Key), "is for another thread", nil)
	}
	return th, tok, err
}

// eachActive calls fn with every thread active since a time or later, except those that skip names.
// Entries move in the direction of the walk, so it misses none.
func (u *user) eachActive(ctx context.Context, since int64, skip func(crypto.Token) bool, fn func(activeThread) error) error {
	r := u.Activity()
	r.Start = u.ActivityKey(max(since, 0), space.None)
	return u.s.scan(ctx, r, func(e backend.Entry) error {
		_, tok, err := activeAt(e.Key)
		if err != nil || skip(tok) {
			return err
		}
		th, _, err := u.openActivity(e)
		if err != nil {
			return err
		}
		return fn(th)
	})
}

// activity lists the threads of a user, most recently active first. A thread that becomes active in
// the meantime can be missed; missed finds those.
type activity struct {
	u      *user
	r      backend.Range
	page   []backend.Entry
	ended  bool
	since  int64 // of the next one, after peek
	listed map[crypto.Token]bool
}

// activityPage is how many entries are read at a time.
const activityPage = 64

// byActivity lists all threads of the user, or those after an entry.
func (u *user) byActivity(behind []byte) *activity {
	r := u.Activity()
	if behind != nil {
		r.End = behind
	}
	r.Reverse, r.Limit = true, 1 // for queries over many users only the first may be needed
	return &activity{u: u, r: r, listed: map[crypto.Token]bool{}}
}

// peek looks for the next thread, and reports whether there is one.
func (a *activity) peek(ctx context.Context) (ok bool, err error) {
	for len(a.page) == 0 && !a.ended {
		page, next, err := a.u.s.be.Scan(ctx, a.r)
		if err != nil {
			return false, fmt.Errorf("reading activity: %w", err)
		}
		a.page, a.ended = page, next == nil
		a.r.End, a.r.Limit = next, activityPage
	}
	if len(a.page) == 0 {
		return false, nil
	}
	a.since, _, err = activeAt(a.page[0].Key)
	return err == nil, err
}

// next returns the thread that peek found.
func (a *activity) next() (activeThread, error) {
	th, tok, err := a.u.openActivity(a.page[0])
	a.page = a.page[1:]
	a.listed[tok] = true
	return th, err
}

// missed calls fn with the unlisted threads that are active since after the given time, and lists
// them.
func (a *activity) missed(ctx context.Context, after int64, fn func(activeThread) error) error {
	listed := func(tok crypto.Token) bool {
		had := a.listed[tok]
		a.listed[tok] = true
		return had
	}
	return a.u.eachActive(ctx, after+1, listed, fn)
}

// activities are the lists of several users.
type activities struct {
	all  []*activity
	more []*activity // those with more threads: a heap, ordered by the next thread's activity
}

// activities lists the threads of one user or, if u is nil, of all users of a tenant.
func (s *Store) activities(ctx context.Context, tenant string, u *user) (*activities, error) {
	a := &activities{}
	err := s.eachUser(ctx, tenant, u, func(name string, _ crypto.Token) error {
		k, err := s.user(ctx, userName{tenant, name}, false)
		if err != nil {
			return err
		}
		list := k.byActivity(nil)
		ok, err := list.peek(ctx)
		a.all = append(a.all, list)
		if ok {
			a.more = append(a.more, list)
		}
		return err
	})
	heap.Init(a)
	return a, err
}

// since is when the next thread was active; not ok means that there is none.
func (a *activities) since() (since int64, ok bool) {
	if len(a.more) == 0 {
		return math.MinInt64, false
	}
	return a.more[0].since, true
}

// next returns the next thread and its user.
func (a *activities) next(ctx context.Context) (*user, activeThread, error) {
	list := a.more[0]
	th, err := list.next()
	if err != nil {
		return nil, th, err
	}
	ok, err := list.peek(ctx)
	if ok {
		heap.Fix(a, 0)
	} else {
		heap.Pop(a)
	}
	return list.u, th, err
}

// Len, Less, Swap, Push and Pop implement heap.Interface for more.
func (a *activities) Len() int           { return len(a.more) }
func (a *activities) Less(i, j int) bool { return a.more[i].since > a.more[j].since }
func (a *activities) Swap(i, j int)      { a.more[i], a.more[j] = a.more[j], a.more[i] }
func (a *activities) Push(l any)         { a.more = append(a.more, l.(*activity)) }

func (a *activities) Pop() any {
	last := len(a.more) - 1
	l := a.more[last]
	a.more = a.more[:last]
	return l
}
