package migrate

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// What msgpack has and JSON has not, steps see as objects with one of these members:
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

// maxDepth bounds the nesting of what is decoded and encoded, as it does in encoding/json.
const maxDepth = 10_000

var errCut = errors.New("it ends within a value")

// parseMsgpack decodes one msgpack value.
func parseMsgpack(data []byte) (*node, error) {
	p := msgpackParser{data: data}
	n, err := p.value(0)
	if err == nil && p.at != len(data) {
		err = fmt.Errorf("something follows the value, at byte %d", p.at)
	}
	if err != nil {
		return nil, fmt.Errorf("no valid msgpack: %w", err)
	}
	return &n, nil
}

type msgpackParser struct {
	data []byte
	at   int
}

func (p *msgpackParser) take(n uint64) ([]byte, error) {
	if n > uint64(len(p.data)-p.at) {
		return nil, errCut
	}
	b := p.data[p.at : p.at+int(n)]
	p.at += int(n)
	return b, nil
}

// uint reads a big-endian number of so many bytes.
func (p *msgpackParser) uint(size int) (v uint64, err error) {
	b, err := p.take(uint64(size))
	for _, c := range b {
		v = v<<8 | uint64(c)
	}
	return v, err
}

func (p *msgpackParser) value(depth int) (n node, err error) {
	if depth > maxDepth {
		return n, fmt.Errorf("nested deeper than %d", maxDepth)
	}
	n.start = p.at
	b, err := p.take(1)
	if err != nil {
		return n, err
	}
	switch c := b[0]; {
	case c <= 0x7f:
		n.value = number(int64(c))
	case c >= 0xe0:
		n.value = number(int64(int8(c)))
	case c <= 0x8f:
		err = p.mapping(&n, uint64(c&15), depth)
	case c <= 0x9f:
		err = p.array(&n, uint64(c&15), depth)
	case c <= 0xbf:
		n.value, err = p.str(uint64(c & 31))
	default:
		err = p.tagged(&n, c, depth)
	}
	n.end = p.at
	return n, err
}

// tagged reads what follows a first byte of 0xc0 to 0xdf.
func (p *msgpackParser) tagged(n *node, c byte, depth int) error {
	size := func(shift byte) (uint64, error) { return p.uint(1 << shift) }
	switch c {
	case 0xc0:
		return nil
	case 0xc2, 0xc3:
		n.value = c == 0xc3
		return nil
	case 0xc4, 0xc5, 0xc6:
		l, err := size(c - 0xc4)
		if err != nil {
			return err
		}
		b, err := p.take(l)
		n.value = map[string]any{tagBin: base64.StdEncoding.EncodeToString(b)}
		return err
	case 0xc7, 0xc8, 0xc9:
		l, err := size(c - 0xc7)
		if err != nil {
			return err
		}
		return p.ext(n, l, depth)
	case 0xca, 0xcb:
		bits, err := size(c - 0xca + 2)
		f := math.Float64frombits(bits)
		if c == 0xca {
			f = float64(math.Float32frombits(uint32(bits)))
		}
		n.value = float(f, c == 0xca)
		return err
	case 0xcc, 0xcd, 0xce, 0xcf:
		v, err := size(c - 0xcc)
		n.value = json.Number(strconv.FormatUint(v, 10))
		return err
	case 0xd0, 0xd1, 0xd2, 0xd3:
		v, err := size(c - 0xd0)
		shift := 64 - 8<<(c-0xd0)
		n.value = number(int64(v<<shift) >> shift)
		return err
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8:
		return p.ext(n, 1<<(c-0xd4), depth)
	case 0xd9, 0xda, 0xdb:
		l, err := size(c - 0xd9)
		if err == nil {
			n.value, err = p.str(l)
		}
		return err
	case 0xdc, 0xdd:
		l, err := size(c - 0xdc + 1)
		if err != nil {
			return err
		}
		return p.array(n, l, depth)
	case 0xde, 0xdf:
		l, err := size(c - 0xde + 1)
		if err != nil {
			return err
		}
		return p.mapping(n, l, depth)
	}
	return fmt.Errorf("byte %#x begins no value", c)
}

func number(i int64) json.Number { return json.Number(strconv.FormatInt(i, 10)) }

// float is a number with a point or an exponent, so that it is encoded as a float again.
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

// str reads a string. One that is not UTF-8, as Python 2 wrote them, is seen as binary.
func (p *msgpackParser) str(l uint64) (any, error) {
	b, err := p.take(l)
	if err == nil && !utf8.Valid(b) {
		return map[string]any{tagBin: base64.StdEncoding.EncodeToString(b)}, nil
	}
	return string(b), err
}

func (p *msgpackParser) array(n *node, l uint64, depth int) error {
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

func (p *msgpackParser) mapping(n *node, l uint64, depth int) error {
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

// ext reads an extension. The payloads of some serializers, LangGraph's among them, are msgpack themselves.
func (p *msgpackParser) ext(n *node, l uint64, depth int) error {
	code, err := p.take(1)
	if err != nil {
		return err
	}
	from := p.at
	payload, err := p.take(l)
	if err != nil {
		return err
	}
	m := map[string]any{tagExt: number(int64(int8(code[0])))}
	n.value = m
	inner := msgpackParser{data: p.data[:p.at], at: from}
	v, err := inner.value(depth + 1)
	if err == nil && inner.at == p.at && isContainer(payload[0]) {
		m[tagValue] = v.value
		n.kids = []kid{{key: tagValue, keyStart: from, node: v}}
		return nil
	}
	m[tagBin] = base64.StdEncoding.EncodeToString(payload)
	return nil
}

func isContainer(c byte) bool { return c >= 0x80 && c <= 0x9f || c >= 0xdc && c <= 0xdf }

// appendMsgpack appends the encoding of v. Where v is what n holds it is n's bytes in src.
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
		return append(appendHead(dst, len(v), 0xa0, 31, 0xd9, 0xda, 0xdb), v...), nil
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

// appendHead appends a length in its shortest form; 0 stands for a form that does not exist.
func appendHead(dst []byte, l int, fix byte, most int, one, two, four byte) []byte {
	switch {
	case l <= most:
		return append(dst, fix|byte(l))
	case l <= math.MaxUint8 && one != 0:
		return append(dst, one, byte(l))
	case l <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, two), uint16(l))
	}
	return binary.BigEndian.AppendUint32(append(dst, four), uint32(l))
}

func (c *comparer) appendMsgpackArray(dst, src []byte, n *node, v []any, depth int) (_ []byte, err error) {
	var kids []kid
	if n != nil {
		if _, ok := n.value.([]any); ok {
			kids = n.kids
		}
	}
	dst = appendHead(dst, len(v), 0x90, 15, 0, 0xdc, 0xdd)
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
	dst = appendHead(dst, len(v), 0x80, 15, 0, 0xde, 0xdf)
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
		dst = append(appendHead(dst, len(key), 0xa0, 31, 0xd9, 0xda, 0xdb), key...)
		if dst, err = c.appendMsgpack(dst, src, c.moved(kids, v, v[key]), v[key], depth+1); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// isTagged reports whether appendTagged would take an ordinary map for something else.
func isTagged(m map[string]any) bool {
	return len(m) == 1 && (m[tagBin] != nil || m[tagFloat] != nil || m[tagMap] != nil) || len(m) == 2 && m[tagExt] != nil
}

// appendTagged appends what an object with one of the tags stands for; not ok if v is an ordinary map.
func (c *comparer) appendTagged(dst, src []byte, n *node, v map[string]any, depth int) (_ []byte, ok bool, err error) {
	switch {
	case len(v) == 1 && v[tagBin] != nil:
		b, err := decodeBin(v[tagBin])
		return append(appendHead(dst, len(b), 0, -1, 0xc4, 0xc5, 0xc6), b...), true, err
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
		return nil, fmt.Errorf("%s: no base64", tagBin)
	}
	return b, nil
}

func (c *comparer) appendPairs(dst []byte, v any, depth int) (_ []byte, err error) {
	pairs, ok := v.([]any)
	dst = appendHead(dst, len(pairs), 0x80, 15, 0, 0xde, 0xdf)
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
		return nil, fmt.Errorf("%s: no list of pairs", tagMap)
	}
	return dst, nil
}

func (c *comparer) appendExt(dst, src []byte, n *node, v map[string]any, depth int) ([]byte, error) {
	text, _ := literal(v[tagExt])
	code, err := strconv.ParseInt(text, 10, 8)
	if err != nil {
		return nil, fmt.Errorf("%s: %s is no extension code (-128 to 127)", tagExt, text)
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
	switch l := len(payload); l {
	case 1, 2, 4, 8, 16:
		dst = append(dst, 0xd4+byte(slices.Index([]int{1, 2, 4, 8, 16}, l)))
	default:
		dst = appendHead(dst, l, 0, -1, 0xc7, 0xc8, 0xc9)
	}
	return append(append(dst, byte(code)), payload...), nil
}

// appendMsgpackNumber appends an integer as the shortest integer, and any other number as a float64.
func appendMsgpackNumber(dst []byte, v any) ([]byte, error) {
	text, ok := literal(v)
	if !ok {
		return nil, fmt.Errorf("%v (%T) is no JSON value", v, v)
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
