package engine

import (
	"context"
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/engine/upkeep"
	"github.com/ckptd/ckptd/internal/panics"
)

// broken is a backend whose reads panic while it says so.
type broken struct {
	backend.Backend
	now bool
}

func (b *broken) Get(ctx context.Context, keys ...[]byte) ([]backend.Entry, error) {
	if b.now {
		panic("a bug")
	}
	return b.Backend.Get(ctx, keys...)
}

func (b *broken) Scan(ctx context.Context, r backend.Range) ([]backend.Entry, []byte, error) {
	if b.now {
		panic("a bug")
	}
	return b.Backend.Scan(ctx, r)
}

// TestPanicsLeaveNothingLocked: a server recovers the panic of one caller. Others can use the
// thread.
func TestPanicsLeaveNothingLocked(t *testing.T) {
	f := newFixture(t, Options{})
	b := &broken{Backend: f.Store.be}
	f.Store.be = b
	th := f.Thread(testRef("t"))
	first := save(t, th, Draft{Step: 1, Channels: []Change{jsonChannel("c", "1")}})
	second := save(t, th, Draft{Step: 2, Channels: []Change{jsonChannel("c", "2")}})
	_, err := th.PutWrites(t.Context(), first.ID, "task", "", Upsert, []Write{{Channel: "c", Type: "json", Data: []byte("1")}}, 0)
	must(t, err)
	ways := map[string]func() error{
		"load": func() error { _, err := th.Load(t.Context(), At(first.ID)); return err },
		"tree": func() error { _, err := th.Tree(t.Context()); return err },
		"diff": func() error { _, err := th.Diff(t.Context(), At(first.ID), At(second.ID)); return err },
		"save": func() error {
			_, err := th.Save(t.Context(), Draft{Step: 3, Parent: first.ID, Keep: true, Channels: []Change{jsonChannel("d", "1")}})
			return err
		},
		"fork":     func() error { _, err := th.Fork(t.Context(), At(first.ID), "other"); return err },
		"branch":   func() error { return th.SetBranch(t.Context(), "b", At(first.ID)) },
		"branches": func() error { _, err := th.Branches(t.Context()); return err },
		"labels": func() error {
			_, err := th.SetLabels(t.Context(), At(first.ID), map[string]string{"a": "b"})
			return err
		},
		"writes": func() error { _, err := th.Writes(t.Context(), first.ID); return err },
		"put": func() error {
			_, err := th.PutWrites(t.Context(), first.ID, "task", "", Upsert, []Write{{Channel: "c", Type: "json", Data: []byte("2")}}, 0)
			return err
		},
		"prune":  func() error { _, err := th.Upkeep().Prune(t.Context(), upkeep.PruneOptions{KeepLast: 1}); return err },
		"delete": func() error { _, err := th.Delete(t.Context()); return err },
	}
	for name, way := range ways {
		b.now = true
		err := panics.Try(way)
		b.now = false
		if _, ok := err.(*panics.Error); !ok {
			t.Errorf("%s: %v, not a panic", name, err)
		}
		l, err := f.Store.rlockThread(t.Context(), testRef("t"), false)
		must(t, err)
		l.runlockThread()
		for what, free := range map[string]rwLock{"thread": l.th.mu, "sweep": l.u.sweep} {
			if !free.free.TryAcquire(everyone) {
				t.Fatalf("%s leaves the %s locked", name, what)
			}
			free.unlock()
		}
		if !l.mu.tryLock() {
			t.Fatalf("%s leaves the lineage locked", name)
		}
		l.mu.unlock()
	}
}
