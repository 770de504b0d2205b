package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/mem"
	. "github.com/ckptd/ckptd/engine"
)

// failingBackend fails so many commits, each after it took as long as any.
type failingBackend struct {
	backend.Backend
	commit time.Duration
	fails  int
}

func (b *failingBackend) Commit(ctx context.Context, batch backend.Batch) error {
	time.Sleep(b.commit)
	if b.fails > 0 {
		b.fails--
		return fmt.Errorf("the test says so: %w", backend.ErrUnavailable)
	}
	return b.Backend.Commit(context.WithoutCancel(ctx), batch)
}

// Writes that come while the first save of their thread is under way are all kept, also those of
// one task.
func TestWritesBesideTheFirstSaveAreAllKept(t *testing.T) {
	const writers = 4
	inBubble(t, func(t *testing.T) {
		s := openOn(t, slowly(time.Second))
		defer s.Close()
		th := s.Thread(Ref{Tenant: "acme", User: "alice", Thread: "t"})
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := th.Save(t.Context(), Draft{ID: "first", Channels: state("first")}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		for i := range writers {
			wg.Go(func() {
				w := []Write{{Index: int64(i), Channel: "c", Data: fmt.Append(nil, "write ", i)}}
				if _, err := th.PutWrites(t.Context(), "first", "task", "", Upsert, w, 0); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		got, err := th.Writes(t.Context(), "first")
		if err != nil || len(got) != writers {
			t.Errorf("%d writes were acknowledged, %d are there (%v)", writers, len(got), err)
		}
	})
}

// A branch that is on its way to where it is to be is not there yet: its move may fail.
func TestBranchThatIsMovedTwiceIsThereWhenBothSaySo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := &failingBackend{Backend: mem.Open(), commit: time.Second}
		s := openOn(t, b)
		defer s.Close()
		th := s.Thread(Ref{Tenant: "acme", User: "alice", Thread: "t"})
		cp, err := th.Save(t.Context(), Draft{Channels: state("first")})
		if err != nil {
			t.Fatal(err)
		}
		b.fails = 1
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				err := th.SetBranch(t.Context(), "main", At(cp.ID))
				if _, lerr := th.Load(t.Context(), HeadOf("main")); err == nil && lerr != nil {
					t.Errorf("the branch was set, and loading its head says: %v", lerr)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
	})
}

// Lineages of one thread that all change its record at once come in each other's way, and all get
// there.
func TestManyLineagesChangeTheRecordOfTheirThreadAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := openOn(t, slowly(time.Second))
		defer s.Close()
		var wg sync.WaitGroup
		for i := range 12 {
			th := s.Thread(Ref{Tenant: "acme", User: "alice", Thread: "t", Namespace: fmt.Sprint("n", i)})
			wg.Go(func() {
				if _, err := th.Save(t.Context(), Draft{TTL: time.Duration(i+1) * time.Hour}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}
