package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ckptd/ckptd/engine"
)

// content is everything in a checkpoint except its position. It is never modified.
type content struct {
	step   int64
	status string
	kind   string
	schema uint64
	run    string
	branch string
	labels map[string]string
	meta   string
	blobs  []engine.BlobID // sorted
	chans  map[string]value

	sum string // digest, computed on demand
}

type value struct{ typ, data string }

var empty = &content{}

func (c *content) names() []string { return slices.Sorted(maps.Keys(c.chans)) }

// contentOf returns the content of a checkpoint loaded with its data.
func contentOf(cp *engine.Checkpoint) *content {
	c := &content{step: cp.Step, status: cp.Status, kind: cp.Kind, schema: cp.SchemaVersion, run: cp.RunID, branch: cp.Branch,
		labels: cp.Labels, meta: string(cp.Meta), blobs: cp.Blobs, chans: map[string]value{}}
	for _, ch := range cp.Channels {
		c.chans[ch.Name] = value{ch.Type, string(ch.Data)}
	}
	return c
}

// stands reports whether a draft depends on its parent's state.
func stands(d *engine.Draft) bool {
	return d.Keep || slices.ContainsFunc(d.Channels, func(ch engine.Change) bool { return ch.Base != 0 })
}

// with returns the content of a draft on top of c, following the documentation of Draft. It is nil
// if the draft does not fit c.
func (c *content) with(d *engine.Draft) *content {
	if stands(d) && c != empty {
		if c = c.migrated(d.SchemaVersion); c == nil {
			return nil
		}
	}
	next := &content{step: d.Step, status: d.Status, kind: d.Kind, schema: d.SchemaVersion, run: d.RunID, branch: d.Branch,
		labels: d.Labels, meta: string(d.Meta), chans: map[string]value{}}
	if next.status == "" {
		next.status = engine.StatusRunning
	}
	if next.kind == "" {
		next.kind = c.kind
	}
	next.blobs = d.Blobs
	if d.Keep {
		if d.RunID == "" {
			next.run = c.run
		}
		if d.Labels == nil {
			next.labels = c.labels
		}
		if d.Meta == nil {
			next.meta = c.meta
		}
		if d.Blobs == nil {
			next.blobs = c.blobs
		}
		maps.Copy(next.chans, c.chans)
	}
	next.blobs = slices.Clone(next.blobs)
	slices.SortFunc(next.blobs, func(a, b engine.BlobID) int { return strings.Compare(string(a[:]), string(b[:])) })
	next.blobs = slices.Compact(next.blobs)
	for _, ch := range d.Channels {
		had, ok := c.chans[ch.Name]
		v := value{ch.Type, string(ch.Data)}
		switch {
		case ch.Remove:
			delete(next.chans, ch.Name)
			continue
		case ch.Base != 0:
			if v.data, ok = spliced(had.data, &ch, ok); !ok {
				return nil
			}
			if v.typ == "" {
				v.typ = had.typ
			}
		}
		if v.typ == "" {
			v.typ = "bytes"
		}
		next.chans[ch.Name] = v
	}
	return next
}

// spliced applies a change to its base, if there is one and the change fits.
func spliced(base string, ch *engine.Change, ok bool) (string, bool) {
	n := len(base)
	if ch.Splices == nil {
		if !ok || ch.Prefix > n || ch.Suffix > n-ch.Prefix {
			return "", false
		}
		return base[:ch.Prefix] + string(ch.Data) + base[n-ch.Suffix:], true
	}
	for _, s := range slices.Backward(ch.Splices) {
		if !ok || s.To > n {
			return "", false
		}
		base = base[:s.From] + string(s.Data) + base[s.To:]
	}
	return base, ok
}

// digest identifies a content.
func (c *content) digest() string {
	if c.sum == "" {
		var b strings.Builder
		fmt.Fprint(&b, c.step, c.status, c.kind, c.schema, c.run, c.branch, c.labels, c.meta, c.blobs)
		for _, name := range c.names() {
			fmt.Fprint(&b, name, c.chans[name].typ, digest(c.chans[name].data))
		}
		c.sum = b.String()
	}
	return c.sum
}

// relabelled returns c with labels changed as by SetLabels.
func (c *content) relabelled(labels map[string]string) *content {
	next := *c
	next.sum = ""
	next.labels = maps.Clone(c.labels)
	if next.labels == nil {
		next.labels = map[string]string{}
	}
	for k, v := range labels {
		if next.labels[k] = v; v == "" {
			delete(next.labels, k)
		}
	}
	return &next
}

// differs describes how a checkpoint differs from c; "" means not at all. For channels without data
// it compares only sizes.
func (c *content) differs(cp *engine.Checkpoint) string {
	type field struct {
		name      string
		want, got any
	}
	for _, f := range []field{{"step", c.step, cp.Step}, {"status", c.status, cp.Status}, {"kind", c.kind, cp.Kind},
		{"schema version", c.schema, cp.SchemaVersion}, {"run id", c.run, cp.RunID}, {"branch", c.branch, cp.Branch},
		{"metadata", c.meta, string(cp.Meta)}} {
		if f.want != f.got {
			return fmt.Sprintf("the %s is %v, want %v", f.name, f.got, f.want)
		}
	}
	if !maps.Equal(c.labels, cp.Labels) {
		return fmt.Sprintf("the labels are %v, want %v", cp.Labels, c.labels)
	}
	if !slices.Equal(c.blobs, cp.Blobs) {
		return fmt.Sprintf("it names %d blobs, want %d", len(cp.Blobs), len(c.blobs))
	}
	if len(c.chans) != len(cp.Channels) {
		return fmt.Sprintf("it has %d channels, want %d", len(cp.Channels), len(c.chans))
	}
	for _, ch := range cp.Channels {
		want, ok := c.chans[ch.Name]
		switch {
		case !ok:
			return fmt.Sprintf("channel %q is not of it", ch.Name)
		case want.typ != ch.Type:
			return fmt.Sprintf("channel %q is of type %q, want %q", ch.Name, ch.Type, want.typ)
		case int64(len(want.data)) != ch.Size:
			return fmt.Sprintf("channel %q has %d bytes, want %d", ch.Name, ch.Size, len(want.data))
		case ch.Data != nil && string(ch.Data) != want.data:
			return fmt.Sprintf("channel %q has other bytes", ch.Name)
		}
	}
	return ""
}
