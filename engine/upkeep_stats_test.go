package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ckptd/ckptd/crypto"
)

func TestStats(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	if _, err := f.Upkeep().Stats(ctx, "acme", "alice"); !errors.Is(err, ErrNotFound) {
		t.Errorf("user who never wrote: %v, want ErrNotFound", err)
	}
	state := make([]byte, 5000)
	for i := range state {
		state[i] = byte(i * i >> 3)
	}
	for i := range 3 {
		th := f.Thread(testRef(fmt.Sprint("t", i)))
		for step := range 4 {
			state[step]++
			if _, err := th.Save(ctx, Draft{Step: int64(step), Channels: []Change{{Name: "state", Data: state}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := f.Thread(testRef("t2")).Delete(ctx); err != nil {
		t.Fatal(err)
	}
	st, err := f.Upkeep().Stats(ctx, "acme", "alice")
	if err != nil {
		t.Fatal(err)
	}
	if st.Threads != 2 || st.Lineages != 2 || st.Checkpoints != 8 || st.StateBytes != 8*5000 || st.Ghosts != 0 || st.Stubs != 0 {
		t.Errorf("got %+v, want 2 threads, 2 lineages, 8 checkpoints of 5,000 bytes", st)
	}
	if st.Keyframes != 2 || st.MaxDepth != 4 {
		t.Errorf("got %d keyframes and depth %d, want 2 and 4", st.Keyframes, st.MaxDepth)
	}
	part := st.PartBytes/3 - crypto.Overhead // of each thread, the deleted one too
	if most := part + st.StoredBytes/2; st.MaxDepthBytes < part+200 || st.MaxDepthBytes > most || st.IndexEntries != 0 {
		t.Errorf("a restore reads %d bytes, want at most %d; %d index entries, want none", st.MaxDepthBytes, most, st.IndexEntries)
	}
	mustSave(t, f, testRef("t1"), Draft{Keep: true, RunID: "r", Labels: map[string]string{"a": "b"}})
	mustSave(t, f, Ref{Tenant: "acme", User: "bob", Thread: "t"}, Draft{RunID: "r"})
	after, err := f.Upkeep().Stats(ctx, "acme", "alice")
	if err != nil || after.IndexEntries != 2 || after.Checkpoints != 9 || after.MaxDepth != 4 || after.MaxDepthBytes != st.MaxDepthBytes {
		t.Errorf("with a labelled checkpoint %+v, %v", after, err)
	}
	if st.StoredBytes < 8*100 || st.StoredBytes > 8*500 || st.Parts == 0 || st.PartBytes < 500 {
		t.Errorf("got %d bytes in records, %d in %d parts", st.StoredBytes, st.PartBytes, st.Parts)
	}
}
