package run

import (
	"context"
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/bench/rival"
	"github.com/ckptd/ckptd/bench/workload"
)

// A save has a budget of allocations, not counting its commit: if you need more, say why here. An
// edit in the middle of the coder's 1 MB rebuilds the digests after it that the commitment has
// cached.
func TestAllocations(t *testing.T) {
	for name, budget := range map[string]float64{"chat": 10, "blackboard": 14, "coder": 22} {
		var ack *acknowledger
		d, err := rival.Pipeline(t.Context(), rival.Options{Dir: t.TempDir(), Durable: true, Writers: 1}, func(b backend.Backend) backend.Backend {
			ack = &acknowledger{Backend: b}
			return ack
		})
		if err != nil {
			t.Fatal(err)
		}
		w, err := workload.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		player := w.Player(workload.Options{Seed: 1, Filled: true})
		save := func() {
			if err := d.Save(context.Background(), player.Next()); err != nil {
				t.Fatal(err)
			}
		}
		save()
		ack.begun.Store(true)
		for range 100 { // warm up: some structures grow with the first saves
			save()
		}
		got := testing.AllocsPerRun(200, save)
		if got > budget {
			t.Errorf("%s: %.0f allocations a save, the budget is %.0f", name, got, budget)
		}
		t.Logf("%s: %.0f allocations a save", name, got)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
