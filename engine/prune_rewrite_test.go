package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
)

func TestCopy(t *testing.T) {
	ctx := context.Background()
	clock := &testClock{ms: 1_700_000_000_000}
	f := newFixture(t, Options{Now: clock.now})
	ref, dst := testRef("t"), testRef("u")
	sub, dstSub := ref, dst
	sub.Namespace, dstSub.Namespace = "sub", "sub"
	var want []*Checkpoint
	for i := range 10 {
		d := Draft{Step: int64(i), Keep: true, Channels: []Change{{Name: "a", Data: fmt.Appendf(nil, "value %d", i)}}, TTL: time.Hour}
		if i%3 == 0 {
			d.ID, d.Labels, d.Branch = fmt.Sprint("id", i), map[string]string{"third": "yes"}, "b"
		}
		want = append(want, mustSave(t, f, ref, d))
	}
	mustSave(t, f, sub, Draft{ID: "s", Channels: []Change{{Name: "a", Data: []byte("sub")}}})
	putWrites(t, f, sub, "s", "task", []byte("written"))
	for name, c := range map[string]struct {
		dst  Ref
		want error
	}{
		"other user":   {Ref{Tenant: "acme", User: "bob", Thread: "u"}, ErrInvalid},
		"other tenant": {Ref{Tenant: "evil", User: "alice", Thread: "u"}, ErrInvalid},
		"namespace":    {dstSub, ErrInvalid},
		"itself":       {ref, ErrConflict},
		"no name":      {Ref{Tenant: "acme", User: "alice"}, ErrInvalid},
	} {
		if err := f.Thread(ref).Copy(ctx, c.dst); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := f.Thread(testRef("none")).Copy(ctx, dst); !errors.Is(err, ErrNotFound) {
		t.Errorf("copy of nothing: %v", err)
	}
	if _, err := f.Thread(dst).Load(ctx, Latest); !errors.Is(err, ErrNotFound) {
		t.Errorf("before the copy: %v", err)
	}
	mustSave(t, f, dst, Draft{})
	if err := f.Thread(ref).Copy(ctx, dst); !errors.Is(err, ErrConflict) {
		t.Errorf("to a thread that exists: %v", err)
	}
	if _, err := f.Thread(dst).Delete(ctx); err != nil {
		t.Fatal(err)
	}
	if err := f.Thread(ref).Copy(ctx, dst); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, cp := range want {
			got, err := f.Thread(dst).Load(ctx, At(cp.ID))
			if err != nil {
				t.Fatal(err)
			}
			if got.Hash != cp.Hash || got.Seq != cp.Seq || got.Parent != cp.Parent || got.Branch != cp.Branch || !got.Time.Equal(cp.Time) ||
				got.Generation != 2 || string(got.Channels[0].Data) != fmt.Sprint("value ", cp.Step) || !cmp.Equal(got.Labels, cp.Labels) {
				t.Errorf("got %+v, want %+v", got, cp)
			}
		}
		if got, err := f.Thread(dstSub).Load(ctx, At("s")); err != nil || string(got.Channels[0].Data) != "sub" {
			t.Errorf("namespace: %+v, %v", got, err)
		}
		branches, err := f.Thread(dst).Branches(ctx)
		if err != nil || !cmp.Equal(branches, []Branch{{"b", want[9].ID, 10}}) {
			t.Errorf("branches are %+v, %v", branches, err)
		}
		n := 0
		for cp, err := range f.User("acme", "alice").Query(ctx, Query{Filter: Filter{Labels: map[string]string{"third": "yes"}}}) {
			if err != nil {
				t.Fatal(err)
			}
			if cp.Ref.Thread == dst.Thread {
				n++
			}
		}
		if n != 10 { // Keep keeps labels
			t.Errorf("the query finds %d in the copy", n)
		}
		f.reopen()
	}
	if n := countPlain(t, f, "written"); n != 2 {
		t.Errorf("pending writes are in %d places", n)
	}
	next := mustSave(t, f, dst, Draft{Keep: true})
	if next.Seq != 11 || next.Parent != want[9].ID {
		t.Errorf("next is %+v", next)
	}
	if got := historySeqs(t, f, ref); len(got) != 10 {
		t.Errorf("the source has %v", got)
	}
	clock.ms += 2 * 3_600_000
	if _, err := f.Thread(dst).Load(ctx, Latest); !errors.Is(err, ErrNotFound) {
		t.Errorf("the copy does not expire: %v", err)
	}
}

// compactor is a backend that can compact.
type compactor struct {
	backend.Backend
	err     error
	compact func()
}

func (c *compactor) Compact(context.Context) error {
	c.compact()
	return c.err
}

// An erasing prune, and a GC that is asked to, compact the backend last of all, and do not report
// success without.
func TestEraseCompacts(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	ref := testRef("t")
	for range 3 {
		mustSave(t, f, ref, Draft{Channels: []Change{{Name: "a", Data: noiseBytes(100_000)}}})
	}
	records, parts := 0, 0
	c := &compactor{Backend: keepOpen{f.be}, compact: func() { records, parts = keysOf(t, f, space.KindRecord), keysOf(t, f, space.KindPart) }}
	s, err := Open(ctx, c, f.opts)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rep, err := s.Thread(ref).Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 1, Erase: true})
	if err != nil || !rep.Compacted || records != 2 || parts != 1 { // one record, one stub
		t.Errorf("report is %+v, %v; compacted with %d records and %d parts", rep, err, records, parts)
	}
	if rep, err := s.Upkeep().GC(ctx, "acme", upkeep.GCOptions{Compact: true}); err != nil || !rep.Compacted {
		t.Errorf("gc: %+v, %v", rep, err)
	}
	if rep, err := s.Upkeep().GC(ctx, "acme", upkeep.GCOptions{Compact: true, DryRun: true}); err != nil || rep.Compacted {
		t.Errorf("dry run: %+v, %v", rep, err)
	}
	c.err = errors.New("no compaction today")
	if rep, err := s.Thread(ref).Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 1, Erase: true}); !errors.Is(err, c.err) || rep.Compacted {
		t.Errorf("failed: %+v, %v", rep, err)
	}
	if rep, err := s.Upkeep().GC(ctx, "acme", upkeep.GCOptions{Compact: true}); !errors.Is(err, c.err) || rep.Compacted {
		t.Errorf("failed gc: %+v, %v", rep, err)
	}
}
