package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/mem"
	. "github.com/ckptd/ckptd/engine"
)

// unreliable fails some commits while it is armed: for certain, or with an outcome that is not
// known.
type unreliable struct {
	backend.Backend
	armed atomic.Bool
	mu    sync.Mutex
	r     *rand.Rand
}

func (b *unreliable) Commit(ctx context.Context, batch backend.Batch) error {
	fate := -1
	if b.armed.Load() {
		b.mu.Lock()
		fate = b.r.IntN(60)
		b.mu.Unlock()
	}
	switch fate {
	case 0:
		return fmt.Errorf("the test says so: %w", backend.ErrUnavailable)
	case 1:
		return fmt.Errorf("the test says so: %w", backend.ErrAmbiguous)
	case 2:
		if err := b.Backend.Commit(ctx, batch); err != nil {
			return err
		}
		return fmt.Errorf("the test says so: %w", backend.ErrAmbiguous)
	}
	return b.Backend.Commit(ctx, batch)
}

// watching is a watch that is interrupted and resumed all the time, and the events it has seen.
type watching struct {
	t      *testing.T
	s      *Store
	r      *rand.Rand
	cursor Cursor
	seen   map[spot]int
	newest map[Ref]uint64
}

// pass watches for so many events at most, or until the context ends.
func (w *watching) pass(ctx context.Context, most int, seen func(Event) (more bool)) {
	inThis := map[spot]bool{}
	for e, err := range w.s.Watch(ctx, WatchScope{Tenant: "acme"}, w.cursor) {
		if err != nil {
			if ctx.Err() == nil {
				w.t.Errorf("watch: %v", err)
			}
			return
		}
		at := spot{e.Ref, e.ID}
		if inThis[at] {
			w.t.Errorf("%v, seq %d, comes twice in one watch", at, e.Seq)
		}
		if w.seen[at] == 0 && e.Seq < w.newest[e.Ref] {
			w.t.Errorf("%v, seq %d, comes after seq %d", at, e.Seq, w.newest[e.Ref])
		}
		inThis[at] = true
		w.seen[at]++
		w.newest[e.Ref] = max(w.newest[e.Ref], e.Seq)
		w.cursor = e.Cursor
		if most--; most <= 0 || seen != nil && !seen(e) {
			return
		}
	}
}

// A watch that is interrupted at any moment and resumed, during saves of which some fail in every
// way and some are given up, delivers every acknowledged checkpoint, in order within its lineage.
func TestWatchMissesNothingBesideFailures(t *testing.T) {
	const threads, writers = 12, 6
	saves := 6_000
	if testing.Short() || RaceEnabled {
		saves = 1_500
	}
	if n := longRun(); n > 0 {
		saves = n / 4
	}
	const seed = 5
	random := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, n)) }
	disk := mem.Open()
	o := withKeys(t, Options{CacheBytes: 1 << 20})
	be := &unreliable{Backend: keepsOpen{disk}, r: random(100)}
	s := open(t, be, o)
	w := &watching{t: t, s: s, r: random(200), cursor: CursorAt(time.UnixMilli(0)), seen: map[spot]int{}, newest: map[Ref]uint64{}}

	be.armed.Store(true)
	var mu sync.Mutex
	acked := map[spot]uint64{}
	var wg sync.WaitGroup
	for n := range writers {
		r := random(uint64(n))
		wg.Go(func() {
			for i := range saves / writers {
				ref := refOf(fmt.Sprint("t", r.IntN(threads)))
				cp, err := saveSomething(s.Thread(ref), r, i)
				switch {
				case err == nil:
					mu.Lock()
					acked[spot{ref, cp.ID}] = cp.Seq
					mu.Unlock()
				case !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrAmbiguous) && !errors.Is(err, context.DeadlineExceeded):
					t.Errorf("saving: %v", err)
				}
			}
		})
	}
	saved, done := context.WithCancel(t.Context())
	go func() { wg.Wait(); done() }()
	for saved.Err() == nil {
		ctx, cancel := context.WithTimeout(saved, time.Duration(1+w.r.IntN(100))*time.Millisecond)
		w.pass(ctx, 1+w.r.IntN(200), nil)
		cancel()
	}
	wg.Wait()
	be.armed.Store(false)

	// Missed events of a lineage do not come after its last checkpoint.
	last := map[spot]bool{}
	for n := range threads {
		cp, err := s.Thread(refOf(fmt.Sprint("t", n))).Save(t.Context(), Draft{Channels: state("last")})
		if err != nil {
			t.Fatal(err)
		}
		last[spot{refOf(fmt.Sprint("t", n)), cp.ID}] = true
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // so that a watch that misses one does not hang
	defer cancel()
	w.pass(ctx, saves+threads, func(e Event) bool {
		delete(last, spot{e.Ref, e.ID})
		return len(last) > 0
	})
	if len(last) > 0 {
		t.Errorf("the watch does not come to the end of %d threads", len(last))
	}
	checkSeen(t, w, acked, saves)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	fresh := open(t, keepsOpen{disk}, o)
	defer fresh.Close()
	for at, seq := range acked {
		if _, err := fresh.Thread(at.ref).Load(t.Context(), At(at.id), LoadOptions{HeadersOnly: true}); err != nil {
			t.Errorf("%v, seq %d, was acknowledged: %v", at, seq, err)
		}
	}
	checkDeep(t, fresh)
	if t.Failed() {
		t.Logf("with seed %d", seed)
	}
}

// saveSomething saves a little, or much and for a moment only.
func saveSomething(th *Thread, r *rand.Rand, i int) (*Checkpoint, error) {
	ctx, data := context.Background(), fmt.Append(nil, i)
	if r.IntN(20) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(800))*time.Microsecond)
		defer cancel()
		data = randomText(r, 100<<10)
	}
	return th.Save(ctx, Draft{Channels: []Change{{Name: "m", Data: data}}})
}

// checkSeen checks that all that was acknowledged was seen, and that the test shows something.
func checkSeen(t *testing.T, w *watching, acked map[spot]uint64, saves int) {
	t.Helper()
	missing, again, unknown := 0, 0, 0
	for at, seq := range acked {
		if w.seen[at] > 1 {
			again++
		}
		if w.seen[at] == 0 {
			if missing++; missing <= 5 {
				t.Errorf("%v, seq %d, was acknowledged and not seen", at, seq)
			}
		}
	}
	for at := range w.seen {
		if _, ok := acked[at]; !ok {
			unknown++
		}
	}
	t.Logf("%d of %d saves acknowledged, %d not seen, %d seen again by a watch that was resumed, %d seen that nobody was told of",
		len(acked), saves, missing, again, unknown)
	if len(acked) < saves/2 || len(w.seen) < saves/2 {
		t.Error("the test shows little")
	}
}
