package pipeline

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins"
	"github.com/ckptd/ckptd/plugins/bundle"
)

// maxElements is the maximum number of elements per item for which a plugin is called. Each call
// costs microseconds at least.
const maxElements = 20_000

// invocation is one plugin running on an item, or on some of its elements.
type invocation struct {
	run  *chainRun
	link *link
	item *hook.Item

	fuel     uint64
	findings []hook.Finding
}

// do runs the plugin and puts its output into the item.
func (i *invocation) do() error {
	it := i.item
	switch {
	case it.Kind == hook.Label:
		return i.label()
	case i.link.hook.Elements && isJSON(it.Type):
		return i.elements()
	}
	out, err := i.call(it.Data, false)
	if err == nil && out != nil {
		it.Data = out
	}
	return err
}

// elements runs the plugin on each element of the item that isn't in Prev. The input of a call
// depends neither on the checkpoint nor on the position of the element, so the same element always
// gives the same output.
func (i *invocation) elements() error {
	it := i.item
	changed, ok := changedElements(it.Data, it.Prev)
	if !ok {
		changed = []span{{0, len(it.Data)}}
	}
	if len(changed) > maxElements {
		return &hook.Error{Kind: hook.ErrLimit,
			Reason: fmt.Sprintf(`%d new elements, more than the limit of %d: set scope = "value" in the manifest`,
				len(changed), maxElements)}
	}
	var out []byte // the item up to last, if it has changed
	last := 0
	for _, e := range changed {
		made, err := i.call(it.Data[e.start:e.end], true)
		if err != nil {
			return err
		}
		if made != nil {
			if out == nil {
				out = make([]byte, 0, len(it.Data)+len(made))
			}
			out = append(append(out, it.Data[last:e.start]...), bytes.TrimSpace(made)...)
			last = e.end
		}
	}
	if out != nil {
		it.Data = append(out, it.Data[last:]...)
	}
	return nil
}

// labelJSON is the form in which a plugin sees a label.
type labelJSON struct {
	Key   *string `json:"key"`
	Value *string `json:"value"`
}

// label runs the plugin on a label as JSON, {"key":…,"value":…}.
func (i *invocation) label() error {
	it := i.item
	value := string(it.Data)
	payload, err := json.Marshal(labelJSON{&it.Name, &value})
	if err != nil {
		return err
	}
	out, err := i.call(payload, false)
	if err != nil || out == nil {
		return err
	}
	var label labelJSON
	d := json.NewDecoder(bytes.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(&label); err != nil || label.Key == nil || label.Value == nil {
		return &hook.Error{Kind: hook.ErrFailed, Reason: `its output is not a label: want {"key":TEXT,"value":TEXT}`}
	}
	it.Name, it.Data = *label.Key, []byte(*label.Value)
	return nil
}

// call calls the plugin and checks its output, which is nil for an unchanged payload.
func (i *invocation) call(payload []byte, element bool) ([]byte, error) {
	r, l := i.run, i.link
	m := &l.binding.Bundle.Manifest
	c := &plugins.Call{
		Stage: r.chain.stage, Item: nameOf(i.item), Payload: payload,
		Meta: r.meta.json(r, i.item, element, m.Capable(bundle.Identity)),
		Time: r.call.Place.Time, Seed: i.seed(payload, element), PseudonymKey: r.call.PseudonymKey,
		From: r.call.Migrate.From, To: r.call.Migrate.To,
	}
	if element {
		c.Time = time.Unix(0, 0)
	}
	if m.Capable(bundle.RedactBuiltin) {
		c.Redact = i.redactBuiltin
	}
	if m.Capable(bundle.BlobPut) && r.call.PutBlob != nil {
		c.PutBlob = i.putBlob
	}
	result, err := l.shared.plugin.Call(r.ctx, c)
	if result != nil {
		i.fuel += result.Fuel
		i.findings = append(i.findings, sanitized(result.Findings, nameOf(i.item))...)
	}
	switch {
	case err != nil:
		return nil, withoutWords(err)
	case result == nil || !result.Unchanged && result.Output == nil:
		return nil, &hook.Error{Kind: hook.ErrFailed, Reason: "it returned no output"}
	case result.Unchanged || bytes.Equal(result.Output, payload):
		return nil, nil
	}
	return result.Output, checkOutput(payloadType(i.item), payload, result.Output)
}

// withoutWords removes from a call's error any text that the plugin could have chosen.
func withoutWords(err error) error {
	e, ok := errors.AsType[*hook.Error](err)
	if !ok || e.Plugin == redactName || e.Kind != hook.ErrFailed && e.Kind != hook.ErrRejected {
		return err
	}
	return &hook.Error{Kind: e.Kind, Code: e.Code, Reason: codeReason(e)}
}

func codeReason(e *hook.Error) string {
	if e.Code == 0 {
		return ""
	}
	return fmt.Sprintf("code %d", e.Code)
}

// checkOutput checks that JSON remains JSON and text remains text.
func checkOutput(typ string, in, out []byte) error {
	switch {
	case isText(typ) && !utf8.Valid(out) && utf8.Valid(in):
		return &hook.Error{Kind: hook.ErrFailed, Reason: "its output is not UTF-8 although the input was"}
	case isJSON(typ) && !json.Valid(out) && json.Valid(in):
		return &hook.Error{Kind: hook.ErrFailed, Reason: "its output is not JSON although the input was, or is nested too deep"}
	}
	return nil
}

// seed returns the seed of the plugin's random numbers. It differs by plugin and item; for an
// element it depends only on the element's contents.
func (i *invocation) seed(payload []byte, element bool) [32]byte {
	h := sha256.New()
	id := &i.link.identity
	if element {
		h.Write([]byte("ckptd/seed/element/1\n"))
		h.Write(i.run.call.PseudonymKey[:])
	} else {
		h.Write([]byte("ckptd/seed/item/1\n"))
		h.Write(i.run.call.Seed[:])
	}
	h.Write(id.Digest[:])
	h.Write(id.Config[:])
	fmt.Fprintf(h, "%s %d %s\n", i.run.chain.stage, i.item.Kind, i.item.Name)
	if element {
		h.Write(payload)
	}
	return [32]byte(h.Sum(nil))
}

// redactor returns the redactor that is bound for this chain, or nil.
func (r *chainRun) redactor() *Redactor {
	for _, l := range r.links {
		if l.binding.Redactor != nil {
			return l.binding.Redactor
		}
	}
	return nil
}

// redactBuiltin implements the host function redact_builtin.
func (i *invocation) redactBuiltin(ctx context.Context, set string, data []byte) ([]byte, error) {
	redactor := i.run.redactor()
	if redactor == nil {
		redactor = i.run.chain.pipeline.fallback()
	}
	out, findings, err := redactor.redactBytes(ctx, set, nameOf(i.item), data, i.run.call.PseudonymKey)
	i.findings = append(i.findings, findings...)
	return out, err
}

// putBlob implements the host function blob_put. Where the redactor is bound, text passes through
// it first, so data that a plugin stores cannot bypass it either.
func (i *invocation) putBlob(data []byte) ([32]byte, error) {
	for _, l := range i.run.links {
		if l.binding.Redactor == nil || !utf8.Valid(data) {
			continue
		}
		blob := hook.Item{Kind: hook.Blob, Data: data}
		findings, err := l.binding.Redactor.redactItem(i.run.ctx, &blob, i.run.call.PseudonymKey)
		i.findings = append(i.findings, findings...)
		if err != nil {
			return [32]byte{}, err
		}
		if blob.Dropped {
			return [32]byte{}, &hook.Error{Kind: hook.ErrRejected, Plugin: redactName,
				Reason: "a hook dropped the content of a blob put by a plugin"}
		}
		data = blob.Data
	}
	return i.run.call.PutBlob(data)
}

// metas caches the descriptions of an item that plugins get, one per variant.
type metas struct{ made [4][]byte }

// of starts a new item.
func (m *metas) of(*hook.Item) { m.made = [4][]byte{} }

type metaJSON struct {
	ABI   int    `json:"abi"`
	Stage string `json:"stage"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Type  string `json:"type"`

	Step          *int64  `json:"step,omitempty"`
	Status        *string `json:"status,omitempty"`
	SchemaVersion *uint64 `json:"schema_version,omitempty"`
	Time          string  `json:"time,omitempty"`

	Tenant     *string `json:"tenant,omitempty"`
	User       *string `json:"user,omitempty"`
	Thread     *string `json:"thread,omitempty"`
	Namespace  *string `json:"namespace,omitempty"`
	Checkpoint *string `json:"checkpoint,omitempty"`
}

// json returns the description for a plugin. The description of an element contains nothing that
// changes from checkpoint to checkpoint.
func (m *metas) json(r *chainRun, it *hook.Item, element, identity bool) []byte {
	n := 0
	if element {
		n++
	}
	if identity {
		n += 2
	}
	if m.made[n] != nil {
		return m.made[n]
	}
	p := &r.call.Place
	meta := metaJSON{ABI: plugins.ABI, Stage: r.chain.stage.String(), Kind: it.Kind.String(), Name: it.Name, Type: payloadType(it)}
	if it.Kind == hook.Label {
		meta.Name = "" // it is in the payload, and another hook may have changed it
	}
	if !element {
		meta.Step, meta.Status, meta.SchemaVersion = &p.Step, &p.Status, &p.SchemaVersion
		meta.Time = p.Time.UTC().Format(time.RFC3339Nano)
	}
	if identity {
		meta.Tenant, meta.User, meta.Thread, meta.Namespace = &p.Tenant, &p.User, &p.Thread, &p.Namespace
		if !element {
			meta.Checkpoint = &p.Checkpoint
		}
	}
	m.made[n], _ = json.Marshal(meta) // strings and numbers always marshal
	return m.made[n]
}
