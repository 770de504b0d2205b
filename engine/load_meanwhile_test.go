package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/mem"
	. "github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// endsAtGet ends a context at the first Get that is made under it.
type endsAtGet struct {
	backend.Backend
	cancel context.CancelFunc
}

func (b *endsAtGet) Get(ctx context.Context, keys ...[]byte) ([]backend.Entry, error) {
	if ctx.Value(interruptible{}) != nil {
		b.cancel()
	}
	return b.Backend.Get(ctx, keys...)
}

// A save that fails while it is built does not affect those under way or queued, and the next one
// continues after them: no seq is issued twice.
func TestSaveFailsWhileOthersArePending(t *testing.T) {
	const commit = time.Second
	for _, inLine := range []int{0, 1, 3} {
		t.Run(fmt.Sprint(inLine, " in line"), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				be := &endsAtGet{Backend: slowly(commit)}
				s := openOn(t, be)
				defer s.Close()
				th := s.Thread(Ref{Tenant: "acme", User: "alice", Thread: "t"})
				if _, err := th.Save(t.Context(), Draft{Channels: state("first")}); err != nil {
					t.Fatal(err)
				}
				type saved struct {
					text string
					cp   *Checkpoint
					err  error
				}
				results := make(chan saved, 10)
				begin := func(text string) {
					go func() {
						cp, err := th.Save(t.Context(), Draft{Channels: state("%s", text)})
						results <- saved{text, cp, err}
					}()
					synctest.Wait()
				}
				begin("under way")
				for i := range inLine {
					begin(fmt.Sprint("in line ", i))
				}
				ctx, cancel := context.WithCancel(context.WithValue(t.Context(), interruptible{}, true))
				be.cancel = cancel
				incompressible := make([]byte, 200<<10) // it looks for its parts while it is built
				x := uint32(1)
				for i := range incompressible {
					x = x*1664525 + 1013904223
					incompressible[i] = byte(x >> 24)
				}
				d := Draft{Channels: []Change{{Name: "messages", Data: incompressible}}}
				if _, err := th.Save(ctx, d); !errors.Is(err, context.Canceled) || errors.Is(err, ErrAmbiguous) {
					t.Errorf("a save whose context ended while it was built: %v", err)
				}
				begin("after it")
				for range inLine + 2 {
					r := <-results
					if r.err != nil {
						t.Errorf("%s: %v", r.text, r.err)
						continue
					}
					cp, err := th.Load(t.Context(), At(r.cp.ID))
					if err != nil || string(cp.Channels[0].Data) != r.text {
						t.Errorf("%s was acknowledged as seq %d, and loads as %v, %v", r.text, r.cp.Seq, cp, err)
					}
				}
				if cp, err := th.Load(t.Context(), Latest); err != nil || cp.Seq != uint64(inLine+3) {
					t.Errorf("the newest is %+v, %v", cp, err)
				}
				if rep, err := s.Upkeep().Verify(t.Context(), upkeep.VerifyOptions{Deep: true}); err != nil || !rep.Clean() {
					t.Errorf("%+v, %v", rep, err)
				}
			})
		})
	}
}

// The time to live of a draft counts while an earlier save, which writes the thread record too, is
// not durable yet.
func TestTTLWhileThreadBegins(t *testing.T) {
	const commit = time.Second
	inBubble(t, func(t *testing.T) {
		s := openOn(t, slowly(commit))
		defer s.Close()
		th := s.Thread(Ref{Tenant: "acme", User: "alice", Thread: "t"})
		done := make(chan error, 3)
		for step, ttl := range []time.Duration{0, time.Hour, 0} {
			go func() {
				_, err := th.Save(t.Context(), Draft{Step: int64(step), TTL: ttl, Channels: state("step %d", step)})
				done <- err
			}()
			synctest.Wait()
		}
		for range 3 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if cp, err := th.Load(t.Context(), Latest); err != nil || cp.Step != 2 {
			t.Errorf("before it expires: %+v, %v", cp, err)
		}
		time.Sleep(2 * time.Hour)
		if cp, err := th.Load(t.Context(), Latest); !errors.Is(err, ErrNotFound) {
			t.Errorf("two hours later, a thread with a time to live of an hour: %+v, %v", cp, err)
		}
	})
}

// closesAtRead closes the store after a read of an operation.
type closesAtRead struct {
	backend.Backend
	left  int
	close func()
}

func (b *closesAtRead) did(ctx context.Context) {
	if ctx.Value(interruptible{}) == nil {
		return
	}
	if b.left--; b.left == 0 {
		b.close()
	}
}

func (b *closesAtRead) Get(ctx context.Context, keys ...[]byte) ([]backend.Entry, error) {
	defer b.did(ctx)
	return b.Backend.Get(ctx, keys...)
}

func (b *closesAtRead) Scan(ctx context.Context, r backend.Range) ([]backend.Entry, []byte, error) {
	defer b.did(ctx)
	return b.Backend.Scan(ctx, r)
}

// An operation that meets a store which is closed meanwhile says so, wherever it is, and never that
// data is damaged.
func TestClosedMeanwhile(t *testing.T) {
	for _, c := range append(waitingCalls(nil), call{name: "Save", do: func(ctx context.Context, th *Thread, _ *Checkpoint) error {
		_, err := th.Save(ctx, Draft{ID: "new", Keep: true, Labels: map[string]string{"a": "b"}})
		return err
	}}) {
		if c.name == "Query" || c.name == "Threads" { // these are of a user
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			for n := 1; n < 100; n++ {
				be := &closesAtRead{Backend: keepsOpen{mem.Open()}}
				s := openWith(t, be, Options{CacheBytes: -1})
				be.close = func() { s.Close() }
				th := s.Thread(Ref{Tenant: "acme", User: "alice", Thread: "t"})
				var first *Checkpoint
				for i := range 3 {
					cp, err := th.Save(t.Context(), Draft{ID: fmt.Sprint("id", i), RunID: "run", Branch: "main", Channels: state("state %d", i)})
					if err != nil {
						t.Fatal(err)
					}
					if i == 0 {
						first = cp
					}
				}
				be.left = n
				err := c.do(context.WithValue(t.Context(), interruptible{}, true), th, first)
				if err != nil && !errors.Is(err, ErrClosed) {
					t.Errorf("closed after read %d: %v", n, err)
				}
				if be.left > 0 {
					return
				}
			}
			t.Error("the operation never ends reading")
		})
	}
}
