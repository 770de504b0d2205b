package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// Limits of what a load reads for histories. Values and writes are paid for (Budget) before they are
// allocated; a chain of ancestors without any takes time only.
const (
	maxHistories    = codec.MaxChannels
	maxAncestors    = 10_000
	bytesOfAncestor = 512
)

// ancestor is a part of the histories of a checkpoint.
type ancestor struct {
	cp     Checkpoint // its channels are the values that histories begin with
	writes []PendingWrite
}

// historyWalk collects the ancestors that hold the histories of some channels.
type historyWalk struct {
	l     *lineage
	head  uint64
	rs    *restorer
	names []string // whose beginning was not found yet
	found []*ancestor
	lost  []string
	seen  map[uint64]bool
}

// checkHistories checks the names of the channels whose histories a load asks for.
func (o *LoadOptions) checkHistories() error {
	if len(o.History) > maxHistories {
		return fmt.Errorf("%w: histories of %d channels, at most %d are allowed", ErrInvalid, len(o.History), maxHistories)
	}
	seen := make(map[string]bool, len(o.History))
	for _, name := range o.History {
		if err := checkName("channel", name, false); err != nil {
			return err
		}
		if seen[name] {
			return fmt.Errorf("%w: the history of channel %q is asked for twice", ErrInvalid, name)
		}
		seen[name] = true
	}
	return nil
}

// ancestors reads the ancestors that hold the histories of channels of the checkpoint at seq, the
// nearest first. lost are those whose history is cut off.
func (l *lineage) ancestors(ctx context.Context, seq uint64, channels []string) (found []*ancestor, lost []string, err error) {
	if err := l.u.sweep.rLock(ctx); err != nil { // keeps parts of replaced writes until they are read
		return nil, nil, err
	}
	defer l.u.sweep.rUnlock()
	at, err := l.durableNow(ctx)
	if err != nil {
		return nil, nil, err
	}
	h := &historyWalk{l: l, head: at.head, rs: l.restorer(), names: slices.Clone(channels), seen: map[uint64]bool{seq: true}}
	r, err := l.readRecord(ctx, seq)
	if err != nil {
		return nil, nil, err
	}
	if r == nil || r.rec == nil {
		return nil, nil, l.missingSeq(ctx, seq)
	}
	for r != nil && len(h.names) > 0 {
		took := r.rec.Took
		p, err := h.parent(ctx, r)
		if err != nil {
			return nil, nil, err
		}
		if p == nil || h.seen[p.seq] {
			break
		}
		if h.seen[p.seq] = true; len(h.seen) > maxAncestors {
			return nil, nil, fmt.Errorf("%w: a history has more than %d ancestors: save the channel whole now and then", ErrTooLarge, maxAncestors)
		}
		if err := h.add(ctx, p, took); err != nil {
			return nil, nil, err
		}
		r = p
	}
	return h.found, h.lost, nil
}

// parent returns the parent of r: a checkpoint or an ancestor, or nil. If r has one that is not
// there, what is left of the histories is lost.
func (h *historyWalk) parent(ctx context.Context, r *record) (*record, error) {
	if r.rec.ParentDist == 0 && r.rec.ParentID == "" {
		return nil, nil
	}
	id := r.rec.ParentID
	seq := r.seq - r.rec.ParentDist
	if id == "" {
		p, err := h.l.readRecord(ctx, seq)
		if err != nil {
			return nil, err
		}
		switch {
		case p == nil:
			return nil, h.l.missingSeq(ctx, seq)
		case p.visible() || p.rec != nil && p.rec.Holds:
			return p, nil
		case p.rec != nil:
			id = h.l.recordID(p)
		default:
			id = p.stub.ID
		}
	}
	e, p, err := h.l.findEntry(ctx, h.head, id)
	if err == nil && p == nil {
		p, err = h.l.currentAt(ctx, e.Seq)
	}
	if errors.Is(err, ErrNotFound) || err == nil && r.rec.ParentID == "" && !(p.origin() <= seq && seq < p.seq) {
		h.lost = append(h.lost, h.names...)
		return nil, nil
	}
	return p, err
}

// add reads the parts of histories that p holds. took says that its writes were taken over by the
// checkpoint before it.
func (h *historyWalk) add(ctx context.Context, p *record, took bool) error {
	h.rs = h.rs.next()
	meta, err := h.rs.meta(ctx, p)
	if err != nil {
		return err
	}
	if err := reserve(ctx, bytesOfAncestor); err != nil {
		return err
	}
	a := &ancestor{cp: Checkpoint{Ref: h.l.ref, ID: h.l.recordID(p), Seq: p.seq, Step: p.rec.Step, Status: p.rec.Status, SchemaVersion: p.rec.Schema}}
	if !took {
		if a.writes, err = h.l.writesTo(ctx, p, a.cp.ID, h.names); err != nil {
			return err
		}
	}
	for i := range meta.Channels {
		info := &meta.Channels[i]
		at := slices.Index(h.names, info.Name)
		if at < 0 {
			continue
		}
		h.names = slices.Delete(h.names, at, at+1)
		got, err := h.rs.channels(ctx, p, func(number uint64) bool { return number == info.Number })
		if errors.Is(err, errGone) && p.rec.Ghost {
			h.lost = append(h.lost, info.Name)
			continue
		}
		if err == nil {
			err = reserve(ctx, int64(len(got[0].value)))
		}
		if err != nil {
			return err
		}
		ch := Channel{Name: info.Name, Type: info.Type, Size: int64(len(got[0].value)), Data: append([]byte{}, got[0].value...)}
		ch.describe(&got[0].commit, info)
		a.cp.Channels = append(a.cp.Channels, ch)
	}
	if len(a.writes) > 0 || len(a.cp.Channels) > 0 {
		h.found = append(h.found, a)
	}
	return nil
}

// writesTo reads the pending writes of a checkpoint, or of an ancestor, to some channels.
func (l *lineage) writesTo(ctx context.Context, r *record, id string, channels []string) ([]PendingWrite, error) {
	var tasks []*codec.Writes
	var err error
	if r.rec.Holds {
		tasks, err = l.heldTasks(ctx, r.seq, id)
	} else {
		tasks, err = l.tasks(ctx, id)
	}
	if err != nil {
		return nil, err
	}
	return l.restoreWrites(ctx, id, tasks, func(channel string) bool { return slices.Contains(channels, channel) })
}

// heldTasks returns the pending writes of the ancestor at seq, which do not change.
func (l *lineage) heldTasks(ctx context.Context, seq uint64, id string) (tasks []*codec.Writes, err error) {
	y := tally{u: l.u}
	err = l.s.eachWrites(ctx, l, l.WritesOf(space.Held(seq)), func(e backend.Entry, w *codec.Writes, ledger *codec.WritesLedger) error {
		y.add(e.Key, w, ledger)
		if y.id != id {
			return corrupt(space.Describe(e.Key), "is for another checkpoint", nil)
		}
		if w != nil {
			tasks = append(tasks, w)
		}
		return reserve(ctx, int64(len(e.Value)))
	})
	if err == nil {
		err = y.err()
	}
	return tasks, err
}

// histories runs the load hooks on ancestors, the nearest first, and sorts them by channel.
func (t *Thread) histories(ctx context.Context, o *LoadOptions, found []*ancestor, lost []string) ([]ChannelHistory, error) {
	out := make([]ChannelHistory, len(o.History))
	at := make(map[string]*ChannelHistory, len(out))
	for i, name := range o.History {
		out[i] = ChannelHistory{Channel: name, Lost: slices.Contains(lost, name)}
		at[name] = &out[i]
	}
	for _, a := range slices.Backward(found) {
		if len(a.cp.Channels) > 0 {
			if err := t.s.applyLoadHooks(ctx, &a.cp, o.Export); err != nil {
				return nil, err
			}
		}
		ws, err := t.runWriteLoadHooks(ctx, a.cp.ID, a.writes, o.Export)
		if err != nil {
			return nil, err
		}
		for i := range a.cp.Channels {
			h := at[a.cp.Channels[i].Name]
			h.BaseID, h.Base = a.cp.ID, &a.cp.Channels[i]
		}
		for _, w := range ws {
			h := at[w.Channel]
			if n := len(h.Writes); n == 0 || h.Writes[n-1].CheckpointID != a.cp.ID {
				h.Writes = append(h.Writes, AncestorWrites{CheckpointID: a.cp.ID})
			}
			last := &h.Writes[len(h.Writes)-1]
			last.Writes = append(last.Writes, w)
		}
	}
	return out, nil
}
