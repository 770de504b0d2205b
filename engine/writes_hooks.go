package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/hook"
)

// runWriteHooks runs the hooks on pending writes, and leaves out those that they drop. Hooks cannot
// put blobs here: no checkpoint would keep them.
func (t *Thread) runWriteHooks(ctx context.Context, checkpoint, task, path string, ws []Write) ([]Write, error) {
	chain, err := t.s.hookChain(hook.PreSave, t.ref.Tenant, t.ref.Thread)
	if chain == nil || err != nil || len(ws) == 0 {
		return ws, err
	}
	u, err := t.s.user(ctx, userName{t.ref.Tenant, t.ref.User}, true)
	if err != nil {
		return nil, err
	}
	c := &hook.Call{Place: t.hookPlace(checkpoint), Names: append(t.hookNames(&Draft{ID: checkpoint}),
		hook.Name{What: "task", Text: task}, hook.Name{What: "path", Text: path})}
	for i := range ws {
		c.Items = append(c.Items, hook.Item{Kind: hook.Write, Name: ws[i].Channel, Type: ws[i].Type, Data: ws[i].Data})
	}
	if err := u.runHooks(ctx, chain, c, []byte(task)); err != nil {
		return nil, err
	}
	if len(c.Items) != len(ws) {
		return nil, unstorable(hook.PreSave, fmt.Errorf("%d items for %d", len(c.Items), len(ws)))
	}
	var out []Write
	for i := range c.Items {
		if it := &c.Items[i]; !it.Dropped {
			if err := t.s.checkSize(it.Name, len(it.Data)); err != nil {
				return nil, unstorable(hook.PreSave, err)
			}
			w := ws[i]
			w.Data = it.Data
			out = append(out, w)
		}
	}
	return out, nil
}

// runWriteLoadHooks runs the load hooks on pending writes, then the export hooks if export is set.
func (t *Thread) runWriteLoadHooks(ctx context.Context, checkpoint string, ws []PendingWrite, export bool) ([]PendingWrite, error) {
	for _, stage := range loadStages(export) {
		chain, err := t.s.hookChain(stage, t.ref.Tenant, t.ref.Thread)
		if err == nil && chain != nil && len(ws) > 0 {
			ws, err = t.runStageOnWrites(ctx, stage, chain, checkpoint, ws)
		}
		if err != nil {
			return nil, err
		}
	}
	return ws, nil
}

func (t *Thread) runStageOnWrites(ctx context.Context, stage hook.Stage, chain hook.Chain, checkpoint string, ws []PendingWrite) ([]PendingWrite, error) {
	u, err := t.s.user(ctx, userName{t.ref.Tenant, t.ref.User}, false)
	if err != nil {
		return nil, err
	}
	c := &hook.Call{Place: t.hookPlace(checkpoint)}
	for i := range ws {
		c.Items = append(c.Items, hook.Item{Kind: hook.Write, Name: ws[i].Channel, Type: ws[i].Type, Data: ws[i].Data})
	}
	if err := u.runHooks(ctx, chain, c); err != nil {
		return nil, err
	}
	if len(c.Items) != len(ws) {
		return nil, unstorable(stage, fmt.Errorf("%d items for %d", len(c.Items), len(ws)))
	}
	for i := range ws {
		ws[i].Data = c.Items[i].Data
	}
	at := -1
	return slices.DeleteFunc(ws, func(PendingWrite) bool { at++; return c.Items[at].Dropped }), nil
}

// hookPlace is the place, for hooks, of data outside a checkpoint's record.
func (t *Thread) hookPlace(checkpoint string) hook.Place {
	return hook.Place{Thread: t.ref.Thread, Namespace: t.ref.Namespace, Checkpoint: checkpoint, Time: t.s.clock()}
}

// checkSameHooks makes sure that data copied between threads of a user has run through the hooks of
// the destination.
func (s *Store) checkSameHooks(from, to Ref) error {
	chain, err := s.hookChain(hook.PreSave, to.Tenant, to.Thread)
	if chain == nil || err != nil {
		return err
	}
	seen, err := s.hookChain(hook.PreSave, from.Tenant, from.Thread)
	if err == nil && (seen == nil || !slices.Equal(seen.Identities(), chain.Identities())) {
		err = rejected(&hook.Error{Kind: hook.ErrRejected, Plugin: "hooks", Stage: hook.PreSave,
			Reason: "other hooks apply to the destination: save the thread's checkpoints there instead"})
	}
	return err
}
