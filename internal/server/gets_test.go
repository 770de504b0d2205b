package server

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/backend"
)

// getCounter counts the reads of a backend.
type getCounter struct {
	backend.Backend
	gets atomic.Int64
}

func (g *getCounter) Get(ctx context.Context, keys ...[]byte) ([]backend.Entry, error) {
	g.gets.Add(1)
	return g.Backend.Get(ctx, keys...)
}

// TestOneLoadALoad counts what the daemon reads for a load, which it also has to pay for: no more
// than the engine does.
func TestOneLoadALoad(t *testing.T) {
	b := newBed(t, Limits{InFlightBytes: 64 << 20})
	b.stop()
	g := &getCounter{Backend: b.be}
	b.be = g
	b.start()
	c := b.checkpoints("")
	var ids []string
	for i := range 10 {
		ids = append(ids, mustSave(t, c, ref("t"), draft(fmt.Sprintf("%08000d", i))).GetId())
	}
	for name, m := range map[string]*ckptdv1.LoadRequest{
		"whole, by seq":   {Which: &ckptdv1.Which{Which: &ckptdv1.Which_Seq{Seq: 8}}},
		"whole, by id":    {Which: &ckptdv1.Which{Which: &ckptdv1.Which_Id{Id: ids[7]}}},
		"headers, by seq": {Which: &ckptdv1.Which{Which: &ckptdv1.Which_Seq{Seq: 8}}, HeadersOnly: true},
		"headers, by id":  {Which: &ckptdv1.Which{Which: &ckptdv1.Which_Id{Id: ids[7]}}, HeadersOnly: true},
	} {
		m.Ref = ref("t")
		before := g.gets.Load()
		res, err := c.Load(t.Context(), connect.NewRequest(m))
		must(t, err)
		if got := res.Msg.GetCheckpoint(); got.GetId() != ids[7] || got.GetParent() != ids[6] {
			t.Errorf("%s: loaded %v", name, got)
		}
		if n := g.gets.Load() - before; n > 2 {
			t.Errorf("%s: %d reads, want at most 2", name, n)
		}
	}
}
