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

// BatchResult is the result of one save: a checkpoint without data, or the error that Save would
// have returned.
type BatchResult struct {
	Checkpoint *engine.Checkpoint
	Err        error
}

// SaveBatch saves to several lineages in one call and returns a result for each save, in the same
// order. Each succeeds or fails by itself; saves to one lineage happen in order. An error applies
// to the whole call, and means the same for each save as an error of Save. A single save that the
// server was too busy for is not retried.
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
