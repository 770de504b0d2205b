package migration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/panics"
)

// Scope says which states are meant.
type Scope struct {
	Tenant string `json:"tenant"`
	User   string `json:"user,omitempty"` // "" is every user of the tenant
	Kind   string `json:"kind,omitempty"` // "" is every kind
}

// lineage is a lineage with its heads, oldest first: its newest checkpoint and those in which
// branches end.
type lineage struct {
	ref   engine.Ref
	heads []head
}

// head is a checkpoint, without data, and a branch that ends there, "" if none does.
type head struct {
	*engine.Checkpoint
	branch string
	was    bool // it was a head when somebody looked, and is one still if nothing stands on it
}

// eachLineage calls f for all lineages in scope that have heads of the kind, from workers
// goroutines. It stops at the first error. Threads deleted meanwhile are skipped.
func (j *Jobs) eachLineage(ctx context.Context, scope Scope, workers int, f func(context.Context, *lineage) error) error {
	return inParallel(ctx, workers, func(ctx context.Context, hand func(engine.ThreadInfo) error) error {
		return j.eachThread(ctx, scope, hand)
	}, func(ctx context.Context, info engine.ThreadInfo) error {
		return j.lineagesOf(ctx, &info, func(l *lineage) error {
			l.heads = slices.DeleteFunc(l.heads, func(h head) bool { return scope.Kind != "" && h.Kind != scope.Kind })
			if len(l.heads) == 0 {
				return nil
			}
			return f(ctx, l)
		})
	})
}

// inParallel passes the items of source to work in several goroutines. It returns the first error:
// it starts no more work after it, but lets running work finish, so that its outcome is known.
func inParallel[T any](ctx context.Context, workers int, source func(ctx context.Context, hand func(T) error) error,
	work func(context.Context, T) error) error {
	handing, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	items := make(chan T, workers)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			defer panics.To(func(err error) { stop(err) })
			for item := range items {
				if handing.Err() != nil {
					continue // somebody failed
				}
				if err := work(ctx, item); err != nil {
					stop(err)
				}
			}
		})
	}
	err := source(handing, func(item T) error {
		select {
		case items <- item:
			return nil
		case <-handing.Done():
			return context.Cause(handing)
		}
	})
	close(items)
	running.Wait()
	if cause := context.Cause(handing); cause != nil {
		return cause
	}
	return err
}

// eachThread calls f for all threads in scope, in order of users and names.
func (j *Jobs) eachThread(ctx context.Context, scope Scope, f func(engine.ThreadInfo) error) error {
	users := []string{scope.User}
	if scope.User == "" {
		users = nil
		for user, err := range j.store.Upkeep().Users(ctx, scope.Tenant) {
			if err != nil {
				return err
			}
			users = append(users, user)
		}
		slices.Sort(users)
	}
	for _, user := range users {
		for info, err := range j.store.User(scope.Tenant, user).Threads(ctx, engine.ThreadOptions{}) {
			if err == nil {
				err = f(info)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// lineagesOf calls f for the lineages of a thread.
func (j *Jobs) lineagesOf(ctx context.Context, info *engine.ThreadInfo, f func(*lineage) error) error {
	spaces, err := j.store.Thread(info.Ref).Namespaces(ctx)
	if err != nil {
		return unlessGone(info.Ref, err)
	}
	for _, space := range spaces {
		ref := info.Ref
		ref.Namespace = space
		heads, err := headsOf(ctx, j.store.Thread(ref))
		if err != nil {
			err = unlessGone(ref, err)
		} else {
			err = f(&lineage{ref, heads})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// headsOf returns the heads of a lineage, oldest first. One that has nothing but pending writes is
// engine.ErrNotFound.
func headsOf(ctx context.Context, t *engine.Thread) ([]head, error) {
	headers := engine.LoadOptions{HeadersOnly: true}
	latest, err := t.Load(ctx, engine.Latest, headers)
	if err != nil {
		return nil, err
	}
	branches, err := t.Branches(ctx)
	if err != nil {
		return nil, err
	}
	heads := []head{{Checkpoint: latest}}
	for _, b := range branches {
		at := slices.IndexFunc(heads, func(h head) bool { return h.Seq == b.HeadSeq })
		if at >= 0 {
			heads[at].branch = b.Name
			continue
		}
		cp, err := t.Load(ctx, engine.AtSeq(b.HeadSeq), headers)
		if err != nil {
			return nil, err
		}
		heads = append(heads, head{Checkpoint: cp, branch: b.Name})
	}
	slices.SortFunc(heads, func(a, b head) int { return cmp.Compare(a.Seq, b.Seq) })
	return heads, nil
}

// andThose adds to the heads of a lineage those that were heads at an earlier look. Once another
// head was migrated, a head without a branch is not the newest any more.
func andThose(ctx context.Context, t *engine.Thread, heads []head, seqs []uint64) ([]head, error) {
	for _, seq := range seqs {
		if slices.ContainsFunc(heads, func(h head) bool { return h.Seq == seq }) {
			continue
		}
		cp, err := t.Load(ctx, engine.AtSeq(seq), engine.LoadOptions{HeadersOnly: true})
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		heads = append(heads, head{Checkpoint: cp, was: true})
	}
	slices.SortFunc(heads, func(a, b head) int { return cmp.Compare(a.Seq, b.Seq) })
	return heads, nil
}

// unlessGone is the error of reading a thread, with its name; none if it went meanwhile, or has
// nothing but pending writes.
func unlessGone(ref engine.Ref, err error) error {
	if gone(err) {
		return nil
	}
	return fmt.Errorf("thread %q of user %q: %w", ref.Thread, ref.User, err)
}

func gone(err error) bool {
	return errors.Is(err, engine.ErrNotFound) || errors.Is(err, engine.ErrGeneration)
}

// workersOr is the number of goroutines to use, given the requested number.
func workersOr(n int) int {
	if n > 0 {
		return n
	}
	return runtime.GOMAXPROCS(0)
}
