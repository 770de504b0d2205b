package client

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"iter"
	"slices"
	"time"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
	"github.com/ckptd/ckptd/internal/wire"
)

// Thread is a handle on one lineage: a thread of a user and a namespace in it. Its methods are
// those of engine.Thread.
type Thread struct {
	s   *Store
	ref engine.Ref
}

// Ref returns the lineage that t is a handle of.
func (t *Thread) Ref() engine.Ref { return t.ref }

// Save adds a checkpoint to the lineage and returns it, without data, when it is durable. An error
// means that nothing was saved, except for one that matches engine.ErrAmbiguous: then a save with
// the same id finds out.
func (t *Thread) Save(ctx context.Context, d engine.Draft) (*engine.Checkpoint, error) {
	t.s.identify(&d)
	m, err := call(ctx, t.s, t.s.cps.Save, &ckptdv1.SaveRequest{Ref: wire.PackRef(t.ref), Draft: wire.PackDraft(&d)})
	if err != nil {
		return nil, err
	}
	return wire.UnpackCheckpoint(m.GetCheckpoint())
}

// identify gives a draft an id, so that saving it twice is saving it once.
func (s *Store) identify(d *engine.Draft) { d.ID = cmp.Or(d.ID, s.newID()) }

func (s *Store) newID() string {
	if s.o.EngineIDs {
		return ""
	}
	return s.ids.next(time.Now())
}

// Load returns a checkpoint, with all its channels unless a LoadOptions says otherwise.
func (t *Thread) Load(ctx context.Context, w engine.Which, opts ...engine.LoadOptions) (*engine.Checkpoint, error) {
	return t.LoadHave(ctx, w, nil, opts...)
}

// LoadHave is Load for a caller that has some content already: channels with that content are not
// transferred, but filled in with a copy of it. The server knows it by its SHA-256, so it can be
// from any checkpoint.
func (t *Thread) LoadHave(ctx context.Context, w engine.Which, have []engine.Channel, opts ...engine.LoadOptions) (*engine.Checkpoint, error) {
	req := &ckptdv1.LoadRequest{Ref: wire.PackRef(t.ref), Which: wire.PackWhich(w), Export: t.s.o.Export}
	if len(opts) > 0 {
		o := &opts[0]
		req.HeadersOnly, req.Channels = packLoad(o)
		req.History = o.History
		req.Schema, req.Down, req.Export = o.Schema, o.Down, req.Export || o.Export
	}
	for i := range have {
		sum := sha256.Sum256(have[i].Data)
		req.Have = append(req.Have, &ckptdv1.Have{Channel: have[i].Name, Sha256: sum[:]})
	}
	m, err := call(ctx, t.s, t.s.cps.Load, req)
	if err != nil {
		return nil, err
	}
	cp, err := wire.UnpackCheckpoint(m.GetCheckpoint())
	if err != nil {
		return nil, err
	}
	cp.Histories = wire.UnpackHistories(m.GetHistories())
	if len(opts) > 0 && opts[0].Head {
		cp.Head = &engine.Head{Seq: m.GetHeadSeq(), ID: m.GetHeadId()}
	}
	for i, ch := range m.GetCheckpoint().GetChannels() {
		if ch.GetUnchanged() {
			at := slices.IndexFunc(have, func(h engine.Channel) bool { return h.Name == ch.GetName() && int64(len(h.Data)) == ch.GetSize() })
			if at < 0 {
				return nil, fmt.Errorf("%w: the server says that the client has channel %q, and it does not", engine.ErrInvalid, ch.GetName())
			}
			cp.Channels[i].Data = append([]byte{}, have[at].Data...)
		}
	}
	return cp, nil
}

func packLoad(o *engine.LoadOptions) (headersOnly bool, channels []string) {
	return o.HeadersOnly || o.Channels != nil && len(o.Channels) == 0, o.Channels
}

// History yields checkpoints of the lineage, newest first. After an error it ends.
func (t *Thread) History(ctx context.Context, o engine.HistoryOptions) iter.Seq2[*engine.Checkpoint, error] {
	return pages[ckptdv1.ListRequest, ckptdv1.ListResponse, *engine.Checkpoint]{
		limit: o.Limit,
		open:  t.s.cps.List,
		ask: func(left uint32, token string) *ckptdv1.ListRequest {
			return &ckptdv1.ListRequest{Ref: wire.PackRef(t.ref), From: o.From, Branch: o.Branch, Before: o.Before, ById: o.ByID, Filter: wire.PackFilter(&o.Filter),
				Data: o.Data && (o.Channels == nil || len(o.Channels) > 0), Channels: o.Channels, Export: o.Export || t.s.o.Export, PageSize: left, PageToken: token}
		},
		unpack: func(m *ckptdv1.ListResponse) ([]*engine.Checkpoint, string, error) {
			cps, err := eachOf(m.GetCheckpoints(), wire.UnpackCheckpoint)
			return cps, m.GetNextPageToken(), err
		},
	}.all(ctx, t.s)
}

// Tree reads the headers of all checkpoints of the lineage and how they hang together.
func (t *Thread) Tree(ctx context.Context) (*engine.Tree, error) {
	m, err := call(ctx, t.s, t.s.cps.GetTree, &ckptdv1.GetTreeRequest{Ref: wire.PackRef(t.ref)})
	if err != nil {
		return nil, err
	}
	return wire.UnpackTree(m)
}

// Diff compares two checkpoints of the lineage.
func (t *Thread) Diff(ctx context.Context, from, to engine.Which) (*engine.Diff, error) {
	m, err := call(ctx, t.s, t.s.cps.Diff, &ckptdv1.DiffRequest{Ref: wire.PackRef(t.ref), From: wire.PackWhich(from), To: wire.PackWhich(to)})
	if err != nil {
		return nil, err
	}
	return wire.UnpackDiff(m)
}

// Fork creates a branch that ends at a checkpoint, which it returns without data.
func (t *Thread) Fork(ctx context.Context, from engine.Which, branch string) (*engine.Checkpoint, error) {
	m, err := call(ctx, t.s, t.s.cps.Fork, &ckptdv1.ForkRequest{Ref: wire.PackRef(t.ref), From: wire.PackWhich(from), Branch: branch})
	if err != nil {
		return nil, err
	}
	return wire.UnpackCheckpoint(m.GetCheckpoint())
}

// Branches lists the named heads of the lineage in order of name.
func (t *Thread) Branches(ctx context.Context) ([]engine.Branch, error) {
	m, err := call(ctx, t.s, t.s.cps.ListBranches, &ckptdv1.ListBranchesRequest{Ref: wire.PackRef(t.ref)})
	return wire.UnpackBranches(m.GetBranches()), err
}

// SetBranch makes a branch, which need not exist, end at a checkpoint.
func (t *Thread) SetBranch(ctx context.Context, name string, to engine.Which) error {
	_, err := call(ctx, t.s, t.s.cps.SetBranch, &ckptdv1.SetBranchRequest{Ref: wire.PackRef(t.ref), Branch: name, To: wire.PackWhich(to)})
	return err
}

// DeleteBranch deletes a name; the checkpoints that it led to stay.
func (t *Thread) DeleteBranch(ctx context.Context, name string) error {
	_, err := call(ctx, t.s, t.s.cps.DeleteBranch, &ckptdv1.DeleteBranchRequest{Ref: wire.PackRef(t.ref), Branch: name})
	return err
}

// SetLabels changes labels of a checkpoint: those that labels names are set or, with the value "",
// removed.
func (t *Thread) SetLabels(ctx context.Context, w engine.Which, labels map[string]string) (*engine.Checkpoint, error) {
	m, err := call(ctx, t.s, t.s.cps.SetLabels, &ckptdv1.SetLabelsRequest{Ref: wire.PackRef(t.ref), Which: wire.PackWhich(w), Labels: labels})
	if err != nil {
		return nil, err
	}
	return wire.UnpackCheckpoint(m.GetCheckpoint())
}

// PutWrites adds writes of a task to a checkpoint, in order, and returns the generation of the thread
// when they are durable.
func (t *Thread) PutWrites(ctx context.Context, checkpointID, taskID, taskPath string, mode engine.WriteMode, ws []engine.Write, generation uint64) (uint64, error) {
	req := &ckptdv1.PutWritesRequest{Ref: wire.PackRef(t.ref), CheckpointId: checkpointID, Task: taskID, Path: taskPath,
		IgnoreExisting: mode == engine.Ignore, Generation: generation}
	for i := range ws {
		req.Writes = append(req.Writes, wire.PackWrite(&ws[i], false))
	}
	m, err := call(ctx, t.s, t.s.cps.PutWrites, req)
	return m.GetGeneration(), err
}

// Writes returns the pending writes of a checkpoint, in order of task path, then of task id, then of
// index.
func (t *Thread) Writes(ctx context.Context, checkpointID string) ([]engine.PendingWrite, error) {
	m, err := call(ctx, t.s, t.s.cps.ListWrites, &ckptdv1.ListWritesRequest{Ref: wire.PackRef(t.ref), CheckpointId: checkpointID})
	return wire.UnpackWrites(m.GetWrites()), err
}

// Namespaces lists the namespaces of the thread; the unnamed one is "".
func (t *Thread) Namespaces(ctx context.Context) ([]string, error) {
	m, err := call(ctx, t.s, t.s.threads.ListNamespaces, &ckptdv1.ListNamespacesRequest{Ref: wire.PackRef(t.ref)})
	return m.GetNamespaces(), err
}

// Copy copies the thread with all its namespaces to a thread of the same user that does not exist
// yet.
func (t *Thread) Copy(ctx context.Context, dst engine.Ref) error {
	if dst.Tenant != t.ref.Tenant || dst.User != t.ref.User {
		return fmt.Errorf("%w: a thread can only be copied within one user", engine.ErrInvalid)
	}
	_, err := call(ctx, t.s, t.s.threads.Copy, &ckptdv1.CopyRequest{Ref: wire.PackRef(t.ref), To: dst.Thread})
	return err
}

// Delete deletes the namespace of t or, if that is the unnamed one, the thread with all its
// namespaces, and returns the new generation. A thread that holds nothing but the namespace is
// deleted with it.
func (t *Thread) Delete(ctx context.Context) (uint64, error) {
	m, err := call(ctx, t.s, t.s.threads.Delete, &ckptdv1.DeleteRequest{Ref: wire.PackRef(t.ref)})
	return m.GetGeneration(), err
}

// Prune removes checkpoints of the lineage.
func (t *Thread) Prune(ctx context.Context, o upkeep.PruneOptions) (*upkeep.PruneReport, error) {
	m, err := call(ctx, t.s, t.s.threads.Prune, wire.PackPrune(t.ref, &o))
	if err != nil {
		return nil, err
	}
	return wire.UnpackPruneReport(m), nil
}
