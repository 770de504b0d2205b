package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/hook"
)

// passWrites passes pending writes through the hooks; those that are dropped are left out. Hooks cannot put blobs then:
// no checkpoint would keep them.
func (t *Thread) passWrites(ctx context.Context, checkpoint, task, path string, ws []Write) ([]Write, error) {
	chain, err := t.s.chain(hook.PreSave, t.ref.Tenant, t.ref.Thread)
	if chain == nil || err != nil || len(ws) == 0 {
		return ws, err
	}
	u, err := t.s.user(ctx, userName{t.ref.Tenant, t.ref.User}, true)
	if err != nil {
		return nil, err
	}
	c := &hook.Call{Place: t.place(checkpoint), Names: append(t.names(&Draft{ID: checkpoint}),
		hook.Name{What: "task", Text: task}, hook.Name{What: "path", Text: path})}
	for i := range ws {
		c.Items = append(c.Items, hook.Item{Kind: hook.Write, Name: ws[i].Channel, Type: ws[i].Type, Data: ws[i].Data})
	}
	if err := u.runHooks(ctx, chain, c, []byte(task)); err != nil {
		return nil, err
	}
	if len(c.Items) != len(ws) {
		return nil, unfit(hook.PreSave, fmt.Errorf("%d items out of %d", len(c.Items), len(ws)))
	}
	var out []Write
	for i := range c.Items {
		if it := &c.Items[i]; !it.Dropped {
			if err := t.s.checkSize(it.Name, len(it.Data)); err != nil {
				return nil, unfit(hook.PreSave, err)
			}
			w := ws[i]
			w.Data = it.Data
			out = append(out, w)
		}
	}
	return out, nil
}

// giveWrites passes pending writes that were read through the hooks of loads.
func (t *Thread) giveWrites(ctx context.Context, checkpoint string, ws []PendingWrite) ([]PendingWrite, error) {
	chain, err := t.s.chain(hook.Load, t.ref.Tenant, t.ref.Thread)
	if chain == nil || err != nil || len(ws) == 0 {
		return ws, err
	}
	u, err := t.s.user(ctx, userName{t.ref.Tenant, t.ref.User}, false)
	if err != nil {
		return nil, err
	}
	c := &hook.Call{Place: t.place(checkpoint)}
	for i := range ws {
		c.Items = append(c.Items, hook.Item{Kind: hook.Write, Name: ws[i].Channel, Type: ws[i].Type, Data: ws[i].Data})
	}
	if err := u.runHooks(ctx, chain, c); err != nil {
		return nil, err
	}
	if len(c.Items) != len(ws) {
		return nil, unfit(hook.Load, fmt.Errorf("%d items out of %d", len(c.Items), len(ws)))
	}
	for i := range ws {
		ws[i].Data = c.Items[i].Data
	}
	at := -1
	return slices.DeleteFunc(ws, func(PendingWrite) bool { at++; return c.Items[at].Dropped }), nil
}

// place is where what is not of a checkpoint's own record belongs.
func (t *Thread) place(checkpoint string) hook.Place {
	return hook.Place{Thread: t.ref.Thread, Namespace: t.ref.Namespace, Checkpoint: checkpoint, Time: t.s.clock()}
}

// sameHooks is for what comes into a thread as another one of the user has it: what hooks must see there they have seen.
func (s *Store) sameHooks(from, to Ref) error {
	chain, err := s.chain(hook.PreSave, to.Tenant, to.Thread)
	if chain == nil || err != nil {
		return err
	}
	seen, err := s.chain(hook.PreSave, from.Tenant, from.Thread)
	if err == nil && (seen == nil || !slices.Equal(seen.Identities(), chain.Identities())) {
		err = rejected(&hook.Error{Kind: hook.ErrRejected, Plugin: "hooks", Stage: hook.PreSave,
			Reason: "a thread cannot be copied to where other hooks run: save its states there instead"})
	}
	return err
}
