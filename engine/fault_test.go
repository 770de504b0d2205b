package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/backendtest"
	"github.com/ckptd/ckptd/backend/mem"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// Every operation is run with the k-th of its backend calls failing, for every k, in each of these
// ways.
var faultPlans = []struct {
	name string
	plan backendtest.Plan
}{
	{"once", backendtest.Plan{Ops: backendtest.OpAny, Err: errUnavailable}},
	{"from then on", backendtest.Plan{Ops: backendtest.OpAny, Err: errUnavailable, Keep: true}},
	{"unknown, not applied", backendtest.Plan{Ops: backendtest.OpCommit, Err: errAmbiguous}},
	{"unknown, applied", backendtest.Plan{Ops: backendtest.OpCommit, Err: errAmbiguous, Apply: true}},
}

var (
	errUnavailable = fmt.Errorf("the test says so: %w", backend.ErrUnavailable)
	errAmbiguous   = fmt.Errorf("the test says so: %w", backend.ErrAmbiguous)
)

// bed is a store whose backend fails on demand, over data that other stores can look at.
type bed struct {
	t     testing.TB
	w     *faultWorld
	raw   *mem.Store
	fault *backendtest.Fault
	opts  Options
	*Store

	acked []ackedSave
}

// ackedSave is a checkpoint that must be there from now on.
type ackedSave struct {
	ref   Ref
	id    string
	state map[string][]byte
}

// newBed opens a store on a copy of the data of w.
func newBed(t testing.TB, w *faultWorld) *bed {
	t.Helper()
	b := &bed{t: t, w: w, raw: mem.Open(), opts: w.f.opts}
	copyEntries(t, b.raw, w.entries)
	b.fault = backendtest.NewFault(keepOpen{b.raw})
	b.opts.Create = false
	s, err := Open(context.Background(), b.fault.Backend(), b.opts)
	if err != nil {
		t.Fatal(err)
	}
	b.Store = s
	return b
}

// view opens another store on the same data, which knows only the durable state.
func (b *bed) view() *Store {
	b.t.Helper()
	s, err := Open(context.Background(), keepOpen{b.raw}, b.opts)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func allEntries(t testing.TB, b backend.Backend) (all []backend.Entry) {
	t.Helper()
	for r := (backend.Range{}); ; {
		page, next, err := b.Scan(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page...)
		if r.Start = next; next == nil {
			return all
		}
	}
}

func copyEntries(t testing.TB, to backend.Backend, all []backend.Entry) {
	t.Helper()
	for _, e := range all {
		err := to.Commit(context.Background(), backend.Batch{Muts: []backend.Mut{{Key: e.Key, Value: e.Value, Version: e.Version}}})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func sameEntries(a, b []backend.Entry) bool {
	return slices.EqualFunc(a, b, func(a, b backend.Entry) bool {
		return bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value) && a.Version == b.Version
	})
}

// spot is the place of a checkpoint in contents, or, without an id, of a thread.
type spot struct {
	ref Ref
	id  string
}

// contents reads every checkpoint of the tests' users, whole, and describes each.
func contents(t testing.TB, s *Store) map[spot]string {
	t.Helper()
	ctx := context.Background()
	all := map[spot]string{}
	for _, user := range []string{"alice", "bob"} {
		for info, err := range s.User("acme", user).Threads(ctx, ThreadOptions{}) {
			if err != nil {
				t.Fatalf("listing threads: %v", err)
			}
			all[spot{ref: info.Ref}] = fmt.Sprint("generation ", info.Generation, " created ", info.Created, " expires ", info.Expires)
			for _, ns := range faultNamespaces {
				ref := info.Ref
				ref.Namespace = ns
				for cp, err := range s.Thread(ref).History(ctx, HistoryOptions{Data: true}) {
					if err != nil {
						t.Fatalf("reading %v: %v", ref, err)
					}
					all[spot{ref, cp.ID}] = describe(cp)
				}
			}
		}
	}
	return all
}

func describe(cp *Checkpoint) string {
	h := sha256.New()
	for _, ch := range cp.Channels {
		fmt.Fprintf(h, "%q %q %d ", ch.Name, ch.Type, len(ch.Data))
		h.Write(ch.Data)
	}
	return fmt.Sprintf("seq %d parent %q (%d) branch %q time %v step %d %s run %q labels %v meta %s blobs %v hash %x state %x", cp.Seq, cp.Parent,
		cp.ParentSeq, cp.Branch, cp.Time, cp.Step, cp.Status, cp.RunID, cp.Labels, cp.Meta, cp.Blobs, cp.Hash, h.Sum(nil))
}

// save saves and notes acknowledged checkpoints.
func (b *bed) save(ctx context.Context, ref Ref, d Draft, state map[string][]byte) error {
	cp, err := b.Thread(ref).Save(ctx, d)
	if err != nil {
		return err
	}
	b.acked = append(b.acked, ackedSave{ref, cp.ID, state})
	return nil
}

// checkAcked loads the acknowledged checkpoints from s.
func (b *bed) checkAcked(s *Store) {
	b.t.Helper()
	for _, a := range b.acked {
		cp, err := s.Thread(a.ref).Load(context.Background(), At(a.id))
		if err != nil {
			b.t.Errorf("%s was acknowledged: %v", a.id, err)
			continue
		}
		if len(cp.Channels) != len(a.state) {
			b.t.Errorf("%s has %d channels, want %d", a.id, len(cp.Channels), len(a.state))
		}
		for name, want := range a.state {
			if ch, _ := cp.Channel(name); !bytes.Equal(ch.Data, want) {
				b.t.Errorf("%s: channel %s differs from its save", a.id, name)
			}
		}
	}
}

// checkSame compares the contents of two stores; spots for which except is true may differ or be
// missing.
func checkSame(t testing.TB, what string, got, want map[spot]string, except func(spot) bool) {
	t.Helper()
	for at, w := range want {
		if got[at] != w && (except == nil || !except(at)) {
			t.Errorf("%s: %v is\n%q, want\n%q", what, at, got[at], w)
		}
	}
	for at := range got {
		if _, ok := want[at]; !ok && (except == nil || !except(at)) {
			t.Errorf("%s: %v exists", what, at)
		}
	}
}

// faultOp is an operation of the engine in the sweep.
type faultOp struct {
	name string
	// run runs it, and finds fault with its result.
	run func(ctx context.Context, b *bed) error
	// reads says that it writes nothing.
	reads bool
	// again reports whether err is a proper answer when the operation is repeated after it took
	// effect, perhaps without the caller knowing. Nil: only success is.
	again func(err error) bool
	// replaces reports whether it changes a checkpoint if, and only if, it takes effect. Nil: none.
	replaces func(w *faultWorld, at spot) bool
	// changes reports whether it may take away, add or change a checkpoint even if it fails. Nil:
	// none.
	changes func(at spot) bool
}

// TestFaultSweep fails the k-th backend call of every operation for every k. The error surfaces,
// nothing that was there is harmed, nothing that failed for certain is there, and the operation
// succeeds when it is repeated.
func TestFaultSweep(t *testing.T) { sweepAll(t, faultOps) }

func sweepAll(t *testing.T, ops []faultOp) {
	runsAlone(t)
	w := newFaultWorld(t)
	for _, op := range ops {
		t.Run(op.name, func(t *testing.T) {
			t.Parallel()
			for _, p := range faultPlans {
				for _, warm := range []bool{false, true} {
					fired := 0
					for k := 0; ; k++ {
						plan := p.plan
						plan.After = k
						if !sweepOne(t, w, &op, plan, warm) || t.Failed() {
							break
						}
						fired++
					}
					if t.Failed() {
						t.Fatalf("%s, call %d, warm %v", p.name, fired, warm)
					}
					if fired == 0 && !warm && p.plan.Ops == backendtest.OpAny {
						t.Error("makes no backend call")
					}
				}
			}
		})
	}
}

// sweepOne runs op with one plan, and reports whether the plan failed a call.
func sweepOne(t *testing.T, w *faultWorld, op *faultOp, plan backendtest.Plan, warm bool) bool {
	ctx := context.Background()
	b := newBed(t, w)
	defer b.Close()
	if warm {
		w.warm(t, b.Store)
	}
	b.fault.Arm(plan)
	err := op.run(ctx, b)
	fired := b.fault.Fired() > 0
	b.fault.Disarm()
	switch {
	case !fired && err != nil:
		t.Errorf("failed by itself: %v", err)
		return false
	case fired && err == nil:
		t.Errorf("the error of the backend was swallowed")
	case fired && !errors.Is(err, plan.Err):
		t.Errorf("the error is %v", err)
	}
	if op.reads {
		if !sameEntries(allEntries(t, b.raw), w.entries) {
			t.Error("it wrote something")
		}
		if err := op.run(ctx, b); err != nil {
			t.Errorf("again: %v", err)
		}
		return fired
	}
	if fired {
		b.afterFault(op, plan)
	}
	b.checkAcked(b.Store)
	v := b.view()
	defer v.Close()
	b.checkAcked(v)
	checkSame(t, "the store compared with its data", contents(t, b.Store), contents(t, v), nil)
	mustBeClean(t, v, upkeep.VerifyOptions{})
	return fired
}

// afterFault checks that the store is unchanged, or as if the operation had succeeded if that is
// unknown, that it continues to work, and that the operation can be repeated.
func (b *bed) afterFault(op *faultOp, plan backendtest.Plan) {
	ctx, t := context.Background(), b.t
	t.Helper()
	have := b.w.contents
	if !sameEntries(allEntries(t, b.raw), b.w.entries) {
		v := b.view()
		have = contents(t, v)
		v.Close()
	}
	if !plan.Apply {
		checkSame(t, "after the fault", have, b.w.contents, op.changes)
	}
	for at, was := range b.w.contents {
		if at.id == "" { // the thread may have got another expiry
			continue
		}
		if have[at] != was && (op.changes == nil || !op.changes(at)) && (!plan.Apply || op.replaces == nil || !op.replaces(b.w, at)) {
			t.Errorf("after the fault: %v is %q, was %q", at, have[at], was)
		}
	}
	state := map[string][]byte{"x": []byte("meanwhile")}
	for _, name := range []string{"other", "brand new"} {
		if err := b.save(ctx, testRef(name), Draft{Channels: []Change{{Name: "x", Data: state["x"]}}}, state); err != nil {
			t.Errorf("another thread after the fault: %v", err)
		}
	}
	if err := op.run(ctx, b); err != nil && (!plan.Apply && op.changes == nil || op.again == nil || !op.again(err)) {
		t.Errorf("repeated after the fault: %v", err)
	}
}
