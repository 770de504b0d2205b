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

// ThreadOptions select threads of a user. The zero value selects all, by id.
type ThreadOptions struct {
	Prefix string // only threads whose id begins with it
	Status string // only threads whose head has it
	After  string // only threads whose id comes after it, bytewise
	Count  bool   // count the checkpoints, which reads all records of a thread

	// ByActivity lists the most recently active threads first, in order of ThreadInfo.Active. This
	// reads only the threads that are yielded or that Status excludes; a list in order of id first
	// reads all ids.
	ByActivity bool
	// ActiveAt, with ByActivity, continues the list after the thread After, which it listed as
	// active at that time. A thread that was active since is now at the front.
	ActiveAt time.Time
}

// ThreadInfo describes a thread. The fields of the head are those of the unnamed namespace, and
// zero if only other namespaces have checkpoints.
type ThreadInfo struct {
	Ref        Ref
	Generation uint64
	Created    time.Time
	Expires    time.Time // zero if the thread does not expire
	Updated    time.Time // time of the head, or of the thread's creation if it has no head
	// Active is the thread's position in the order of activity: no checkpoint in any of its
	// namespaces is an hour or more newer. The first save in an hour updates it.
	Active time.Time

	HeadID        string
	HeadSeq       uint64
	Step          int64
	Status        string
	Kind          string
	SchemaVersion uint64
	RunID         string
	Labels        map[string]string

	Checkpoints int // in all namespaces; 0 unless Count is set
}

// Threads yields the threads of the user that are neither deleted nor expired; for a user who never
// saved it yields none. In order of id it holds all ids in memory, but nothing more. It leaves out
// threads deleted in the meantime. After an error it ends.
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
			return fmt.Errorf("%w: After with ByActivity needs ActiveAt", ErrInvalid)
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
		if err == nil && info.Active.UnixMilli() == th.since { // else it moved to the front
			err = yield(info)
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
}

// ignoring returns err, or nil if err is of a kind.
func ignoring(kind, err error) error {
	if errors.Is(err, kind) {
		return nil
	}
	return err
}

// threadIDs lists the user's threads, in order; none if the user does not exist.
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

// thread describes a thread. If o excludes it, that is ErrNotFound.
func (u *User) thread(ctx context.Context, id string, o *ThreadOptions) (*ThreadInfo, error) {
	info := &ThreadInfo{Ref: Ref{Tenant: u.name.tenant, User: u.name.name, Thread: id}}
	err := u.s.withLineage(ctx, info.Ref, func(l *lineage) error { return l.describe(ctx, info) })
	if err == nil && o.Status != "" && info.Status != o.Status {
		err = ErrNotFound
	}
	if err == nil {
		head := &Checkpoint{Ref: info.Ref, ID: info.HeadID, Step: info.Step, Status: info.Status, Time: info.Updated, Labels: info.Labels}
		err = u.s.applyLoadHooks(ctx, head, false)
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
	defer rs.reserved.release()
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

// Latest returns the newest checkpoint of all threads of the user, by time, with all its channels
// unless a LoadOptions says otherwise. Named namespaces do not count: they hold parts of a thread's
// work. It reads one record of every thread that was active within an hour of that checkpoint.
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

// newestThread finds the thread with the newest head; "" if there is none.
func (u *User) newestThread(ctx context.Context) (best string, err error) {
	k, err := u.keys(ctx, false)
	if err != nil {
		return "", ignoring(ErrNotFound, err)
	}
	newest := int64(-1)
	look := func(th activeThread) error {
		return u.s.withLineage(ctx, Ref{Tenant: u.name.tenant, User: u.name.name, Thread: th.id}, func(l *lineage) error {
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
