// Command summary is a plugin that keeps long tool outputs out of the state of an agent. It stores
// the output in a blob; the message keeps the beginning and the end, the SHA-256 and the blob's id.
// The state stays small even if it carries every page that the agent ever read, and nothing is
// lost.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"unicode/utf8"

	"github.com/ckptd/ckptd/plugins/pdk"
	"github.com/ckptd/ckptd/plugins/pdk/scan"
)

// limits define which outputs are long and how much of them to keep. They are set once, before the
// first call.
var limits = struct{ longest, head, tail int }{longest: 8192, head: 600, tail: 200}

//go:wasmexport ckptd_configure
func configure() int32 {
	return pdk.Configure(func(config []byte) error {
		for key, v := range scan.Members(config) {
			n, err := strconv.Atoi(string(v))
			switch string(key) {
			case `"longest"`:
				limits.longest = n
			case `"head"`:
				limits.head = n
			case `"tail"`:
				limits.tail = n
			}
			if err != nil || n < 0 {
				return pdk.Fail(16, "a limit is not a number of bytes")
			}
		}
		if limits.longest < limits.head+limits.tail+overhead {
			return pdk.Fail(17, "longest is too small for what stays of an output")
		}
		return nil
	})
}

// overhead is more than a summary adds to its head and tail. Shorter outputs would become longer,
// and a summary would be summarized again.
const overhead = 512

//go:wasmexport on_pre_save
func onPreSave() int32 {
	return pdk.Run(func(in *pdk.Input) ([]byte, error) {
		s := summariser{text: in.Payload}
		if err := s.value(in.Payload, 0); err != nil || s.out == nil {
			return nil, err
		}
		return append(s.out, in.Payload[s.copied:]...), nil
	})
}

func main() {}

// summariser copies JSON text and replaces strings in it.
type summariser struct {
	text, out []byte
	copied    int // length of the part of text that is already in out
}

// deepest is the maximum depth at which to look for messages: in a list, in a list of a member, and
// in the parts of a message.
const deepest = 6

// value replaces long outputs in the messages of a value.
func (s *summariser) value(v []byte, depth int) error {
	v, _ = scan.Value(v)
	if len(v) <= limits.longest || depth > deepest {
		return nil
	}
	if v[0] == '[' {
		for e := range scan.Elements(v) {
			if err := s.value(e, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	tool := isTool(v)
	for key, m := range scan.Members(v) {
		var err error
		switch {
		case !tool || string(key) != `"content"` || m[0] != '"':
			err = s.value(m, depth+1)
		case len(m) > limits.longest:
			err = s.replace(m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isTool reports whether an object is a tool's output in one of the common message formats.
func isTool(object []byte) bool {
	switch string(scan.Member(object, "role")) {
	case `"tool"`, `"function"`:
		return true
	}
	switch string(scan.Member(object, "type")) {
	case `"tool"`, `"tool_result"`, `"function_call_output"`:
		return true
	}
	return false
}

// replace stores a string in a blob and puts its summary in its place.
func (s *summariser) replace(quoted []byte) error {
	said, ok := scan.Unquote(quoted)
	if !ok || len(said) <= limits.longest {
		return nil
	}
	id, err := pdk.PutBlob(said)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(said)
	head, tail := cut(said)
	var b []byte
	b = append(b, head...)
	b = append(b, "\n[… "+strconv.Itoa(len(said)-len(head)-len(tail))+" of "+strconv.Itoa(len(said))+" bytes are in blob "+
		id.String()+", SHA-256 "+hex.EncodeToString(sum[:])+" …]\n"...)
	b = append(b, tail...)
	at := scan.Offset(s.text, quoted)
	s.out = append(s.out, s.text[s.copied:at]...)
	s.out = scan.AppendQuote(s.out, b)
	s.copied = at + len(quoted)
	return nil
}

// cut returns the beginning and the end of a text, without splitting a character.
func cut(text []byte) (head, tail []byte) {
	h, t := limits.head, len(text)-limits.tail
	for h > 0 && !utf8.RuneStart(text[h]) {
		h--
	}
	for t < len(text) && !utf8.RuneStart(text[t]) {
		t++
	}
	return text[:h], text[t:]
}
