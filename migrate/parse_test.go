package migrate

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzJSON checks that parsed JSON is written back byte for byte, and that its canonical form has
// the same meaning.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a": [1, 2.0, {"b": null}], "é": "\u0000"}`, ` [ ] `, `"\ud83d\ude00"`, `1e400`, `{"a":{},"b":[[]]}`, `{`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := parseJSON(data)
		if err != nil {
			return
		}
		if !json.Valid(data) {
			t.Fatalf("accepted %q", data)
		}
		same, err := (&comparer{left: 1 << 20}).appendJSON(nil, data, n, n.value)
		if err != nil || !bytes.Equal(same, data[n.start:n.end]) {
			t.Fatalf("%q became %q, %v", data, same, err)
		}
		fresh, err := new(comparer).appendJSON(nil, nil, nil, n.value)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseJSON(fresh)
		if err != nil || !equal(again.value, n.value) {
			t.Fatalf("%q became %q, %v", data, fresh, err)
		}
		if m, ok := n.value.(map[string]any); ok { // add a member, with everything else unchanged
			wider := map[string]any{"\x00new": true}
			for k, v := range m {
				wider[k] = v
			}
			out, err := (&comparer{left: 1 << 20}).appendJSON(nil, data, n, wider)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := parseJSON(out); err != nil || !equal(back.value, wider) {
				t.Fatalf("%q widened to %q, %v", data, out, err)
			}
		}
	})
}

// FuzzMsgpack is FuzzJSON for msgpack.
func FuzzMsgpack(f *testing.F) {
	for _, s := range []string{"\x82\xa1a\x01\xa1b\x93\xc0\xc2\xc3", "\xc7\x04\x02\x91\xa2hi", "\xca\x7f\xc0\x00\x00", "\x81\x01\x02", "\xd6\xff\x00\x00\x00\x01",
		"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", "\xd3\x80\x00\x00\x00\x00\x00\x00\x00", "\xdf\xff\xff\xff\xff", "\xa2\xff\xfe", "\x81\xa4$bin\xa1x"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := parseMsgpack(data)
		if err != nil {
			return
		}
		same, err := (&comparer{left: 1 << 20}).appendMsgpack(nil, data, n, n.value, 0)
		if err != nil || !bytes.Equal(same, data) {
			t.Fatalf("%q became %q, %v", data, same, err)
		}
		fresh, err := new(comparer).appendMsgpack(nil, nil, nil, n.value, 0)
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		again, err := parseMsgpack(fresh)
		if err != nil || !equal(again.value, n.value) {
			t.Fatalf("%q became %q, %v", data, fresh, err)
		}
	})
}
