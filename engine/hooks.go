package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/hook"
)

// Hooks run on plain bytes and may take seconds, so they run before a save goes to its lineage and after a load has left
// it, and no lock is held meanwhile. The rule that makes them compose with deltas is that each checkpoint's state is what
// its recorded hooks make of it: what a save keeps from a parent with the same hooks has passed them and is not passed
// again, and what it keeps from any other parent is.

// chain returns what runs at a stage for a thread; nil is nothing.
func (s *Store) chain(stage hook.Stage, tenant, thread string) (hook.Chain, error) {
	if s.hooks == nil {
		return nil, nil
	}
	chain, err := s.hooks.For(stage, tenant, thread)
	if err != nil {
		return nil, rejected(err)
	}
	return chain, nil
}

// rejected is the error of a hook as callers get it.
func rejected(err error) error {
	if errors.Is(err, ErrRejected) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrRejected, err)
}

// unfit is the error for what hooks made and the engine cannot store.
func unfit(stage hook.Stage, err error) error {
	return rejected(&hook.Error{Kind: hook.ErrFailed, Plugin: "hooks", Stage: stage, Reason: fmt.Sprintf("hook output cannot be stored: %v", err)})
}

// runHooks passes items through a chain. The call has no place but what place says, and a seed made from it and parts.
func (u *user) runHooks(ctx context.Context, chain hook.Chain, c *hook.Call, parts ...[]byte) error {
	p := &c.Place
	p.Tenant, p.User = u.tenant, u.name
	seed := [][]byte{[]byte(p.Thread), []byte(p.Namespace), []byte(p.Checkpoint)}
	c.Seed = u.Keys.Derive("hook seed", append(seed, parts...)...)
	c.PseudonymKey = u.Keys.Derive("pseudonym")
	if err := chain.Run(ctx, c); err != nil {
		return rejected(err)
	}
	return nil
}

// hooksOf are the identities of a chain as they are recorded.
func hooksOf(chain hook.Chain) ([]codec.Hook, error) {
	var out []codec.Hook
	for _, id := range chain.Identities() {
		if err := checkName("name of a hook", id.Name, false); err != nil {
			return nil, unfit(hook.PreSave, err)
		}
		out = append(out, codec.Hook(id))
	}
	if len(out) > codec.MaxHooks {
		return nil, unfit(hook.PreSave, fmt.Errorf("%d hooks ran, and at most %d can be recorded", len(out), codec.MaxHooks))
	}
	return out, nil
}

// identities is the inverse of hooksOf.
func identities(hooks []codec.Hook) []hook.Identity {
	var out []hook.Identity
	for _, h := range hooks {
		out = append(out, hook.Identity(h))
	}
	return out
}

// unspliceable is a version that names no bytes: what callers are told of a channel whose bytes are not those that were
// submitted. It is another one for other bytes.
func unspliceable(v Version) Version { return max(1, ^v) }

// describe fills in the version of a channel for who gets it without its bytes, and so may take others for them.
func (c *Channel) describe(commitment *[32]byte, info *codec.ChannelInfo) {
	c.Version = version(commitment)
	if info.Rewritten && c.Data == nil {
		c.Version, c.Rewritten = unspliceable(c.Version), true
	}
}

// sorted returns the keys of labels in order, in which they pass the hooks.
func sorted(labels map[string]string) []string {
	keys := make([]string, 0, len(labels))
	for k := range labels {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func appendLabels(items []hook.Item, labels map[string]string) []hook.Item {
	for _, k := range sorted(labels) {
		items = append(items, hook.Item{Kind: hook.Label, Name: k, Type: "text", Data: []byte(labels[k])})
	}
	return items
}

// labelsOf are the labels that items make: never nil. Of several that got the same key all but the first get a number:
// none may be lost because hooks hide what told them apart.
func labelsOf(items []hook.Item) map[string]string {
	labels := make(map[string]string, len(items))
	for i := range items {
		if items[i].Dropped {
			continue
		}
		key := items[i].Name
		for n := 2; ; n++ {
			if _, taken := labels[key]; !taken {
				break
			}
			key = fmt.Sprintf("%s#%d", items[i].Name, n)
		}
		labels[key] = string(items[i].Data)
	}
	return labels
}

// stepBytes is a step as part of a seed.
func stepBytes(step int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(step)) }
