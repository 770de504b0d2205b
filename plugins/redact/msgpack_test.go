package redact

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/internal/spans"
)

func packArray(items ...[]byte) []byte {
	return append(spans.AppendHead(nil, spans.Array, len(items), 0), bytes.Join(items, nil)...)
}

func packMap(items ...[]byte) []byte {
	return append(spans.AppendHead(nil, spans.Map, len(items)/2, 0), bytes.Join(items, nil)...)
}

func packStr(s string) []byte { return packText(spans.String, []byte(s)) }

func packExt(code byte, content []byte) []byte {
	return append(spans.AppendHead(nil, spans.Ext, len(content), code), content...)
}

func TestMsgpack(t *testing.T) {
	card := binary.BigEndian.AppendUint64([]byte{0xcf}, 4111111111111111)
	for _, c := range []struct {
		name     string
		in, want []byte
	}{
		{"strings", packArray(packStr("to bob@example.org"), []byte{0x05}), packArray(packStr("to [REDACTED:email]"), []byte{0x05})},
		{"values of names", packMap(packStr("password"), packStr("hunter22x")), packMap(packStr("password"), packStr("[REDACTED:password]"))},
		{"names", packMap(packStr("bob@example.org"), []byte{1}, packStr("al@example.org"), []byte{2}),
			packMap(packStr("[REDACTED:email]"), []byte{1}, packStr("[REDACTED:email#2]"), []byte{2})},
		{"numbers", packMap(packStr("card"), card), packMap(packStr("card"), packStr("[REDACTED:card]"))},
		{"numbers of one byte", packMap(packStr("cvv"), []byte{123}), packMap(packStr("cvv"), packStr("[REDACTED:card-security-code]"))},
		{"signed numbers", packMap(packStr("cvv"), []byte{0xd1, 1, 0x43}), packMap(packStr("cvv"), packStr("[REDACTED:card-security-code]"))},
		{"negative numbers are kept", packMap(packStr("cvv"), []byte{0xd1, 0xfe, 0xbd}), packMap(packStr("cvv"), []byte{0xd1, 0xfe, 0xbd})},
		{"nested extensions", packExt(5, packArray(packStr("m"), packExt(2, packMap(packStr("content"), packStr("bob@example.org"))))),
			packExt(5, packArray(packStr("m"), packExt(2, packMap(packStr("content"), packStr("[REDACTED:email]")))))},
		{"strings in extensions", packExt(5, packStr("to bob@example.org")), packExt(5, packStr("to [REDACTED:email]"))},
		{"other extensions are kept", packExt(1, []byte("bob@example.org")), packExt(1, []byte("bob@example.org"))},
		{"binary text", packText(spans.Binary, []byte("bob@example.org")), packText(spans.Binary, []byte("[REDACTED:email]"))},
		{"binary msgpack", packText(spans.Binary, packArray(packStr("bob@example.org"))), packText(spans.Binary, packArray(packStr("[REDACTED:email]")))},
		{"JSON in strings", packStr(`{"a":"bob@example.org"}`), packStr(`{"a":"[REDACTED:email]"}`)},
		{"chunks", packArray(packStr("key ghp_0123456789abcdefghij"), packStr("ABCDEFGHIJKLMNOP."), packStr(" ok bob@example.org")),
			packArray(packStr("key [REDACTED:github-token]"), packStr("."), packStr(" ok [REDACTED:email]"))},
		{"long", packArray(packStr(strings.Repeat("x ", 40000) + "bob@example.org")), packArray(packStr(strings.Repeat("x ", 40000) + "[REDACTED:email]"))},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := redacted(t, Default(), Input{Type: "msgpack", Data: c.in})
			if !bytes.Equal(out.Data, c.want) {
				t.Errorf("got  %q\nwant %q", out.Data, c.want)
			}
		})
	}
}

func TestMsgpackDrop(t *testing.T) {
	r, err := New(Config{Actions: map[string]Action{"email": Drop}, Block: Block{Keys: []string{"ssn"}, Action: Drop}})
	if err != nil {
		t.Fatal(err)
	}
	in := packMap(packStr("a"), packStr("bob@example.org"), packStr("ssn"), packArray(), packStr("l"), packArray([]byte{1}, packStr("al@example.org"), []byte{2}))
	want := packMap(packStr("l"), packArray([]byte{1}, []byte{2}))
	if out := redacted(t, r, Input{Type: "msgpack", Data: in}); !bytes.Equal(out.Data, want) {
		t.Errorf("got  %q\nwant %q", out.Data, want)
	}
}

// Invalid msgpack cannot be redacted, so it is refused. That includes every proper prefix of a
// value.
func TestNotMsgpack(t *testing.T) {
	whole := packMap(packStr("bob@example.org"), packExt(5, packArray(packStr("bob@example.org"), []byte{0xcb, 1, 2, 3, 4, 5, 6, 7, 8})))
	for n := 1; n < len(whole); n++ {
		out, err := Default().Redact(t.Context(), Input{Type: "msgpack", Data: whole[:n]})
		if !errors.Is(err, hook.ErrRejected) || out.Data != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// JSON within a name, here {"alg":"HS256"}, is a separate walk: it does not change the current
// path.
func TestJSONInNames(t *testing.T) {
	r, err := New(Config{Block: Block{Keys: []string{"role"}}})
	if err != nil {
		t.Fatal(err)
	}
	const name, card = "eyJhbGciOiJIUzI1NiJ9 of a card", "[REDACTED:card]"
	number := binary.BigEndian.AppendUint64([]byte{0xcf}, 4111111111111111)
	for _, c := range []struct {
		typ      string
		in, want []byte
	}{
		{"json", []byte(`{"` + name + `":4111111111111111}`), []byte(`{"` + name + `":"` + card + `"}`)},
		{"json", []byte(`[{"role":"x","` + name + `":1}]`), []byte(`[{"role":"[REDACTED:blocked]","` + name + `":1}]`)},
		{"msgpack", packMap(packStr(name), number), packMap(packStr(name), packStr(card))},
		{"msgpack", packArray(packMap(packStr("role"), packStr("x"), packStr(name), []byte{1})),
			packArray(packMap(packStr("role"), packStr("[REDACTED:blocked]"), packStr(name), []byte{1}))},
	} {
		if out := redacted(t, r, Input{Type: c.typ, Data: c.in}); !bytes.Equal(out.Data, c.want) {
			t.Errorf("%q became %q, want %q", c.in, out.Data, c.want)
		}
	}
}
