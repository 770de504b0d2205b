package engine

import (
	"context"
	"testing"
	"time"
)

// Two lineages write the record of their thread one after the other, and learn of it in the other
// order: the last write counts.
func TestThreadRecordIsTheOneWrittenLast(t *testing.T) {
	ctx := context.Background()
	clock := &testClock{ms: 1_700_000_000_000}
	f := newFixture(t, Options{Now: clock.now})
	ref, sub := testRef("t"), testRef("t")
	sub.Namespace = "sub"
	l, err := f.refLineage(ctx, ref, true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.unrefLineage(l)
	gate := &gated{Backend: f.Store.be, entered: make(chan struct{}), outcome: make(chan error)}
	f.Store.be = gate
	gate.closed.Store(true)
	saved := make(chan error)
	go func() {
		_, err := f.Thread(ref).Save(ctx, Draft{})
		saved <- err
	}()
	<-gate.entered
	l.mu.lock(ctx) // as another save of the lineage that is being prepared
	gate.closed.Store(false)
	gate.outcome <- nil
	for written := false; !written; {
		got, err := f.be.Get(ctx, l.u.ThreadKey(l.th.Tok))
		if err != nil {
			t.Fatal(err)
		}
		written = got[0].Version != ""
	}
	if _, err := f.Thread(sub).Save(ctx, Draft{TTL: time.Hour}); err != nil { // it finds the record of the first
		t.Fatal(err)
	}
	l.mu.unlock()
	if err := <-saved; err != nil {
		t.Fatal(err)
	}
	clock.ms += 45 * time.Minute.Milliseconds()
	mustSave(t, f, ref, Draft{})
	clock.ms += 45 * time.Minute.Milliseconds()
	for _, s := range []*Store{f.Store, f.second()} {
		if _, err := s.Thread(ref).Load(ctx, Latest); err != nil {
			t.Errorf("45 minutes after a save to a thread that lives for an hour: %v", err)
		}
	}
}
