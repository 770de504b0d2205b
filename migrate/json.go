package migrate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ckptd/ckptd/internal/spans"
)

func itoa(i int) string { return strconv.Itoa(i) }

// escapePointer returns a token of a JSON pointer (RFC 6901).
func escapePointer(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }

// parseJSON decodes one JSON text in UTF-8 without duplicate names (RFC 8259, RFC 7493).
func parseJSON(data []byte) (*node, error) {
	p := jsonParser{d: jsontext.NewDecoder(bytes.NewBuffer(data)), data: data}
	n, err := p.value()
	if err != nil {
		return nil, fmt.Errorf("invalid JSON: %w", err)
	}
	if _, err := p.d.ReadToken(); err != io.EOF {
		return nil, fmt.Errorf("invalid JSON: extra data after the value, at byte %d", p.d.InputOffset())
	}
	return &n, nil
}

type jsonParser struct {
	d    *jsontext.Decoder
	data []byte
}

// skip returns the offset of the next token at or after i.
func (p *jsonParser) skip(i int) int {
	for i < len(p.data) && strings.IndexByte(" \t\r\n,:", p.data[i]) >= 0 {
		i++
	}
	return i
}

func (p *jsonParser) value() (n node, err error) {
	n.start = p.skip(int(p.d.InputOffset()))
	tok, err := p.d.ReadToken()
	if err != nil {
		return n, err
	}
	switch tok.Kind() {
	case '{':
		err = p.object(&n)
	case '[':
		err = p.array(&n)
	case '"':
		n.value = tok.String()
	case '0':
		n.value = json.Number(tok.String())
	case 't', 'f':
		n.value = tok.Bool()
	}
	n.end = int(p.d.InputOffset())
	return n, err
}

func (p *jsonParser) object(n *node) error {
	m := map[string]any{}
	n.value = m
	for p.d.PeekKind() != '}' {
		k := kid{keyStart: p.skip(int(p.d.InputOffset()))}
		tok, err := p.d.ReadToken()
		if err != nil {
			return err
		}
		k.key = tok.String()
		if k.node, err = p.value(); err != nil {
			return err
		}
		m[k.key] = k.value
		n.kids = append(n.kids, k)
	}
	_, err := p.d.ReadToken()
	return err
}

func (p *jsonParser) array(n *node) error {
	s := []any{}
	for p.d.PeekKind() != ']' {
		v, err := p.value()
		if err != nil {
			return err
		}
		s = append(s, v.value)
		n.kids = append(n.kids, kid{keyStart: v.start, node: v})
	}
	n.value = s
	_, err := p.d.ReadToken()
	return err
}

// appendJSON appends the text of v. If v equals the value of n, it copies n's text from src.
// Changed objects keep their order and spacing. n is nil if there is nothing to keep.
func (c *comparer) appendJSON(dst, src []byte, n *node, v any) ([]byte, error) {
	if n != nil && c.equal(n.value, v) {
		return append(dst, src[n.start:n.end]...), nil
	}
	switch v := v.(type) {
	case map[string]any:
		if n != nil && (len(n.kids) == 0 || src[n.start] != '{') {
			n = nil
		}
		return c.appendObject(dst, src, n, v)
	case []any:
		if n != nil && (len(n.kids) == 0 || src[n.start] != '[') {
			n = nil
		}
		return c.appendArray(dst, src, n, v)
	}
	return appendScalar(dst, v)
}

func appendScalar(dst []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...), nil
	case bool:
		return strconv.AppendBool(dst, v), nil
	case string:
		return jsontext.AppendQuote(dst, v)
	}
	text, ok := literal(v)
	if !ok || !json.Valid([]byte(text)) {
		return nil, fmt.Errorf("%v (%T) is not a JSON value", v, v)
	}
	return append(dst, text...), nil
}

// spacing is the white space around the parts of an object or array, as in the original.
type spacing struct{ open, comma, colon, shut string }

// style returns the spacing of n, judging by its first children; it must have some.
func (n *node) style(src []byte) spacing {
	first, last := &n.kids[0], &n.kids[len(n.kids)-1]
	s := spacing{open: string(src[n.start:first.keyStart]), comma: ",", shut: string(src[last.end:n.end])}
	if len(n.kids) > 1 {
		s.comma = string(src[first.end:n.kids[1].keyStart])
	}
	if src[n.start] == '{' {
		quote, _ := spans.StringEnd(src, first.keyStart+1)
		s.colon = string(src[quote+1 : first.start])
	}
	return s
}

func (c *comparer) appendObject(dst, src []byte, n *node, v map[string]any) ([]byte, error) {
	style := spacing{"{", ",", ":", "}"}
	var kids []kid
	if n != nil {
		style, kids = n.style(src), n.kids
	}
	if len(v) == 0 {
		return append(dst, "{}"...), nil
	}
	var err error
	dst = append(dst, style.open...)
	had := 0
	for i := range kids {
		k := &kids[i]
		w, ok := v[k.key]
		if !ok {
			continue
		}
		if had > 0 {
			dst = append(dst, style.comma...)
		}
		had++
		dst = append(dst, src[k.keyStart:k.start]...)
		if dst, err = c.appendJSON(dst, src, &k.node, w); err != nil {
			return nil, err
		}
	}
	for i, key := range added(kids, v, len(v)-had) {
		if had+i > 0 {
			dst = append(dst, style.comma...)
		}
		if dst, err = jsontext.AppendQuote(dst, key); err != nil {
			return nil, err
		}
		dst = append(dst, style.colon...)
		if dst, err = c.appendJSON(dst, src, c.moved(kids, v, v[key]), v[key]); err != nil {
			return nil, err
		}
	}
	return append(dst, style.shut...), nil
}

// added returns the names in v that are in none of kids, sorted; there are n of them.
func added(kids []kid, v map[string]any, n int) []string {
	if n == 0 {
		return nil
	}
	had := make(map[string]bool, len(kids))
	for i := range kids {
		had[kids[i].key] = true
	}
	names := make([]string, 0, n)
	for name := range v {
		if !had[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// moved finds a member with the same value whose name is gone from v: it was renamed, and its text
// can be kept.
func (c *comparer) moved(kids []kid, v map[string]any, value any) *node {
	for i := range kids {
		if c.left--; c.left < 0 {
			return nil
		}
		if _, still := v[kids[i].key]; !still && c.equal(kids[i].value, value) {
			return &kids[i].node
		}
	}
	return nil
}

func (c *comparer) appendArray(dst, src []byte, n *node, v []any) ([]byte, error) {
	if len(v) == 0 {
		return append(dst, "[]"...), nil
	}
	style := spacing{open: "[", comma: ",", shut: "]"}
	var kids []kid
	if n != nil {
		style, kids = n.style(src), n.kids
	}
	var err error
	dst = append(dst, style.open...)
	for i, old := range c.align(kids, v) {
		if i > 0 {
			dst = append(dst, style.comma...)
		}
		if dst, err = c.appendJSON(dst, src, old, v[i]); err != nil {
			return nil, err
		}
	}
	return append(dst, style.shut...), nil
}

// align finds the original of every element of v: equal elements from both ends, and in between
// those at the same index. Nil means none.
func (c *comparer) align(kids []kid, v []any) []*node {
	from := make([]*node, len(v))
	most := min(len(kids), len(v))
	front := 0
	for front < most && c.equal(kids[front].value, v[front]) {
		from[front] = &kids[front].node
		front++
	}
	back := 0
	for back < most-front && c.equal(kids[len(kids)-1-back].value, v[len(v)-1-back]) {
		from[len(v)-1-back] = &kids[len(kids)-1-back].node
		back++
	}
	for i := front; i < most-back; i++ {
		from[i] = &kids[i].node
	}
	return from
}
