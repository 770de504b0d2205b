package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/ckptd/ckptd/backend/mem"
)

// TestVersionAfterRollback restores an older copy of the data and continues differently: old
// versions name nothing now, though other bytes are stored at the same seqs. The same bytes have
// the same version.
func TestVersionAfterRollback(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	save := func(th *Thread, text string) Version {
		t.Helper()
		cp, err := th.Save(ctx, Draft{Channels: []Change{{Name: "x", Data: []byte(text)}}})
		if err != nil {
			t.Fatal(err)
		}
		return cp.Channels[0].Version
	}
	th := f.Thread(testRef("t"))
	first := save(th, "first")
	old := allEntries(t, f.be)
	lost := save(th, "second")
	f.Store.Close()
	f.be = mem.Open()
	copyEntries(t, f.be, old)
	f.reopen()
	th = f.Thread(testRef("t"))
	other := save(th, "another")
	_, err := th.Save(ctx, Draft{Keep: true, Channels: []Change{{Name: "x", Base: lost, Prefix: 3, Data: []byte("!")}}})
	if !errors.Is(err, ErrNeedFull) {
		t.Errorf("a splice on what was lost: %v", err)
	}
	if again := save(th, "first"); again != first || other == lost || other == first {
		t.Errorf("versions %x, %x; then %x, %x", first, lost, other, again)
	}
	header, err := th.Load(ctx, Latest, LoadOptions{HeadersOnly: true})
	if err != nil || header.Channels[0].Version != first {
		t.Errorf("a header has version %x, %v", header.Channels[0].Version, err)
	}
}
