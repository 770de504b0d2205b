package client

import (
	"context"
	"fmt"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/wire"
)

// BatchSave is one save of a batch.
type BatchSave struct {
	Ref   engine.Ref
	Draft engine.Draft
}

// BatchResult is what became of a save: a checkpoint without data, or the error that Save would have returned.
type BatchResult struct {
	Checkpoint *engine.Checkpoint
	Err        error
}

// SaveBatch saves to several lineages in one call and returns a result for each save, in the same order. Each succeeds or
// fails by itself; those to one lineage are made in their order. The error is of the call as a whole, and means what that
// of Save does for every save in it. A save that the server was too busy for is not repeated by itself.
func (s *Store) SaveBatch(ctx context.Context, saves []BatchSave) ([]BatchResult, error) {
	req := &ckptdv1.SaveBatchRequest{}
	for _, save := range saves {
		s.identify(&save.Draft)
		req.Saves = append(req.Saves, &ckptdv1.SaveRequest{Ref: wire.PackRef(save.Ref), Draft: wire.PackDraft(&save.Draft)})
	}
	m, err := call(ctx, s, s.cps.SaveBatch, req)
	if err != nil {
		return nil, err
	}
	if len(m.GetResults()) != len(saves) {
		return nil, fmt.Errorf("%w: %d saves have %d results", engine.ErrAmbiguous, len(saves), len(m.GetResults()))
	}
	results := make([]BatchResult, len(saves))
	for i, r := range m.GetResults() {
		if failed := r.GetError(); failed != nil {
			results[i].Err = wire.UnpackSaveError(failed)
		} else {
			results[i].Checkpoint, results[i].Err = wire.UnpackCheckpoint(r.GetCheckpoint())
		}
	}
	return results, nil
}
