package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
)

// SetLabels changes labels of a checkpoint: those that labels names are set or, with the value "", removed; others stay.
// Nothing else of the checkpoint changes but its seq, time and hash: it is saved as a replacement of itself, with the
// same id, parent and place in line, so its children keep it as their parent and Latest stays where it is. Labels that
// are so already write nothing. The checkpoint is returned without data, when the change is durable. Errors are those
// of Save.
func (t *Thread) SetLabels(ctx context.Context, w Which, labels map[string]string) (*Checkpoint, error) {
	for k, v := range labels {
		if err := errors.Join(checkName("label", k, false), checkName("value of a label", v, true)); err != nil {
			return nil, fmt.Errorf("setting labels: %w", err)
		}
	}
	for try := 1; ; try++ {
		cp, err := t.setLabels(ctx, w, labels)
		if errors.Is(err, backend.ErrConflict) && try < conflictRetries {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("setting labels: %w", err)
		}
		return cp, nil
	}
}

func (t *Thread) setLabels(ctx context.Context, which Which, labels map[string]string) (*Checkpoint, error) {
	l, err := t.s.acquire(ctx, t.ref, false)
	if err != nil {
		return nil, err
	}
	defer l.release()
	return l.save(func(w *saving) (*pending, *Checkpoint, error) { return w.prepareLabels(ctx, which, labels) })
}

// prepareLabels prepares the save of a checkpoint as it is but for its labels. The caller holds l.mu.
func (w *saving) prepareLabels(ctx context.Context, which Which, labels map[string]string) (*pending, *Checkpoint, error) {
	l := w.l
	l.drain()
	r, err := l.find(ctx, which)
	if err != nil {
		return nil, nil, err
	}
	old, err := l.restorer().tip(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	d := old.draft()
	d.Labels = map[string]string{}
	maps.Copy(d.Labels, old.meta.Labels)
	for k, v := range labels {
		if d.Labels[k] = v; v == "" {
			delete(d.Labels, k)
		}
	}
	if maps.Equal(d.Labels, old.meta.Labels) {
		return nil, old.checkpoint(nil), nil
	}
	if n := len(d.Labels); n > codec.MaxLabels {
		return nil, nil, fmt.Errorf("%w: %d labels, at most %d are allowed", ErrInvalid, n, codec.MaxLabels)
	}
	return w.prepare(ctx, d)
}

// draft is what saves t again, but for its labels. It shares the values of t.
func (t *tip) draft() *Draft {
	d := &Draft{ID: t.id, Step: t.rec.step, Status: t.rec.status, SchemaVersion: t.rec.schema, Branch: t.meta.Branch,
		RunID: t.meta.RunID, Meta: t.meta.Meta}
	for _, id := range t.meta.Blobs {
		d.Blobs = append(d.Blobs, id)
	}
	for i, info := range t.meta.Channels {
		d.Channels = append(d.Channels, Change{Name: info.Name, Type: info.Type, Data: t.chans[i].value})
	}
	return d
}

// find finds the record of a checkpoint among what is durable. The caller holds l.mu, with nothing pending.
func (l *lineage) find(ctx context.Context, which Which) (*record, error) {
	if _, there := l.th.record(); !there {
		return nil, ErrNotFound
	}
	if err := l.open(ctx); err != nil {
		return nil, err
	}
	seq, err := l.resolve(ctx, which)
	if err != nil {
		return nil, err
	}
	return l.visible(ctx, seq)
}
