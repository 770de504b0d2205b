package migrate

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// State is a whole state in the form in which its owner sees it: the contents of a checkpoint.
type State struct {
	Channels []Channel
	Meta     []byte // JSON, nil for none
	Labels   map[string]string
}

// Channel is a named part of a state. Data is not modified and may be shared.
type Channel struct {
	Name, Type string // Type is "json", "msgpack", or any other, which steps do not look into
	Data       []byte
}

// Document is a state in the form in which steps see it, a JSON object:
//
//	{"channels": {"messages": […], "avatar": {"$channel": "avatar"}},
//	 "types": {"messages": "json", "avatar": "bytes"}, "meta": {…}, "labels": {"env": "prod"}}
//
// A channel of type json appears as its value. One of type msgpack is decoded (see msgpack.go for
// the mapping). For any other type a step sees a token in place of the bytes, which it can rename
// or remove. Meta and labels are present if the state has them. A channel added by a step has type
// json unless the step sets another in types; a renamed channel keeps its type.
type Document struct {
	value   any
	steps   int      // weight of value, if a step returned it
	sources []source // decoded channels, in the order of the state
	meta    *node
	state   State
	// origin maps the name of each channel in value to the channel of the state that it was; a
	// renamed channel is under its new name.
	origin map[string]int
}

// source is a channel with its decoded value.
type source struct {
	Channel
	root *node // nil if steps do not look into its type
}

const tagChannel = "$channel"

// Open decodes a state. If a channel does not match its type, the error names it.
func Open(s State) (*Document, error) {
	d := &Document{state: s, origin: map[string]int{}}
	channels, types := map[string]any{}, map[string]any{}
	for i, ch := range s.Channels {
		src := source{Channel: ch}
		var err error
		switch ch.Type {
		case "json":
			src.root, err = parseJSON(ch.Data)
		case "msgpack":
			src.root, err = parseMsgpack(ch.Data)
		}
		if err != nil {
			return nil, &StepError{Path: "/channels/" + escapePointer(ch.Name), Reason: err.Error(), Err: err}
		}
		channels[ch.Name] = any(map[string]any{tagChannel: ch.Name})
		if src.root != nil {
			channels[ch.Name] = src.root.value
		}
		types[ch.Name] = ch.Type
		d.sources = append(d.sources, src)
		d.origin[ch.Name] = i
	}
	doc := map[string]any{"channels": channels, "types": types}
	if s.Meta != nil {
		var err error
		if d.meta, err = parseJSON(s.Meta); err != nil {
			return nil, &StepError{Path: "/meta", Reason: err.Error(), Err: err}
		}
		doc["meta"] = d.meta.value
	}
	if s.Labels != nil {
		labels := map[string]any{}
		for k, v := range s.Labels {
			labels[k] = v
		}
		doc["labels"] = labels
	}
	d.value = doc
	return d, nil
}

// OpenJSON creates a document from its JSON, as used in fixtures. Its channels are of type json
// unless its types say otherwise.
func OpenJSON(data []byte) (*Document, error) {
	n, err := parseJSON(data)
	if err != nil {
		return nil, err
	}
	d := &Document{value: n.value, origin: map[string]int{}}
	if err := d.check(); err != nil {
		return nil, err
	}
	d.setTypes()
	return d, nil
}

// JSON returns the document in canonical order: members sorted by name.
func (d *Document) JSON() ([]byte, error) { return new(comparer).appendJSON(nil, nil, nil, d.value) }

// Equal reports whether two documents hold the same values.
func (d *Document) Equal(other *Document) bool { return equal(d.value, other.value) }

// parts returns the members of a document.
func (d *Document) parts() (channels, types map[string]any, err error) {
	doc, ok := d.value.(map[string]any)
	if !ok {
		return nil, nil, &StepError{Reason: "the outcome is " + typeName(d.value) + ", not an object"}
	}
	channels, ok = doc["channels"].(map[string]any)
	if !ok {
		return nil, nil, &StepError{Path: "/channels", Reason: "it is " + typeName(doc["channels"]) + ", not an object with the channels"}
	}
	if types, ok = doc["types"].(map[string]any); !ok && doc["types"] != nil {
		return nil, nil, &StepError{Path: "/types", Reason: "it is " + typeName(doc["types"]) + ", not an object"}
	}
	return channels, types, nil
}

// Limits of the work spent comparing values to match up channels and to keep bytes: a base, plus
// more for a large state.
const (
	compareSteps = 1 << 22
	compareEach  = 16
)

// size returns the number of bytes in the state that the document was made from.
func (d *Document) size() int {
	n := len(d.state.Meta)
	for _, ch := range d.state.Channels {
		n += len(ch.Data)
	}
	return n
}

// check reports a document that cannot become a state.
func (d *Document) check() error {
	_, types, err := d.parts()
	if err != nil {
		return err
	}
	doc := d.value.(map[string]any)
	for _, k := range slices.Sorted(maps.Keys(doc)) {
		if !slices.Contains([]string{"channels", "types", "meta", "labels"}, k) {
			return &StepError{Path: "/" + escapePointer(k), Reason: "a document has only channels, types, meta and labels"}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		if _, ok := types[name].(string); !ok {
			return &StepError{Path: "/types/" + escapePointer(name), Reason: "it is " + typeName(types[name]) + ", not a string"}
		}
	}
	labels, ok := doc["labels"].(map[string]any)
	if !ok && doc["labels"] != nil {
		return &StepError{Path: "/labels", Reason: "it is " + typeName(doc["labels"]) + ", not an object"}
	}
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if _, ok := labels[k].(string); !ok {
			return &StepError{Path: "/labels/" + escapePointer(k), Reason: "it is " + typeName(labels[k]) + ", not a string"}
		}
	}
	return nil
}

// with returns the document after a step, whose result has the given weight. It tracks which
// channels are which.
func (d *Document) with(value any, steps int) (*Document, error) {
	next := &Document{value: value, steps: steps, sources: d.sources, meta: d.meta, state: d.state, origin: map[string]int{}}
	c := comparer{left: compareSteps + compareEach*steps}
	if err := next.check(); err != nil {
		return nil, err
	}
	before, _, _ := d.parts()
	after, _, _ := next.parts()
	for name, i := range d.origin {
		if _, ok := after[name]; ok {
			next.origin[name] = i
		}
	}
	var gone []string
	for _, old := range slices.Sorted(maps.Keys(before)) {
		_, known := d.origin[old]
		if _, still := after[old]; known && !still {
			gone = append(gone, old)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if _, ok := before[name]; ok {
			continue
		}
		for _, old := range gone {
			if c.equal(before[old], after[name]) {
				next.origin[name] = d.origin[old]
			}
		}
		if c.left < 0 {
			return nil, &StepError{Path: "/channels", Reason: "too many new channels: matching them to old ones takes too long"}
		}
	}
	next.setTypes()
	return next, nil
}

// setTypes makes types list exactly the channels. It does not modify the value that a step
// returned.
func (d *Document) setTypes() {
	channels, given, _ := d.parts()
	types := map[string]any{}
	for name := range channels {
		i, known := d.origin[name]
		switch t, ok := given[name]; {
		case ok:
			types[name] = t
		case known:
			types[name] = d.sources[i].Type
		default:
			types[name] = "json"
		}
	}
	doc := maps.Clone(d.value.(map[string]any))
	doc["types"] = types
	d.value = doc
}

// State encodes the document. Unchanged parts keep, and share, their original bytes.
func (d *Document) State() (State, error) {
	channels, types, err := d.parts()
	if err != nil {
		return State{}, err
	}
	var s State
	c := &comparer{left: compareSteps + compareEach*d.steps}
	for _, name := range slices.Sorted(maps.Keys(channels)) {
		ch, err := d.channel(c, name, channels[name], types)
		if err != nil {
			return State{}, &StepError{Path: "/channels/" + escapePointer(name), Reason: err.Error(), Err: err}
		}
		s.Channels = append(s.Channels, ch)
	}
	doc := d.value.(map[string]any)
	if meta, ok := doc["meta"]; ok {
		if s.Meta, err = c.appendJSON(nil, d.state.Meta, d.meta, meta); err != nil {
			return State{}, &StepError{Path: "/meta", Reason: err.Error(), Err: err}
		}
	}
	if labels, ok := doc["labels"].(map[string]any); ok {
		s.Labels = map[string]string{}
		for k, v := range labels {
			s.Labels[k] = v.(string)
		}
	}
	return s, nil
}

func (d *Document) channel(c *comparer, name string, value any, types map[string]any) (Channel, error) {
	var src source
	if i, known := d.origin[name]; known {
		src = d.sources[i]
	}
	ch := Channel{Name: name, Type: types[name].(string)}
	var root *node
	if ch.Type == src.Type {
		root = src.root
	}
	var err error
	switch ch.Type {
	case "json":
		ch.Data, err = c.appendJSON(nil, src.Data, root, value)
	case "msgpack":
		ch.Data, err = c.appendMsgpack(nil, src.Data, root, value, 0)
	default:
		ch.Data, err = d.opaque(value)
	}
	return ch, err
}

// opaque returns the bytes that a token represents.
func (d *Document) opaque(value any) ([]byte, error) {
	m, _ := value.(map[string]any)
	name, ok := m[tagChannel].(string)
	for _, src := range d.sources {
		if ok && len(m) == 1 && src.Name == name && src.root == nil {
			return src.Data, nil
		}
	}
	return nil, fmt.Errorf(`a step can write only channels of type json and msgpack: refer to another channel as {%q: NAME}`, tagChannel)
}

func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case []any:
		return "an array"
	case map[string]any:
		return "an object"
	case json.Number, int, float64:
		return "a number"
	}
	return fmt.Sprintf("a %T", v)
}
