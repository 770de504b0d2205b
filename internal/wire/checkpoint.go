package wire

import (
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/hook"
)

// PackRef makes the message of a ref.
func PackRef(r engine.Ref) *ckptdv1.Ref {
	return &ckptdv1.Ref{Tenant: r.Tenant, User: r.User, Thread: r.Thread, Namespace: r.Namespace}
}

// UnpackRef is the inverse of PackRef.
func UnpackRef(r *ckptdv1.Ref) engine.Ref {
	return engine.Ref{Tenant: r.GetTenant(), User: r.GetUser(), Thread: r.GetThread(), Namespace: r.GetNamespace()}
}

// Shown selects the details in the message of a checkpoint. The zero value has those that any
// caller may see who may see the checkpoint at all.
type Shown struct {
	Text   bool // content that is UTF-8 goes as text
	Meta   bool // metadata, which is content
	Stored bool // the stored bytes, which reveal the content of the user's other threads
}

// All shows all that there is.
var All = Shown{Meta: true, Stored: true}

// PackCheckpoint makes the message of a checkpoint.
func PackCheckpoint(cp *engine.Checkpoint, shown Shown) *ckptdv1.Checkpoint {
	m := &ckptdv1.Checkpoint{
		Ref: PackRef(cp.Ref), Generation: cp.Generation, Id: cp.ID, Parent: cp.Parent, Seq: cp.Seq, ParentSeq: cp.ParentSeq,
		Branch: cp.Branch, Time: timestamppb.New(cp.Time), Step: cp.Step, Status: cp.Status, SchemaVersion: cp.SchemaVersion,
		RunId: cp.RunID, Labels: cp.Labels, Blobs: packBlobs(cp.Blobs), Hash: cp.Hash[:],
		Cost: &ckptdv1.Cost{State: cp.Cost.State, Depth: int32(cp.Cost.Depth), Full: cp.Cost.Full},
	}
	if shown.Meta {
		m.Meta = string(cp.Meta)
	}
	if shown.Stored {
		m.Cost.Stored = cp.Cost.Stored
	}
	for i := range cp.Hooks {
		m.Hooks = append(m.Hooks, packHook(&cp.Hooks[i]))
	}
	m.Fuel, m.Kind, m.Delta = cp.Fuel, cp.Kind, cp.Delta
	if w := cp.Migrated; w != nil {
		m.Migrated = &ckptdv1.Migrated{From: w.From, To: w.To}
		for _, step := range w.Steps {
			m.Migrated.Steps = append(m.Migrated.Steps, toUTF8(step))
		}
	}
	if len(cp.Channels) > 0 {
		room := make([]ckptdv1.Channel, len(cp.Channels))
		m.Channels = make([]*ckptdv1.Channel, len(cp.Channels))
		for i := range cp.Channels {
			packChannel(&room[i], &cp.Channels[i], shown.Text)
			m.Channels[i] = &room[i]
		}
	}
	return m
}

func packChannel(m *ckptdv1.Channel, ch *engine.Channel, text bool) {
	m.Name, m.Type, m.Version, m.Size, m.Rewritten = ch.Name, ch.Type, uint64(ch.Version), ch.Size, ch.Rewritten
	switch {
	case ch.Data == nil:
	case text && utf8.Valid(ch.Data):
		m.Content = &ckptdv1.Channel_Text{Text: string(ch.Data)}
	default:
		m.Content = &ckptdv1.Channel_Data{Data: ch.Data}
	}
}

// UnpackCheckpoint is the inverse of PackCheckpoint. Channels that came as unchanged have no data.
func UnpackCheckpoint(m *ckptdv1.Checkpoint) (*engine.Checkpoint, error) {
	if m == nil {
		return nil, fmt.Errorf("%w: the answer has no checkpoint", engine.ErrInvalid)
	}
	blobs, err := unpackBlobs(m.GetBlobs())
	if err != nil {
		return nil, err
	}
	cp := &engine.Checkpoint{
		Ref: UnpackRef(m.GetRef()), Generation: m.GetGeneration(), ID: m.GetId(), Parent: m.GetParent(), Seq: m.GetSeq(),
		ParentSeq: m.GetParentSeq(), Branch: m.GetBranch(), Time: UnpackTime(m.GetTime()), Step: m.GetStep(), Status: m.GetStatus(),
		SchemaVersion: m.GetSchemaVersion(), RunID: m.GetRunId(), Labels: m.GetLabels(), Blobs: blobs,
		Cost: engine.Cost{State: m.GetCost().GetState(), Stored: m.GetCost().GetStored(), Depth: int(m.GetCost().GetDepth()), Full: m.GetCost().GetFull()},
	}
	if m.GetMeta() != "" {
		cp.Meta = []byte(m.GetMeta())
	}
	if len(m.GetHash()) != len(cp.Hash) {
		return nil, fmt.Errorf("%w: a hash of %d bytes", engine.ErrInvalid, len(m.GetHash()))
	}
	copy(cp.Hash[:], m.GetHash())
	for _, h := range m.GetHooks() {
		identity, err := unpackHook(h)
		if err != nil {
			return nil, err
		}
		cp.Hooks = append(cp.Hooks, identity)
	}
	cp.Fuel, cp.Kind, cp.Delta = m.GetFuel(), m.GetKind(), m.GetDelta()
	if w := m.GetMigrated(); w != nil {
		cp.Migrated = &engine.Migrated{From: w.GetFrom(), To: w.GetTo(), Steps: w.GetSteps()}
	}
	for _, ch := range m.GetChannels() {
		cp.Channels = append(cp.Channels, unpackChannel(ch))
	}
	return cp, nil
}

func unpackChannel(m *ckptdv1.Channel) engine.Channel {
	c := engine.Channel{Name: m.GetName(), Type: m.GetType(), Version: engine.Version(m.GetVersion()), Size: m.GetSize(), Rewritten: m.GetRewritten()}
	switch content := m.GetContent().(type) {
	case *ckptdv1.Channel_Data:
		c.Data = bytesOf(content.Data)
	case *ckptdv1.Channel_Text:
		c.Data = []byte(content.Text)
	}
	return c
}

// PackHistories makes the messages of histories. With text, content that is UTF-8 goes as text.
func PackHistories(hs []engine.ChannelHistory, text bool) []*ckptdv1.ChannelHistory {
	var ms []*ckptdv1.ChannelHistory
	for i := range hs {
		h := &hs[i]
		m := &ckptdv1.ChannelHistory{Channel: h.Channel, BaseId: h.BaseID, Lost: h.Lost}
		if h.Base != nil {
			m.Base = &ckptdv1.Channel{}
			packChannel(m.Base, h.Base, text)
		}
		for _, w := range h.Writes {
			m.Writes = append(m.Writes, &ckptdv1.HistoryWrites{CheckpointId: w.CheckpointID, Writes: PackWrites(w.Writes, text)})
		}
		ms = append(ms, m)
	}
	return ms
}

// UnpackHistories is the inverse of PackHistories.
func UnpackHistories(ms []*ckptdv1.ChannelHistory) []engine.ChannelHistory {
	var hs []engine.ChannelHistory
	for _, m := range ms {
		h := engine.ChannelHistory{Channel: m.GetChannel(), BaseID: m.GetBaseId(), Lost: m.GetLost()}
		if m.GetBase() != nil {
			base := unpackChannel(m.GetBase())
			h.Base = &base
		}
		for _, w := range m.GetWrites() {
			h.Writes = append(h.Writes, engine.AncestorWrites{CheckpointID: w.GetCheckpointId(), Writes: UnpackWrites(w.GetWrites())})
		}
		hs = append(hs, h)
	}
	return hs
}

// packHook makes the message of a hook that processed a checkpoint.
func packHook(h *hook.Identity) *ckptdv1.Hook {
	m := &ckptdv1.Hook{Name: toUTF8(h.Name), Digest: h.Digest[:]}
	if h.Config != [32]byte{} {
		m.Config = h.Config[:]
	}
	return m
}

func unpackHook(m *ckptdv1.Hook) (hook.Identity, error) {
	h := hook.Identity{Name: m.GetName()}
	if len(m.GetDigest()) != len(h.Digest) || len(m.GetConfig()) != 0 && len(m.GetConfig()) != len(h.Config) {
		return h, fmt.Errorf("%w: a plugin digest has %d bytes", engine.ErrInvalid, len(m.GetDigest()))
	}
	copy(h.Digest[:], m.GetDigest())
	copy(h.Config[:], m.GetConfig())
	return h, nil
}

// bytesOf distinguishes empty content from none.
func bytesOf(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func packBlobs(ids []engine.BlobID) []string {
	if len(ids) == 0 {
		return nil
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = id.String()
	}
	return names
}

func unpackBlobs(names []string) (ids []engine.BlobID, err error) {
	for _, name := range names {
		id, err := engine.ParseBlobID(name)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// PackTime makes the message of a time; none for the zero value.
func PackTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// UnpackTime is the inverse of PackTime.
func UnpackTime(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// PackWhich makes the message of a Which.
func PackWhich(w engine.Which) *ckptdv1.Which {
	m := &ckptdv1.Which{}
	switch by, name, seq := w.Parts(); by {
	case engine.ByGreatestID:
		m.Which = &ckptdv1.Which_GreatestId{GreatestId: true}
	case engine.ByID:
		m.Which = &ckptdv1.Which_Id{Id: name}
	case engine.BySeq:
		m.Which = &ckptdv1.Which_Seq{Seq: seq}
	case engine.ByBefore:
		m.Which = &ckptdv1.Which_Before{Before: name}
	case engine.ByRun:
		m.Which = &ckptdv1.Which_RunId{RunId: name}
	case engine.ByBranch:
		m.Which = &ckptdv1.Which_Branch{Branch: name}
	}
	return m
}

// UnpackWhich is the inverse of PackWhich.
func UnpackWhich(m *ckptdv1.Which) engine.Which {
	switch w := m.GetWhich().(type) {
	case *ckptdv1.Which_GreatestId:
		if w.GreatestId {
			return engine.LatestByID()
		}
	case *ckptdv1.Which_Id:
		return engine.At(w.Id)
	case *ckptdv1.Which_Seq:
		return engine.AtSeq(w.Seq)
	case *ckptdv1.Which_Before:
		return engine.Before(w.Before)
	case *ckptdv1.Which_RunId:
		return engine.LatestOfRun(w.RunId)
	case *ckptdv1.Which_Branch:
		return engine.HeadOf(w.Branch)
	}
	return engine.Latest
}

// PackFilter makes the message of a filter.
func PackFilter(f *engine.Filter) *ckptdv1.Filter {
	return &ckptdv1.Filter{Labels: f.Labels, Status: f.Status, RunId: f.RunID, MinStep: f.MinStep, MaxStep: f.MaxStep,
		Since: PackTime(f.Since), Until: PackTime(f.Until)}
}

// UnpackFilter is the inverse of PackFilter.
func UnpackFilter(m *ckptdv1.Filter) engine.Filter {
	if m == nil {
		return engine.Filter{}
	}
	return engine.Filter{Labels: m.GetLabels(), Status: m.GetStatus(), RunID: m.GetRunId(), MinStep: m.MinStep, MaxStep: m.MaxStep,
		Since: UnpackTime(m.GetSince()), Until: UnpackTime(m.GetUntil())}
}

// PackListByID makes the request of a list by id, without the options Limit, After and Visible.
func PackListByID(tenant, user string, o *engine.ListByIDOptions) *ckptdv1.ListByIDRequest {
	return &ckptdv1.ListByIDRequest{Tenant: tenant, User: user, Thread: o.Thread, Namespace: o.Namespace, Id: o.ID, Before: o.Before, Meta: string(o.Meta),
		Filter: PackFilter(&o.Filter), Data: o.Data && (o.Channels == nil || len(o.Channels) > 0), Channels: o.Channels, Writes: o.Writes}
}

// UnpackListByID returns the options in a request.
func UnpackListByID(m *ckptdv1.ListByIDRequest) engine.ListByIDOptions {
	o := engine.ListByIDOptions{Thread: m.GetThread(), Namespace: m.Namespace, ID: m.GetId(), Before: m.GetBefore(), Filter: UnpackFilter(m.GetFilter()),
		Data: m.GetData(), Writes: m.GetWrites()}
	if m.GetMeta() != "" {
		o.Meta = []byte(m.GetMeta())
	}
	if len(m.GetChannels()) > 0 {
		o.Channels = m.GetChannels()
	}
	return o
}

// PackEntry makes the message of an entry of a list by id.
func PackEntry(e *engine.Entry, shown Shown) *ckptdv1.Entry {
	return &ckptdv1.Entry{Checkpoint: PackCheckpoint(e.Checkpoint, shown), Writes: PackWrites(e.Writes, shown.Text)}
}

// UnpackEntry is the inverse of PackEntry.
func UnpackEntry(m *ckptdv1.Entry) (*engine.Entry, error) {
	cp, err := UnpackCheckpoint(m.GetCheckpoint())
	return &engine.Entry{Checkpoint: cp, Writes: UnpackWrites(m.GetWrites())}, err
}

// PackWrites makes the messages of pending writes. With text, content that is UTF-8 goes as text.
func PackWrites(ws []engine.PendingWrite, text bool) []*ckptdv1.PendingWrite {
	var ms []*ckptdv1.PendingWrite
	for i := range ws {
		ms = append(ms, &ckptdv1.PendingWrite{Task: ws[i].Task, Path: ws[i].Path, Write: PackWrite(&ws[i].Write, text)})
	}
	return ms
}

// PackWrite makes the message of a write.
func PackWrite(w *engine.Write, text bool) *ckptdv1.Write {
	m := &ckptdv1.Write{Index: w.Index, Channel: w.Channel, Type: w.Type}
	if text && utf8.Valid(w.Data) {
		m.Content = &ckptdv1.Write_Text{Text: string(w.Data)}
	} else {
		m.Content = &ckptdv1.Write_Data{Data: w.Data}
	}
	return m
}

// UnpackWrite is the inverse of PackWrite.
func UnpackWrite(m *ckptdv1.Write) engine.Write {
	w := engine.Write{Index: m.GetIndex(), Channel: m.GetChannel(), Type: m.GetType()}
	switch content := m.GetContent().(type) {
	case *ckptdv1.Write_Data:
		w.Data = content.Data
	case *ckptdv1.Write_Text:
		w.Data = []byte(content.Text)
	}
	return w
}

// UnpackWrites is the inverse of PackWrites.
func UnpackWrites(ms []*ckptdv1.PendingWrite) []engine.PendingWrite {
	var ws []engine.PendingWrite
	for _, m := range ms {
		ws = append(ws, engine.PendingWrite{Task: m.GetTask(), Path: m.GetPath(), Write: UnpackWrite(m.GetWrite())})
	}
	return ws
}

// count makes an int of a number that came over the wire.
func count[T uint32 | uint64](n T) int { return int(min(uint64(n), math.MaxInt)) }
