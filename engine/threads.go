package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
)

// ThreadOptions choose threads of a user. The zero value is all of them.
type ThreadOptions struct {
	Prefix string // only threads whose id begins with it
	After  string // only threads whose id comes after it, bytewise
	Count  bool   // count the checkpoints, which reads all records of a thread
}

// ThreadInfo describes a thread. What it says of a head is that of the unnamed namespace, the thread's own, and is zero
// if only other namespaces have checkpoints.
type ThreadInfo struct {
	Ref        Ref
	Generation uint64
	Created    time.Time
	Expires    time.Time // zero if the thread does not expire
	Updated    time.Time // time of the head, or of the creation if there is no head

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

// Threads yields the threads of the user that are neither deleted nor expired, in order of id, none for a user who never
// saved. The ids, but no more, are all held in memory. A thread that is deleted meanwhile is left out. After an error it
// ends.
func (u *User) Threads(ctx context.Context, o ThreadOptions) iter.Seq2[ThreadInfo, error] {
	return func(yield func(ThreadInfo, error) bool) {
		ids, err := u.threadIDs(ctx)
		if err != nil {
			yield(ThreadInfo{}, fmt.Errorf("listing threads: %w", err))
			return
		}
		ids = slices.DeleteFunc(ids, func(id string) bool { return !strings.HasPrefix(id, o.Prefix) || id <= o.After })
		for _, id := range ids {
			info, err := u.thread(ctx, id, o.Count)
			if errors.Is(err, ErrNotFound) {
				continue
			}
			if err != nil {
				yield(ThreadInfo{}, fmt.Errorf("listing threads: %w", err))
				return
			}
			if !yield(*info, nil) {
				return
			}
		}
	}
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

func (u *User) thread(ctx context.Context, id string, count bool) (*ThreadInfo, error) {
	info := &ThreadInfo{Ref: Ref{Tenant: u.name.tenant, User: u.name.name, Thread: id}}
	err := u.s.with(ctx, info.Ref, func(l *lineage) error { return l.describe(ctx, info) })
	if err == nil {
		head := &Checkpoint{Ref: info.Ref, ID: info.HeadID, Step: info.Step, Status: info.Status, Time: info.Updated, Labels: info.Labels}
		err = u.s.give(ctx, head, false)
		info.Labels = head.Labels
	}
	if err != nil || !count {
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
	info.Generation, info.Created = rec.Generation, time.UnixMilli(rec.Created).UTC()
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
// every thread.
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
	ids, err := u.threadIDs(ctx)
	if err != nil {
		return "", err
	}
	newest := int64(-1)
	for _, id := range ids {
		err := u.s.with(ctx, Ref{Tenant: u.name.tenant, User: u.name.name, Thread: id}, func(l *lineage) error {
			if _, there := l.th.record(); !there {
				return nil
			}
			r, err := l.newestRecord(ctx)
			if err == nil && r != nil && r.rec.Time > newest {
				best, newest = id, r.rec.Time
			}
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return best, nil
}
