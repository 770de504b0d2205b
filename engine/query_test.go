package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// spy remembers the keys whose values are read.
type spy struct {
	backend.Backend
	mu   sync.Mutex
	keys map[string]bool
}

func (s *spy) saw(es []backend.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range es {
		if e.Value != nil {
			s.keys[string(e.Key)] = true
		}
	}
}

func (s *spy) Get(ctx context.Context, keys ...[]byte) ([]backend.Entry, error) {
	es, err := s.Backend.Get(ctx, keys...)
	s.saw(es)
	return es, err
}

func (s *spy) Scan(ctx context.Context, r backend.Range) ([]backend.Entry, []byte, error) {
	es, next, err := s.Backend.Scan(ctx, r)
	s.saw(es)
	return es, next, err
}

// threads are the tokens of the threads of which anything was read, besides index entries.
func (s *spy) threads() map[crypto.Token]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	read := map[crypto.Token]bool{}
	for k := range s.keys {
		switch kind := k[space.PrefixLen-1]; {
		case kind == space.KindThread:
			read[crypto.Token([]byte(k[space.PrefixLen:]))] = true
		case kind >= space.KindRecord:
			read[crypto.Token([]byte(k[16:32]))] = true
		}
	}
	return read
}

func collectIDs(t testing.TB, seq iter.Seq2[*Checkpoint, error]) []string {
	t.Helper()
	var ids []string
	for cp, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, cp.ID)
	}
	return ids
}

// "All agents that failed at step 5 in the last 24 hours": found over all users of the tenant,
// newest first, and nothing is read of the threads that did not fail.
func TestQueryFailedAtStepInTheLastDay(t *testing.T) {
	ctx := context.Background()
	clock := &testClock{ms: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).UnixMilli()}
	f := newFixture(t, Options{Now: clock.now})
	run := func(tenant, user, thread, status string, steps int64) (last *Checkpoint) {
		for step := int64(1); step <= steps; step++ {
			clock.ms += 1000
			d := Draft{Step: step, Keep: step > 1, Channels: []Change{jsonChannel("m", fmt.Sprint(step))}}
			if step == steps {
				d.Status = status
			}
			last = mustSave(t, f, Ref{Tenant: tenant, User: user, Thread: thread}, d)
		}
		return last
	}
	run("acme", "alice", "old", StatusFailed, 5)
	clock.ms += 30 * time.Hour.Milliseconds()
	want := []string{run("acme", "alice", "a5", StatusFailed, 5).ID}
	run("acme", "alice", "a4", StatusFailed, 4)
	want = append(want, run("acme", "bob", "b5", StatusFailed, 5).ID)
	run("acme", "bob", "fine", StatusSucceeded, 5)
	run("acme", "carol", "c", StatusRunning, 6)
	run("globex", "dave", "d5", StatusFailed, 5)
	five := int64(5)
	q := Query{Filter: Filter{Status: StatusFailed, MinStep: &five, MaxStep: &five, Since: clock.now().Add(-24 * time.Hour)}}

	reader := &spy{Backend: f.be, keys: map[string]bool{}}
	f.be = reader
	f.reopen()
	slices.Reverse(want)
	if got := collectIDs(t, f.QueryTenant(ctx, "acme", q)); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	read := reader.threads()
	token := func(user, thread string) crypto.Token {
		k, err := f.User("acme", user).keys(ctx, false)
		if err != nil {
			t.Fatal(err)
		}
		return k.ThreadToken(thread)
	}
	for _, th := range [][2]string{{"bob", "fine"}, {"carol", "c"}} {
		if read[token(th[0], th[1])] {
			t.Errorf("thread %v did not fail, but something of it was read", th)
		}
	}
	if !read[token("bob", "b5")] {
		t.Error("the spy saw nothing of a thread that matched")
	}
	if got := collectIDs(t, f.User("acme", "alice").Query(ctx, q)); !slices.Equal(got, want[1:]) {
		t.Errorf("of one user: got %q, want %q", got, want[1:])
	}
	q.Limit = 1
	if got := collectIDs(t, f.QueryTenant(ctx, "acme", q)); !slices.Equal(got, want[:1]) {
		t.Errorf("limited: got %q, want %q", got, want[:1])
	}
	q.Until, q.Since = q.Since, time.Time{} // before the day: of the newer threads only the index is read
	clear(reader.keys)
	f.reopen()
	if got := collectIDs(t, f.QueryTenant(ctx, "acme", q)); len(got) != 1 {
		t.Errorf("before the day: %q", got)
	}
	if read = reader.threads(); read[token("bob", "b5")] || !read[token("alice", "old")] {
		t.Error("an entry after Until was followed")
	}
}

// Of several terms the rarest is followed, and a term with more entries than a page holds is read
// to its end.
func TestQueryFollowsTheRarestTerm(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	const many = 600
	for i := range many {
		d := Draft{Labels: map[string]string{"env": "prod"}, RunID: "r"}
		if i%200 == 7 {
			d.Labels["rare"] = "yes"
		}
		mustSave(t, f, testRef(fmt.Sprint("t", i)), d)
	}
	reader := &spy{Backend: f.be, keys: map[string]bool{}}
	f.be = reader
	f.reopen()
	q := Query{Filter: Filter{RunID: "r", Labels: map[string]string{"env": "prod", "rare": "yes"}}}
	if got := collectIDs(t, f.QueryTenant(ctx, "acme", q)); len(got) != many/200 {
		t.Errorf("%d results", len(got))
	}
	if n := len(reader.threads()); n != many/200 {
		t.Errorf("%d threads were read", n)
	}
	delete(q.Labels, "rare")
	if got := collectIDs(t, f.User("acme", "alice").Query(ctx, q)); len(got) != many {
		t.Errorf("%d results, want %d", len(got), many)
	}
}

// queryWorld is a store of random threads, and all that is in it.
type queryWorld struct {
	f     *fixture
	clock *testClock
	r     *rand.Rand
	refs  []Ref
}

func newQueryWorld(t *testing.T, seed uint64) *queryWorld {
	w := &queryWorld{clock: &testClock{ms: 1_000_000}, r: rand.New(rand.NewPCG(seed, 7))}
	w.f = newFixture(t, Options{Now: w.clock.now})
	for u := range 3 {
		for th := range 4 {
			for _, ns := range []string{"", "sub"} {
				w.refs = append(w.refs, Ref{Tenant: "acme", User: fmt.Sprint("user", u), Thread: fmt.Sprint("t", th), Namespace: ns})
			}
		}
	}
	return w
}

func (w *queryWorld) pick(values ...string) string { return values[w.r.IntN(len(values))] }

// step saves one checkpoint somewhere: it extends, forks, replaces, or starts a thread again.
func (w *queryWorld) step(t *testing.T) {
	ctx := context.Background()
	w.clock.ms += w.r.Int64N(50)
	ref := w.refs[w.r.IntN(len(w.refs))]
	if w.r.IntN(60) == 0 {
		if _, err := w.f.Thread(ref).Delete(ctx); err != nil && !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
	}
	d := Draft{Step: w.r.Int64N(8), Status: w.pick("", "", StatusFailed, StatusSucceeded, "odd"), Keep: w.r.IntN(3) > 0,
		Channels: []Change{jsonChannel("m", fmt.Sprint(w.r.IntN(1000)))}}
	if w.r.IntN(3) == 0 {
		d.RunID = w.pick("r1", "r2", "r3")
	}
	if w.r.IntN(3) == 0 {
		d.Labels = map[string]string{w.pick("env", "team"): w.pick("a", "b", "")}
	}
	switch w.r.IntN(12) {
	case 0:
		d.Root = true
	case 1:
		d.ID = w.pick("x", "y")
	case 2:
		var ids []string
		for cp, err := range w.f.Thread(ref).History(ctx, HistoryOptions{Limit: 5}) {
			if err == nil {
				ids = append(ids, cp.ID)
			}
		}
		if ids != nil {
			d.Parent = w.pick(ids...)
		}
	}
	if _, err := w.f.Thread(ref).Save(ctx, d); err != nil {
		t.Fatal(err)
	}
}

// scan finds by looking at everything.
func (w *queryWorld) scan(t *testing.T, user string, q Query) (found []*Checkpoint) {
	for _, ref := range w.refs {
		if user != "" && ref.User != user {
			continue
		}
		for cp, err := range w.f.Thread(ref).History(context.Background(), HistoryOptions{}) {
			if errors.Is(err, ErrNotFound) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if q.matches(cp) {
				found = append(found, cp)
			}
		}
	}
	return found
}

func (w *queryWorld) query() (q Query) {
	if w.r.IntN(3) == 0 {
		q.Status = w.pick(StatusFailed, StatusRunning, "odd", "never")
	}
	if w.r.IntN(3) == 0 {
		q.RunID = w.pick("r1", "r2", "r9")
	}
	if w.r.IntN(3) == 0 {
		q.Labels = map[string]string{w.pick("env", "team"): w.pick("a", "b", "")}
	}
	step := w.r.Int64N(8)
	switch w.r.IntN(5) {
	case 0:
		q.MinStep = &step
	case 1:
		q.MaxStep = &step
	}
	at := time.UnixMilli(1_000_000 + w.r.Int64N(w.clock.ms-1_000_000))
	switch w.r.IntN(5) {
	case 0:
		q.Since = at
	case 1:
		q.Until = at
	}
	return q
}

// A query finds exactly the checkpoints that reading every checkpoint finds, newest first.
func TestQueryAgainstScan(t *testing.T) {
	runsAlone(t)
	ctx := context.Background()
	hits := 0
	for seed := range uint64(4) {
		w := newQueryWorld(t, seed)
		for range 500 {
			w.step(t)
		}
		w.f.reopen()
		for range 120 {
			q := w.query()
			user := w.pick("", "user0", "user1")
			found := w.scan(t, user, q)
			results := w.f.QueryTenant(ctx, "acme", q)
			if user != "" {
				results = w.f.User("acme", user).Query(ctx, q)
			}
			want := map[string]*Checkpoint{}
			for _, cp := range found {
				want[fmt.Sprint(cp.Ref, cp.Seq)] = cp
			}
			last := int64(1 << 60)
			n := 0
			for cp, err := range results {
				if err != nil {
					t.Fatal(err)
				}
				if w := want[fmt.Sprint(cp.Ref, cp.Seq)]; !reflect.DeepEqual(w, cp) {
					t.Fatalf("seed %d, query %+v of %q:\ngot  %+v\nwant %+v", seed, q, user, cp, w)
				}
				if n++; cp.Time.UnixMilli() > last {
					t.Fatalf("query %+v is not newest first", q)
				}
				last = cp.Time.UnixMilli()
			}
			if n != len(want) {
				t.Fatalf("seed %d, query %+v of %q: %d results, want %d", seed, q, user, n, len(want))
			}
			hits += n
		}
	}
	if hits < 1000 {
		t.Errorf("only %d results in all: the test asks the wrong questions", hits)
	}
}

func TestQueryOfNobody(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	if got := collectIDs(t, f.User("acme", "nobody").Query(ctx, Query{})); got != nil {
		t.Errorf("a user who never saved has %q", got)
	}
	if got := collectIDs(t, f.QueryTenant(ctx, "nothing", Query{Filter: Filter{RunID: "r"}})); got != nil {
		t.Errorf("an empty tenant has %q", got)
	}
	for _, err := range f.QueryTenant(ctx, "", Query{}) {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("no tenant: %v", err)
		}
	}
	mustSave(t, f, testRef("t"), Draft{})
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	for _, err := range f.User("acme", "alice").Query(cancelled, Query{}) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	}
}
