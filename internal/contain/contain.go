// Package contain decides whether a JSON document contains another one, as the operator @> of
// PostgreSQL's jsonb does: an object contains one with some of its keys, whose values it contains;
// an array contains one whose elements it has or contains, in any order; scalars contain their
// equals. Of a key that is given twice the last value counts, and numbers are compared by value.
package contain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// MaxSteps bounds the work of one In: arrays in arrays are compared each with each.
const MaxSteps = 1 << 20

// ErrSteps is the error of an In that would take more than MaxSteps.
var ErrSteps = fmt.Errorf("the comparison takes more than %d steps", MaxSteps)

// Object is a JSON object to look for.
type Object struct{ doc document }

// Parse returns the object in some JSON.
func Parse(text []byte) (*Object, error) {
	if !json.Valid(text) || !utf8.Valid(text) {
		return nil, errors.New("not valid JSON")
	}
	o := &Object{parse(text)}
	if o.doc.nodes[0].kind != '{' {
		return nil, errors.New("not a JSON object")
	}
	return o, nil
}

// Memory is how many bytes In takes besides a document itself.
func Memory(doc []byte) int64 { return int64(most(doc)) * nodeBytes }

// In reports whether a document contains the object. One that is not valid JSON contains nothing.
func (o *Object) In(doc []byte) (bool, error) {
	if !json.Valid(doc) {
		return false, nil
	}
	d := parse(doc)
	c := comparison{in: &d, of: &o.doc, left: MaxSteps}
	yes := c.contains(0, 0)
	if c.left < 0 {
		return false, ErrSteps
	}
	return yes, nil
}

// document is a JSON document and its values, in the order in which they begin.
type document struct {
	text  []byte
	nodes []node
}

// node is a value or the key of one. A key comes before its value, and a container before its
// content.
type node struct {
	start, end uint32 // in the text
	next       uint32 // the node after this one and its content
	kind       byte   // the first byte of the value; '0' for any number
	escaped    bool   // a string with a backslash
}

const nodeBytes = 16

// most is an upper bound of the number of nodes of a document.
func most(text []byte) int {
	n := 1
	for _, sep := range []string{",", ":", "[", "{"} {
		n += bytes.Count(text, []byte(sep))
	}
	return n
}

// parse makes a document of valid JSON.
func parse(text []byte) document {
	d := document{text, make([]node, 0, most(text))}
	var open []int // containers that are open
	for i := 0; i < len(text); i++ {
		n := node{start: uint32(i), kind: text[i]}
		switch text[i] {
		case ' ', '\t', '\r', '\n', ',', ':':
			continue
		case ']', '}':
			at := &d.nodes[open[len(open)-1]]
			open = open[:len(open)-1]
			at.end, at.next = uint32(i+1), uint32(len(d.nodes))
			continue
		case '[', '{':
			open = append(open, len(d.nodes))
		case '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					n.escaped = true
					i++
				}
			}
		case 't', 'n':
			i += len("true") - 1
		case 'f':
			i += len("false") - 1
		default:
			n.kind = '0'
			for i+1 < len(text) && bytes.IndexByte([]byte("+-.eE0123456789"), text[i+1]) >= 0 {
				i++
			}
		}
		n.end, n.next = uint32(i+1), uint32(len(d.nodes)+1)
		d.nodes = append(d.nodes, n)
	}
	return d
}

func (d *document) raw(at int) []byte { return d.text[d.nodes[at].start:d.nodes[at].end] }

// comparison looks for one document in another. It ends early when no steps are left.
type comparison struct {
	in, of *document
	left   int
}

// contains reports whether the value at node a of in contains the one at node b of of.
func (c *comparison) contains(a, b int) bool {
	kind := c.of.nodes[b].kind
	if c.left--; c.left < 0 || c.in.nodes[a].kind != kind {
		return false
	}
	switch kind {
	case '{':
		for key := b + 1; key < int(c.of.nodes[b].next); key = int(c.of.nodes[key+1].next) {
			if c.last(b, key) != key {
				continue // it is given again
			}
			value := c.value(a, key)
			if value == 0 || !c.contains(value, key+1) {
				return false
			}
		}
		return true
	case '[':
		for item := b + 1; item < int(c.of.nodes[b].next); item = int(c.of.nodes[item].next) {
			if !c.has(a, item) {
				return false
			}
		}
		return true
	}
	return c.equal(c.in, a, b)
}

// has reports whether the array at node a contains the item at node b.
func (c *comparison) has(a, b int) bool {
	for item := a + 1; item < int(c.in.nodes[a].next) && c.left >= 0; item = int(c.in.nodes[item].next) {
		if c.contains(item, b) {
			return true
		}
	}
	return false
}

// value finds the last value of a key, at node b, in the object at node a; 0 if there is none.
func (c *comparison) value(a, b int) (found int) {
	for key := a + 1; key < int(c.in.nodes[a].next) && c.left >= 0; key = int(c.in.nodes[key+1].next) {
		if c.left--; c.equal(c.in, key, b) {
			found = key + 1
		}
	}
	return found
}

// last finds the last key equal to that at node b in the object at node a of the document looked
// for.
func (c *comparison) last(a, b int) (found int) {
	found = b
	for key := int(c.of.nodes[b+1].next); key < int(c.of.nodes[a].next) && c.left >= 0; key = int(c.of.nodes[key+1].next) {
		if c.left--; c.equal(c.of, key, b) {
			found = key
		}
	}
	return found
}

// equal reports whether the scalar at node a of a document equals that at node b of of.
func (c *comparison) equal(in *document, a, b int) bool {
	x, y := in.raw(a), c.of.raw(b)
	switch n, m := &in.nodes[a], &c.of.nodes[b]; {
	case n.kind == '"' && (n.escaped || m.escaped):
		c.left -= (len(x) + len(y)) / 16
		return unquoted(x) == unquoted(y)
	case n.kind == '0' && !bytes.Equal(x, y):
		c.left -= (len(x) + len(y)) / 16
		return equalNumbers(x, y)
	}
	c.left -= min(len(x), len(y)) / 64
	return bytes.Equal(x, y)
}

func unquoted(b []byte) (s string) {
	_ = json.Unmarshal(b, &s) // it is valid
	return s
}
