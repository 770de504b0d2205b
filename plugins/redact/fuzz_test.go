package redact

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/ckptd/ckptd/internal/spans"
)

func FuzzText(f *testing.F) {
	for _, s := range fragments {
		f.Add([]byte(s))
	}
	f.Add([]byte("export KEY=sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789 -u bob:hunter22 https://u:p4ss@h/"))
	f.Add([]byte("(415) 555-0132x3 +49 30 123456 DE89 3704 0044 0532 0130 00 2001:db8::1 aa:bb:cc:dd:ee:0f"))
	r := Default()
	f.Fuzz(func(t *testing.T, data []byte) {
		redacted(t, r, Input{Type: "text", Data: data, PseudonymKey: [32]byte{1}})
	})
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"a":"\u0061lice@example.com","b":[1,{"password":"hunter22x"}],"n":4111111111111111}`), []byte(`{"a":1}`))
	f.Add([]byte(`["ghp_0123456789abcdefghij","ABCDEFGHIJKLMNOPQR"]`), []byte(`["ghp_0123456789abcdefghij"]`))
	f.Add([]byte(`{"x":"{\"a\":\"[\\\"bob@example.org\\\"]\"}","bob@example.org":{"al@example.org":1}}`), []byte(``))
	f.Add([]byte(`{"x":"Y2FsbCBhbGljZUBleGFtcGxlLmNvbSBub3c=\ud83d\ude00\ud83d"}`), []byte(`{}`))
	hashed, err := New(Config{Actions: map[string]Action{"personal": Hash, "email": Drop}, Block: Block{Keys: []string{"x"}, Paths: []string{"/**/b"}}})
	if err != nil {
		f.Fatal(err)
	}
	rs := []*Redactor{Default(), hashed}
	f.Fuzz(func(t *testing.T, data, old []byte) {
		for _, r := range rs {
			in := Input{Type: "json", Data: data, PseudonymKey: [32]byte{1}}
			whole := redacted(t, r, in)
			prev := redacted(t, r, Input{Type: "json", Data: old, PseudonymKey: [32]byte{1}})
			if prev.Dropped || !json.Valid(data) || !json.Valid(old) {
				continue
			}
			in.Prev = prev.Data
			if part := redacted(t, r, in); !bytes.Equal(part.Data, whole.Data) || part.Dropped != whole.Dropped {
				t.Errorf("data %q, prev %q: %q, and without prev %q", data, in.Prev, part.Data, whole.Data)
			}
		}
	})
}

func FuzzMsgpack(f *testing.F) {
	f.Add([]byte("\x82\xa1a\xafbob@example.org\xa1b\x93\x01\xc0\xcf\x00\x0e\x9a\x35\x7f\x2b\x41\xc7"))
	f.Add([]byte("\x91\xc7\x12\x05\x91\xafbob@example.org\xc4\x0fbob@example.org"))
	f.Add([]byte("\x92\xb8ghp_0123456789abcdefghij\xb0ABCDEFGHIJKLMNOP"))
	r := Default()
	f.Fuzz(func(t *testing.T, data []byte) {
		in := Input{Type: "msgpack", Data: data}
		if _, err := r.Redact(t.Context(), in); err != nil {
			return // not msgpack
		}
		out := redacted(t, r, in)
		for at := 0; at < len(out.Data); {
			var err error
			if at, err = spans.MsgpackEnd(out.Data, at); err != nil {
				t.Fatalf("%x became %x, which is no msgpack", data, out.Data)
			}
		}
	})
}
