package engine

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ckptd/ckptd/engine/upkeep"
)

// deltaSupport saves checkpoints "0" to n-1 with the delta channel log, and writes to it, in a kind
// with migrations.
func deltaSupport(t *testing.T, th *Thread, n int, pin string) {
	t.Helper()
	for i := range n {
		d := supportDraft(supportV1)
		if d.ID = fmt.Sprint(i); i == 0 {
			d.Channels = append(d.Channels, Change{Name: "log", Data: []byte("base")})
		} else {
			d.Delta = []string{"log"}
		}
		if d.ID == pin {
			d.Labels = map[string]string{LabelPin: "yes"}
		}
		save(t, th, d)
		logWrite(t, th, d.ID, "w"+d.ID)
	}
}

// A migration of a history changes the hash of a checkpoint that a hidden ancestor has as its
// parent.
func TestMigratedParentOfAnAncestor(t *testing.T) {
	for _, erase := range []bool{false, true} {
		f := newFixture(t, Options{Migrations: only(supportSet(t))})
		ref := testRef("t")
		th := f.Thread(ref)
		deltaSupport(t, th, 5, "1")
		mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1, Erase: erase})
		if _, err := th.Upkeep().MigrateHistory(t.Context(), 4, false); err != nil {
			t.Fatal(err)
		}
		wantHistory(t, th, At("4"), "base|w0,w1,w2,w3")
		mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
		mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1})
		if _, err := th.SetLabels(t.Context(), At("1"), nil); err != nil {
			t.Fatal(err)
		}
		mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1})
		mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1, Erase: true})
		wantHistory(t, th, At("4"), "base|w0,w1,w2,w3")
		mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
	}
}

// A prune that hid ancestors does not keep a history from being restored, but new writes to one
// that is hidden now do.
func TestRestoreHistoryAfterHiding(t *testing.T) {
	for _, late := range []bool{false, true} {
		f := newFixture(t, Options{Migrations: only(supportSet(t))})
		ref := testRef("t")
		th := f.Thread(ref)
		deltaSupport(t, th, 4, "")
		if _, err := th.Upkeep().MigrateHistory(t.Context(), 4, false); err != nil {
			t.Fatal(err)
		}
		if late {
			logWrite(t, th, "1", "late")
		}
		mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1})
		err := th.Upkeep().RestoreHistory(t.Context())
		if late != errors.Is(err, ErrConflict) || !late && err != nil {
			t.Errorf("late %v: %v", late, err)
		}
		if !late {
			wantHistory(t, th, At("3"), "base|w0,w1,w2")
		}
		mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
	}
}
