package wire

import (
	"errors"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// PackLost makes the messages of histories that a user lost.
func PackLost(tenant, user string, lost []upkeep.LostHistory) []*ckptdv1.LostHistory {
	var ms []*ckptdv1.LostHistory
	for _, l := range lost {
		ref := &ckptdv1.Ref{Tenant: tenant, User: user, Thread: l.Thread, Namespace: l.Namespace}
		ms = append(ms, &ckptdv1.LostHistory{Ref: ref, Id: l.ID, Channels: l.Channels})
	}
	return ms
}

// UnpackLost is the inverse of PackLost.
func UnpackLost(ms []*ckptdv1.LostHistory) []upkeep.LostHistory {
	var lost []upkeep.LostHistory
	for _, m := range ms {
		lost = append(lost, upkeep.LostHistory{Thread: m.GetRef().GetThread(), Namespace: m.GetRef().GetNamespace(), ID: m.GetId(), Channels: m.GetChannels()})
	}
	return lost
}

// packDuration makes the message of a duration; none for 0.
func packDuration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// PackBranches makes the messages of branches.
func PackBranches(bs []engine.Branch) []*ckptdv1.Branch {
	var ms []*ckptdv1.Branch
	for _, b := range bs {
		ms = append(ms, &ckptdv1.Branch{Name: b.Name, HeadId: b.HeadID, HeadSeq: b.HeadSeq})
	}
	return ms
}

// UnpackBranches is the inverse of PackBranches.
func UnpackBranches(ms []*ckptdv1.Branch) []engine.Branch {
	var bs []engine.Branch
	for _, m := range ms {
		bs = append(bs, engine.Branch{Name: m.GetName(), HeadID: m.GetHeadId(), HeadSeq: m.GetHeadSeq()})
	}
	return bs
}

// PackTree makes the message of a tree.
func PackTree(t *engine.Tree, shown Shown) *ckptdv1.GetTreeResponse {
	m := &ckptdv1.GetTreeResponse{Branches: PackBranches(t.Branches)}
	for _, n := range t.Nodes {
		node := &ckptdv1.Node{Checkpoint: PackCheckpoint(n.Checkpoint, shown)}
		if n.Parent != nil {
			node.ParentSeq = n.Parent.Seq
		}
		m.Nodes = append(m.Nodes, node)
	}
	return m
}

// UnpackTree is the inverse of PackTree.
func UnpackTree(m *ckptdv1.GetTreeResponse) (*engine.Tree, error) {
	t := &engine.Tree{Branches: UnpackBranches(m.GetBranches())}
	bySeq := map[uint64]*engine.Node{}
	for _, node := range m.GetNodes() {
		cp, err := UnpackCheckpoint(node.GetCheckpoint())
		if err != nil {
			return nil, err
		}
		n := &engine.Node{Checkpoint: cp}
		t.Nodes, bySeq[cp.Seq] = append(t.Nodes, n), n
	}
	for i, n := range t.Nodes {
		if n.Parent = bySeq[m.GetNodes()[i].GetParentSeq()]; n.Parent == nil {
			t.Roots = append(t.Roots, n)
		} else {
			n.Parent.Children = append(n.Parent.Children, n)
		}
	}
	for _, b := range t.Branches {
		if n := bySeq[b.HeadSeq]; n != nil {
			n.Branches = append(n.Branches, b.Name)
		}
	}
	for _, n := range t.Nodes {
		if len(n.Children) == 0 {
			t.Heads = append(t.Heads, n)
		}
	}
	return t, nil
}

// PackDiff makes the message of a diff.
func PackDiff(d *engine.Diff, shown Shown) *ckptdv1.DiffResponse {
	m := &ckptdv1.DiffResponse{From: PackCheckpoint(d.From, shown), To: PackCheckpoint(d.To, shown), Meta: packValueDiff(&d.Meta),
		Fields: packFieldDiffs(d.Fields), Labels: packFieldDiffs(d.Labels)}
	for i := range d.Channels {
		ch := &d.Channels[i]
		m.Channels = append(m.Channels, &ckptdv1.ChannelDiff{Name: ch.Name, OldType: ch.OldType, NewType: ch.NewType, Value: packValueDiff(&ch.ValueDiff)})
	}
	return m
}

func packValueDiff(v *engine.ValueDiff) *ckptdv1.ValueDiff {
	m := &ckptdv1.ValueDiff{Kind: string(v.Kind), OldSize: v.OldSize, NewSize: v.NewSize, Prefix: v.Prefix, Suffix: v.Suffix, NoPatch: v.NoPatch}
	switch {
	case v.Patch == nil:
	case !utf8.Valid(v.Patch):
		m.NoPatch = "it is not UTF-8"
	default:
		patch := string(v.Patch)
		m.Patch = &patch
	}
	return m
}

func packFieldDiffs(ds []engine.FieldDiff) []*ckptdv1.FieldDiff {
	var ms []*ckptdv1.FieldDiff
	for _, d := range ds {
		ms = append(ms, &ckptdv1.FieldDiff{Name: d.Name, Kind: string(d.Kind), Old: d.Old, New: d.New})
	}
	return ms
}

// UnpackDiff is the inverse of PackDiff.
func UnpackDiff(m *ckptdv1.DiffResponse) (*engine.Diff, error) {
	from, err := UnpackCheckpoint(m.GetFrom())
	if err != nil {
		return nil, err
	}
	to, err := UnpackCheckpoint(m.GetTo())
	if err != nil {
		return nil, err
	}
	d := &engine.Diff{From: from, To: to, Meta: unpackValueDiff(m.GetMeta()), Fields: unpackFieldDiffs(m.GetFields()), Labels: unpackFieldDiffs(m.GetLabels())}
	for _, ch := range m.GetChannels() {
		d.Channels = append(d.Channels, engine.ChannelDiff{Name: ch.GetName(), OldType: ch.GetOldType(), NewType: ch.GetNewType(), ValueDiff: unpackValueDiff(ch.GetValue())})
	}
	return d, nil
}

func unpackValueDiff(m *ckptdv1.ValueDiff) engine.ValueDiff {
	v := engine.ValueDiff{Kind: engine.DiffKind(m.GetKind()), OldSize: m.GetOldSize(), NewSize: m.GetNewSize(), Prefix: m.GetPrefix(),
		Suffix: m.GetSuffix(), NoPatch: m.GetNoPatch()}
	if m != nil && m.Patch != nil {
		v.Patch = []byte(m.GetPatch())
	}
	return v
}

func unpackFieldDiffs(ms []*ckptdv1.FieldDiff) []engine.FieldDiff {
	var ds []engine.FieldDiff
	for _, m := range ms {
		ds = append(ds, engine.FieldDiff{Name: m.GetName(), Kind: engine.DiffKind(m.GetKind()), Old: m.GetOld(), New: m.GetNew()})
	}
	return ds
}

// PackThreadInfo makes the message of a thread.
func PackThreadInfo(t *engine.ThreadInfo) *ckptdv1.ThreadInfo {
	return &ckptdv1.ThreadInfo{Ref: PackRef(t.Ref), Generation: t.Generation, Created: PackTime(t.Created), Expires: PackTime(t.Expires),
		Updated: PackTime(t.Updated), HeadId: t.HeadID, HeadSeq: t.HeadSeq, Step: t.Step, Status: t.Status, RunId: t.RunID, Labels: t.Labels,
		Checkpoints: uint64(t.Checkpoints), Kind: t.Kind, SchemaVersion: t.SchemaVersion, Active: PackTime(t.Active)}
}

// UnpackThreadInfo is the inverse of PackThreadInfo.
func UnpackThreadInfo(m *ckptdv1.ThreadInfo) engine.ThreadInfo {
	return engine.ThreadInfo{Ref: UnpackRef(m.GetRef()), Generation: m.GetGeneration(), Created: UnpackTime(m.GetCreated()), Expires: UnpackTime(m.GetExpires()),
		Updated: UnpackTime(m.GetUpdated()), HeadID: m.GetHeadId(), HeadSeq: m.GetHeadSeq(), Step: m.GetStep(), Status: m.GetStatus(), RunID: m.GetRunId(),
		Labels: m.GetLabels(), Checkpoints: count(m.GetCheckpoints()), Kind: m.GetKind(), SchemaVersion: m.GetSchemaVersion(),
		Active: UnpackTime(m.GetActive())}
}

// PackPrune makes the message of prune options.
func PackPrune(ref engine.Ref, o *upkeep.PruneOptions) *ckptdv1.PruneRequest {
	return &ckptdv1.PruneRequest{Ref: PackRef(ref), KeepLast: int64(o.KeepLast), OlderThan: packDuration(o.OlderThan), KeepLabelled: o.KeepLabelled,
		Remove: o.Remove, AllNamespaces: o.AllNamespaces, Erase: o.Erase, DryRun: o.DryRun, ById: o.ByID}
}

// UnpackPrune is the inverse of PackPrune.
func UnpackPrune(m *ckptdv1.PruneRequest) upkeep.PruneOptions {
	return upkeep.PruneOptions{KeepLast: int(m.GetKeepLast()), OlderThan: m.GetOlderThan().AsDuration(), KeepLabelled: m.GetKeepLabelled(),
		Remove: m.GetRemove(), AllNamespaces: m.GetAllNamespaces(), Erase: m.GetErase(), DryRun: m.GetDryRun(), ByID: m.GetById()}
}

// PackPruneReport makes the message of a prune report.
func PackPruneReport(r *upkeep.PruneReport) *ckptdv1.PruneResponse {
	m := &ckptdv1.PruneResponse{Kept: uint64(r.Kept), Ghosts: uint64(r.Ghosts), FreedBytes: r.FreedBytes, Compacted: r.Compacted,
		Namespaces: r.Namespaces}
	for _, i := range r.Removed {
		m.Removed = append(m.Removed, &ckptdv1.PruneItem{Namespace: i.Namespace, Id: i.ID, Seq: i.Seq, Bytes: i.Bytes, Ghost: i.Ghost})
	}
	return m
}

// UnpackPruneReport is the inverse of PackPruneReport.
func UnpackPruneReport(m *ckptdv1.PruneResponse) *upkeep.PruneReport {
	r := &upkeep.PruneReport{Kept: count(m.GetKept()), Ghosts: count(m.GetGhosts()), FreedBytes: m.GetFreedBytes(), Compacted: m.GetCompacted(),
		Namespaces: m.GetNamespaces()}
	for _, i := range m.GetRemoved() {
		r.Removed = append(r.Removed, upkeep.PruneItem{Namespace: i.GetNamespace(), ID: i.GetId(), Seq: i.GetSeq(), Bytes: i.GetBytes(), Ghost: i.GetGhost()})
	}
	return r
}

// PackRetention makes the message of a retention policy.
func PackRetention(p upkeep.RetentionPolicy) *ckptdv1.RetentionPolicy {
	return &ckptdv1.RetentionPolicy{KeepLast: int64(p.KeepLast), OlderThan: packDuration(p.OlderThan), KeepLabelled: p.KeepLabelled}
}

// UnpackRetention is the inverse of PackRetention.
func UnpackRetention(m *ckptdv1.RetentionPolicy) upkeep.RetentionPolicy {
	return upkeep.RetentionPolicy{KeepLast: int(m.GetKeepLast()), OlderThan: m.GetOlderThan().AsDuration(), KeepLabelled: m.GetKeepLabelled()}
}

// PackGarbage makes the message of a report of a garbage collection.
func PackGarbage(r *upkeep.GCReport) *ckptdv1.GarbageReport {
	return &ckptdv1.GarbageReport{Users: uint64(r.Users), Threads: uint64(r.Threads), Expired: uint64(r.Expired), Pruned: uint64(r.Pruned),
		Leftovers: uint64(r.Leftovers), IndexEntries: uint64(r.IndexEntries), Blobs: uint64(r.Blobs), Parts: uint64(r.Parts), Bytes: r.Bytes, Compacted: r.Compacted}
}

// UnpackGarbage is the inverse of PackGarbage.
func UnpackGarbage(m *ckptdv1.GarbageReport) *upkeep.GCReport {
	return &upkeep.GCReport{Users: count(m.GetUsers()), Threads: count(m.GetThreads()), Expired: count(m.GetExpired()), Pruned: count(m.GetPruned()),
		Leftovers: count(m.GetLeftovers()), IndexEntries: count(m.GetIndexEntries()), Blobs: count(m.GetBlobs()), Parts: count(m.GetParts()),
		Bytes: m.GetBytes(), Compacted: m.GetCompacted()}
}

// PackVerify makes the message of a report of a verification.
func PackVerify(r *upkeep.VerifyReport) *ckptdv1.VerifyReport {
	m := &ckptdv1.VerifyReport{Users: uint64(r.Users), Threads: uint64(r.Threads), Lineages: uint64(r.Lineages), Checkpoints: uint64(r.Checkpoints),
		Ghosts: uint64(r.Ghosts), Stubs: uint64(r.Stubs), Parts: uint64(r.Parts), Blobs: uint64(r.Blobs), Writes: uint64(r.Writes),
		IndexEntries: uint64(r.IndexEntries), Orphans: uint64(r.Orphans), Unlisted: uint64(r.Unlisted)}
	for _, p := range r.Problems {
		var c *engine.CorruptError
		if !errors.As(p.Err, &c) {
			c = &engine.CorruptError{Reason: p.Err.Error()}
		}
		reason := c.Reason
		if c.Err != nil {
			reason += ": " + c.Err.Error()
		}
		ref := &ckptdv1.Ref{Tenant: p.Tenant, User: p.User, Thread: p.Thread, Namespace: p.Namespace}
		m.Problems = append(m.Problems, &ckptdv1.Problem{Ref: ref, Record: toUTF8(c.Record), Reason: toUTF8(reason)})
	}
	return m
}

// UnpackVerify is the inverse of PackVerify.
func UnpackVerify(m *ckptdv1.VerifyReport) *upkeep.VerifyReport {
	r := &upkeep.VerifyReport{Users: count(m.GetUsers()), Threads: count(m.GetThreads()), Lineages: count(m.GetLineages()), Checkpoints: count(m.GetCheckpoints()),
		Ghosts: count(m.GetGhosts()), Stubs: count(m.GetStubs()), Parts: count(m.GetParts()), Blobs: count(m.GetBlobs()), Writes: count(m.GetWrites()),
		IndexEntries: count(m.GetIndexEntries()), Orphans: count(m.GetOrphans()), Unlisted: count(m.GetUnlisted())}
	for _, p := range m.GetProblems() {
		ref := p.GetRef()
		r.Problems = append(r.Problems, upkeep.Problem{Tenant: ref.GetTenant(), User: ref.GetUser(), Thread: ref.GetThread(),
			Namespace: ref.GetNamespace(), Err: &engine.CorruptError{Record: p.GetRecord(), Reason: p.GetReason()}})
	}
	return r
}

// PackStats makes the message of the stats of a user.
func PackStats(s *upkeep.Stats) *ckptdv1.GetStatsResponse {
	return &ckptdv1.GetStatsResponse{Threads: uint64(s.Threads), Lineages: uint64(s.Lineages), Checkpoints: uint64(s.Checkpoints), Ghosts: uint64(s.Ghosts),
		Stubs: uint64(s.Stubs), StateBytes: s.StateBytes, StoredBytes: s.StoredBytes, Parts: uint64(s.Parts), PartBytes: s.PartBytes, Blobs: uint64(s.Blobs),
		Keyframes: uint64(s.Keyframes), MaxDepth: uint64(s.MaxDepth), MaxDepthBytes: s.MaxDepthBytes, IndexEntries: uint64(s.IndexEntries), DiskBytes: s.DiskBytes}
}

// UnpackStats is the inverse of PackStats.
func UnpackStats(m *ckptdv1.GetStatsResponse) *upkeep.Stats {
	return &upkeep.Stats{Threads: count(m.GetThreads()), Lineages: count(m.GetLineages()), Checkpoints: count(m.GetCheckpoints()), Ghosts: count(m.GetGhosts()),
		Stubs: count(m.GetStubs()), StateBytes: m.GetStateBytes(), StoredBytes: m.GetStoredBytes(), Parts: count(m.GetParts()), PartBytes: m.GetPartBytes(),
		Blobs: count(m.GetBlobs()), Keyframes: count(m.GetKeyframes()), MaxDepth: count(m.GetMaxDepth()), MaxDepthBytes: m.GetMaxDepthBytes(),
		IndexEntries: count(m.GetIndexEntries()), DiskBytes: m.GetDiskBytes()}
}

// PackEvent makes the message of an event, without its cursor.
func PackEvent(e *engine.Event) *ckptdv1.Event {
	return &ckptdv1.Event{Ref: PackRef(e.Ref), Generation: e.Generation, Id: e.ID, Seq: e.Seq, Time: timestamppb.New(time.UnixMilli(e.Time)),
		Step: e.Step, Status: e.Status, Before: e.Before}
}

// UnpackEvent is the inverse of PackEvent.
func UnpackEvent(m *ckptdv1.Event, cursor string) engine.Event {
	return engine.Event{Ref: UnpackRef(m.GetRef()), Generation: m.GetGeneration(), ID: m.GetId(), Seq: m.GetSeq(), Time: m.GetTime().AsTime().UnixMilli(),
		Step: m.GetStep(), Status: m.GetStatus(), Before: m.GetBefore(), Cursor: engine.Cursor(cursor)}
}
