package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"
)

// ThreadOptions choose threads of a user. The zero value is all, ordered by id.
type ThreadOptions struct {
	Prefix string // only threads whose id begins with it
	Status string // only threads whose head has it
	After  string // only threads whose id comes after it, bytewise
	Count  bool   // count the checkpoints, which reads all records of a thread

	// ByActivity lists first the threads that were active last, in order of ThreadInfo.Active. A list in this order reads
	// no more threads than it yields, and those that Status leaves out; one in order of id first reads the ids of all.
	ByActivity bool
	// ActiveAt, with ByActivity, goes on behind the thread After, which was listed as active at that time. A thread that was
	// active since stands at the front.
	ActiveAt time.Time
}

// ThreadInfo describes a thread. What it says of a head is that of the unnamed namespace, the thread's own, and is zero
// if only other namespaces have checkpoints.
type ThreadInfo struct {
	Ref        Ref
	Generation uint64
	Created    time.Time
	Expires    time.Time // zero if the thread does not expire
	Updated    time.Time // time of the head, or of the creation if there is no head
	// Active is where the thread stands in the order of activity: no checkpoint in any of its namespaces is an hour or more
	// newer. It moves with the first save of an hour.
	Active time.Time

	HeadID        string
	HeadSeq       uint64
	Step          int64
	Status        string
	Kind          string
	SchemaVersion uint64
	RunID         string
	Labels        map[string]string

	Checkpoints int // over all namespaces; 0 unless it was asked for
}

// Threads yields the threads of the user that are neither deleted nor expired, none for a user who never saved. In order of
// id, all ids, but no more, are held in memory. A thread that is deleted meanwhile is left out. After an error it ends.
func (u *User) Threads(ctx context.Context, o ThreadOptions) iter.Seq2[ThreadInfo, error] {
	return func(yield func(ThreadInfo, error) bool) {
		list := u.eachByID
		if o.ByActivity {
			list = u.eachByActivity
		}
		err := list(ctx, &o, func(info *ThreadInfo) error {
			if !yield(*info, nil) {
				return errStop
			}
			return nil
		})
		if err != nil && err != errStop {
			yield(ThreadInfo{}, fmt.Errorf("listing threads: %w", err))
		}
	}
}

func (u *User) eachByID(ctx context.Context, o *ThreadOptions, yield func(*ThreadInfo) error) error {
	ids, err := u.threadIDs(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if !strings.HasPrefix(id, o.Prefix) || id <= o.After {
			continue
		}
		info, err := u.thread(ctx, id, o)
		if err == nil {
			err = yield(info)
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	return nil
}

func (u *User) eachByActivity(ctx context.Context, o *ThreadOptions, yield func(*ThreadInfo) error) error {
	k, err := u.keys(ctx, false)
	if err != nil {
		return ignoring(ErrNotFound, err)
	}
	var behind []byte
	if o.After != "" {
		if o.ActiveAt.IsZero() {
			return fmt.Errorf("%w: After requires ActiveAt when listing by activity", ErrInvalid)
		}
		behind = k.ActivityKey(o.ActiveAt.UnixMilli(), k.ThreadToken(o.After))
	}
	for list := k.byActivity(behind); ; {
		if ok, err := list.peek(ctx); !ok || err != nil {
			return err
		}
		th, err := list.next()
		if err != nil {
			return err
		}
		if !strings.HasPrefix(th.id, o.Prefix) {
			continue
		}
		info, err := u.thread(ctx, th.id, o)
		if err == nil && info.Active.UnixMilli() == th.since { // else it moved to the front meanwhile
			err = yield(info)
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
}

// ignoring is err, unless that is of a kind.
func ignoring(kind, err error) error {
	if errors.Is(err, kind) {
		return nil
	}
	return err
}

// threadIDs lists the user's threads, in order; none if there is no such user.
func (u *User) threadIDs(ctx context.Context) ([]string, error) {
	k, err := u.keys(ctx, false)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return k.liveThreads(ctx)
}

// thread describes a thread. One that o does not want is ErrNotFound.
func (u *User) thread(ctx context.Context, id string, o *ThreadOptions) (*ThreadInfo, error) {
	info := &ThreadInfo{Ref: Ref{Tenant: u.name.tenant, User: u.name.name, Thread: id}}
	err := u.s.with(ctx, info.Ref, func(l *lineage) error { return l.describe(ctx, info) })
	if err == nil && o.Status != "" && info.Status != o.Status {
		err = ErrNotFound
	}
	if err == nil {
		head := &Checkpoint{Ref: info.Ref, ID: info.HeadID, Step: info.Step, Status: info.Status, Time: info.Updated, Labels: info.Labels}
		err = u.s.give(ctx, head, false)
		info.Labels = head.Labels
	}
	if err != nil || !o.Count {
		return info, err
	}
	err = u.s.eachLineage(ctx, info.Ref, func(l *lineage) error {
		return l.eachRecord(ctx, 1, endSeq, false, func(r *record) error {
			if r.visible() {
				info.Checkpoints++
			}
			return nil
		})
	})
	return info, err
}

func (l *lineage) describe(ctx context.Context, info *ThreadInfo) error {
	rec, there := l.th.record()
	if !there {
		return ErrNotFound
	}
	info.Generation, info.Created, info.Active = rec.Generation, time.UnixMilli(rec.Created).UTC(), time.UnixMilli(rec.Active).UTC()
	if rec.Expires != 0 {
		info.Expires = time.UnixMilli(rec.Expires).UTC()
	}
	info.Updated = info.Created
	r, err := l.newestRecord(ctx)
	if r == nil || err != nil {
		return err
	}
	rs := l.restorer()
	defer rs.taken.give()
	meta, err := rs.meta(ctx, r)
	if err != nil {
		return err
	}
	info.Updated = time.UnixMilli(r.rec.Time).UTC()
	info.HeadID, info.HeadSeq, info.Step, info.Status = l.recordID(r), r.seq, r.rec.Step, r.rec.Status
	info.Kind, info.SchemaVersion = meta.Kind, r.rec.Schema
	info.RunID, info.Labels = meta.RunID, meta.Labels // both fresh: the restorer is gone
	return nil
}

// Latest returns the newest checkpoint over all threads of the user, by time, with all its channels unless a
// LoadOptions says otherwise. Named namespaces do not count: they hold parts of a thread's work. It reads one record of
// every thread that was active within an hour of that.
func (u *User) Latest(ctx context.Context, opts ...LoadOptions) (*Checkpoint, error) {
	for {
		best, err := u.newestThread(ctx)
		if err != nil {
			return nil, fmt.Errorf("loading: %w", err)
		}
		if best == "" {
			return nil, fmt.Errorf("loading: %w: user %q has no checkpoint", ErrNotFound, u.name.name)
		}
		cp, err := u.s.Thread(Ref{Tenant: u.name.tenant, User: u.name.name, Thread: best}).Load(ctx, Latest, opts...)
		if !errors.Is(err, ErrNotFound) { // else it was deleted meanwhile
			return cp, err
		}
	}
}

// newestThread finds the thread whose head is the newest of all; "" if there is none.
func (u *User) newestThread(ctx context.Context) (best string, err error) {
	k, err := u.keys(ctx, false)
	if err != nil {
		return "", ignoring(ErrNotFound, err)
	}
	newest := int64(-1)
	look := func(th activeThread) error {
		return u.s.with(ctx, Ref{Tenant: u.name.tenant, User: u.name.name, Thread: th.id}, func(l *lineage) error {
			if _, there := l.th.record(); !there {
				return nil
			}
			r, err := l.newestRecord(ctx)
			if err == nil && r != nil && (r.rec.Time > newest || r.rec.Time == newest && th.id < best) {
				best, newest = th.id, r.rec.Time
			}
			return err
		})
	}
	list, rest := k.byActivity(nil), int64(math.MinInt64)
	for {
		ok, err := list.peek(ctx)
		if err != nil {
			return "", err
		}
		if !ok {
			break
		}
		if newest >= list.since+activeFor { // all that comes is older
			rest = list.since
			break
		}
		th, err := list.next()
		if err == nil {
			err = look(th)
		}
		if err != nil {
			return "", err
		}
	}
	return best, list.missed(ctx, rest, look)
}
