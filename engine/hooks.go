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

// Hooks run on plain bytes and may take seconds, so they run with no lock held: before a save goes
// to its lineage, and after a load has left it. They compose with deltas by one rule: the state of
// a checkpoint is always the output of its recorded hooks. So data kept from a parent with the same
// hooks does not run through them again, and data kept from any other parent does.

// hookChain returns the hooks of a stage for a thread; nil if there are none.
func (s *Store) hookChain(stage hook.Stage, tenant, thread string) (hook.Chain, error) {
	if s.hooks == nil {
		return nil, nil
	}
	chain, err := s.hooks.For(stage, tenant, thread)
	if err != nil {
		return nil, rejected(err)
	}
	return chain, nil
}

// rejected turns the error of a hook into one for callers.
func rejected(err error) error {
	if errors.Is(err, ErrRejected) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrRejected, err)
}

// unstorable is the error for hook output that cannot be stored.
func unstorable(stage hook.Stage, err error) error {
	return rejected(&hook.Error{Kind: hook.ErrFailed, Plugin: "hooks", Stage: stage, Reason: fmt.Sprintf("their output cannot be stored: %v", err)})
}

// runHooks passes items through a chain. It adds tenant and user to the call's place, and derives
// the call's seed from that place and parts.
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

// hooksOf returns the identities of a chain as records store them.
func hooksOf(chain hook.Chain) ([]codec.Hook, error) {
	var out []codec.Hook
	for _, id := range chain.Identities() {
		if err := checkName("name of a hook", id.Name, false); err != nil {
			return nil, unstorable(hook.PreSave, err)
		}
		out = append(out, codec.Hook(id))
	}
	if len(out) > codec.MaxHooks {
		return nil, unstorable(hook.PreSave, fmt.Errorf("%d hooks ran, at most %d can be recorded", len(out), codec.MaxHooks))
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

// unspliceable returns a version that names no bytes, for callers who have other bytes of a channel
// than the stored ones. Different bytes have different ones.
func unspliceable(v Version) Version { return max(1, ^v) }

// describe sets the version of a channel. A caller who gets it without its bytes may have other
// ones.
func (c *Channel) describe(commitment *[32]byte, info *codec.ChannelInfo) {
	c.Version = version(commitment)
	if info.Rewritten && c.Data == nil {
		c.Version, c.Rewritten = unspliceable(c.Version), true
	}
}

// sorted returns the keys of labels in order, the order in which hooks see them.
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

// labelsOf returns the labels in items, never nil. If several have the same key, all but the first
// get a number, so that no label is lost when hooks hide the difference.
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
