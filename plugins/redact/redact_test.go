package redact

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/hook"
)

// redacted redacts data and checks the invariants: a second pass changes nothing, the input is not
// modified, JSON stays JSON, and no finding quotes a match.
func redacted(t testing.TB, r *Redactor, in Input) Output {
	t.Helper()
	before := bytes.Clone(in.Data)
	out, err := r.Redact(t.Context(), in)
	if err != nil {
		t.Fatalf("%.200q: %v", in.Data, err)
	}
	if !bytes.Equal(before, in.Data) {
		t.Fatalf("%.200q: the input was modified", before)
	}
	if out.Changed != (out.Dropped || !bytes.Equal(out.Data, in.Data)) {
		t.Errorf("%.200q: Changed is %v", in.Data, out.Changed)
	}
	if out.Dropped {
		return out
	}
	if formatOf(in.Type, in.Data) == jsonFormat && json.Valid(in.Data) && !json.Valid(out.Data) {
		t.Errorf("%.300q is JSON and became %.300q, which is not", in.Data, out.Data)
	}
	again := in
	again.Data, again.Prev = out.Data, nil
	second, err := r.Redact(t.Context(), again)
	if err != nil {
		t.Fatal(err)
	}
	if second.Changed {
		t.Errorf("%.300q became %.300q, and then %.300q: %v", in.Data, out.Data, second.Data, second.Findings)
	}
	return out
}

func TestJSON(t *testing.T) {
	r := Default()
	for _, c := range []struct{ name, in, want string }{
		{"escapes", `{"a":"mail \u0061lice@example.com \u00e9\n"}`, `{"a":"mail [REDACTED:email] \u00e9\n"}`},
		{"layout is kept", "{ \"b\" : 1.50e3 ,\n\t\"a\":\"x \\/ bob@example.org\" }\n", "{ \"b\" : 1.50e3 ,\n\t\"a\":\"x \\/ [REDACTED:email]\" }\n"},
		{"JSON in strings", `{"arguments":"{\"to\": \"bob@example.org\",  \"n\": 1.0, \"card\": 4111111111111111}"}`,
			`{"arguments":"{\"to\": \"[REDACTED:email]\",  \"n\": 1.0, \"card\": \"[REDACTED:card]\"}"}`},
		{"JSON in JSON in strings", `["{\"a\":\"[\\\"bob@example.org\\\"]\"}"]`, `["{\"a\":\"[\\\"[REDACTED:email]\\\"]\"}"]`},
		{"base64", `{"x":"Y2FsbCBhbGljZUBleGFtcGxlLmNvbSBub3c="}`, `{"x":"Y2FsbCBbUkVEQUNURUQ6ZW1haWxdIG5vdw=="}`},
		{"names", `{"bob@example.org":1,"al@example.org":2,"x":3}`, `{"[REDACTED:email]":1,"[REDACTED:email#2]":2,"x":3}`},
		{"names that are taken", `{"bob@example.org":1,"[REDACTED:email]":2}`, `{"[REDACTED:email#2]":1,"[REDACTED:email]":2}`},
		{"numbers", `{"card":4111111111111111,"phone":4155550132,"order":4155550132}`,
			`{"card":"[REDACTED:card]","phone":"[REDACTED:phone]","order":4155550132}`},
		{"numbers need a word", `{"id":4539578763621486,"card_id":4539578763621486,"n":[4539578763621486],"phone":4915112345678,"pan":"4539578763621486"}`,
			`{"id":4539578763621486,"card_id":4539578763621486,"n":[4539578763621486],"phone":"[REDACTED:phone]","pan":"[REDACTED:card]"}`},
		{"sessions are resumed by ids", `{"session_id":"sess_a1B2c3D4e5F6g7H8","sessionId":"sess_a1B2c3D4e5F6g7H8"}`, `{"session_id":"sess_a1B2c3D4e5F6g7H8","sessionId":"sess_a1B2c3D4e5F6g7H8"}`},
		{"names of members tell", `{"ssn":"123456780","password":"correct horse 7 battery!","user":{"apiKey":"a8f7d6e5c4b3a291"}}`,
			`{"ssn":"[REDACTED:us-ssn]","password":"[REDACTED:password]","user":{"apiKey":"[REDACTED:secret]"}}`},
		{"masks protect nothing", `{"password":"Sup3rS3cr3tPw[REDACTED:email]","token":"[REDACTED:email]"}`,
			`{"password":"[REDACTED:password][REDACTED:email]","token":"[REDACTED:email]"}`},
		{"lists of a member", `{"phones":["4155550132","4155550133"]}`, `{"phones":["[REDACTED:phone]","[REDACTED:phone]"]}`},
		{"lines", "{\"a\":\"bob@example.org\"}\n{\"a\":1}\n", "{\"a\":\"[REDACTED:email]\"}\n{\"a\":1}\n"},
		{"a text", `"bob@example.org"`, `"[REDACTED:email]"`},
		{"no JSON is text", `{"a":"bob@example.org"`, `{"a":"[REDACTED:email]"`},
		{"chunks", `[{"d":{"c":"my key is ghp_0123456789abcd"}},{"d":{"c":"efghijABCDEFGHIJ"}},{"d":{"c":"KLMNOP, ok?"}}]`,
			`[{"d":{"c":"my key is [REDACTED:github-token]"}},{"d":{"c":""}},{"d":{"c":", ok?"}}]`},
		{"chunks with escapes", `[{"c":"to \u0061lice@ex"},{"c":"\u0061mple.com\n"}]`, `[{"c":"to [REDACTED:email]"},{"c":"\n"}]`},
		{"tokens of a stream", `["My"," card"," is"," ","4111","-","1111","-","1111","-","1111","."]`,
			`["My"," card"," is"," ","[REDACTED:card]","","","","","","","."]`},
		{"lists are no streams", `["1.5","2.5","3.5","10.0"]`, `["1.5","2.5","3.5","10.0"]`},
		{"environments are no streams", `{"env":["DB_PASSWORD=hunter2secretX","FOO=1","PATH=/usr/bin"]}`, `{"env":["DB_PASSWORD=[REDACTED:password]","FOO=1","PATH=/usr/bin"]}`},
		{"short ones neither", `["API_TOKEN=abc","FOO=1","PATH=/usr/bin"]`, `["API_TOKEN=abc","FOO=1","PATH=/usr/bin"]`},
		{"nor are arguments", `["run","-e","API_TOKEN=abc","ubuntu:24.04","sh","--user=1000"]`, `["run","-e","API_TOKEN=abc","ubuntu:24.04","sh","--user=1000"]`},
		{"an assignment in a stream", `["export ","API_TOKEN=9f8a7b","6c5d4e3f2a1b","\n","x=1"]`, `["export ","API_TOKEN=[REDACTED:secret]","","\n","x=1"]`},
		{"arguments in a stream", `["{\"","api_key","\": \"9f8a7b","6c5d4e3f2a1b","\"}"]`, `["{\"","api_key","\": \"[REDACTED:secret]","","\"}"]`},
		{"a key in chunks", `[" -----","BEGIN"," RSA"," PRIVATE KEY","-----","\n","MIIEowIBAAKCAQEA75","\n","c2VjcmV0a2V5aGVyZQ==","\n","-----END RSA PRIVATE KEY-----","\n"]`,
			`[" [REDACTED:private-key]","","","","","","","","","","","\n"]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := redacted(t, r, Input{Type: "json", Data: []byte(c.in)})
			if diff := cmp.Diff(c.want, string(out.Data)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// UTF-16 text is decoded for matching and keeps its encoding.
func TestUTF16(t *testing.T) {
	encode := func(order binary.AppendByteOrder, units []uint16) (data []byte) {
		for _, u := range units {
			data = order.AppendUint16(data, u)
		}
		return data
	}
	r := Default()
	for _, c := range []struct{ tag, in, want string }{
		{"text", "to bob@example.org, 😀", "to [REDACTED:email], 😀"},
		{"json", `{"a":"\u0061lice@example.com","n":1.0}`, `{"a":"[REDACTED:email]","n":1.0}`},
		{"", `{"a":"bob@example.org"}`, `{"a":"[REDACTED:email]"}`},
	} {
		for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
			for _, mark := range [][]uint16{{0xfeff}, {}} {
				if len(mark) == 0 && c.tag == "" {
					continue
				}
				half := []uint16{0xd800, 'x'} // an unpaired surrogate
				form := func(text string) []byte { return encode(order, slices.Concat(mark, utf16.Encode([]rune(text)), half)) }
				if c.tag != "text" {
					form = func(text string) []byte { return encode(order, slices.Concat(mark, utf16.Encode([]rune(text)))) }
				}
				if out := redacted(t, r, Input{Type: c.tag, Data: form(c.in)}); !bytes.Equal(out.Data, form(c.want)) {
					t.Errorf("%s %q became %q", c.tag, form(c.in), out.Data)
				}
			}
		}
	}
}

func TestFindings(t *testing.T) {
	in := `{"messages":[{"content":"bob@example.org and al@example.org"},{"bob@example.org":"x","user 1234567":{"ip":"10.1.2.3"}}]}`
	out := redacted(t, Default(), Input{Type: "json", Name: "channel messages", Data: []byte(in)})
	want := []hook.Finding{
		{Rule: "email", Path: "/messages/0/content", Item: "channel messages", Count: 2},
		{Rule: "email", Path: "/messages/1/*", Item: "channel messages", Count: 1},
		{Rule: "ipv4", Path: "/messages/1/*/ip", Item: "channel messages", Count: 1},
	}
	if diff := cmp.Diff(want, out.Findings); diff != "" {
		t.Error(diff)
	}
}

func TestActions(t *testing.T) {
	key := [32]byte{1}
	for _, c := range []struct{ name, action, in, want string }{
		{"hash", "hash", `["bob@example.org","Bob@Example.org"]`, ``},
		{"drop", "drop", `[1, "bob@example.org", 2,  "al@example.org"]`, `[1, 2]`},
		{"drop a member", "drop", `{"a":"bob@example.org","b":1,"c":{"d":"x","e":"bob@example.org"}}`, `{"b":1,"c":{"d":"x"}}`},
		{"drop all", "drop", `{"a":"bob@example.org"}`, `{}`},
		{"drop the first", "drop", `["bob@example.org", 7]`, `[7]`},
		{"drop by its name", "drop", `{"bob@example.org":[1,{"x":"al@example.org"}],"b":1}`, `{"b":1}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := New(Config{Actions: map[string]Action{"all": Action(c.action)}})
			if err != nil {
				t.Fatal(err)
			}
			out := redacted(t, r, Input{Type: "json", Data: []byte(c.in), PseudonymKey: key})
			if c.action == "hash" {
				var got []string
				if err := json.Unmarshal(out.Data, &got); err != nil || got[0] != got[1] || !strings.HasPrefix(got[0], "[email:") {
					t.Errorf("%s", out.Data)
				}
				return
			}
			if string(out.Data) != c.want {
				t.Errorf("got %s, want %s", out.Data, c.want)
			}
		})
	}
}

func TestDropOfAll(t *testing.T) {
	r, err := New(Config{Actions: map[string]Action{"email": Drop}})
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []Input{{Type: "text", Data: []byte("to bob@example.org")}, {Type: "json", Data: []byte(`"bob@example.org"`)}} {
		if out := redacted(t, r, in); !out.Dropped || out.Data != nil {
			t.Errorf("%s: %+v", in.Type, out)
		}
	}
}

func TestReject(t *testing.T) {
	r, err := New(Config{Actions: map[string]Action{"secrets": Reject}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Redact(t.Context(), Input{Type: "json", Name: "channel notes", Data: []byte(`{"a":[{"token":"ghp_0123456789abcdefghijABCDEFGHIJKLMNOP"}]}`)})
	if !errors.Is(err, hook.ErrRejected) || strings.Contains(err.Error(), "ghp_") || !strings.Contains(err.Error(), "/a/0/token") {
		t.Error(err)
	}
	redacted(t, r, Input{Type: "json", Data: []byte(`{"a":"bob@example.org"}`)})
}

func TestPseudonyms(t *testing.T) {
	r, err := New(Config{Actions: map[string]Action{"personal": Hash}})
	if err != nil {
		t.Fatal(err)
	}
	of := func(key byte, text string) string {
		return string(redacted(t, r, Input{Type: "text", Data: []byte(text), PseudonymKey: [32]byte{key}}).Data)
	}
	if of(1, "bob@example.org") != of(1, "BOB@example.org") || of(1, "415-555-0132") != of(1, "(415) 555-0132") {
		t.Error("equal values have other pseudonyms")
	}
	if of(1, "bob@example.org") == of(2, "bob@example.org") || of(1, "bob@example.org") == of(1, "al@example.org") {
		t.Error("other keys or values have the same pseudonym")
	}
	if got := of(0, "bob@example.org"); got != "[REDACTED:email]" {
		t.Errorf("without a key: %s", got)
	}
}

// A pseudonym is never a number, because a number could be that of a card.
func TestPseudonymHasLetters(t *testing.T) {
	for sum, want := range map[string]string{"\x45\x39\x57\x87\x63\x62\x14\x86": "e539578763621486", "\x45\x39\x57\x87\x63\x62\x14\x8f": "453957876362148f"} {
		if got := pseudonym([]byte(sum)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestDepth(t *testing.T) {
	const deep = 1_000_000
	for _, c := range []struct {
		kind string
		data []byte
	}{
		{"json", []byte(strings.Repeat("[", deep) + strings.Repeat("]", deep))},
		{"json", []byte(strings.Repeat(`{"a":`, deep) + "1" + strings.Repeat("}", deep))},
		{"msgpack", append(bytes.Repeat([]byte{0x91}, deep), 0xc0)},
		{"json", []byte(`{"password":` + strings.Repeat("[", deep) + strings.Repeat("]", deep) + `}`)},
	} {
		_, err := Default().Redact(t.Context(), Input{Type: c.kind, Data: c.data})
		if !errors.Is(err, hook.ErrLimit) {
			t.Errorf("%s %.20s: %v", c.kind, c.data, err)
		}
	}
}

// Parts known from the parent are not examined again, and the result is the same as without.
func TestPrev(t *testing.T) {
	configs := map[string]Config{
		"default": {},
		"drop":    {Actions: map[string]Action{"email": Drop}},
		"hash":    {Actions: map[string]Action{"all": Hash}},
		"paths":   {Block: Block{Paths: []string{"/0/x", "/**/secret"}}, Allow: Allow{Paths: []string{"/1/**"}}},
	}
	for name, config := range configs {
		t.Run(name, func(t *testing.T) {
			r, err := New(config)
			if err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(4, 2))
			for range 300 {
				doc := randomValue(rng, 0)
				var prev []byte
				for range 8 {
					data, err := json.Marshal(doc)
					if err != nil {
						t.Fatal(err)
					}
					in := Input{Type: "json", Data: data, PseudonymKey: [32]byte{9}}
					whole := redacted(t, r, in)
					in.Prev = prev
					part := redacted(t, r, in)
					if !bytes.Equal(whole.Data, part.Data) || whole.Dropped != part.Dropped {
						t.Fatalf("data %s\nprev %s\nwhole %s\npart  %s", data, prev, whole.Data, part.Data)
					}
					if whole.Dropped {
						break
					}
					// The caller continues from the stored data or from its own.
					prev = whole.Data
					if rng.IntN(2) == 0 {
						if err := json.Unmarshal(whole.Data, &doc); err != nil {
							t.Fatal(err)
						}
					}
					doc = mutated(rng, doc, 0)
				}
			}
		})
	}
}

// fragments are the parts of random documents: pieces of secrets, whole ones, and similar text.
var fragments = []string{"", "a", " ", "is ", "ghp_0123456789abcdefghij", "ABCDEFGHIJKLMNOP", "ghp_0123456789abcdefghijABCDEFGHIJKLMNOP", "bob@", "example.org",
	"bob@example.org", "4111", "1111", "-", "4111 1111 1111 1111", "415-555", "-0132", "call", "phone 415", "password=", "hunter2x!", "10.1.2", ".3", "\n", "ok.",
	"-----BEGIN RSA PRIVATE KEY-----", "MIIEowIBAAKCAQEAMIIEowIBAAKCAQEA", "-----END RSA PRIVATE KEY-----", "é", "Y2FsbCBhbGljZUBleGFtcGxlLmNvbSBub3c=",
	`{"to":"bob@example.org"}`, "plain words that say nothing of anybody and go on for a while, longer than an edge of a chunk is"}

var memberNames = []string{"x", "content", "role", "password", "phone", "ssn", "secret", "bob@example.org", "al@example.org", "text"}

func randomText(rng *rand.Rand) string {
	var b strings.Builder
	for range 1 + rng.IntN(3) {
		b.WriteString(fragments[rng.IntN(len(fragments))])
	}
	return b.String()
}

func randomValue(rng *rand.Rand, depth int) any {
	switch n := rng.IntN(10); {
	case depth == 0 || depth < 4 && n < 3:
		list := []any{}
		for range rng.IntN(6) {
			list = append(list, randomValue(rng, depth+1))
		}
		return list
	case depth < 4 && n < 5:
		object := map[string]any{}
		for range rng.IntN(4) {
			object[memberNames[rng.IntN(len(memberNames))]] = randomValue(rng, depth+1)
		}
		return object
	case n == 5:
		return json.Number(fmt.Sprint([]int{1, 4111111111111111, 4155550132, 123456780}[rng.IntN(4)]))
	}
	return randomText(rng)
}

// mutated changes, inserts, appends or removes a value.
func mutated(rng *rand.Rand, v any, depth int) any {
	switch v := v.(type) {
	case []any:
		v = append([]any(nil), v...)
		switch at := 0; {
		case len(v) == 0 || rng.IntN(3) == 0:
			return append(v, randomValue(rng, depth+1))
		default:
			at = rng.IntN(len(v))
			switch rng.IntN(4) {
			case 0:
				return append(v[:at], v[at+1:]...)
			case 1:
				return append(v[:at:at], append([]any{randomValue(rng, depth+1)}, v[at:]...)...)
			default:
				v[at] = mutated(rng, v[at], depth+1)
			}
		}
		return v
	case map[string]any:
		object := map[string]any{}
		for k, e := range v {
			object[k] = e
		}
		name := memberNames[rng.IntN(len(memberNames))]
		if old, ok := object[name]; ok {
			object[name] = mutated(rng, old, depth+1)
		} else {
			object[name] = randomValue(rng, depth+1)
		}
		return object
	case string:
		return v + randomText(rng)
	}
	return randomValue(rng, depth)
}

// Data made to be slow takes time linear in its size, or is refused.
func TestHostileText(t *testing.T) {
	object := strings.Builder{}
	for i := range 20000 {
		fmt.Fprintf(&object, `,"u%d@example.org":%d`, i, i)
	}
	for name, c := range map[string]struct {
		kind, text string
	}{
		"beginnings":       {"text", strings.Repeat("PuTTY-User-Key-File-2: ", 20000)},
		"prefixes":         {"text", strings.Repeat("sk-proj-", 50000)},
		"web tokens":       {"text", strings.Repeat("eyJ-", 100000)},
		"assignments":      {"text", strings.Repeat("password=", 50000)},
		"headers":          {"text", strings.Repeat("-----BEGIN PRIVATE KEY-----", 20000)},
		"URLs":             {"text", strings.Repeat("://:", 100000)},
		"signs":            {"text", strings.Repeat("a@", 200000)},
		"digits":           {"text", strings.Repeat("1-", 200000)},
		"brackets":         {"text", strings.Repeat("[REDACTED:", 50000)},
		"masks and emails": {"text", strings.Repeat("[REDACTED:email] bob@example.org ", 10000)},
		"quotes":           {"json", `["` + strings.Repeat(`\"`, 200000) + `"]`},
		"tokens":           {"json", `[` + strings.Repeat(`"-----BEGIN",`, 50000) + `""]`},
		"names":            {"json", "{" + object.String()[1:] + "}"},
		"JSON that is not": {"json", `["` + strings.Repeat(`[\"[`, 50000) + `]"]`},
	} {
		t.Run(name, func(t *testing.T) {
			done := make(chan error, 1)
			go func() {
				_, err := Default().Redact(t.Context(), Input{Type: c.kind, Data: []byte(c.text)})
				done <- err
			}()
			select {
			case err := <-done:
				if err != nil && !errors.Is(err, hook.ErrLimit) {
					t.Error(err)
				}
			case <-time.After(60 * time.Second):
				t.Fatal("takes too long")
			}
		})
	}
}

// The work limit holds, and no work is done once the caller has given up.
func TestWorkIsCounted(t *testing.T) {
	for _, word := range []string{"password=", "api_key:", "sk-"} {
		text := []byte(strings.Repeat(word, 1<<20/len(word)))
		s := newScan(Default())
		s.allowed = 1 << 20
		s.text(text, nil)
		if s.work > s.allowed+maxPattern {
			t.Errorf("%s: work on %d bytes where %d are allowed", word, s.work, s.allowed)
		}
		ctx := &counted{Context: t.Context(), looks: 1}
		if _, err := Default().Redact(ctx, Input{Type: "text", Data: text}); !errors.Is(err, hook.ErrTimeout) {
			t.Errorf("%s: %v", word, err)
		}
		if ctx.looks < -4 {
			t.Errorf("%s: it went on after the context had ended", word)
		}
	}
}

// TestRowsAreReadOnce: a number is examined with its surroundings, not the entire text. The number
// of context checks reveals how many bytes were read.
func TestRowsAreReadOnce(t *testing.T) {
	for _, part := range []string{"1 ", "4111 1111 1111 1111 ", "1234 5678 ]", "12 34 [REDACTED:phone] ", "ff 00 "} {
		text := []byte(strings.Repeat(part, 1<<17/len(part)))
		ctx := &counted{Context: t.Context(), looks: 1 << 30}
		if _, err := Default().Redact(ctx, Input{Type: "text", Data: text}); err != nil && !errors.Is(err, hook.ErrLimit) {
			t.Errorf("%s: %v", part, err)
		}
		if through := (1<<30 - ctx.looks) * lookEvery; through > 100*len(text) {
			t.Errorf("%s: %d bytes were gone through for %d", part, through, len(text))
		}
	}
}

// counted is a context that ends after a number of checks.
type counted struct {
	context.Context
	looks int
}

func (c *counted) Err() error {
	if c.looks--; c.looks < 0 {
		return context.Canceled
	}
	return nil
}

// Facts about names that were learned after the work ran out are not kept.
func TestNothingIsLearnedInHaste(t *testing.T) {
	r := Default()
	member := `{"ghp_abcdefghijABCDEFGHIJklmnopqrstKLMNOP":1}`
	if _, err := r.Redact(t.Context(), Input{Type: "json", Data: []byte(`["` + strings.Repeat("password=", 1<<17) + `",` + member + `]`)}); !errors.Is(err, hook.ErrLimit) {
		t.Fatal(err)
	}
	if out := redacted(t, r, Input{Type: "json", Data: []byte(member)}); !out.Changed {
		t.Errorf("%s stays", out.Data)
	}
}

// TestTooManyMatches: a match every few bytes of a large text takes far more memory than the text,
// so the number of matches is bounded.
func TestTooManyMatches(t *testing.T) {
	few, many := strings.Repeat("a@b.co ", 1000), strings.Repeat("a@b.co ", maxFound+1)
	for _, in := range []Input{{Type: "text", Data: []byte(many)}, {Type: "json", Data: []byte(`["` + strings.Repeat(`a@b.co","`, maxFound+1) + `"]`)}} {
		if _, err := Default().Redact(t.Context(), in); !errors.Is(err, hook.ErrLimit) || !strings.Contains(err.Error(), "matches") {
			t.Errorf("%s: %v", in.Type, err)
		}
	}
	r := Default()
	for range 2000 { // calls do not add up
		if out := redacted(t, r, Input{Type: "text", Data: []byte(few)}); out.Findings[0].Count != 1000 {
			t.Fatalf("%+v", out.Findings)
		}
	}
}

// TestLargeTextsWait: a caller with a large text waits for others, until its context ends; small
// texts pass at once.
func TestLargeTextsWait(t *testing.T) {
	r, large := Default(), []byte(strings.Repeat("a@b.co ", smallData))
	if err := atOnce.Acquire(t.Context(), maxAtOnce); err != nil {
		t.Fatal(err)
	}
	redacted(t, r, Input{Type: "text", Data: []byte("a@b.co")})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Redact(ctx, Input{Type: "text", Data: large}); !errors.Is(err, hook.ErrTimeout) {
		t.Errorf("with a context that has ended: %v", err)
	}
	done := make(chan error)
	go func() {
		_, err := r.Redact(t.Context(), Input{Type: "text", Data: large})
		done <- err
	}()
	atOnce.Release(maxAtOnce)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !atOnce.TryAcquire(maxAtOnce) {
		t.Fatal("room is not given back")
	}
	atOnce.Release(maxAtOnce)
}
