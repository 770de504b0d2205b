package engine

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// tail runs a watch in a goroutine of its own and hands out its events.
type tail struct {
	t      *testing.T
	cancel context.CancelFunc
	events chan Event
	err    chan error // the watch's last word, nil if it had none
}

func watchTail(t *testing.T, s *Store, scope WatchScope, from Cursor) *tail {
	ctx, cancel := context.WithCancel(context.Background())
	w := &tail{t, cancel, make(chan Event), make(chan error, 1)}
	next, stop := iter.Pull2(s.Watch(ctx, scope, from))
	t.Cleanup(cancel)
	go func() {
		defer stop()
		for {
			e, err, ok := next()
			if !ok || err != nil {
				w.err <- err
				return
			}
			select {
			case w.events <- e:
			case <-ctx.Done():
				w.err <- nil
				return
			}
		}
	}()
	for s.hub.watchers.Load() == 0 { // it begins with its first step
		runtime.Gosched()
	}
	return w
}

func (w *tail) next() Event {
	w.t.Helper()
	select {
	case e := <-w.events:
		return e
	case err := <-w.err:
		w.t.Fatalf("watch ended: %v", err)
	case <-time.After(10 * time.Second):
		w.t.Fatal("no event")
	}
	return Event{}
}

// quiet checks that nothing comes.
func (w *tail) quiet() {
	w.t.Helper()
	select {
	case e := <-w.events:
		w.t.Errorf("event %+v", e)
	case <-time.After(30 * time.Millisecond):
	}
}

func (w *tail) end() {
	w.cancel()
	<-w.err
}

// settle waits until the watch has joined the hub, so that later saves are events.
func (w *tail) settle(t *testing.T, f *fixture, ref Ref) {
	t.Helper()
	for i := range 1000 {
		mustSave(t, f, ref, Draft{Step: -1})
		select {
		case <-w.events:
			for { // other saves in the meantime
				select {
				case <-w.events:
				case <-time.After(20 * time.Millisecond):
					return
				}
			}
		case <-time.After(time.Millisecond << min(i, 8)):
		}
	}
	t.Fatal("the watch never began")
}

func TestWatchScopes(t *testing.T) {
	f := newFixture(t, Options{})
	tenant := watchTail(t, f.Store, WatchScope{Tenant: "acme"}, "")
	user := watchTail(t, f.Store, WatchScope{Tenant: "acme", User: "alice"}, "")
	thread := watchTail(t, f.Store, WatchScope{Tenant: "acme", User: "alice", Thread: "t"}, "")
	ref := Ref{Tenant: "acme", User: "alice", Thread: "warm"}
	tenant.settle(t, f, ref)
	user.settle(t, f, ref)
	ref.Thread = "t"
	thread.settle(t, f, ref)
	for _, w := range []*tail{tenant, user} { // left by the others' start
		for drained := false; !drained; {
			select {
			case <-w.events:
			case <-time.After(30 * time.Millisecond):
				drained = true
			}
		}
	}
	cp := mustSave(t, f, ref, Draft{Step: 7, Status: StatusFailed})
	for _, w := range []*tail{tenant, user, thread} {
		e := w.next()
		if e.ID != cp.ID || e.Seq != cp.Seq || e.Time != cp.Time.UnixMilli() || e.Step != 7 || e.Status != StatusFailed || e.Before != StatusRunning || !e.Changed() || e.Ref != ref || e.Generation != 1 || e.Cursor == "" {
			t.Errorf("event %+v of %+v", e, cp)
		}
	}
	ref.Namespace = "sub"
	cp = mustSave(t, f, ref, Draft{})
	for _, w := range []*tail{tenant, user, thread} {
		if e := w.next(); e.ID != cp.ID || e.Before != "" {
			t.Errorf("event %+v of %+v", e, cp)
		}
	}
	cp = mustSave(t, f, testRef("other"), Draft{})
	for _, w := range []*tail{tenant, user} {
		if e := w.next(); e.ID != cp.ID {
			t.Errorf("event %+v of %+v", e, cp)
		}
	}
	cp = mustSave(t, f, Ref{Tenant: "acme", User: "bob", Thread: "t"}, Draft{})
	if e := tenant.next(); e.ID != cp.ID {
		t.Errorf("event %+v of %+v", e, cp)
	}
	mustSave(t, f, Ref{Tenant: "globex", User: "alice", Thread: "t"}, Draft{})
	for _, w := range []*tail{tenant, user, thread} {
		w.quiet()
		w.end()
	}
}

// take reads n events, all that there are to come.
func take(t *testing.T, s *Store, scope WatchScope, from Cursor, n int) (events []Event) {
	t.Helper()
	w := watchTail(t, s, scope, from)
	defer w.end()
	for range n {
		events = append(events, w.next())
	}
	w.quiet()
	return events
}

// A thread's cursor resumes exactly behind its event, also in another process, also within one
// millisecond, and across a deletion.
func TestWatchResumesAThread(t *testing.T) {
	clock := &testClock{ms: 1000}
	f := newFixture(t, Options{Now: clock.now})
	scope := WatchScope{Tenant: "acme", User: "alice", Thread: "t"}
	sub := testRef("t")
	sub.Namespace = "sub"
	var ids []string
	save := func(ref Ref, d Draft) {
		ids = append(ids, mustSave(t, f, ref, d).ID)
	}
	for i := range 20 {
		clock.ms += int64(i % 3 / 2)
		save(testRef("t"), Draft{Step: int64(i), Status: []string{"", StatusWaiting}[i%2]})
		if i%4 == 0 {
			save(sub, Draft{})
		}
	}
	if _, err := f.Thread(testRef("t")).Delete(context.Background()); err != nil {
		t.Fatal(err)
	}
	ids = nil
	for i := range 20 {
		clock.ms += int64(i % 3 / 2)
		save(testRef("t"), Draft{Step: int64(i), Status: []string{"", StatusWaiting}[i%2]})
		if i%4 == 0 {
			save(sub, Draft{})
		}
	}
	all := take(t, f.Store, scope, CursorAt(time.UnixMilli(0)), len(ids))
	for i := range all {
		want := uint64(2)
		if all[i].Ref == sub {
			want = 2<<32 + 1
		}
		if !slices.Contains(ids, all[i].ID) || all[i].Generation != want {
			t.Fatalf("event %d: %+v", i, all[i])
		}
		if all[i].Seq > 1 && all[i].Ref.Namespace == "" && all[i].Before == all[i].Status {
			t.Errorf("event %d has status %q, before %q", i, all[i].Status, all[i].Before)
		}
	}
	for i := range all {
		if i%5 == 0 {
			f.reopen()
		}
		rest := take(t, f.Store, scope, all[i].Cursor, len(all)-i-1)
		for j := range rest {
			if rest[j].ID != all[i+1+j].ID {
				t.Fatalf("behind event %d came %+v, want %+v", i, rest[j], all[i+1+j])
			}
		}
	}
	w := watchTail(t, f.Store, scope, all[len(all)-1].Cursor)
	save(testRef("t"), Draft{})
	if e := w.next(); e.ID != ids[len(ids)-1] {
		t.Errorf("live after a resume: %+v", e)
	}
	w.end()
}

// However many lineages were saved to in one millisecond, a watch that breaks off after each event
// gets on, and repeats nothing once the millisecond is over.
func TestWatchGetsOnWithinAMillisecond(t *testing.T) {
	clock := &testClock{ms: 1000}
	f := newFixture(t, Options{Now: clock.now})
	want := map[string]bool{}
	for range 2 {
		for i := range 40 {
			want[mustSave(t, f, testRef(fmt.Sprint("t", i)), Draft{}).ID] = true
			want[mustSave(t, f, testRef(fmt.Sprint("t", i)), Draft{}).ID] = true
		}
		clock.ms++
	}
	cursor := CursorAt(time.UnixMilli(0))
	for len(want) > 0 {
		for e, err := range f.Watch(context.Background(), WatchScope{Tenant: "acme", User: "alice"}, cursor) {
			if err != nil {
				t.Fatal(err)
			}
			if !want[e.ID] {
				t.Fatalf("with %d to come, %+v is repeated", len(want), e)
			}
			delete(want, e.ID)
			cursor = e.Cursor
			break
		}
	}
}

// gate holds up commits that write a record of one thread.
type gate struct {
	backend.Backend
	mu    sync.Mutex
	slot  string
	here  chan struct{} // closed when a commit is held up
	going chan struct{}
}

func (g *gate) Commit(ctx context.Context, b backend.Batch) error {
	g.mu.Lock()
	held := g.slot != "" && slices.ContainsFunc(b.Muts, func(m backend.Mut) bool {
		return space.KindOf(m.Key) == space.KindRecord && string(m.Key[16:32]) == g.slot
	})
	g.mu.Unlock()
	if held {
		close(g.here)
		<-g.going
	}
	return g.Backend.Commit(ctx, b)
}

// A save that is slow to become durable is not missed by a watch resumed from the cursor of a
// faster one, even if it began first.
func TestWatchCursorWaitsForSlowSaves(t *testing.T) {
	for _, began := range []string{"before the watch", "after it"} {
		clock := &testClock{ms: 1000}
		f := newFixture(t, Options{Now: clock.now})
		slow := mustSave(t, f, testRef("slow"), Draft{})
		mustSave(t, f, testRef("fast"), Draft{})
		k, err := f.User("acme", "alice").keys(context.Background(), false)
		if err != nil {
			t.Fatal(err)
		}
		tok := k.ThreadToken("slow")
		g := &gate{Backend: f.be, slot: string(tok[:]), here: make(chan struct{}), going: make(chan struct{})}
		f.be = g
		f.reopen()
		clock.ms += 10
		saved := make(chan string)
		saveSlowly := func() {
			go func() {
				cp, err := f.Thread(testRef("slow")).Save(context.Background(), Draft{})
				if err != nil {
					t.Error(err)
				}
				saved <- cp.ID
			}()
			<-g.here
		}
		scope := WatchScope{Tenant: "acme"}
		var w *tail
		if began == "after it" {
			w = watchTail(t, f.Store, scope, "")
			w.settle(t, f, testRef("other"))
			saveSlowly()
		} else {
			saveSlowly()
			w = watchTail(t, f.Store, scope, "")
			for range 3 { // a watch begins when all is settled that was under way
				mustSave(t, f, testRef("other"), Draft{})
				w.quiet()
			}
			close(g.going)
			id := <-saved
			w.settle(t, f, testRef("other"))
			clock.ms += 10
			cp := mustSave(t, f, testRef("fast"), Draft{})
			if e := w.next(); e.ID != cp.ID || cp.ID == id {
				t.Errorf("event %+v", e)
			}
			w.end()
			continue
		}
		clock.ms += 10
		fast := mustSave(t, f, testRef("fast"), Draft{})
		e := w.next()
		if e.ID != fast.ID {
			t.Fatalf("event %+v, want that of the fast save", e)
		}
		w.end()
		close(g.going)
		id := <-saved
		f.reopen()
		found := false
		w = watchTail(t, f.Store, scope, e.Cursor)
		for !found {
			e := w.next()
			found = e.ID == id
			if e.ID == fast.ID || e.ID == slow.ID {
				t.Errorf("repeated %+v", e)
			}
		}
		w.end()
	}
}

// A watcher that is slower than the ring is long sees every event once all the same.
func TestSlowWatcher(t *testing.T) {
	f := newFixture(t, Options{})
	f.hub.size = 8
	w := watchTail(t, f.Store, WatchScope{Tenant: "acme"}, "")
	w.settle(t, f, testRef("t0"))
	want := map[string]bool{}
	for i := range 300 {
		ref := testRef(fmt.Sprint("t", i%7))
		want[mustSave(t, f, ref, Draft{Step: int64(i)}).ID] = true
		if i%60 == 59 {
			for range 40 {
				e := w.next()
				if !want[e.ID] {
					t.Fatalf("event %+v came twice, or from nowhere", e)
				}
				delete(want, e.ID)
			}
		}
	}
	for len(want) > 0 {
		e := w.next()
		if !want[e.ID] {
			t.Fatalf("event %+v came twice, or from nowhere", e)
		}
		delete(want, e.ID)
	}
	w.quiet()
	w.end()
}

// intruder calls a function once, before the next scan of a kind of key, or of any if kind is 0.
type intruder struct {
	backend.Backend
	mu   sync.Mutex
	kind byte
	do   func()
}

func (i *intruder) Scan(ctx context.Context, r backend.Range) ([]backend.Entry, []byte, error) {
	i.mu.Lock()
	var do func()
	if i.kind == 0 || len(r.Start) >= space.PrefixLen && r.Start[space.PrefixLen-1] == i.kind {
		do, i.do = i.do, nil
	}
	i.mu.Unlock()
	if do != nil {
		do()
	}
	return i.Backend.Scan(ctx, r)
}

// A checkpoint that is saved while a watcher looks into storage is found there, and comes once.
func TestWatchSaveDuringCatchUp(t *testing.T) {
	f := newFixture(t, Options{})
	be := &intruder{Backend: f.be}
	f.be = be
	f.reopen()
	first := mustSave(t, f, testRef("t"), Draft{})
	var second *Checkpoint
	be.do = func() { second = mustSave(t, f, testRef("t"), Draft{}) }
	got := take(t, f.Store, WatchScope{Tenant: "acme"}, CursorAt(time.UnixMilli(0)), 2)
	if got[0].ID != first.ID || second == nil || got[1].ID != second.ID {
		t.Errorf("events %+v", got)
	}
}

// Whatever is saved, and however often the watch breaks off, every checkpoint comes, in order
// within its lineage.
func TestWatchMissesNothing(t *testing.T) {
	f := newFixture(t, Options{})
	f.hub.size = 64
	scope := WatchScope{Tenant: "acme"}
	const writers, saves = 6, 150
	start := mustSave(t, f, testRef("start"), Draft{})
	cursor := CursorAt(start.Time)
	var wg sync.WaitGroup
	var mu sync.Mutex
	want := map[string]bool{start.ID: true}
	for n := range writers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), 5))
			for range saves {
				ref := testRef(fmt.Sprint("t", r.IntN(10)))
				if r.IntN(3) == 0 {
					ref.User = "bob"
				}
				cp, err := f.Thread(ref).Save(context.Background(), Draft{})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				want[cp.ID] = true
				mu.Unlock()
			}
		})
	}
	got := map[string]int{}
	r := rand.New(rand.NewPCG(9, 9))
	saved := make(chan struct{})
	go func() { wg.Wait(); close(saved) }()
	for len(got) < writers*saves+1 {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		left := 1 + r.IntN(120)
		seqs := map[Ref]uint64{}
		for e, err := range f.Watch(ctx, scope, cursor) {
			if err != nil {
				t.Fatalf("after %d of %d: %v, running %v", len(got), writers*saves+1, err, f.hub.running)
			}
			if e.Seq <= seqs[e.Ref] {
				t.Fatalf("seq %d of %+v after %d", e.Seq, e.Ref, seqs[e.Ref])
			}
			seqs[e.Ref] = e.Seq
			got[e.ID]++
			cursor = e.Cursor
			if left--; left == 0 || len(got) == writers*saves+1 {
				break
			}
		}
		cancel()
	}
	<-saved
	repeated := 0
	for id, n := range got {
		if !want[id] {
			t.Errorf("event of %s, which nobody saved", id)
		}
		repeated += n - 1
	}
	t.Logf("%d events, %d repeated", len(got), repeated)
	if n := f.hub.watchers.Load(); n != 0 || len(f.hub.running) != 0 || f.hub.ring != nil {
		t.Errorf("%d watchers and %v running when all is over", n, f.hub.running)
	}
}

// failing fails commits while it is armed.
type failing struct {
	backend.Backend
	mu  sync.Mutex
	err error // the error of commits after they were applied
}

func (f *failing) Commit(ctx context.Context, b backend.Batch) error {
	err := f.Backend.Commit(ctx, b)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	return err
}

func (f *failing) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// A save whose outcome is not known is an event if it turns out to be durable.
func TestWatchFindsAmbiguousSaves(t *testing.T) {
	f := newFixture(t, Options{})
	be := &failing{Backend: f.be}
	f.be = be
	f.reopen()
	w := watchTail(t, f.Store, WatchScope{Tenant: "acme"}, "")
	w.settle(t, f, testRef("t"))
	be.fail(backend.ErrAmbiguous)
	if _, err := f.Thread(testRef("t")).Save(context.Background(), Draft{Step: 42}); !errors.Is(err, ErrAmbiguous) {
		t.Fatal(err)
	}
	be.fail(nil)
	if e := w.next(); e.Step != 42 {
		t.Errorf("event %+v", e)
	}
	be.fail(backend.ErrUnavailable) // now in the middle of building a save: its parts do not fit into its batch
	d := Draft{Channels: []Change{{Name: "big", Data: incompressible(rand.New(rand.NewPCG(1, 1)), 2<<20)}}}
	if _, err := f.Thread(testRef("t")).Save(context.Background(), d); !errors.Is(err, ErrUnavailable) {
		t.Fatal(err)
	}
	be.fail(nil)
	w.quiet()
	w.end()
	if len(f.hub.running) != 0 {
		t.Errorf("running %v when all is over", f.hub.running)
	}
}

func TestWatchEnds(t *testing.T) {
	f := newFixture(t, Options{})
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(context.Background())
	ends := make(chan error, 2)
	watch := func(ctx context.Context) {
		for _, err := range f.Watch(ctx, WatchScope{Tenant: "acme"}, "") {
			ends <- err
		}
	}
	go watch(ctx)
	for f.hub.watchers.Load() != 1 {
		runtime.Gosched()
	}
	cancel()
	if err := <-ends; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	go watch(context.Background())
	for f.hub.watchers.Load() != 1 {
		runtime.Gosched()
	}
	f.Store.Close()
	if err := <-ends; !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	for range 100 {
		if runtime.NumGoroutine() <= before {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines, %d before", n, before)
	}
	for _, err := range f.Watch(context.Background(), WatchScope{Tenant: "acme"}, CursorAt(time.UnixMilli(0))) {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("a closed store: %v", err)
		}
	}
}

func TestWatchRefuses(t *testing.T) {
	f := newFixture(t, Options{})
	for _, scope := range []WatchScope{{}, {User: "u"}, {Tenant: "acme", Thread: "t"}} {
		for _, err := range f.Watch(context.Background(), scope, "") {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%+v: %v", scope, err)
			}
		}
	}
	whole := cursorState{low: 1 << 40, upto: lineageDigest{7}, seen: []lastSeen{{lineageDigest{1, 2}, 700, 1 << 41}, {lineageDigest{3}, 2, 1 << 41}}}.cursor()
	m, err := whole.parse()
	if err != nil || m.low != 1<<40 || m.upto != (lineageDigest{7}) || len(m.seen) != 2 || m.seen[0].seq != 700 || m.cursor() != whole {
		t.Errorf("cursor %s is %+v, %v", whole, m, err)
	}
	raw, _ := base64.RawURLEncoding.DecodeString(string(whole))
	for n := range raw {
		c := Cursor(base64.RawURLEncoding.EncodeToString(raw[:n]))
		if m, err := c.parse(); err == nil && m.cursor() != c {
			t.Errorf("%d bytes of a cursor are %+v", n, m)
		}
	}
	for _, c := range []Cursor{"x", "!", "AgA", Cursor(base64.RawURLEncoding.EncodeToString(append([]byte{1, 0}, make([]byte, 8+9*9)...)))} {
		for _, err := range f.Watch(context.Background(), WatchScope{Tenant: "acme"}, c) {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%q: %v", c, err)
			}
		}
	}
}

func FuzzCursor(f *testing.F) {
	f.Add(string(CursorAt(time.UnixMilli(1 << 40))))
	f.Add(string(cursorState{low: 1 << 40, seen: []lastSeen{{lineageDigest{1, 2}, 700, 1 << 41}}}.cursor()))
	f.Add("AQ")
	f.Fuzz(func(t *testing.T, s string) {
		if m, err := Cursor(s).parse(); err == nil {
			again, err := m.cursor().parse()
			if err != nil || again.low != m.low || again.upto != m.upto || !slices.Equal(again.seen, m.seen) {
				t.Errorf("%q is %+v, then %+v, %v", s, m, again, err)
			}
		}
	})
}

// The cost of the hub for a save, without and with watchers.
func BenchmarkHub(b *testing.B) {
	for _, watched := range []bool{false, true} {
		b.Run(fmt.Sprint("watched=", watched), func(b *testing.B) {
			h := newHub()
			if watched {
				h.enter()
			}
			e := Event{Ref: testRef("t")}
			b.ReportAllocs()
			for b.Loop() {
				e.began, e.counted, _ = h.begin(func() (int64, error) { return time.Now().UnixMilli(), nil })
				h.finished(&e, true)
			}
		})
	}
}

// TestWatchTellsThatItBegan saves right after the first event, from which on nothing is missed:
// neither by that watch, nor by one resumed from the event's cursor.
func TestWatchTellsThatItBegan(t *testing.T) {
	clock := &testClock{ms: 1_700_000_000_000}
	f := newFixture(t, Options{Now: clock.now})
	mustSave(t, f, testRef("old"), Draft{})
	clock.ms++
	scope := WatchScope{Tenant: "acme", Began: true}
	w := watchTail(t, f.Store, scope, "")
	began := w.next()
	if began.Cursor == "" || began.Seq != 0 {
		t.Fatalf("the first event is %+v", began)
	}
	saved := mustSave(t, f, testRef("new"), Draft{})
	if e := w.next(); e.ID != saved.ID {
		t.Errorf("next comes %+v, saved was %s", e, saved.ID)
	}
	w.end()
	w = watchTail(t, f.Store, scope, began.Cursor)
	if e := w.next(); e.Cursor != began.Cursor || e.Seq != 0 {
		t.Errorf("resumed from %q it begins with %+v", began.Cursor, e)
	}
	if e := w.next(); e.ID != saved.ID {
		t.Errorf("resumed it goes on with %+v", e)
	}
	w.quiet()
	w.end()
}

// TestIdleWatchIsLeftAlone saves far more to other threads than the hub remembers while a watch
// waits for its own: it is not woken, and then gets its event from the hub, without a look into
// storage.
func TestIdleWatchIsLeftAlone(t *testing.T) {
	f := newFixture(t, Options{})
	f.hub.size = 8
	for _, scope := range []WatchScope{{Tenant: "acme", User: "alice", Thread: "mine", Began: true}, {Tenant: "acme", User: "carol", Began: true}, {Tenant: "evil", Began: true}} {
		w := watchTail(t, f.Store, scope, "")
		w.next() // it has begun
		waiter := waiting(f, scope)
		for i := range 100 {
			mustSave(t, f, Ref{Tenant: "acme", User: "bob", Thread: fmt.Sprint(i % 7)}, Draft{})
		}
		saved := mustSave(t, f, Ref{Tenant: scope.Tenant, User: cmp.Or(scope.User, "eve"), Thread: cmp.Or(scope.Thread, "t")}, Draft{})
		if e := w.next(); e.ID != saved.ID {
			t.Errorf("%+v gets %+v", scope, e)
		}
		if waiting(f, scope) != waiter {
			t.Errorf("%+v fell behind", scope)
		}
		w.end()
	}
}

// waiting waits until the one watch of a scope waits at the hub. One that falls behind comes back
// as another waiter.
func waiting(f *fixture, scope WatchScope) *waiter {
	scope.Began = false
	for {
		f.hub.mu.Lock()
		for w := range f.hub.waiting[scope] {
			f.hub.mu.Unlock()
			return w
		}
		f.hub.mu.Unlock()
		runtime.Gosched()
	}
}
