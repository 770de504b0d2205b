package migrate

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ckptd/ckptd/internal/spans"
)

// Steps see msgpack values that JSON does not have as objects with one of these members:
//
//	{"$bin": "base64"}                 binary
//	{"$float": "NaN"}                  NaN, Infinity and -Infinity
//	{"$map": [[key, value], …]}        a map with keys that are not all different strings, or that looks like one of these
//	{"$ext": 5, "$bin": "base64"}      an extension
//	{"$ext": 5, "value": …}            an extension whose payload is itself a msgpack array or map
const (
	tagBin   = "$bin"
	tagFloat = "$float"
	tagMap   = "$map"
	tagExt   = "$ext"
	tagValue = "value"
)

// maxDepth bounds the nesting of decoded and encoded values, like the limit in encoding/json.
const maxDepth = 10_000

var errCut = errors.New("it ends within a value")

// parseMsgpack decodes one msgpack value.
func parseMsgpack(data []byte) (*node, error) {
	p := msgpackParser{data: data}
	n, err := p.value(0)
	if err == nil && p.at != len(data) {
		err = fmt.Errorf("extra data after the value, at byte %d", p.at)
	}
	if err != nil {
		return nil, fmt.Errorf("invalid msgpack: %w", err)
	}
	return &n, nil
}

type msgpackParser struct {
	data []byte
	at   int
}

func (p *msgpackParser) value(depth int) (n node, err error) {
	if depth > maxDepth {
		return n, fmt.Errorf("nested deeper than %d", maxDepth)
	}
	h, ok := spans.Msgpack(p.data, p.at)
	if !ok && p.at < len(p.data) && p.data[p.at] == 0xc1 {
		return n, fmt.Errorf("no value begins with byte %#x", p.data[p.at])
	}
	if !ok {
		return n, errCut
	}
	n.start, p.at = p.at, h.Start
	switch h.Kind {
	case spans.Array:
		err = p.array(&n, h.Size, depth)
	case spans.Map:
		err = p.mapping(&n, h.Size, depth)
	default:
		p.at = h.End()
		n.value = p.scalar(h)
		if h.Kind == spans.Ext {
			n.value, n.kids = p.ext(h, depth)
		}
	}
	n.end = p.at
	return n, err
}

// scalar returns the value of anything that holds no other values.
func (p *msgpackParser) scalar(h spans.Head) any {
	content := p.data[h.Start:h.End()]
	switch h.Kind {
	case spans.Bool:
		return content[0] == 0xc3
	case spans.Int:
		return number(h.Int(p.data))
	case spans.Uint:
		return json.Number(strconv.FormatUint(h.Bits(p.data), 10))
	case spans.Float:
		if h.Size == 4 {
			return float(float64(math.Float32frombits(uint32(h.Bits(p.data)))), true)
		}
		return float(math.Float64frombits(h.Bits(p.data)), false)
	case spans.String:
		if utf8.Valid(content) {
			return string(content)
		}
		return binary64(content) // written by Python 2
	case spans.Binary:
		return binary64(content)
	}
	return nil
}

func binary64(b []byte) any {
	return map[string]any{tagBin: base64.StdEncoding.EncodeToString(b)}
}

func number(i int64) json.Number { return json.Number(strconv.FormatInt(i, 10)) }

// float returns a number with a point or an exponent, so that it is encoded as a float again.
func float(f float64, single bool) any {
	switch {
	case math.IsNaN(f):
		return map[string]any{tagFloat: "NaN"}
	case math.IsInf(f, 1):
		return map[string]any{tagFloat: "Infinity"}
	case math.IsInf(f, -1):
		return map[string]any{tagFloat: "-Infinity"}
	}
	bits := 64
	if single {
		bits = 32
	}
	text := strconv.FormatFloat(f, 'g', -1, bits)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return json.Number(text)
}

func (p *msgpackParser) array(n *node, l, depth int) error {
	s := []any{}
	for range l {
		v, err := p.value(depth + 1)
		if err != nil {
			return err
		}
		s = append(s, v.value)
		n.kids = append(n.kids, kid{keyStart: v.start, node: v})
	}
	n.value = s
	return nil
}

func (p *msgpackParser) mapping(n *node, l, depth int) error {
	m, pairs, plain := map[string]any{}, []any{}, true
	for range l {
		key, err := p.value(depth + 1)
		if err != nil {
			return err
		}
		v, err := p.value(depth + 1)
		if err != nil {
			return err
		}
		name, ok := key.value.(string)
		_, twice := m[name]
		plain = plain && ok && !twice
		m[name] = v.value
		pairs = append(pairs, []any{key.value, v.value})
		n.kids = append(n.kids, kid{key: name, keyStart: key.start, node: v})
	}
	if n.value = m; !plain || isTagged(m) {
		n.value, n.kids = map[string]any{tagMap: pairs}, nil
	}
	return nil
}

// ext reads an extension. Some serializers, including LangGraph's, use payloads that are themselves
// msgpack.
func (p *msgpackParser) ext(h spans.Head, depth int) (value any, kids []kid) {
	m := map[string]any{tagExt: number(int64(int8(h.Code)))}
	if inner, _ := spans.Msgpack(p.data[:h.End()], h.Start); inner.Kind == spans.Array || inner.Kind == spans.Map {
		in := msgpackParser{data: p.data[:h.End()], at: h.Start}
		if v, err := in.value(depth + 1); err == nil && in.at == h.End() {
			m[tagValue] = v.value
			return m, []kid{{key: tagValue, keyStart: h.Start, node: v}}
		}
	}
	m[tagBin] = base64.StdEncoding.EncodeToString(p.data[h.Start:h.End()])
	return m, nil
}

// appendMsgpack appends the encoding of v. If v equals the value of n, it copies n's bytes from
// src.
func (c *comparer) appendMsgpack(dst, src []byte, n *node, v any, depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested deeper than %d", maxDepth)
	}
	if n != nil && c.equal(n.value, v) {
		return append(dst, src[n.start:n.end]...), nil
	}
	switch v := v.(type) {
	case nil:
		return append(dst, 0xc0), nil
	case bool:
		if v {
			return append(dst, 0xc3), nil
		}
		return append(dst, 0xc2), nil
	case string:
		return append(spans.AppendHead(dst, spans.String, len(v), 0), v...), nil
	case []any:
		return c.appendMsgpackArray(dst, src, n, v, depth)
	case map[string]any:
		if out, ok, err := c.appendTagged(dst, src, n, v, depth); ok || err != nil {
			return out, err
		}
		return c.appendMsgpackMap(dst, src, n, v, depth)
	}
	return appendMsgpackNumber(dst, v)
}

func (c *comparer) appendMsgpackArray(dst, src []byte, n *node, v []any, depth int) (_ []byte, err error) {
	var kids []kid
	if n != nil {
		if _, ok := n.value.([]any); ok {
			kids = n.kids
		}
	}
	dst = spans.AppendHead(dst, spans.Array, len(v), 0)
	for i, old := range c.align(kids, v) {
		if dst, err = c.appendMsgpack(dst, src, old, v[i], depth+1); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

func (c *comparer) appendMsgpackMap(dst, src []byte, n *node, v map[string]any, depth int) (_ []byte, err error) {
	var kids []kid
	if n != nil {
		if m, ok := n.value.(map[string]any); ok && m[tagExt] == nil {
			kids = n.kids
		}
	}
	dst = spans.AppendHead(dst, spans.Map, len(v), 0)
	had := 0
	for i := range kids {
		k := &kids[i]
		w, ok := v[k.key]
		if !ok {
			continue
		}
		had++
		dst = append(dst, src[k.keyStart:k.start]...)
		if dst, err = c.appendMsgpack(dst, src, &k.node, w, depth+1); err != nil {
			return nil, err
		}
	}
	for _, key := range added(kids, v, len(v)-had) {
		dst = append(spans.AppendHead(dst, spans.String, len(key), 0), key...)
		if dst, err = c.appendMsgpack(dst, src, c.moved(kids, v, v[key]), v[key], depth+1); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// isTagged reports whether appendTagged would mistake an ordinary map for a tagged object.
func isTagged(m map[string]any) bool {
	return len(m) == 1 && (m[tagBin] != nil || m[tagFloat] != nil || m[tagMap] != nil) || len(m) == 2 && m[tagExt] != nil
}

// appendTagged appends the value that a tagged object represents. It is not ok if v is an ordinary
// map.
func (c *comparer) appendTagged(dst, src []byte, n *node, v map[string]any, depth int) (_ []byte, ok bool, err error) {
	switch {
	case len(v) == 1 && v[tagBin] != nil:
		b, err := decodeBin(v[tagBin])
		return append(spans.AppendHead(dst, spans.Binary, len(b), 0), b...), true, err
	case len(v) == 1 && v[tagFloat] != nil:
		f, err := strconv.ParseFloat(fmt.Sprint(v[tagFloat]), 64)
		return binary.BigEndian.AppendUint64(append(dst, 0xcb), math.Float64bits(f)), true, err
	case len(v) == 1 && v[tagMap] != nil:
		dst, err = c.appendPairs(dst, v[tagMap], depth)
		return dst, true, err
	case len(v) == 2 && v[tagExt] != nil:
		dst, err = c.appendExt(dst, src, n, v, depth)
		return dst, true, err
	}
	return nil, false, nil
}

func decodeBin(v any) ([]byte, error) {
	text, _ := v.(string)
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("%s: not base64", tagBin)
	}
	return b, nil
}

func (c *comparer) appendPairs(dst []byte, v any, depth int) (_ []byte, err error) {
	pairs, ok := v.([]any)
	dst = spans.AppendHead(dst, spans.Map, len(pairs), 0)
	for _, p := range pairs {
		pair, isPair := p.([]any)
		if ok = ok && isPair && len(pair) == 2; !ok {
			break
		}
		for _, w := range pair {
			if dst, err = c.appendMsgpack(dst, nil, nil, w, depth+1); err != nil {
				return nil, err
			}
		}
	}
	if !ok {
		return nil, fmt.Errorf("%s: not a list of pairs", tagMap)
	}
	return dst, nil
}

func (c *comparer) appendExt(dst, src []byte, n *node, v map[string]any, depth int) ([]byte, error) {
	text, _ := literal(v[tagExt])
	code, err := strconv.ParseInt(text, 10, 8)
	if err != nil {
		return nil, fmt.Errorf("%s: %s is not an extension code (-128 to 127)", tagExt, text)
	}
	var payload []byte
	if inner, ok := v[tagValue]; ok {
		var old *node
		if n != nil {
			if m, ok := n.value.(map[string]any); ok && m[tagExt] != nil {
				old = n.at(tagValue)
			}
		}
		payload, err = c.appendMsgpack(nil, src, old, inner, depth+1)
	} else {
		payload, err = decodeBin(v[tagBin])
	}
	if err != nil {
		return nil, err
	}
	return append(spans.AppendHead(dst, spans.Ext, len(payload), byte(code)), payload...), nil
}

// appendMsgpackNumber appends an integer in its shortest form, and any other number as a float64.
func appendMsgpackNumber(dst []byte, v any) ([]byte, error) {
	text, ok := literal(v)
	if !ok {
		return nil, fmt.Errorf("%v (%T) is not a JSON value", v, v)
	}
	if _, isFloat := v.(float64); !isFloat && !strings.ContainsAny(text, ".eE") {
		i, ok := new(big.Int).SetString(text, 10)
		switch {
		case ok && i.IsUint64():
			return appendUint(dst, i.Uint64()), nil
		case ok && i.IsInt64():
			return appendInt(dst, i.Int64()), nil
		}
		return nil, fmt.Errorf("%s does not fit into 64 bits", text)
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, fmt.Errorf("%s does not fit into a float64", text)
	}
	return binary.BigEndian.AppendUint64(append(dst, 0xcb), math.Float64bits(f)), nil
}

func appendUint(dst []byte, v uint64) []byte {
	switch {
	case v <= 0x7f:
		return append(dst, byte(v))
	case v <= math.MaxUint8:
		return append(dst, 0xcc, byte(v))
	case v <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, 0xcd), uint16(v))
	case v <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(dst, 0xce), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0xcf), v)
}

func appendInt(dst []byte, v int64) []byte {
	switch {
	case v >= -32:
		return append(dst, byte(v))
	case v >= math.MinInt8:
		return append(dst, 0xd0, byte(v))
	case v >= math.MinInt16:
		return binary.BigEndian.AppendUint16(append(dst, 0xd1), uint16(v))
	case v >= math.MinInt32:
		return binary.BigEndian.AppendUint32(append(dst, 0xd2), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0xd3), uint64(v))
}
