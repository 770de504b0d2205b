package server

import (
	"context"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/backend"
)

// fullBackend has no room for anything new while it is full.
type fullBackend struct {
	backend.Backend
	full atomic.Bool
}

func (f *fullBackend) Commit(ctx context.Context, b backend.Batch) error {
	if f.full.Load() {
		return backend.ErrNoSpace
	}
	return f.Backend.Commit(ctx, b)
}

// TestDiskFull saves while there is no room: that is told, nothing is changed, what is there can be
// read, and the server goes on when there is room again.
func TestDiskFull(t *testing.T) {
	b := newBed(t, Limits{})
	b.stop()
	full := &fullBackend{Backend: b.be}
	b.be = full
	b.start()
	c := b.checkpoints("")
	mustSave(t, c, ref("t"), draft("before"))
	full.full.Store(true)
	for range 3 {
		_, err := c.Save(t.Context(), connect.NewRequest(&ckptdv1.SaveRequest{Ref: ref("t"), Draft: draft("while")}))
		wantCode(t, err, connect.CodeResourceExhausted, ckptdv1.Reason_REASON_NO_SPACE)
	}
	res, err := c.Load(t.Context(), connect.NewRequest(&ckptdv1.LoadRequest{Ref: ref("t")}))
	must(t, err)
	if cp := res.Msg.GetCheckpoint(); cp.GetSeq() != 1 || string(cp.GetChannels()[0].GetData()) != "before" {
		t.Errorf("loaded %v", cp)
	}
	select {
	case err := <-b.Failed():
		t.Errorf("the server gives up: %v", err)
	default:
	}
	full.full.Store(false)
	if cp := mustSave(t, c, ref("t"), draft("after")); cp.GetSeq() != 2 {
		t.Errorf("the next save has seq %d", cp.GetSeq())
	}
}
