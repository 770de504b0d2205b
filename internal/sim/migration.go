package sim

import (
	"context"
	"maps"

	"github.com/ckptd/ckptd/migrate"
)

// agent is the kind of the threads whose states have versions, 1 to 3. Their channel "doc" is JSON,
// with the version in its member "v".
const agent = "agent"

var agentSet = func() *migrate.Set {
	step := func(from, to uint64) migrate.Step {
		return migrate.Go(from, to, "number the version", func(doc map[string]any) (map[string]any, error) {
			channels, _ := doc["channels"].(map[string]any)
			if d, ok := channels["doc"].(map[string]any); ok {
				d["v"] = int64(to)
			}
			return doc, nil
		})
	}
	set, err := migrate.NewSet(context.Background(), migrate.Spec{Kind: agent,
		Steps: []migrate.Step{step(1, 2), step(2, 3), step(3, 2), step(2, 1)}})
	if err != nil {
		panic(err)
	}
	return set
}()

func migrations(_, kind string) *migrate.Set {
	if kind == agent {
		return agentSet
	}
	return nil
}

// migrated returns the state at another version. Steps have tests of their own, so the same steps
// compute the expected state here.
func (c *content) migrated(to uint64) *content {
	if c.kind != agent || c.schema == to {
		return c
	}
	state := migrate.State{Labels: maps.Clone(c.labels)}
	if c.meta != "" {
		state.Meta = []byte(c.meta)
	}
	for _, name := range c.names() {
		state.Channels = append(state.Channels, migrate.Channel{Name: name, Type: c.chans[name].typ, Data: []byte(c.chans[name].data)})
	}
	got, _, err := agentSet.Migrate(context.Background(), state, c.schema, to, true)
	if err != nil {
		return nil
	}
	next := *c
	next.sum = ""
	next.schema, next.meta, next.labels, next.chans = to, string(got.Meta), got.Labels, map[string]value{}
	for _, ch := range got.Channels {
		next.chans[ch.Name] = value{ch.Type, string(ch.Data)}
	}
	return &next
}
