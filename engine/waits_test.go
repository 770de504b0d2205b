package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/mem"
	. "github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// slowBackend takes a while for every commit, in the virtual time of a bubble.
type slowBackend struct {
	backend.Backend
	commit time.Duration

	mu     sync.Mutex
	closed bool
	under  sync.WaitGroup // the commits under way
}

func slowly(commit time.Duration) *slowBackend {
	return &slowBackend{Backend: mem.Open(), commit: commit}
}

func (b *slowBackend) Commit(ctx context.Context, batch backend.Batch) error {
	if !b.accept() {
		return backend.ErrClosed
	}
	defer b.under.Done()
	time.Sleep(b.commit) // whatever becomes of ctx: a batch that was accepted is waited for
	return b.Backend.Commit(context.WithoutCancel(ctx), batch)
}

func (b *slowBackend) accept() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.under.Add(1)
	}
	return !b.closed
}

// Close waits for the commits under way, as every backend does. A call that gave up leaves one, and
// no goroutine may outlive its bubble.
func (b *slowBackend) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.under.Wait()
	return b.Backend.Close()
}

// call is a call of one method on a thread that others write to.
type call struct {
	name string
	most int // commits that it may wait for
	do   func(context.Context, *Thread, *Checkpoint) error
}

func waitingCalls(s *Store) []call {
	load := func(w Which) func(context.Context, *Thread, *Checkpoint) error {
		return func(ctx context.Context, th *Thread, _ *Checkpoint) error {
			_, err := th.Load(ctx, w)
			return err
		}
	}
	u := s.User("acme", "alice")
	return []call{
		{"Load Latest", 2, load(Latest)},
		{"Load AtSeq", 0, load(AtSeq(1))},
		{"Load LatestByID", 0, load(LatestByID())},
		{"Load HeadOf", 0, load(HeadOf("main"))},
		{"Load LatestOfRun", 0, load(LatestOfRun("run"))},
		{"Load At", 0, func(ctx context.Context, th *Thread, first *Checkpoint) error {
			_, err := th.Load(ctx, At(first.ID))
			return err
		}},
		{"Load headers", 0, func(ctx context.Context, th *Thread, first *Checkpoint) error {
			_, err := th.Load(ctx, At(first.ID), LoadOptions{HeadersOnly: true})
			return err
		}},
		{"History", 0, func(ctx context.Context, th *Thread, _ *Checkpoint) error {
			return drainSeq(th.History(ctx, HistoryOptions{Limit: 5, Data: true}))
		}},
		{"History of a branch", 0, func(ctx context.Context, th *Thread, _ *Checkpoint) error {
			return drainSeq(th.History(ctx, HistoryOptions{Branch: "main"}))
		}},
		{"Diff", 0, func(ctx context.Context, th *Thread, _ *Checkpoint) error {
			_, err := th.Diff(ctx, AtSeq(1), AtSeq(2))
			return err
		}},
		{"Tree", 0, func(ctx context.Context, th *Thread, _ *Checkpoint) error {
			_, err := th.Tree(ctx)
			return err
		}},
		{"Branches", 0, func(ctx context.Context, th *Thread, _ *Checkpoint) error {
			_, err := th.Branches(ctx)
			return err
		}},
		{"Writes", 0, func(ctx context.Context, th *Thread, first *Checkpoint) error {
			_, err := th.Writes(ctx, first.ID)
			return err
		}},
		{"Namespaces", 0, func(ctx context.Context, th *Thread, _ *Checkpoint) error {
			_, err := th.Namespaces(ctx)
			return err
		}},
		{"Query", 0, func(ctx context.Context, _ *Thread, _ *Checkpoint) error {
			return drainSeq(u.Query(ctx, Query{Filter: Filter{RunID: "run"}}))
		}},
		{"Threads", 0, func(ctx context.Context, _ *Thread, _ *Checkpoint) error {
			return drainSeq(u.Threads(ctx, ThreadOptions{}))
		}},
		{"Prune, dry run", 0, func(ctx context.Context, th *Thread, _ *Checkpoint) error {
			_, err := th.Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 2, DryRun: true})
			return err
		}},
		{"Save on an older parent", 2, func(ctx context.Context, th *Thread, first *Checkpoint) error {
			_, err := th.Save(ctx, Draft{Parent: first.ID, Channels: state("aside")})
			return err
		}},
		{"Save with an old ExpectHead", 0, func(ctx context.Context, th *Thread, _ *Checkpoint) error {
			_, err := th.Save(ctx, Draft{Expect: ExpectHead(1), Channels: state("late")})
			if !errors.Is(err, ErrConflict) {
				return fmt.Errorf("a head of long ago is expected: %w", err)
			}
			return nil
		}},
		{"Fork", 2, func(ctx context.Context, th *Thread, first *Checkpoint) error {
			_, err := th.Fork(ctx, At(first.ID), "fork")
			return err
		}},
		{"SetLabels", 2, func(ctx context.Context, th *Thread, first *Checkpoint) error {
			_, err := th.SetLabels(ctx, At(first.ID), map[string]string{"pin": "1"})
			return err
		}},
		{"PutWrites", 2, func(ctx context.Context, th *Thread, first *Checkpoint) error {
			_, err := th.PutWrites(ctx, first.ID, "task", "", Upsert, []Write{{Channel: "c", Data: []byte("x")}}, 0)
			return err
		}},
	}
}

// Eight writers never let a thread rest. Readers use the durable state and wait for no save; other
// calls wait for the commit under way, and for their own.
func TestBusyThreadMakesNobodyWaitLong(t *testing.T) {
	const commit = 2 * time.Millisecond
	inBubble(t, func(t *testing.T) {
		s := openOn(t, slowly(commit))
		defer s.Close()
		for i, c := range waitingCalls(s) {
			th, first, stop := busyThread(t, s, fmt.Sprint("t", i))
			time.Sleep(10*commit + commit/4)
			began := time.Now()
			if err := c.do(t.Context(), th, first); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			if waited := time.Since(began); waited > time.Duration(c.most)*commit {
				t.Errorf("%s took %v, want at most %d commits of %v", c.name, waited, c.most, commit)
			}
			stop()
		}
	})
}

// Whatever a call waits for, it ends with its context, and not later.
func TestBusyThreadWaitsEndWithTheirContext(t *testing.T) {
	const commit = time.Hour
	inBubble(t, func(t *testing.T) {
		s := openOn(t, slowly(commit))
		defer s.Close()
		for i, c := range waitingCalls(s) {
			th, first, stop := busyThread(t, s, fmt.Sprint("t", i))
			time.Sleep(10*commit + commit/4)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			began := time.Now()
			err := c.do(ctx, th, first)
			if waited := time.Since(began); waited > time.Second {
				t.Errorf("%s took %v with a context of a second", c.name, waited)
			}
			if c.most > 1 && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s did not wait: %v", c.name, err)
			}
			cancel()
			stop()
		}
	})
}

// A save whose context ends while it is queued may become durable later, and reports that. It
// exists then, once.
func TestSaveGivenUpInLineIsAmbiguous(t *testing.T) {
	const commit = time.Second
	inBubble(t, func(t *testing.T) {
		s := openOn(t, slowly(commit))
		defer s.Close()
		th := s.Thread(Ref{Tenant: "acme", User: "alice", Thread: "t"})
		ctx, cancel := context.WithTimeout(t.Context(), commit/2)
		defer cancel()
		_, err := th.Save(ctx, Draft{ID: "first", Channels: state("first")})
		if !errors.Is(err, ErrAmbiguous) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a save that was given up in line: %v", err)
		}
		next, err := th.Save(t.Context(), Draft{ID: "next", Channels: state("next")})
		if err != nil || next.Seq != 2 || next.Parent != "first" {
			t.Errorf("the save after it: %+v, %v", next, err)
		}
		again, err := th.Save(t.Context(), Draft{ID: "first", Root: true, Channels: state("first")})
		if err != nil || again.Seq != 1 {
			t.Errorf("the save again: %+v, %v", again, err)
		}
		if _, err := th.Delete(t.Context()); err != nil { // nothing keeps the thread locked
			t.Error(err)
		}
	})
}

// busyThread is a thread with a history to which eight writers save until stop is called.
func busyThread(t *testing.T, s *Store, name string) (th *Thread, first *Checkpoint, stop func()) {
	th = s.Thread(Ref{Tenant: "acme", User: "alice", Thread: name})
	for i := range 3 {
		cp, err := th.Save(t.Context(), Draft{RunID: "run", Branch: "main", Channels: state("state %d", i)})
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = cp
		}
	}
	stopped := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stopped:
					return
				default:
				}
				if _, err := th.Save(t.Context(), Draft{Channels: state("writer %d, step %d", w, i)}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	return th, first, func() { close(stopped); wg.Wait() }
}
