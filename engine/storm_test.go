package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/badger"
	"github.com/ckptd/ckptd/backend/mem"
	. "github.com/ckptd/ckptd/engine"
)

// point is a checkpoint of which the test was told.
type point struct {
	ref      Ref
	id       string
	gen, seq uint64
	chosen   bool // its id was chosen by its caller, so that it can be replaced
	versions map[string]Version

	replacing sync.Mutex // held while it is replaced

	// These are guarded by storm.mu.
	states []map[string]string // the contents it was saved with, in order; nil for a refused one
	sure   int                 // it holds this one of states, or a later one whose outcome is not known
	gone   bool                // it may have been removed
}

// storm is many goroutines that do everything possible to a few threads, and the expected contents.
type storm struct {
	t      *testing.T
	s      *Store
	failed atomic.Int64
	saved  atomic.Int64

	mu       sync.Mutex
	points   map[Ref][]*point // acknowledged, and not known to be removed
	unknown  []*point         // saves whose outcome is not known: they are there as a whole, or not at all
	refused  []*point         // saves that failed for certain
	deleting map[Ref]int      // deletions under way, by thread and namespace
	least    map[Ref]uint64   // earlier generations were deleted, by thread and namespace
	outcomes map[string]int
}

const stormWorkers = 8

// Whatever is done to threads concurrently, and interrupted at any moment: each acknowledged
// checkpoint that cannot have been removed exists, byte for byte, at any time and after a restart;
// refused ones do not; nothing is damaged, and no call fails without a reason.
func TestAcknowledgedIsThereBesideEverything(t *testing.T) {
	steps, stores := 8_000, 1 // more steps on one store would get slower and slower
	if testing.Short() || RaceEnabled {
		steps = 2_000
	}
	if n := longRun(); n > 0 {
		stores = max(1, n/steps)
	}
	t.Run("mem", func(t *testing.T) {
		for seed := range stores {
			runStorm(t, mem.Open(), uint64(seed), steps)
		}
	})
	t.Run("badger", func(t *testing.T) {
		if longRun() == 0 {
			t.Skip("campaigns only: CKPTD_LONG is not set")
		}
		for seed := range max(1, stores/10) {
			be, err := badger.Open(t.TempDir(), badger.Options{MemTableSize: 8 << 20})
			if err != nil {
				t.Fatal(err)
			}
			runStorm(t, be, uint64(seed), steps)
			if err := be.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

func runStorm(t *testing.T, be backend.Backend, seed uint64, steps int) {
	o := withKeys(t, Options{CacheBytes: 4 << 20})
	m := &storm{t: t, s: open(t, keepsOpen{be}, o), points: map[Ref][]*point{}, deleting: map[Ref]int{}, least: map[Ref]uint64{}, outcomes: map[string]int{}}
	var wg sync.WaitGroup
	for n := range stormWorkers {
		w := &stormWorker{storm: m, r: rand.New(rand.NewPCG(seed, uint64(n))), n: n}
		wg.Go(func() {
			for w.i = range steps / stormWorkers {
				if m.failed.Load() > 0 {
					return
				}
				w.step()
			}
		})
	}
	wg.Wait()
	if err := m.s.Close(); err != nil {
		t.Error(err)
	}
	m.s = open(t, keepsOpen{be}, o)
	defer m.s.Close()
	checked := m.checkAll()
	checkDeep(t, m.s)
	if t.Failed() {
		for _, what := range slices.Sorted(maps.Keys(m.outcomes)) {
			t.Logf("%6d %s", m.outcomes[what], what)
		}
		t.Fatalf("with seed %d", seed)
	}
	if saved := m.saved.Load(); saved < int64(steps/10) || checked < steps/100 {
		t.Errorf("seed %d: %d of %d steps saved, %d checkpoints are left: the test shows little", seed, saved, steps, checked)
	}
}

// fail reports a failure. Those after the first few say nothing more.
func (m *storm) fail(format string, args ...any) {
	if m.failed.Add(1) <= 8 {
		m.t.Errorf(format, args...)
	}
}

// outcome counts the outcome of a call. A call whose context did not end may fail only with the
// allowed errors, and no call with ErrCorrupt.
func (m *storm) outcome(ctx context.Context, what string, err error, allowed ...error) {
	how := "ok"
	if err != nil {
		how = "failed"
		at := slices.IndexFunc(append(allowed, context.DeadlineExceeded), func(e error) bool { return errors.Is(err, e) })
		switch {
		case errors.Is(err, ErrCorrupt), ctx.Err() == nil && (at < 0 || at == len(allowed)):
			m.fail("%s: %v", what, err)
		case errors.Is(err, ErrAmbiguous):
			how = "ambiguous"
		case at >= 0 && at < len(allowed):
			how = allowed[at].Error()
		case at >= 0:
			how = "given up"
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outcomes[what+": "+how]++
}

// there reports whether a checkpoint must exist, and must have existed as long as it is known.
// Removals are claimed before they happen.
func (m *storm) there(p *point) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mustBe(p)
}

func (m *storm) mustBe(p *point) bool {
	return !p.gone && m.deleting[p.ref] == 0 && m.deleting[wholeThread(p.ref)] == 0 && !m.deleted(p)
}

// deleted reports whether the thread or the namespace of a checkpoint was deleted after it was
// saved.
func (m *storm) deleted(p *point) bool {
	thread := p.gen
	if thread>>32 != 0 {
		thread >>= 32
	}
	return p.gen < m.least[p.ref] || thread < m.least[wholeThread(p.ref)]
}

func wholeThread(ref Ref) Ref {
	ref.Namespace = ""
	return ref
}

// claim says that a checkpoint may be gone from now on. It reports whether this is the first claim.
func (m *storm) claim(p *point) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := p.gone
	p.gone = true
	return !was
}

// unclaim withdraws the claims of some checkpoints. It reports whether all of them must exist.
func (m *storm) unclaim(ps []*point) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := true
	for _, p := range ps {
		p.gone = false
		all = all && m.mustBe(p)
	}
	return all
}

// dropGone forgets the checkpoints of a lineage that may be gone.
func (m *storm) dropGone(of Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.points[of] = slices.DeleteFunc(m.points[of], func(p *point) bool { return p.gone || m.deleted(p) })
}

// check loads a checkpoint and compares.
func (m *storm) check(ctx context.Context, p *point) {
	m.mu.Lock()
	sure := p.sure
	m.mu.Unlock()
	cp, err := m.s.Thread(p.ref).Load(ctx, At(p.id))
	m.outcome(ctx, "load", err, ErrNotFound)
	m.mu.Lock()
	must, may := m.mustBe(p), p.states[sure:]
	m.mu.Unlock()
	switch {
	case !must:
	case err == nil && !holdsOne(cp, may):
		m.fail("%+v %s, seq %d: loads other bytes", p.ref, p.id, p.seq)
	case err != nil && ctx.Err() == nil:
		m.fail("%+v %s, seq %d, generation %d: %v", p.ref, p.id, p.seq, p.gen, err)
	}
}

// holdsOne reports whether a checkpoint has one of the states.
func holdsOne(cp *Checkpoint, states []map[string]string) bool {
	got := map[string]string{}
	for _, ch := range cp.Channels {
		got[ch.Name] = string(ch.Data)
	}
	return slices.ContainsFunc(states, func(s map[string]string) bool { return s != nil && maps.Equal(got, s) })
}

// checkAll checks all that is known when nothing is under way any more. It returns how many
// checkpoints are there for certain.
func (m *storm) checkAll() (n int) {
	ctx := context.Background()
	for _, ps := range m.points {
		for _, p := range ps {
			if m.there(p) {
				m.check(ctx, p)
				n++
			}
		}
	}
	for _, p := range m.unknown {
		cp, err := m.s.Thread(p.ref).Load(ctx, At(p.id))
		if err == nil && !holdsOne(cp, p.states) || err != nil && !errors.Is(err, ErrNotFound) {
			m.fail("%+v %s, whose outcome was not known, is neither there nor not: %v", p.ref, p.id, err)
		}
	}
	for _, p := range m.refused {
		if cp, err := m.s.Thread(p.ref).Load(ctx, At(p.id)); !errors.Is(err, ErrNotFound) {
			m.fail("%+v %s was refused: %+v, %v", p.ref, p.id, cp, err)
		}
	}
	return n
}

// stormWorker is one of the goroutines.
type stormWorker struct {
	*storm
	r    *rand.Rand
	n, i int
}

var stormSteps = []struct {
	weight int
	do     func(*stormWorker, context.Context, *Thread)
}{
	{5000, (*stormWorker).save},
	{2000, (*stormWorker).load},
	{600, (*stormWorker).replace},
	{400, (*stormWorker).label},
	{400, (*stormWorker).branch},
	{500, (*stormWorker).putWrites},
	{150, (*stormWorker).prune},
	{40, (*stormWorker).collect},
	{15, (*stormWorker).delete},
	{15, (*stormWorker).copy},
	{100, (*stormWorker).history},
	{40, (*stormWorker).query},
	{50, (*stormWorker).tree},
	{80, (*stormWorker).branches},
	{20, (*stormWorker).verify},
}

// step does something to one of a few threads. A quarter of all calls are given up at some moment.
func (w *stormWorker) step() {
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if w.r.IntN(4) == 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(w.r.IntN(1500))*time.Microsecond)
	}
	defer cancel()
	ref := refOf(fmt.Sprint("t", w.r.IntN(3)))
	if w.r.IntN(4) == 0 {
		ref.Namespace = fmt.Sprint("ns", w.r.IntN(2))
	}
	all := 0
	for _, s := range stormSteps {
		all += s.weight
	}
	n := w.r.IntN(all)
	for _, s := range stormSteps {
		if n -= s.weight; n < 0 {
			s.do(w, ctx, w.s.Thread(ref))
			return
		}
	}
}

// pick is a checkpoint of a lineage, mostly one of the newest, or nil.
func (w *stormWorker) pick(of Ref) *point {
	w.mu.Lock()
	defer w.mu.Unlock()
	ps := w.points[of]
	if len(ps) == 0 {
		return nil
	}
	if w.r.IntN(3) > 0 {
		return ps[len(ps)-1-w.r.IntN(min(len(ps), 8))]
	}
	return ps[w.r.IntN(len(ps))]
}
