package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
)

func mustGC(t testing.TB, f *fixture, o upkeep.GCOptions) *upkeep.GCReport {
	t.Helper()
	rep, err := f.Upkeep().GC(context.Background(), "acme", o)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// keysOf counts the keys of a kind.
func keysOf(t testing.TB, f *fixture, kind byte) (n int) {
	for key := range dump(t, f.be) {
		if key[space.PrefixLen-1] == kind {
			n++
		}
	}
	return n
}

func TestRetention(t *testing.T) {
	ctx := context.Background()
	clock := &testClock{ms: 1_700_000_000_000}
	f := newFixture(t, Options{Now: clock.now})
	want := upkeep.RetentionPolicy{KeepLast: 2, OlderThan: 90 * time.Second, KeepLabelled: true}
	if p, err := f.Upkeep().Retention(ctx, "acme"); err != nil || p != (upkeep.RetentionPolicy{}) {
		t.Errorf("no policy is %+v, %v", p, err)
	}
	if err := f.Upkeep().SetRetention(ctx, "acme", want); err != nil {
		t.Fatal(err)
	}
	f.reopen()
	if p, err := f.Upkeep().Retention(ctx, "acme"); err != nil || p != want {
		t.Errorf("policy is %+v, %v", p, err)
	}
	if p, err := f.Upkeep().Retention(ctx, "other"); err != nil || p != (upkeep.RetentionPolicy{}) {
		t.Errorf("policy of another tenant is %+v, %v", p, err)
	}
	for _, p := range []upkeep.RetentionPolicy{{KeepLast: -1}, {OlderThan: -1}} {
		if err := f.Upkeep().SetRetention(ctx, "acme", p); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", p, err)
		}
	}
	sub := testRef("t")
	sub.Namespace = "sub"
	other := Ref{Tenant: "other", User: "alice", Thread: "t"}
	for i := range 6 {
		d := Draft{Labels: map[string]string{}}
		if i == 1 {
			d.Labels["keep"] = "me"
		}
		for _, ref := range []Ref{testRef("t"), sub, other} {
			mustSave(t, f, ref, d)
		}
		clock.ms += 30_000
	}
	dry := mustGC(t, f, upkeep.GCOptions{DryRun: true})
	if got := historySeqs(t, f, sub); len(got) != 6 {
		t.Errorf("a dry run left %v", got)
	}
	rep := mustGC(t, f, upkeep.GCOptions{})
	if rep.Pruned != 4 || dry.Pruned != 4 || rep.Threads != 1 || rep.Users != 1 {
		t.Errorf("report is %+v, dry %+v", rep, dry)
	}
	for _, ref := range []Ref{testRef("t"), sub} {
		if got := historySeqs(t, f, ref); !slices.Equal(got, []uint64{6, 5, 4, 2}) {
			t.Errorf("left are %v", got)
		}
	}
	if got := historySeqs(t, f, other); len(got) != 6 {
		t.Errorf("of another tenant are left %v", got)
	}
	if err := f.Upkeep().SetRetention(ctx, "acme", upkeep.RetentionPolicy{}); err != nil {
		t.Fatal(err)
	}
	clock.ms += 1 << 40
	if rep := mustGC(t, f, upkeep.GCOptions{}); rep.Pruned != 0 || keysOf(t, f, space.KindRetention) != 0 {
		t.Errorf("without a policy: %+v", rep)
	}
}

func TestGCDeletesExpired(t *testing.T) {
	ctx := context.Background()
	clock := &testClock{ms: 1_700_000_000_000}
	f := newFixture(t, Options{Now: clock.now})
	mustSave(t, f, testRef("short"), Draft{TTL: time.Minute, Labels: map[string]string{"a": "b"}})
	mustSave(t, f, testRef("long"), Draft{TTL: time.Hour})
	mustSave(t, f, testRef("ever"), Draft{})
	clock.ms += 10 * 60_000
	if rep := mustGC(t, f, upkeep.GCOptions{DryRun: true}); rep.Expired != 1 || keysOf(t, f, space.KindRecord) != 3 {
		t.Errorf("dry run: %+v", rep)
	}
	if rep := mustGC(t, f, upkeep.GCOptions{}); rep.Expired != 1 || rep.Threads != 2 {
		t.Errorf("report is %+v", rep)
	}
	if n, m := keysOf(t, f, space.KindRecord), keysOf(t, f, space.KindIndex); n != 2 || m != 0 {
		t.Errorf("%d records and %d index entries are left", n, m)
	}
	if cp := mustSave(t, f, testRef("short"), Draft{}); cp.Seq != 1 || cp.Generation != 2 {
		t.Errorf("saved afresh: %+v", cp)
	}
	if rep := mustGC(t, f, upkeep.GCOptions{}); rep.Expired != 0 {
		t.Errorf("again: %+v", rep)
	}
	if _, err := f.Thread(testRef("long")).Load(ctx, Latest); err != nil {
		t.Error(err)
	}
}

// A call that finds a thread expired does not delete one that another call has started again in the
// meantime.
func TestExpiredIsDeletedOnce(t *testing.T) {
	ctx := context.Background()
	clock := &testClock{ms: 1_700_000_000_000}
	f := newFixture(t, Options{Now: clock.now})
	ref := testRef("t")
	mustSave(t, f, ref, Draft{TTL: time.Second})
	clock.ms += 3_600_000
	cp := mustSave(t, f, ref, Draft{})
	if g, err := f.deleteThread(ctx, ref, true); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted as generation %d, %v", g, err)
	}
	if got, err := f.Thread(ref).Load(ctx, Latest); err != nil || got.ID != cp.ID || cp.Generation != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A sweep waits for the saves that found their parts before it began to listen.
func TestSweepWaitsForSaves(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	mustSave(t, f, testRef("t"), Draft{})
	u, err := f.User("acme", "alice").keys(ctx, false)
	if err != nil {
		t.Fatal(err)
	}
	u.sweep.rLock(context.Background())
	done := make(chan error)
	go func() {
		_, err := f.Upkeep().GC(ctx, "acme", upkeep.GCOptions{Grace: -1})
		done <- err
	}()
	select {
	case err := <-done:
		t.Errorf("the sweep did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
		if n := u.naming.holders.Load(); n != 0 {
			t.Error("the sweep began while a save was under way")
		}
	}
	u.sweep.rUnlock()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Epochs without a thread are removed with their index entries, and nothing reuses them before.
func TestGCLeftovers(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	ref := testRef("t")
	for i := range 5 {
		mustSave(t, f, ref, Draft{ID: fmt.Sprint("id", i), Labels: map[string]string{"n": fmt.Sprint(i)}, Channels: []Change{{Name: "a", Data: []byte("x")}}})
	}
	l, err := f.rlockThread(ctx, ref, false)
	if err != nil {
		t.Fatal(err)
	}
	// The leftovers of a copy interrupted before its thread record: everything else.
	stray, err := l.u.stored(l.u.ThreadToken("stray"), 7)
	if err != nil {
		t.Fatal(err)
	}
	p, err := l.th.newPruning(ctx, func(string) *pruneRule { return nil }, true)
	if err != nil {
		t.Fatal(err)
	}
	w := f.newSaving()
	c := &lineageCopy{lineagePruning: p.lineages[0], to: stray.lineage(""), from: p.lineages[0].l.restorer(), w: w, out: batcher{s: f.Store}}
	if err := c.run(ctx); err != nil {
		t.Fatal(err)
	}
	f.putSaving(w)
	l.runlockThread()
	if epoch, err := (&thread{storedThread: *stray}).nextEpoch(ctx); err != nil || epoch != 8 {
		t.Errorf("the next epoch is %d, %v", epoch, err)
	}
	records, entries := keysOf(t, f, space.KindRecord), keysOf(t, f, space.KindIndex)
	if records != 10 || entries != 10 {
		t.Fatalf("%d records and %d entries: the test left nothing over", records, entries)
	}
	if rep := mustGC(t, f, upkeep.GCOptions{DryRun: true}); rep.Leftovers != 10 || keysOf(t, f, space.KindRecord) != 10 {
		t.Errorf("dry run: %+v", rep)
	}
	if rep := mustGC(t, f, upkeep.GCOptions{}); rep.Leftovers != 10 {
		t.Errorf("report is %+v", rep)
	}
	if n, m := keysOf(t, f, space.KindRecord), keysOf(t, f, space.KindIndex); n != 5 || m != 5 {
		t.Errorf("%d records and %d index entries are left", n, m)
	}
	if got := historySeqs(t, f, ref); len(got) != 5 {
		t.Errorf("left are %v", got)
	}
}

func TestGCRemovesStaleIndexEntries(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	ref := testRef("t")
	mustSave(t, f, ref, Draft{Status: StatusFailed})
	l, err := f.rlockThread(ctx, ref, false)
	if err != nil {
		t.Fatal(err)
	}
	var muts []backend.Mut
	for i, at := range []*storedLineage{&l.storedLineage, l.th.in(9).lineage(""), l.th.lineage("nowhere")} {
		m, err := at.indexMut(labelTerm("a", "b"), uint64(100+i), codec.IndexEntry{})
		if err != nil {
			t.Fatal(err)
		}
		muts = append(muts, m)
	}
	l.runlockThread()
	if err := f.commitAll(ctx, muts); err != nil {
		t.Fatal(err)
	}
	if rep := mustGC(t, f, upkeep.GCOptions{DryRun: true}); rep.IndexEntries != 3 || keysOf(t, f, space.KindIndex) != 4 {
		t.Errorf("dry run: %+v", rep)
	}
	if rep := mustGC(t, f, upkeep.GCOptions{}); rep.IndexEntries != 3 || keysOf(t, f, space.KindIndex) != 1 {
		t.Errorf("report is %+v", rep)
	}
}

func putBlob(t testing.TB, f *fixture, data []byte) BlobID {
	t.Helper()
	id, _, err := f.User("acme", "alice").PutBlob(context.Background(), bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestGCBlobsAndParts(t *testing.T) {
	clock := &testClock{ms: 1_700_000_000_000}
	f := newFixture(t, Options{Now: clock.now})
	ref := testRef("t")
	kept := putBlob(t, f, noiseBytes(600_000))
	lost := putBlob(t, f, append(noiseBytes(300_000), "its own"...)) // shares its first part with the other
	mustSave(t, f, ref, Draft{Blobs: []BlobID{lost}})
	cp := mustSave(t, f, ref, Draft{Blobs: []BlobID{kept}})
	mustSave(t, f, ref, Draft{Keep: true, Channels: []Change{{Name: "large", Data: noiseBytes(200_000)}}})
	putBlob(t, f, []byte("nobody's"))

	young := upkeep.GCOptions{}
	if rep := mustGC(t, f, young); rep.Blobs != 0 || rep.Parts != 0 {
		t.Errorf("young ones went: %+v", rep)
	}
	clock.ms += 3 * 3_600_000
	fresh := putBlob(t, f, []byte("to be named"))
	if rep := mustGC(t, f, upkeep.GCOptions{DryRun: true}); rep.Blobs != 1 || rep.Parts != 1 || rep.Bytes == 0 || keysOf(t, f, space.KindBlob) != 4 {
		t.Errorf("dry run: %+v", rep)
	}
	if rep := mustGC(t, f, young); rep.Blobs != 1 || rep.Parts != 1 {
		t.Errorf("nobody's: %+v", rep)
	}
	mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 2})
	if rep := mustGC(t, f, young); rep.Blobs != 1 || rep.Parts != 1 {
		t.Errorf("after the prune: %+v", rep)
	}
	mustSave(t, f, ref, Draft{Keep: true, Blobs: []BlobID{kept, fresh}})
	if rep := mustGC(t, f, upkeep.GCOptions{Grace: -1}); rep.Blobs != 0 || rep.Parts != 0 {
		t.Errorf("all are named: %+v", rep)
	}
	if cp.Blobs[0] != kept || keysOf(t, f, space.KindBlob) != 2 {
		t.Errorf("%d blobs are left", keysOf(t, f, space.KindBlob))
	}
	erased := mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1, Erase: true})
	if len(erased.Removed) != 2 || keysOf(t, f, space.KindBlob) != 2 || keysOf(t, f, space.KindPart) != 5 {
		t.Errorf("after erasing: %+v, %d blobs, %d parts", erased, keysOf(t, f, space.KindBlob), keysOf(t, f, space.KindPart))
	}
	mustSave(t, f, ref, Draft{Root: true})
	mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1, Erase: true})
	if keysOf(t, f, space.KindBlob) != 0 || keysOf(t, f, space.KindPart) != 0 {
		t.Errorf("erased, and left are %d blobs, %d parts", keysOf(t, f, space.KindBlob), keysOf(t, f, space.KindPart))
	}
}

// A part or blob that is named while a sweep is on its way stays, though it was not marked.
func TestSweepSparesWhatIsNamed(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	id := putBlob(t, f, []byte("blob"))
	u, err := f.User("acme", "alice").keys(ctx, false)
	if err != nil {
		t.Fatal(err)
	}
	parts, muts, err := u.newParts(ctx, []byte("part"))
	if err == nil {
		err = f.commitAll(ctx, muts)
	}
	if err != nil {
		t.Fatal(err)
	}
	u.naming.begin()
	u.naming.noteParts(parts)
	u.naming.noteBlobs([][32]byte{id})
	if rep := mustGC(t, f, upkeep.GCOptions{Grace: -1}); rep.Blobs != 0 || rep.Parts != 0 || keysOf(t, f, space.KindPart) != 2 {
		t.Errorf("named ones went: %+v", rep)
	}
	u.naming.end()
	if rep := mustGC(t, f, upkeep.GCOptions{Grace: -1}); rep.Blobs != 1 || rep.Parts != 2 || keysOf(t, f, space.KindPart) != 0 {
		t.Errorf("nobody names them now: %+v", rep)
	}
}

// Saves, forks, prunes, copies and collections at once: every save that was acknowledged last is
// there.
func TestMaintenanceBesideSaves(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{CacheBytes: 1 << 18})
	large := strings.Repeat(string(noiseBytes(1000)), 100)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	work := func(do func(r *rand.Rand) error) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(3, 4))
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := do(r); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var last [4]*Checkpoint
	for i := range last {
		ref, n := testRef(fmt.Sprint("t", i%2)), 0
		ref.Namespace = []string{"", "sub"}[i/2]
		work(func(r *rand.Rand) error {
			n++
			d := Draft{Keep: n%7 > 0, Step: int64(n), Channels: []Change{{Name: "a", Data: words(r, 500)}}}
			if n%5 == 0 { // the same parts come and go
				d.Channels = append(d.Channels, Change{Name: "large", Data: []byte(large[n%100:][:90_000])})
			}
			cp, err := f.Thread(ref).Save(ctx, d)
			last[i] = cp
			return err
		})
	}
	work(func(r *rand.Rand) error {
		_, err := f.Thread(testRef(fmt.Sprint("t", r.IntN(2)))).Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 3, AllNamespaces: true, Erase: r.IntN(3) == 0})
		return ignoreMissing(err)
	})
	work(func(*rand.Rand) error {
		_, err := f.Upkeep().GC(ctx, "acme", upkeep.GCOptions{Grace: -1})
		return err
	})
	work(func(r *rand.Rand) error {
		if err := f.Thread(testRef("t0")).Copy(ctx, testRef("copy")); err != nil {
			return ignoreMissing(err)
		}
		_, err := f.Thread(testRef("copy")).Delete(ctx)
		return err
	})
	time.Sleep(1500 * time.Millisecond)
	close(stop)
	wg.Wait()
	for i, cp := range last {
		if cp == nil {
			t.Fatalf("writer %d saved nothing", i)
		}
		got, err := f.Thread(cp.Ref).Load(ctx, Latest)
		if err != nil || got.Hash != cp.Hash {
			t.Errorf("writer %d: got %+v, %v", i, got, err)
		}
	}
	mustGC(t, f, upkeep.GCOptions{Grace: -1})
	if rep := mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true}); rep.Orphans != 0 {
		t.Errorf("%d orphans", rep.Orphans)
	}
}

func ignoreMissing(err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
