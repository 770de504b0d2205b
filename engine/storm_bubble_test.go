package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/mem"
	"github.com/ckptd/ckptd/crypto"
	. "github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// roughBackend takes a random time for every call, and fails some.
type roughBackend struct {
	backend.Backend
	mu    sync.Mutex
	r     *rand.Rand
	calls int // of which one fails; 0: none
}

func (b *roughBackend) draw() (d time.Duration, fails bool, way int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Duration(b.r.IntN(2000)) * time.Microsecond, b.calls > 0 && b.r.IntN(b.calls) == 0, b.r.IntN(3)
}

func (b *roughBackend) Get(ctx context.Context, keys ...[]byte) ([]backend.Entry, error) {
	d, fails, _ := b.draw()
	time.Sleep(d / 8)
	if fails {
		return nil, backend.ErrUnavailable
	}
	return b.Backend.Get(ctx, keys...)
}

func (b *roughBackend) Scan(ctx context.Context, r backend.Range) ([]backend.Entry, []byte, error) {
	d, fails, _ := b.draw()
	time.Sleep(d / 8)
	if fails {
		return nil, nil, backend.ErrUnavailable
	}
	return b.Backend.Scan(ctx, r)
}

func (b *roughBackend) Commit(ctx context.Context, batch backend.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d, fails, way := b.draw()
	time.Sleep(d)
	ctx = context.WithoutCancel(ctx)
	switch {
	case !fails:
		return b.Backend.Commit(ctx, batch)
	case way == 0:
		return backend.ErrUnavailable
	case way == 1:
		if err := b.Backend.Commit(ctx, batch); err != nil {
			return err
		}
	}
	return backend.ErrAmbiguous
}

func (b *roughBackend) Close() error { return nil }

// expected are the possible contents of one object that one goroutine changes.
type expected struct {
	ref  Ref
	may  map[string]bool // contents; "" is none
	gone bool            // it may have been removed
}

type bubble struct {
	t    *testing.T
	s    *Store
	mu   sync.Mutex
	want map[string]*expected // by id of a checkpoint
	puts map[string]Ref       // writes, by task
	seed uint64
}

// Writers of a few lineages, with all interfering operations, on a backend that sometimes fails,
// with contexts that sometimes end: acknowledged saves exist, and no call waits forever.
func TestStormInABubble(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 6
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T) { stormInABubble(t, seed) })
		})
	}
}

func stormInABubble(t *testing.T, seed uint64) {
	root, err := crypto.GenerateRootKey()
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Root: root, Keystore: crypto.NewMemKeystore(), Create: true}
	if seed%3 == 0 {
		o.CacheBytes = 30_000
	}
	b := &roughBackend{Backend: mem.Open(), r: rand.New(rand.NewPCG(seed, 1))}
	s, err := Open(t.Context(), b, o)
	if err != nil {
		t.Fatal(err)
	}
	st := &bubble{t: t, s: s, want: map[string]*expected{}, puts: map[string]Ref{}, seed: seed}
	if seed%2 == 0 {
		b.calls = 60
	}
	watching, unwatch := context.WithCancel(t.Context())
	seen, watched := map[string]bool{}, make(chan struct{})
	go func() {
		defer close(watched)
		st.watch(watching, seen)
	}()
	synctest.Wait()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() { st.run(g) })
	}
	wg.Wait()
	b.mu.Lock()
	b.calls = 0
	b.mu.Unlock()
	st.check(s, "memory")
	time.Sleep(time.Second)
	unwatch()
	<-watched
	st.checkSeen(s, seen)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	o.Create = false
	fresh, err := Open(t.Context(), b, o)
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	st.check(fresh, "storage")
	rep, err := fresh.Upkeep().Verify(t.Context(), upkeep.VerifyOptions{Deep: true})
	if err != nil || len(rep.Problems) > 0 {
		t.Errorf("verify: %v, %+v", err, rep)
	}
}

func (st *bubble) run(g int) {
	r := rand.New(rand.NewPCG(st.seed, uint64(g)+10))
	var mine []string
	for n := range 40 {
		ctx, cancel := st.t.Context(), context.CancelFunc(func() {})
		if r.IntN(3) == 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(6000))*time.Microsecond)
		}
		ref := Ref{Tenant: "acme", User: "alice", Thread: fmt.Sprint("t", r.IntN(2))}
		if r.IntN(3) == 0 {
			ref.Namespace = "sub"
		}
		th := st.s.Thread(ref)
		pick := func() (string, *Thread) {
			if len(mine) == 0 {
				return "none", th
			}
			id := mine[r.IntN(len(mine))]
			return id, st.s.Thread(st.of(id).ref)
		}
		switch k := r.IntN(100); {
		case k < 45:
			id := fmt.Sprintf("g%d-%d", g, n)
			d := Draft{ID: id, Keep: r.IntN(2) == 0}
			if r.IntN(5) == 0 {
				d.Branch = fmt.Sprint("b", r.IntN(3))
			}
			if r.IntN(8) == 0 {
				d.RunID = "doomed"
			}
			if r.IntN(6) == 0 {
				d.TTL = time.Duration(1+r.IntN(3)) * time.Hour
			}
			if p, on := pick(); r.IntN(5) == 0 && on.Ref() == ref {
				d.Parent = p
			}
			mine = append(mine, id)
			st.save(ctx, th, d, fmt.Sprintf("content of %s %d", id, r.Uint64()))
		case k < 55:
			id, on := pick()
			if id != "none" {
				st.save(ctx, on, Draft{ID: id}, fmt.Sprintf("again %s %d", id, n))
			}
		case k < 62:
			id, on := pick()
			st.tolerate(on.SetLabels(ctx, At(id), map[string]string{"k": fmt.Sprint(n)}))
		case k < 68:
			id, on := pick()
			st.tolerate(nil, on.SetBranch(ctx, fmt.Sprint("b", r.IntN(3)), At(id)))
		case k < 70:
			st.tolerate(nil, th.DeleteBranch(ctx, fmt.Sprint("b", r.IntN(3))))
		case k < 78:
			task := fmt.Sprint("task", g)
			w := []Write{{Index: int64(n), Channel: "c", Data: fmt.Append(nil, n)}}
			if _, err := th.PutWrites(ctx, "target", task, "", Upsert, w, 0); err == nil {
				st.mu.Lock()
				st.puts[fmt.Sprintf("%s %d", task, n)] = ref
				st.mu.Unlock()
			} else {
				st.tolerate(nil, err)
			}
		case k < 90:
			id, on := pick()
			for _, w := range []Which{At(id), Latest, HeadOf("b1")} {
				_, err := on.Load(ctx, w)
				st.tolerate(nil, err)
			}
		case k < 92:
			_, err := th.Upkeep().Prune(ctx, upkeep.PruneOptions{Remove: []string{"none"}, OlderThan: time.Hour, Erase: r.IntN(2) == 0})
			st.tolerate(nil, err)
		case k < 94:
			_, _, err := st.s.User("acme", "alice").Upkeep().DeleteRun(ctx, "doomed")
			st.tolerate(nil, err)
		case k < 96:
			_, err := st.s.User("acme", "alice").Upkeep().GC(ctx, upkeep.GCOptions{Grace: -1})
			st.tolerate(nil, err)
		default:
			for _, err := range th.History(ctx, HistoryOptions{Data: true}) {
				st.tolerate(nil, err)
			}
		}
		cancel()
	}
}

// watch notes the checkpoints that a watch delivers, and resumes it when the backend fails it.
func (st *bubble) watch(ctx context.Context, seen map[string]bool) {
	for at := CursorAt(time.Now()); ctx.Err() == nil; {
		once := map[string]bool{}
		for e, err := range st.s.Watch(ctx, WatchScope{Tenant: "acme"}, at) {
			if err != nil {
				if ctx.Err() == nil {
					st.tolerate(nil, err)
				}
				break
			}
			name := fmt.Sprintf("%v of generation %d, %s, seq %d", e.Ref, e.Generation, e.ID, e.Seq)
			if once[name] {
				st.t.Errorf("seed %d: %s comes twice", st.seed, name)
			}
			once[name], seen[name], at = true, true, e.Cursor
		}
	}
}

// checkSeen looks for checkpoints that no watch told of.
func (st *bubble) checkSeen(s *Store, seen map[string]bool) {
	for cp, err := range s.QueryTenant(st.t.Context(), "acme", Query{}) {
		if err != nil {
			st.t.Error(err)
			return
		}
		if name := fmt.Sprintf("%v of generation %d, %s, seq %d", cp.Ref, cp.Generation, cp.ID, cp.Seq); !seen[name] {
			st.t.Errorf("seed %d: no watch told of %s", st.seed, name)
		}
	}
}

func (st *bubble) of(id string) *expected {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.want[id]
}

func (st *bubble) save(ctx context.Context, th *Thread, d Draft, content string) {
	d.Channels = []Change{{Name: "x", Data: []byte(content)}}
	st.mu.Lock()
	e := st.want[d.ID]
	if e == nil {
		e = &expected{ref: th.Ref(), may: map[string]bool{"": true}}
		st.want[d.ID] = e
	}
	st.mu.Unlock()
	_, err := th.Save(ctx, d)
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case err == nil:
		e.may = map[string]bool{content: true}
		e.gone = e.gone || d.RunID == "doomed" || d.Keep
	case errors.Is(err, ErrAmbiguous):
		e.may[content] = true
		e.gone = e.gone || d.RunID == "doomed" || d.Keep
	default:
		st.tolerate(nil, err)
	}
}

func (st *bubble) tolerate(_ any, err error) {
	for _, ok := range []error{nil, ErrNotFound, ErrUnavailable, ErrAmbiguous, ErrUnknownParent, ErrGeneration, context.DeadlineExceeded} {
		if errors.Is(err, ok) {
			return
		}
	}
	st.t.Errorf("seed %d: %v", st.seed, err)
}

func (st *bubble) generation(s *Store, ref Ref) uint64 {
	for info, err := range s.User("acme", "alice").Threads(st.t.Context(), ThreadOptions{Prefix: ref.Thread}) {
		if err == nil {
			return info.Generation
		}
	}
	return 0
}

func (st *bubble) check(s *Store, where string) {
	for id, e := range st.want {
		cp, err := s.Thread(e.ref).Load(st.t.Context(), At(id))
		is := ""
		if err == nil {
			ch, _ := cp.Channel("x")
			is = string(ch.Data)
		} else if !errors.Is(err, ErrNotFound) {
			st.t.Errorf("%s: %s: %v", where, id, err)
			continue
		}
		if !e.may[is] && !(e.gone && is == "") {
			st.t.Errorf("%s: %s of %v holds %q, may be %v: %v", where, id, e.ref, is, e.may, err)
		}
	}
	for at, ref := range st.puts {
		ws, err := s.Thread(ref).Writes(st.t.Context(), "target")
		found := false
		for _, w := range ws {
			found = found || fmt.Sprintf("%s %d", w.Task, w.Index) == at
		}
		if !found && st.generation(s, ref) == 1 { // else DeleteRun left no checkpoint, and deleted the thread
			st.t.Errorf("%s: write %s of %v is lost: %v", where, at, ref, err)
		}
	}
}
