package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/hook"
)

// SetLabels changes labels of a checkpoint: it sets those in labels, or removes them if the value
// is "", and leaves others alone. Nothing else of the checkpoint changes but its seq, time and
// hash: it is saved as a replacement of itself, with the same id, parent and place in the history,
// so it stays the parent of its children, and Latest does not change. If no label changes, nothing
// is written. SetLabels returns the checkpoint without data, when the change is durable. Its errors
// are those of Save.
func (t *Thread) SetLabels(ctx context.Context, w Which, labels map[string]string) (*Checkpoint, error) {
	for k, v := range labels {
		if err := errors.Join(checkName("label", k, false), checkName("value of a label", v, true)); err != nil {
			return nil, fmt.Errorf("setting labels: %w", err)
		}
	}
	chain, err := t.s.hookChain(hook.PreSave, t.ref.Tenant, t.ref.Thread)
	if err == nil {
		a := attempt{t: t, chain: chain}
		var cp *Checkpoint
		if cp, err = a.run(ctx, func() (*Checkpoint, error) { return t.setLabels(ctx, &a, w, labels) }); err == nil {
			return cp, nil
		}
	}
	return nil, fmt.Errorf("setting labels: %w", err)
}

func (t *Thread) setLabels(ctx context.Context, a *attempt, which Which, labels map[string]string) (*Checkpoint, error) {
	if a.chain == nil {
		return t.relabel(ctx, which, labels, nil)
	}
	if a.hooked == nil {
		p, cp, err := t.runLabelHooks(ctx, a.chain, which, labels)
		if err != nil || cp != nil {
			return cp, err
		}
		a.hooked = p
	}
	return t.relabel(ctx, which, nil, a.hooked)
}

// relabel saves a checkpoint with other labels or, with p, with the output of the hooks.
func (t *Thread) relabel(ctx context.Context, which Which, labels map[string]string, p *hookedDraft) (*Checkpoint, error) {
	l, err := t.s.rlockThread(ctx, t.ref, false)
	if err != nil {
		return nil, err
	}
	return l.save(ctx, changeLocks{}, func(w *saving) (*pending, *Checkpoint, error) {
		return w.prepareLabels(ctx, which, labels, p)
	})
}

// runLabelHooks runs the hooks on labels as if they were saved on the checkpoint that gets them,
// including all its data if other hooks made it. A checkpoint and no error means that it has the
// labels already.
func (t *Thread) runLabelHooks(ctx context.Context, chain hook.Chain, which Which, labels map[string]string) (*hookedDraft, *Checkpoint, error) {
	hooks, err := hooksOf(chain)
	if err != nil {
		return nil, nil, err
	}
	old, err := t.restoreState(ctx, which)
	if err != nil {
		return nil, nil, err
	}
	all, err := old.withLabels(labels)
	if err != nil || maps.Equal(all, old.meta.Labels) {
		return nil, old.checkpoint(nil), err
	}
	d := &Draft{ID: old.id, Step: old.rec.step, Status: old.rec.status, SchemaVersion: old.rec.schema, Keep: true, Labels: maps.Clone(all)}
	if slices.Equal(hooks, old.meta.Hooks) { // the others have passed
		d.Labels = maps.Clone(labels)
		maps.DeleteFunc(d.Labels, func(_, v string) bool { return v == "" })
	}
	in := &hookRun{t: t, u: old.l.u, given: d, d: d, out: &hookedDraft{draft: *d, hooks: hooks}}
	if err := in.copyParent(old); err != nil {
		return nil, nil, err
	}
	if err := in.run(ctx, chain); err != nil {
		return nil, nil, err
	}
	for k := range d.Labels {
		delete(all, k)
	}
	maps.Copy(all, labelsOf(in.items[len(in.items)-len(d.Labels):]))
	if len(all) > codec.MaxLabels {
		return nil, nil, unstorable(hook.PreSave, fmt.Errorf("%d labels, at most %d are allowed", len(all), codec.MaxLabels))
	}
	in.out.draft.Labels = all
	return in.out, nil, nil
}

// restoreState restores a checkpoint.
func (t *Thread) restoreState(ctx context.Context, which Which) (*checkpointState, error) {
	l, err := t.s.rlockThread(ctx, t.ref, false)
	if err != nil {
		return nil, err
	}
	defer l.runlockThread()
	r, err := l.find(ctx, which)
	if err != nil {
		return nil, err
	}
	return l.restorer().state(ctx, r)
}

// findToChange is find for callers that hold l.mu and are about to change the checkpoint. It
// depends on pending changes that may be changing it.
func (l *lineage) findToChange(ctx context.Context, which Which) (*record, error) {
	if _, there := l.th.record(); !there {
		return nil, ErrNotFound
	}
	if err := l.open(ctx); err != nil {
		return nil, err
	}
	durable, _ := l.durable.get(l.openEpoch)
	r, err := l.findAt(ctx, durable, which)
	if err != nil {
		return nil, err
	}
	if p := l.pendingID(l.recordID(r)); p != nil {
		return nil, l.dependsOn(p)
	}
	return r, nil
}

// withLabels returns the labels of t with some set or, if "", removed.
func (t *checkpointState) withLabels(labels map[string]string) (map[string]string, error) {
	all := map[string]string{}
	maps.Copy(all, t.meta.Labels)
	for k, v := range labels {
		if all[k] = v; v == "" {
			delete(all, k)
		}
	}
	if n := len(all); n > codec.MaxLabels {
		return nil, fmt.Errorf("%w: %d labels, at most %d are allowed", ErrInvalid, n, codec.MaxLabels)
	}
	return all, nil
}

// prepareLabels prepares saving a checkpoint with other labels or, with p, with the changes of the
// hooks. The caller holds l.mu.
func (w *saving) prepareLabels(ctx context.Context, which Which, labels map[string]string, p *hookedDraft) (*pending, *Checkpoint, error) {
	r, err := w.l.findToChange(ctx, which)
	if err != nil {
		return nil, nil, err
	}
	old, err := w.l.restorer().state(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	d := old.draft()
	switch {
	case p == nil:
		p = &hookedDraft{}
		if d.Labels, err = old.withLabels(labels); err != nil {
			return nil, nil, err
		}
	case p.parentHash != old.hash:
		return nil, nil, &movedError{}
	default:
		d.amend(&p.draft)
	}
	if maps.Equal(d.Labels, old.meta.Labels) {
		return nil, old.checkpoint(nil), nil
	}
	for _, info := range old.meta.Channels {
		if info.Rewritten {
			p.markRewritten(info.Name)
		}
	}
	w.hooked, p.onlyLabels = p, true
	return w.prepare(ctx, d)
}

// amend applies the changes of a draft with Keep to a draft of whole channels.
func (d *Draft) amend(by *Draft) {
	if d.Labels = by.Labels; by.Meta != nil {
		d.Meta = by.Meta
	}
	for _, c := range by.Channels {
		at := slices.IndexFunc(d.Channels, func(have Change) bool { return have.Name == c.Name })
		if c.Remove {
			d.Channels = slices.Delete(d.Channels, at, at+1)
			continue
		}
		was := d.Channels[at].Data
		d.Channels[at].Data = slices.Concat(was[:c.Prefix], c.Data, was[len(was)-c.Suffix:])
	}
}

// draft returns the draft that would save t again, without its labels. It shares the values of t.
func (t *checkpointState) draft() *Draft {
	d := &Draft{ID: t.id, Step: t.rec.step, Status: t.rec.status, SchemaVersion: t.rec.schema, Branch: t.meta.Branch, Kind: t.meta.Kind,
		RunID: t.meta.RunID, Meta: t.meta.Meta, Delta: t.meta.Delta}
	for _, id := range t.meta.Blobs {
		d.Blobs = append(d.Blobs, id)
	}
	for i, info := range t.meta.Channels {
		d.Channels = append(d.Channels, Change{Name: info.Name, Type: info.Type, Data: t.chans[i].value})
	}
	return d
}
