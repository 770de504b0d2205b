package backendtest

import (
	"context"
	"errors"
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/mem"
)

var errFault = errors.New("fault")

// compactable adds Compact to a backend.
type compactable struct{ backend.Backend }

func (c compactable) Compact(ctx context.Context) error {
	_, err := c.Get(ctx)
	return err
}

func TestFaultConformsWithoutAPlan(t *testing.T) {
	Run(t, func(*testing.T) backend.Backend { return NewFault(compactable{mem.Open()}).Backend() })
}

func TestFaultForwardsCompactor(t *testing.T) {
	if _, ok := NewFault(mem.Open()).Backend().(backend.Compactor); ok {
		t.Error("a Compactor out of a backend that is none")
	}
	if _, ok := NewFault(compactable{mem.Open()}).Backend().(backend.Compactor); !ok {
		t.Error("the Compactor was lost")
	}
}

// calls makes one call of each kind and returns which of them failed.
func calls(t *testing.T, b backend.Backend) (failed Op) {
	t.Helper()
	_, getErr := b.Get(t.Context(), []byte("a"))
	_, _, scanErr := b.Scan(t.Context(), backend.Range{})
	commitErr := b.Commit(t.Context(), muts(put("a", "1", "v")))
	compactErr := b.(backend.Compactor).Compact(t.Context())
	for op, err := range map[Op]error{OpGet: getErr, OpScan: scanErr, OpCommit: commitErr, OpCompact: compactErr} {
		if errors.Is(err, errFault) {
			failed |= op
		} else if err != nil {
			t.Errorf("op %d: %v", op, err)
		}
	}
	return failed
}

func TestFaultFailsTheKthCall(t *testing.T) {
	f := NewFault(compactable{mem.Open()})
	b := f.Backend()
	for _, tt := range []struct {
		plan Plan
		want []Op // failed in each round of calls
	}{
		{Plan{}, []Op{0, 0}},
		{Plan{Ops: OpAny}, []Op{OpGet, 0}},
		{Plan{Ops: OpAny, After: 3}, []Op{OpCompact, 0}},
		{Plan{Ops: OpAny, After: 5}, []Op{0, OpScan, 0}},
		{Plan{Ops: OpCommit, After: 1}, []Op{0, OpCommit, 0}},
		{Plan{Ops: OpScan | OpCommit, After: 1}, []Op{OpCommit, 0}},
		{Plan{Ops: OpAny, After: 2, Keep: true}, []Op{OpCommit | OpCompact, OpAny}},
		{Plan{Ops: OpAny, After: 12}, []Op{0, 0, 0}},
	} {
		tt.plan.Err = errFault
		f.Arm(tt.plan)
		fired := 0
		for round, want := range tt.want {
			if got := calls(t, b); got != want {
				t.Errorf("%+v round %d: %04b failed, want %04b", tt.plan, round, got, want)
			}
			for op := OpGet; op <= OpCompact; op <<= 1 {
				if want&op != 0 {
					fired++
				}
			}
		}
		if f.Fired() != fired || f.Calls(OpAny) != 4*len(tt.want) || f.Calls(OpCommit) != len(tt.want) {
			t.Errorf("%+v: fired %d, counted %d calls and %d commits",
				tt.plan, f.Fired(), f.Calls(OpAny), f.Calls(OpCommit))
		}
		f.Disarm()
		if got := calls(t, b); got != 0 {
			t.Errorf("%+v disarmed: %04b failed", tt.plan, got)
		}
	}
}

func TestFaultBeforeAndAfterApplying(t *testing.T) {
	for _, apply := range []bool{false, true} {
		f := NewFault(mem.Open())
		s := newStore(t, f.Backend())
		f.Arm(Plan{Ops: OpCommit, Err: backend.ErrAmbiguous, Apply: apply, Keep: true})
		s.refused("faulty commit", muts(put("a", "1", "v")), backend.ErrAmbiguous)
		s.refused("commit after it", muts(put("b", "1", "v")), backend.ErrAmbiguous)
		if got := s.get("a").Version != ""; got != apply {
			t.Errorf("apply %v: the batch is there: %v", apply, got)
		}
		if s.get("b").Version != "" {
			t.Error("a commit after the fault was applied")
		}
	}
	// A conflict is a conflict also where the acknowledgement would have been lost.
	f := NewFault(mem.Open())
	s := newStore(t, f.Backend())
	f.Arm(Plan{Ops: OpCommit, Err: backend.ErrAmbiguous, Apply: true})
	s.refused("conflict", backend.Batch{Conds: []backend.Cond{match("a", "v")}}, backend.ErrConflict)
}
