package engine

import (
	"bytes"
	"context"
	"fmt"

	"github.com/ckptd/ckptd/hook"
)

// applyLoadHooks runs the load hooks on cp in place, then the export hooks if export is set. No
// lock is held.
func (s *Store) applyLoadHooks(ctx context.Context, cp *Checkpoint, export bool) error {
	if s.hooks == nil {
		return nil
	}
	for _, stage := range loadStages(export) {
		chain, err := s.hookChain(stage, cp.Ref.Tenant, cp.Ref.Thread)
		if err == nil && chain != nil {
			err = s.applyHooks(ctx, stage, chain, cp)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// loadStages are the stages of hooks that run on loaded data.
func loadStages(export bool) []hook.Stage {
	if export {
		return []hook.Stage{hook.Load, hook.Export}
	}
	return []hook.Stage{hook.Load}
}

// applyHooks runs a chain on the loaded channels, the metadata and the labels of cp.
func (s *Store) applyHooks(ctx context.Context, stage hook.Stage, chain hook.Chain, cp *Checkpoint) error {
	u, err := s.user(ctx, userName{cp.Ref.Tenant, cp.Ref.User}, false)
	if err != nil {
		return err
	}
	c := &hook.Call{Place: hook.Place{Thread: cp.Ref.Thread, Namespace: cp.Ref.Namespace, Checkpoint: cp.ID, Step: cp.Step,
		Status: cp.Status, SchemaVersion: cp.SchemaVersion, Time: cp.Time}}
	for i := range cp.Channels {
		if ch := &cp.Channels[i]; ch.Data != nil {
			c.Items = append(c.Items, hook.Item{Kind: hook.Channel, Name: ch.Name, Type: ch.Type, Data: ch.Data})
		}
	}
	if len(cp.Meta) > 0 {
		c.Items = append(c.Items, hook.Item{Kind: hook.Meta, Type: "json", Data: cp.Meta})
	}
	c.Items = appendLabels(c.Items, cp.Labels)
	if len(c.Items) == 0 {
		return nil
	}
	n := len(c.Items)
	if err := u.runHooks(ctx, chain, c, cp.Hash[:]); err != nil {
		return err
	}
	if len(c.Items) != n {
		return unstorable(stage, fmt.Errorf("%d items for %d", len(c.Items), n))
	}
	cp.takeHookOutput(c.Items)
	return nil
}

// takeHookOutput puts the hooks' output into cp.
func (cp *Checkpoint) takeHookOutput(items []hook.Item) {
	var kept []Channel
	for _, ch := range cp.Channels {
		if ch.Data != nil {
			it := items[0]
			if items = items[1:]; it.Dropped {
				continue
			}
			if !bytes.Equal(it.Data, ch.Data) {
				ch.Data = append([]byte{}, it.Data...) // never nil: that means not loaded
				if ch.Size = int64(len(ch.Data)); !ch.Rewritten {
					ch.Version, ch.Rewritten = unspliceable(ch.Version), true
				}
			}
		}
		kept = append(kept, ch)
	}
	cp.Channels = kept
	if len(cp.Meta) > 0 {
		if cp.Meta = items[0].Data; items[0].Dropped || len(cp.Meta) == 0 {
			cp.Meta = nil
		}
		items = items[1:]
	}
	if cp.Labels = labelsOf(items); len(cp.Labels) == 0 {
		cp.Labels = nil
	}
}
