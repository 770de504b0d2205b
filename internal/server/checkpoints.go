package server

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"

	"connectrpc.com/connect"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/panics"
	"github.com/ckptd/ckptd/internal/wire"
)

// checkpoints serves the CheckpointService. Errors are the engine's: the interceptor packs them.
type checkpoints struct{ *Server }

func (s checkpoints) Save(ctx context.Context, req *connect.Request[ckptdv1.SaveRequest]) (*connect.Response[ckptdv1.SaveResponse], error) {
	cp, err := s.save(ctx, req.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ckptdv1.SaveResponse{Checkpoint: cp}), nil
}

func (s *Server) save(ctx context.Context, m *ckptdv1.SaveRequest) (*ckptdv1.Checkpoint, error) {
	if m.GetDraft() == nil { // an empty one would be a checkpoint without channels
		return nil, fmt.Errorf("%w: the request has no draft", engine.ErrInvalid)
	}
	draft, err := wire.UnpackDraft(m.GetDraft())
	if err != nil {
		return nil, err
	}
	cp, err := s.store.Thread(wire.UnpackRef(m.GetRef())).Save(ctx, draft)
	if err != nil {
		s.metrics.SaveFailed()
		return nil, err
	}
	s.metrics.Saved(cp.Cost)
	return wire.PackCheckpoint(cp, shownTo(ctx, cp.Ref, false)), nil
}

const (
	maxBatchSaves = 1000
	// batchWorkers is the number of lineages of a batch that are saved in parallel, so that they
	// share the backend's group commits.
	batchWorkers = 32
)

func (s checkpoints) SaveBatch(ctx context.Context, req *connect.Request[ckptdv1.SaveBatchRequest]) (*connect.Response[ckptdv1.SaveBatchResponse], error) {
	saves := req.Msg.GetSaves()
	if len(saves) > maxBatchSaves {
		return nil, fmt.Errorf("%w: %d saves in a batch, at most %d are allowed", engine.ErrInvalid, len(saves), maxBatchSaves)
	}
	results := make([]*ckptdv1.SaveResult, len(saves))
	tenants := tenantsOf{s.Server, map[string]error{}}
	defer tenants.leave()
	var order []engine.Ref
	lines := map[engine.Ref][]int{}
	for i, m := range saves {
		err := s.authorizeSave(ctx, m)
		ref := wire.UnpackRef(m.GetRef())
		if err == nil {
			err = tenants.enter(ref.Tenant)
		}
		if err != nil {
			results[i] = saveFailed(err)
			continue
		}
		if lines[ref] == nil {
			order = append(order, ref)
		}
		lines[ref] = append(lines[ref], i)
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, batchWorkers)
	for _, ref := range order {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			defer panics.To(func(err error) { s.logPanic(ctx, ckptdv1.CheckpointServiceSaveBatchProcedure, err) })
			for _, i := range lines[ref] {
				results[i] = s.saveOne(ctx, saves[i])
			}
		})
	}
	wg.Wait()
	return connect.NewResponse(&ckptdv1.SaveBatchResponse{Results: results}), nil
}

// tenantsOf are the tenants of a batch. It counts as a request in flight for each of them.
type tenantsOf struct {
	*Server
	entered map[string]error
}

func (t *tenantsOf) enter(tenant string) error {
	err, known := t.entered[tenant]
	if !known {
		err = t.gate.enterTenant(t.limits.Load(), tenant)
		t.entered[tenant] = err
	}
	return err
}

func (t *tenantsOf) leave() {
	for tenant, err := range t.entered {
		if err == nil {
			t.gate.leaveTenant(tenant)
		}
	}
}

// saveOne makes one save of a batch. The others are made also if it panics.
func (s *Server) saveOne(ctx context.Context, m *ckptdv1.SaveRequest) *ckptdv1.SaveResult {
	a := callOf(ctx).account.another()
	defer a.close() // else the states of a whole batch would count together
	ctx = engine.WithBudget(ctx, a)
	var cp *ckptdv1.Checkpoint
	err := panics.Try(func() (err error) {
		cp, err = s.save(ctx, m)
		return err
	})
	if err != nil {
		s.logPanic(ctx, ckptdv1.CheckpointServiceSaveBatchProcedure, err)
		return saveFailed(err)
	}
	return &ckptdv1.SaveResult{Result: &ckptdv1.SaveResult_Checkpoint{Checkpoint: cp}}
}

func saveFailed(err error) *ckptdv1.SaveResult {
	return &ckptdv1.SaveResult{Result: &ckptdv1.SaveResult_Error{Error: wire.PackSaveError(err)}}
}

func (s checkpoints) Load(ctx context.Context, req *connect.Request[ckptdv1.LoadRequest]) (*connect.Response[ckptdv1.LoadResponse], error) {
	m := req.Msg
	have := map[string][sha256.Size]byte{}
	for _, h := range m.GetHave() {
		if len(h.GetSha256()) != sha256.Size {
			return nil, fmt.Errorf("%w: channel %q: a SHA-256 has 32 bytes, not %d", engine.ErrInvalid, h.GetChannel(), len(h.GetSha256()))
		}
		have[h.GetChannel()] = [sha256.Size]byte(h.GetSha256())
	}
	thread := s.store.Thread(wire.UnpackRef(m.GetRef()))
	o := loadOptions(m)
	o.Export, o.Head, o.History = m.GetExport(), true, m.GetHistory()
	cp, err := thread.Load(ctx, wire.UnpackWhich(m.GetWhich()), o)
	if err != nil {
		return nil, err
	}
	s.metrics.Loaded()
	unchanged := make([]bool, len(cp.Channels))
	for i, ch := range cp.Channels {
		if digest, ok := have[ch.Name]; ok && ch.Data != nil && sha256.Sum256(ch.Data) == digest {
			cp.Channels[i].Data, unchanged[i] = nil, true
		}
	}
	res := &ckptdv1.LoadResponse{Checkpoint: wire.PackCheckpoint(cp, shownTo(ctx, cp.Ref, m.GetText())), HeadSeq: cp.Head.Seq, HeadId: cp.Head.ID,
		Histories: wire.PackHistories(cp.Histories, m.GetText())}
	for i, same := range unchanged {
		if same {
			res.Checkpoint.Channels[i].Content = &ckptdv1.Channel_Unchanged{Unchanged: true}
		}
	}
	if m.GetWrites() {
		ws, err := thread.Writes(ctx, cp.ID)
		if err != nil {
			return nil, err
		}
		res.Writes = wire.PackWrites(ws, m.GetText())
	}
	return connect.NewResponse(res), nil
}

// loadOptions are those of a request.
func loadOptions(m interface {
	GetChannels() []string
	GetSchema() uint64
	GetDown() bool
	GetHeadersOnly() bool
}) engine.LoadOptions {
	o := engine.LoadOptions{HeadersOnly: m.GetHeadersOnly(), Schema: m.GetSchema(), Down: m.GetDown()}
	if len(m.GetChannels()) > 0 {
		o.Channels = m.GetChannels()
	}
	return o
}

func (s checkpoints) LoadNewest(ctx context.Context, req *connect.Request[ckptdv1.LoadNewestRequest]) (*connect.Response[ckptdv1.LoadNewestResponse], error) {
	m := req.Msg
	cp, err := s.store.User(m.GetTenant(), m.GetUser()).Latest(ctx, loadOptions(m))
	if err != nil {
		return nil, err
	}
	s.metrics.Loaded()
	return connect.NewResponse(&ckptdv1.LoadNewestResponse{Checkpoint: wire.PackCheckpoint(cp, shownTo(ctx, cp.Ref, m.GetText()))}), nil
}

func (s checkpoints) GetTree(ctx context.Context, req *connect.Request[ckptdv1.GetTreeRequest]) (*connect.Response[ckptdv1.GetTreeResponse], error) {
	tree, err := s.thread(req.Msg).Tree(ctx)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(wire.PackTree(tree, shownTo(ctx, wire.UnpackRef(req.Msg.GetRef()), false))), nil
}

func (s checkpoints) Diff(ctx context.Context, req *connect.Request[ckptdv1.DiffRequest]) (*connect.Response[ckptdv1.DiffResponse], error) {
	d, err := s.thread(req.Msg).Diff(ctx, wire.UnpackWhich(req.Msg.GetFrom()), wire.UnpackWhich(req.Msg.GetTo()))
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(wire.PackDiff(d, shownTo(ctx, wire.UnpackRef(req.Msg.GetRef()), false))), nil
}

func (s checkpoints) Fork(ctx context.Context, req *connect.Request[ckptdv1.ForkRequest]) (*connect.Response[ckptdv1.ForkResponse], error) {
	cp, err := s.thread(req.Msg).Fork(ctx, wire.UnpackWhich(req.Msg.GetFrom()), req.Msg.GetBranch())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ckptdv1.ForkResponse{Checkpoint: wire.PackCheckpoint(cp, shownTo(ctx, cp.Ref, false))}), nil
}

func (s checkpoints) ListBranches(ctx context.Context, req *connect.Request[ckptdv1.ListBranchesRequest]) (*connect.Response[ckptdv1.ListBranchesResponse], error) {
	branches, err := s.thread(req.Msg).Branches(ctx)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ckptdv1.ListBranchesResponse{Branches: wire.PackBranches(branches)}), nil
}

func (s checkpoints) SetBranch(ctx context.Context, req *connect.Request[ckptdv1.SetBranchRequest]) (*connect.Response[ckptdv1.SetBranchResponse], error) {
	if err := s.thread(req.Msg).SetBranch(ctx, req.Msg.GetBranch(), wire.UnpackWhich(req.Msg.GetTo())); err != nil {
		return nil, err
	}
	return connect.NewResponse(&ckptdv1.SetBranchResponse{}), nil
}

func (s checkpoints) DeleteBranch(ctx context.Context, req *connect.Request[ckptdv1.DeleteBranchRequest]) (*connect.Response[ckptdv1.DeleteBranchResponse], error) {
	if err := s.thread(req.Msg).DeleteBranch(ctx, req.Msg.GetBranch()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&ckptdv1.DeleteBranchResponse{}), nil
}

func (s checkpoints) SetLabels(ctx context.Context, req *connect.Request[ckptdv1.SetLabelsRequest]) (*connect.Response[ckptdv1.SetLabelsResponse], error) {
	cp, err := s.thread(req.Msg).SetLabels(ctx, wire.UnpackWhich(req.Msg.GetWhich()), req.Msg.GetLabels())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ckptdv1.SetLabelsResponse{Checkpoint: wire.PackCheckpoint(cp, shownTo(ctx, cp.Ref, false))}), nil
}

func (s checkpoints) PutWrites(ctx context.Context, req *connect.Request[ckptdv1.PutWritesRequest]) (*connect.Response[ckptdv1.PutWritesResponse], error) {
	m := req.Msg
	ws := make([]engine.Write, len(m.GetWrites()))
	for i, w := range m.GetWrites() {
		ws[i] = wire.UnpackWrite(w)
	}
	mode := engine.Upsert
	if m.GetIgnoreExisting() {
		mode = engine.Ignore
	}
	generation, err := s.thread(m).PutWrites(ctx, m.GetCheckpointId(), m.GetTask(), m.GetPath(), mode, ws, m.GetGeneration())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ckptdv1.PutWritesResponse{Generation: generation}), nil
}

func (s checkpoints) ListWrites(ctx context.Context, req *connect.Request[ckptdv1.ListWritesRequest]) (*connect.Response[ckptdv1.ListWritesResponse], error) {
	ws, err := s.thread(req.Msg).Writes(ctx, req.Msg.GetCheckpointId())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ckptdv1.ListWritesResponse{Writes: wire.PackWrites(ws, req.Msg.GetText())}), nil
}

// thread is the handle on the lineage that a request is about.
func (s *Server) thread(m interface{ GetRef() *ckptdv1.Ref }) *engine.Thread {
	return s.store.Thread(wire.UnpackRef(m.GetRef()))
}
