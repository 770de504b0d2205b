package engine

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
)

const minute = int64(time.Minute / time.Millisecond)

func TestThreadsByActivity(t *testing.T) {
	ctx := context.Background()
	clock := &testClock{ms: 1_700_000_000_000}
	f := newFixture(t, Options{Now: clock.now})
	u := f.User("acme", "alice")
	list := func(o ThreadOptions) []string {
		t.Helper()
		o.ByActivity = true
		infos, ids := listThreads(t, u, o)
		for _, info := range infos {
			if at := info.Updated.Sub(info.Active); at < 0 || at >= time.Hour {
				t.Errorf("%s was active at %v and saved to at %v", info.Ref.Thread, info.Active, info.Updated)
			}
		}
		return ids
	}
	check := func(what string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	check("a user who never saved", list(ThreadOptions{}))
	save := func(thread string, d Draft) {
		clock.ms += minute
		mustSave(t, f, testRef(thread), d)
	}
	for _, name := range []string{"a1", "b1", "a2", "b2"} {
		save(name, Draft{})
	}
	check("created", list(ThreadOptions{}), "b2", "a2", "b1", "a1")
	save("a1", Draft{Status: StatusFailed})
	check("in the same hour", list(ThreadOptions{}), "b2", "a2", "b1", "a1")
	clock.ms += 60 * minute
	save("a1", Draft{Status: StatusSucceeded})
	save("b1", Draft{})
	check("an hour later", list(ThreadOptions{}), "b1", "a1", "b2", "a2")
	check("by prefix", list(ThreadOptions{Prefix: "a"}), "a1", "a2")
	check("by status", list(ThreadOptions{Status: StatusSucceeded}), "a1")
	check("by a status that was", list(ThreadOptions{Status: StatusFailed}))
	_, ids := listThreads(t, u, ThreadOptions{Status: StatusRunning})
	check("by status, in order of id", ids, "a2", "b1", "b2")

	clock.ms += 60 * minute
	sub := testRef("a2")
	sub.Namespace = "sub"
	clock.ms += minute
	if _, err := f.Thread(sub).Save(ctx, Draft{}); err != nil {
		t.Fatal(err)
	}
	_, ids = listThreads(t, u, ThreadOptions{ByActivity: true})
	check("after a save to a namespace", ids, "a2", "b1", "a1", "b2")
	save("a2", Draft{})
	if err := f.Thread(testRef("a1")).Copy(ctx, testRef("a3")); err != nil {
		t.Fatal(err)
	}
	if got := list(ThreadOptions{}); len(got) != 5 || !slices.Contains(got[2:4], "a3") {
		t.Errorf("with a copy of a1: %q", got)
	}
	if _, err := f.Thread(testRef("b1")).Delete(ctx); err != nil {
		t.Fatal(err)
	}
	if n := keysOf(t, f, space.KindActivity); n != 4 {
		t.Errorf("4 threads have %d activity entries", n)
	}
	save("b1", Draft{TTL: time.Minute})
	if got := list(ThreadOptions{}); got[0] != "b1" || len(got) != 5 {
		t.Errorf("begun afresh: %q", got)
	}
	clock.ms += 10 * minute
	if got := list(ThreadOptions{}); got[0] != "a2" || len(got) != 4 {
		t.Errorf("expired: %q", got)
	}
	f.reopen()
	save("b1", Draft{})
	if n := keysOf(t, f, space.KindActivity); n != 5 {
		t.Errorf("5 threads have %d activity entries", n)
	}
}

// A page continues after the last thread of the previous page, whatever happened to that thread.
func TestPagesByActivity(t *testing.T) {
	clock := &testClock{ms: 1_700_000_000_000}
	f := newFixture(t, Options{Now: clock.now})
	for i := range 100 {
		clock.ms += 10 * minute * int64(i%3)
		mustSave(t, f, testRef(fmt.Sprint("t", i)), Draft{})
	}
	u := f.User("acme", "alice")
	var paged []string
	o := ThreadOptions{ByActivity: true}
	for {
		n := 0
		for info, err := range u.Threads(t.Context(), o) {
			if err != nil {
				t.Fatal(err)
			}
			paged = append(paged, info.Ref.Thread)
			o.After, o.ActiveAt = info.Ref.Thread, info.Active
			if n++; n == 7 {
				break
			}
		}
		if n == 0 {
			break
		}
		if len(paged) == 49 {
			clock.ms += 120 * minute
			mustSave(t, f, testRef(o.After), Draft{})
			mustSave(t, f, testRef("new"), Draft{})
		}
	}
	f.reopen()
	_, all := listThreads(t, f.User("acme", "alice"), ThreadOptions{ByActivity: true})
	if len(all) != 101 || !slices.Contains(all[:2], "new") || !slices.Contains(all[:2], paged[48]) {
		t.Fatalf("%d threads, the first are %q", len(all), all[:3])
	}
	if want := slices.Concat(paged[:48], paged[49:]); !slices.Equal(all[2:], want) {
		t.Errorf("in pages: %q, want %q", paged, want)
	}
	for _, err := range u.Threads(t.Context(), ThreadOptions{ByActivity: true, After: "t1"}) {
		if err == nil {
			t.Error("a page after a thread without ActiveAt does not fail")
		}
	}
}

// readCounter counts the reads of a backend.
type readCounter struct {
	backend.Backend
	entries atomic.Int64
}

func (c *readCounter) Get(ctx context.Context, keys ...[]byte) ([]backend.Entry, error) {
	c.entries.Add(int64(len(keys)))
	return c.Backend.Get(ctx, keys...)
}

func (c *readCounter) Scan(ctx context.Context, r backend.Range) ([]backend.Entry, []byte, error) {
	page, next, err := c.Backend.Scan(ctx, r)
	c.entries.Add(int64(len(page)))
	return page, next, err
}

// The newest checkpoints are found without reading the rest: the same entries are read for 300
// threads and for 1,500.
func TestNewestCostsWhatItShows(t *testing.T) {
	ctx := context.Background()
	first := func(threads int) (entries [5]int64) {
		clock := &testClock{ms: 1_700_000_000_000}
		f := newFixture(t, Options{Now: clock.now})
		f.broken = true // to verify it takes long
		for i := range threads {
			clock.ms += 2 * minute
			ref := Ref{Tenant: "acme", User: fmt.Sprint("user-", i%3), Thread: fmt.Sprint("t", i)}
			mustSave(t, f, ref, Draft{})
		}
		c := &readCounter{Backend: f.be}
		f.be = c
		f.reopen()
		u := f.User("acme", "user-1")
		for i, look := range []func() int{
			func() (n int) {
				for _, err := range u.Threads(ctx, ThreadOptions{ByActivity: true}) {
					if err != nil {
						t.Fatal(err)
					}
					if n++; n == 20 {
						break
					}
				}
				return n
			},
			func() int {
				if _, err := u.Latest(ctx); err != nil {
					t.Fatal(err)
				}
				return 20
			},
			func() int { return len(queried(t, u.Query(ctx, Query{Limit: 20}))) },
			func() int { return len(queried(t, f.QueryTenant(ctx, "acme", Query{Limit: 20}))) },
			func() int {
				return len(queried(t, u.Query(ctx, Query{Filter: Filter{Since: time.UnixMilli(clock.ms - 117*minute)}})))
			},
		} {
			before := c.entries.Load()
			if n := look(); n != 20 {
				t.Errorf("look %d yields %d", i, n)
			}
			entries[i] = c.entries.Load() - before
		}
		return entries
	}
	few, many := first(300), first(1500)
	for i := range few {
		if few[i] != many[i] {
			t.Errorf("look %d reads %d entries among 300 threads, %d among 1,500", i, few[i], many[i])
		}
	}
	t.Logf("entries read: %v", few)
}

func queried(t testing.TB, found func(func(*Checkpoint, error) bool)) (cps []*Checkpoint) {
	t.Helper()
	for cp, err := range found {
		if err != nil {
			t.Fatal(err)
		}
		cps = append(cps, cp)
	}
	return cps
}

// TestNewestIsNewest compares the newest checkpoints with all checkpoints, after saves to threads
// and namespaces far apart and close together in time, and after deletions of the newest.
func TestNewestIsNewest(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 1))
		clock := &testClock{ms: 1_700_000_000_000}
		f := newFixture(t, Options{Now: clock.now, CacheBytes: []int64{0, -1}[seed%2]})
		for range 300 {
			if r.IntN(2) == 0 {
				clock.ms += r.Int64N(40 * minute)
			}
			ref := Ref{Tenant: "acme", User: fmt.Sprint("u", r.IntN(2)), Thread: fmt.Sprint("t", r.IntN(40))}
			if r.IntN(4) == 0 {
				ref.Namespace = "sub"
			}
			switch r.IntN(30) {
			case 0:
				f.Thread(ref).Delete(ctx)
			case 1:
				f.User("acme", ref.User).Upkeep().DeleteRun(ctx, fmt.Sprint("r", r.IntN(5)))
			case 2:
				f.Thread(ref).SetLabels(ctx, Latest, map[string]string{"a": fmt.Sprint(r.IntN(9))})
			default:
				mustSave(t, f, ref, Draft{Keep: r.IntN(2) == 0, RunID: fmt.Sprint("r", r.IntN(5))})
			}
			if r.IntN(10) > 0 {
				continue
			}
			all := queried(t, f.QueryTenant(ctx, "acme", Query{}))
			if !slices.IsSortedFunc(all, func(a, b *Checkpoint) int {
				return -cmp.Or(a.Time.Compare(b.Time), a.Ref.Compare(b.Ref), cmp.Compare(a.Seq, b.Seq))
			}) {
				t.Fatal("a query is out of order")
			}
			limit := 1 + r.IntN(8)
			if got := queried(t, f.QueryTenant(ctx, "acme", Query{Limit: limit})); !reflect.DeepEqual(got, all[:min(limit, len(all))]) {
				t.Fatalf("the newest %d: %v, want the first of %v", limit, got, all)
			}
			since := time.UnixMilli(clock.ms - r.Int64N(300*minute))
			got := queried(t, f.QueryTenant(ctx, "acme", Query{Filter: Filter{Since: since}}))
			if n := slices.IndexFunc(all, func(cp *Checkpoint) bool { return cp.Time.Before(since) }); n >= 0 && len(got) != n || n < 0 && len(got) != len(all) {
				t.Fatalf("since %v: %d of %v", since, len(got), all)
			}
			n := 0
			for _, user := range []string{"u0", "u1"} {
				_, ids := listThreads(t, f.User("acme", user), ThreadOptions{})
				for _, id := range ids {
					for _, ns := range []string{"", "sub"} {
						n += len(queried(t, f.Thread(Ref{"acme", user, id, ns}).History(ctx, HistoryOptions{})))
					}
				}
				want := slices.IndexFunc(all, func(cp *Checkpoint) bool { return cp.Ref.User == user && cp.Ref.Namespace == "" })
				cp, err := f.User("acme", user).Latest(ctx, LoadOptions{HeadersOnly: true})
				if (want < 0) != (err != nil) || err == nil && !cp.Time.Equal(all[want].Time) {
					t.Fatalf("the latest of %s is %v, %v", user, cp, err)
				}
			}
			if n != len(all) {
				t.Fatalf("a query finds %d checkpoints, the threads have %d", len(all), n)
			}
		}
	}
}

// movingBackend lets something happen before each scan of activity entries.
type movingBackend struct {
	backend.Backend
	before func()
}

func (m *movingBackend) Scan(ctx context.Context, r backend.Range) ([]backend.Entry, []byte, error) {
	if len(r.Start) >= space.PrefixLen && r.Start[space.PrefixLen-1] == space.KindActivity && m.before != nil {
		m.before()
	}
	return m.Backend.Scan(ctx, r)
}

// A query, or a search for the newest checkpoint, misses no earlier checkpoint, even if its thread
// becomes active and so moves past the reader.
func TestNothingGetsPastAQuery(t *testing.T) {
	ctx := context.Background()
	clock := &testClock{ms: 1_700_000_000_000}
	f := newFixture(t, Options{Now: clock.now})
	m := &movingBackend{Backend: f.be}
	f.be = m
	f.reopen()
	const threads = 200
	was := map[string]bool{}
	for i := range threads {
		clock.ms += minute
		was[mustSave(t, f, testRef(fmt.Sprint("t", i)), Draft{}).ID] = true
	}
	turn := 0
	m.before = func() {
		clock.ms += 61 * minute
		for range 20 {
			mustSave(t, f, testRef(fmt.Sprint("t", turn*7%threads)), Draft{})
			turn++
		}
	}
	found := 0
	for _, cp := range queried(t, f.User("acme", "alice").Query(ctx, Query{})) {
		if was[cp.ID] {
			found++
		}
	}
	if found != threads {
		t.Errorf("a query finds %d of %d checkpoints that were there before", found, threads)
	}

	m.before = nil
	clock.ms += 90 * minute
	mustSave(t, f, testRef("t0"), Draft{})
	clock.ms += minute
	for i := range 5 {
		mustSave(t, f, testRef(fmt.Sprint("t", 1+i)), Draft{})
	}
	clock.ms += 30 * minute
	newest := mustSave(t, f, testRef("t0"), Draft{}).Time
	scans := 0
	m.before = func() {
		if scans++; scans == 2 { // t0 was not read
			clock.ms += 60 * minute
			mustSave(t, f, testRef("t0"), Draft{})
		}
	}
	if cp, err := f.User("acme", "alice").Latest(ctx, LoadOptions{HeadersOnly: true}); err != nil || cp.Time.Before(newest) {
		t.Errorf("the latest is of %v, %v, and one of %v was there before", cp.Time, err, newest)
	}
}

// batchCounter counts the mutations of batches.
type batchCounter struct {
	backend.Backend
	muts []int
}

func (b *batchCounter) Commit(ctx context.Context, batch backend.Batch) error {
	b.muts = append(b.muts, len(batch.Muts))
	return b.Backend.Commit(ctx, batch)
}

// The first save of an hour moves the activity entry, which takes the thread record with it; others
// write their record alone.
func TestActivityIsWrittenOnceAnHour(t *testing.T) {
	clock := &testClock{ms: 1_700_000_000_000}
	f := newFixture(t, Options{Now: clock.now})
	b := &batchCounter{Backend: f.be}
	f.be = b
	f.reopen()
	b.muts = nil
	for range 14 {
		mustSave(t, f, testRef("t"), Draft{})
		clock.ms += 10 * minute
	}
	if want := []int{3, 1, 1, 1, 1, 1, 4, 1, 1, 1, 1, 1, 4, 1}; !slices.Equal(b.muts, want) {
		t.Errorf("the batches have %v mutations, want %v", b.muts, want)
	}
}

// A watch delivers saves to a thread that was active before the watch began, and saved to after
// that.
func TestWatchCatchesUpByActivity(t *testing.T) {
	clock := &testClock{ms: 1_700_000_000_000}
	f := newFixture(t, Options{Now: clock.now})
	for _, name := range []string{"old", "a", "b"} {
		clock.ms += 10 * minute
		mustSave(t, f, testRef(name), Draft{})
	}
	clock.ms += 45 * minute
	from := CursorAt(time.UnixMilli(clock.ms))
	want := mustSave(t, f, testRef("a"), Draft{})
	clock.ms += minute
	sub := testRef("b")
	sub.Namespace = "sub"
	last := mustSave(t, f, sub, Draft{})
	f.reopen()
	got := take(t, f.Store, WatchScope{Tenant: "acme", User: "alice"}, from, 2)
	if got[0].ID != want.ID || got[1].ID != last.ID {
		t.Errorf("events %v, want those of %s and %s", got, want.ID, last.ID)
	}
}

// A watch that catches up delivers saves of a thread even after its expiry: a save under way may be
// about to renew it.
func TestWatchTellsOfThreadsPastTheirTime(t *testing.T) {
	clock := &testClock{ms: 1_700_000_000_000}
	f := newFixture(t, Options{Now: clock.now})
	from := CursorAt(time.UnixMilli(clock.ms))
	want := mustSave(t, f, testRef("a"), Draft{TTL: time.Minute})
	clock.ms += 10 * minute
	if got := take(t, f.Store, WatchScope{Tenant: "acme", User: "alice"}, from, 1); got[0].ID != want.ID {
		t.Errorf("event %v, want that of %s", got, want.ID)
	}
}

// A thread that becomes active while a watch catches up is listed twice, and nothing of it is
// delivered twice.
func TestWatchTellsOnceOfAThreadThatMovesOn(t *testing.T) {
	ctx := context.Background()
	clock := &testClock{ms: 1_700_000_000_000}
	f := newFixture(t, Options{Now: clock.now})
	for _, name := range []string{"a", "b"} {
		for range 3 {
			mustSave(t, f, testRef(name), Draft{Channels: []Change{{Name: "x", Data: []byte(name)}}})
		}
		clock.ms += minute
	}
	moved, visits := false, map[string]int{}
	w := &watcher{s: f.Store, scope: WatchScope{Tenant: "acme", User: "alice"}}
	w.low = 1_700_000_000_000
	f.Store.be = onePerPage{f.Store.be}
	err := w.eachThread(ctx, func(ref Ref) error {
		if visits[ref.Thread]++; !moved {
			moved = true
			clock.ms += 90 * minute
			mustSave(t, f, testRef("a"), Draft{Keep: true, Step: 1})
		}
		return nil
	})
	if err != nil || visits["a"] != 1 || visits["b"] != 1 {
		t.Errorf("visited %v times, %v", visits, err)
	}
}

// onePerPage scans one entry at a time, so that something can come between any two.
type onePerPage struct{ backend.Backend }

func (b onePerPage) Scan(ctx context.Context, r backend.Range) ([]backend.Entry, []byte, error) {
	r.Limit = 1
	return b.Backend.Scan(ctx, r)
}

// A head that is migrated is a checkpoint, so its thread is active, and lives no longer for it.
func TestMigratedHeadIsActivity(t *testing.T) {
	ctx := context.Background()
	clock := &testClock{ms: 1_700_000_000_000}
	f := newFixture(t, Options{Migrations: only(supportSet(t)), Now: clock.now})
	for _, name := range []string{"a", "b"} {
		clock.ms += minute
		mustSave(t, f, testRef(name), supportDraft(supportV1))
	}
	clock.ms += 100 * minute
	mustSave(t, f, testRef("b"), supportDraft(supportV1))
	clock.ms += 90 * minute
	got, err := f.Thread(testRef("a")).Upkeep().MigrateHead(ctx, upkeep.HeadMigration{To: 4})
	if err != nil {
		t.Fatal(err)
	}
	u := f.User("acme", "alice")
	if _, ids := listThreads(t, u, ThreadOptions{ByActivity: true}); ids[0] != "a" {
		t.Errorf("threads by activity: %q", ids)
	}
	if cp, err := u.Latest(ctx); err != nil || cp.ID != got.New.ID {
		t.Errorf("the latest is %v, %v", cp, err)
	}
	if cps := queried(t, u.Query(ctx, Query{Filter: Filter{Since: time.UnixMilli(clock.ms - minute)}})); len(cps) != 1 || cps[0].ID != got.New.ID {
		t.Errorf("a query finds %v", cps)
	}
}

// The time for the newest 50 of 100,000 threads, which are all of one hour, and 50 more after any
// other.
func BenchmarkNewestThreads(b *testing.B) {
	f := newFixture(b, Options{CacheBytes: 1 << 20})
	f.broken = true // to verify it takes long
	for i := range 100_000 {
		mustSave(b, f, testRef(fmt.Sprint("thread-", i)), Draft{Status: []string{StatusRunning, StatusFailed}[i%2]})
	}
	u := f.User("acme", "alice")
	page := func(b *testing.B, o ThreadOptions) (last ThreadInfo) {
		n := 0
		for info, err := range u.Threads(b.Context(), o) {
			if err != nil {
				b.Fatal(err)
			}
			if last, n = info, n+1; n == 50 {
				return last
			}
		}
		return ThreadInfo{}
	}
	for name, o := range map[string]ThreadOptions{"all": {}, "prefix": {Prefix: "thread-9"}, "status": {Status: StatusFailed}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				o.ByActivity = true
				page(b, o)
			}
		})
	}
	b.Run("pages", func(b *testing.B) { // 2,000 of them are all threads
		o := ThreadOptions{ByActivity: true}
		for b.Loop() {
			last := page(b, o)
			o.After, o.ActiveAt = last.Ref.Thread, last.Active
		}
	})
}
