package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/mem"
	. "github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// interrupted does something else before the n-th read of an operation.
type interrupted struct {
	backend.Backend
	left int // reads until then
	do   func()
}

type interruptible struct{}

func (b *interrupted) read(ctx context.Context) {
	if ctx.Value(interruptible{}) == nil {
		return
	}
	if b.left--; b.left == 0 {
		b.do()
	}
}

func (b *interrupted) Get(ctx context.Context, keys ...[]byte) ([]backend.Entry, error) {
	b.read(ctx)
	return b.Backend.Get(ctx, keys...)
}

func (b *interrupted) Scan(ctx context.Context, r backend.Range) ([]backend.Entry, []byte, error) {
	b.read(ctx)
	r.Limit = 1 // so that something can come between any two entries
	return b.Backend.Scan(ctx, r)
}

// A checkpoint that is replaced while an operation looks for it is always found: SetLabels is such
// a replacement, invisible to callers. It comes before each read of each operation, from a cold
// start and with states in memory.
func TestReplacedMeanwhileIsThere(t *testing.T) {
	sees := func(n int, err error) error {
		if err == nil && n != 1 {
			return fmt.Errorf("it was seen %d times", n)
		}
		return err
	}
	count := func(seq func(func(*Checkpoint, error) bool)) error {
		n := 0
		for cp, err := range seq {
			if err != nil {
				return err
			}
			if cp.ID == "a" {
				n++
			}
		}
		return sees(n, nil)
	}
	load := func(w Which) func(context.Context, *Store, *Thread) error {
		return func(ctx context.Context, _ *Store, th *Thread) error {
			cp, err := th.Load(ctx, w)
			if err == nil && (cp.ID != "a" || string(cp.Channels[0].Data) != "state of a") {
				err = fmt.Errorf("it loads as %s, %q", cp.ID, cp.Channels[0].Data)
			}
			return err
		}
	}
	user := func(s *Store) *User { return s.User("acme", "alice") }
	for name, do := range map[string]func(context.Context, *Store, *Thread) error{
		"Load Latest":      load(Latest),
		"Load At":          load(At("a")),
		"Load LatestByID":  load(LatestByID()),
		"Load HeadOf":      load(HeadOf("main")),
		"Load LatestOfRun": load(LatestOfRun("run")),
		"History":          func(ctx context.Context, _ *Store, th *Thread) error { return count(th.History(ctx, HistoryOptions{})) },
		"History of a branch": func(ctx context.Context, _ *Store, th *Thread) error {
			return count(th.History(ctx, HistoryOptions{Branch: "main"}))
		},
		"Query by index": func(ctx context.Context, s *Store, _ *Thread) error {
			return count(user(s).Query(ctx, Query{Filter: Filter{RunID: "run"}}))
		},
		"Query of all": func(ctx context.Context, s *Store, _ *Thread) error { return count(user(s).Query(ctx, Query{})) },
		"QueryTenant": func(ctx context.Context, s *Store, _ *Thread) error {
			return count(s.QueryTenant(ctx, "acme", Query{}))
		},
		"Tree": func(ctx context.Context, _ *Store, th *Thread) error {
			tree, err := th.Tree(ctx)
			if err != nil {
				return err
			}
			n := 0
			for _, node := range tree.Nodes {
				if node.ID == "a" {
					n++
				}
			}
			return sees(n, nil)
		},
		"Diff": func(ctx context.Context, _ *Store, th *Thread) error {
			_, err := th.Diff(ctx, At("a"), Latest)
			return err
		},
		"Branches": func(ctx context.Context, _ *Store, th *Thread) error {
			branches, err := th.Branches(ctx)
			if err == nil && (len(branches) != 1 || branches[0].HeadID != "a") {
				err = fmt.Errorf("branches %+v", branches)
			}
			return err
		},
		"SetLabels": func(ctx context.Context, _ *Store, th *Thread) error {
			_, err := th.SetLabels(ctx, At("a"), map[string]string{"other": "1"})
			return err
		},
		"Fork": func(ctx context.Context, _ *Store, th *Thread) error {
			_, err := th.Fork(ctx, At("a"), "fork")
			return err
		},
		"Save on it": func(ctx context.Context, _ *Store, th *Thread) error {
			cp, err := th.Save(ctx, Draft{Parent: "a", Keep: true, Step: 7})
			if err == nil && cp.Parent != "a" {
				err = fmt.Errorf("the parent is %q", cp.Parent)
			}
			return err
		},
		"Threads": func(ctx context.Context, s *Store, _ *Thread) error {
			return drainSeq(user(s).Threads(ctx, ThreadOptions{}))
		},
	} {
		for _, c := range []struct{ cold, erased bool }{{false, false}, {true, false}, {true, true}} {
			t.Run(fmt.Sprintf("%s, cold=%v, erased=%v", name, c.cold, c.erased), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					replaceBeforeEachRead(t, c.cold, c.erased, strings.HasPrefix(name, "Load Latest"), do)
				})
			})
		}
	}
}

// replaceBeforeEachRead calls do again and again: the n-th time a checkpoint, which is the newest
// or not, is replaced before the n-th read. Where it was erased, nothing is left of the first
// record with its id.
func replaceBeforeEachRead(t *testing.T, cold, erased, newest bool, do func(context.Context, *Store, *Thread) error) {
	for n := 1; n < 100; n++ {
		be := &interrupted{Backend: mem.Open()}
		cache := int64(0)
		if cold {
			cache = -1
		}
		s := openWith(t, be, Options{CacheBytes: cache})
		th := s.Thread(Ref{Tenant: "acme", User: "alice", Thread: "t"})
		save := func(d Draft) {
			t.Helper()
			if _, err := th.Save(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
		save(Draft{Channels: []Change{{Name: "m", Data: []byte("before")}}})
		save(Draft{ID: "a", Branch: "main", RunID: "run", Channels: []Change{{Name: "m", Data: []byte("state of a")}}})
		if erased {
			if _, err := th.SetLabels(t.Context(), At("a"), map[string]string{"first": "1"}); err != nil {
				t.Fatal(err)
			}
			if _, err := th.Upkeep().Prune(t.Context(), upkeep.PruneOptions{KeepLast: 1, Erase: true}); err != nil {
				t.Fatal(err)
			}
		}
		if !newest {
			save(Draft{Channels: []Change{{Name: "m", Data: []byte("after")}}})
		}
		replaced := make(chan error, 1)
		be.do = func() {
			go func() {
				_, err := th.SetLabels(context.Background(), At("a"), map[string]string{"pin": "1"})
				replaced <- err
			}()
			synctest.Wait() // until it is done, or waits for a lock of the operation
		}
		be.left = n
		err := do(context.WithValue(t.Context(), interruptible{}, true), s, th)
		if err != nil {
			t.Errorf("replaced before read %d: %v (ErrNotFound: %v)", n, err, errors.Is(err, ErrNotFound))
		}
		if be.left > 0 {
			s.Close()
			return
		}
		if err := <-replaced; err != nil {
			t.Error(err)
		}
		s.Close()
	}
	t.Error("the operation never ends reading")
}

func mustSave(t *testing.T, th *Thread, d Draft) *Checkpoint {
	t.Helper()
	cp, err := th.Save(context.Background(), d)
	if err != nil {
		t.Fatal(err)
	}
	return cp
}

// The newest checkpoint of a run is of that run, though it may be replaced by one of another run
// before each read.
func TestNewestOfARunIsOfTheRun(t *testing.T) {
	for n := 1; ; n++ {
		b := &interrupted{Backend: mem.Open(), left: n}
		s := openOn(t, b)
		th := s.Thread(refOf("t"))
		older := mustSave(t, th, Draft{RunID: "run", Channels: state("older")})
		mustSave(t, th, Draft{ID: "a", RunID: "run", Channels: state("newer")})
		b.do = func() { mustSave(t, th, Draft{ID: "a", RunID: "another", Channels: state("other")}) }
		cp, err := th.Load(context.WithValue(t.Context(), interruptible{}, true), LatestOfRun("run"))
		if err != nil || cp.RunID != "run" || b.left <= 0 && cp.ID != "a" && cp.ID != older.ID {
			t.Fatalf("replaced before read %d: %+v, %v", n, cp, err)
		}
		s.Close()
		if b.left > 0 {
			if n < 3 {
				t.Errorf("there were %d reads: nothing came between", n)
			}
			return
		}
	}
}
