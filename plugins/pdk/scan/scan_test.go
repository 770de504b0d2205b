package scan

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
)

func TestMembers(t *testing.T) {
	for object, want := range map[string][]string{
		`{}`:                             nil,
		` { "a" : 1 , "b":[2,{"a":3}]} `: {`"a"`, `1`, `"b"`, `[2,{"a":3}]`},
		`{"a\"}":"{\"","\u0061":true}`:   {`"a\"}"`, `"{\""`, `"\u0061"`, `true`},
		`{"a":-1.5e3,"b":null}`:          {`"a"`, `-1.5e3`, `"b"`, `null`},
		`[1]`:                            nil,
		`{"a":1`:                         {`"a"`, `1`},
		`{"a"`:                           nil,
		`{"a":"`:                         nil,
		`{1:2}`:                          nil,
		``:                               nil,
	} {
		var got []string
		for k, v := range Members([]byte(object)) {
			got = append(got, string(k), string(v))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", object, got, want)
		}
	}
}

func TestElements(t *testing.T) {
	for array, want := range map[string][]string{
		`[]`:                        nil,
		`[1,"]",[2,[3]], {"a":[]}]`: {`1`, `"]"`, `[2,[3]]`, `{"a":[]}`},
		`[1 2]`:                     {`1`},
		`[[1]`:                      {`[1]`},
		`{"a":1}`:                   nil,
	} {
		var got []string
		for v := range Elements([]byte(array)) {
			got = append(got, string(v))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", array, got, want)
		}
	}
}

func TestMember(t *testing.T) {
	object := []byte(`{"x":{"b":0},"\u0062":[1],"b":2}`)
	got := Member(object, "b")
	if string(got) != "[1]" {
		t.Fatalf("%q", got)
	}
	if at := Offset(object, got); at != bytes.Index(object, []byte("[1]")) {
		t.Errorf("at %d", at)
	}
	if Member(object, "c") != nil {
		t.Error("found what is not there")
	}
}

// Quoting and unquoting agree with encoding/json.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "plain", "a\"b\\c\n\t\r\x00\x1f", "é𝄞\ufffd", "\xff\xc0x", `\ud834\udd1e`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		quoted := AppendQuote(nil, text)
		var want string
		if err := json.Unmarshal(quoted, &want); err != nil {
			t.Fatalf("%q: %v", quoted, err)
		}
		if want != string(bytes.ToValidUTF8(text, []byte("\ufffd"))) && want != each(text) {
			t.Errorf("%q became %q", text, want)
		}
		if got, ok := Unquote(quoted); !ok || string(got) != want {
			t.Errorf("%q: got %q, want %q", quoted, got, want)
		}
	})
}

// each replaces every byte of invalid UTF-8, as ranging over a string does.
func each(text []byte) string { return string([]rune(string(text))) }

// The package finds the same in JSON as encoding/json, and no input makes it panic.
func FuzzScan(f *testing.F) {
	for _, s := range []string{`{"a":[1,"\ud83d\ude00"],"b":{}}`, `[[],{},"",1]`, `{"a":"\u00`, `"`, `{"a":1,}`, "[\t1 ,2\n]", `"\q"`, `[[[[`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var members, elements int
		for k, v := range Members(text) {
			members++
			check(t, text, k)
			check(t, text, v)
		}
		for v := range Elements(text) {
			elements++
			check(t, text, v)
		}
		if !json.Valid(text) {
			return
		}
		var array []json.RawMessage
		if json.Unmarshal(text, &array) == nil && len(array) != elements {
			t.Errorf("%d elements, want %d", elements, len(array))
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(text, &object) == nil && len(object) > members {
			t.Errorf("%d members, want %d", members, len(object))
		}
		var s string
		if got, ok := Unquote(bytes.TrimSpace(text)); json.Unmarshal(text, &s) == nil && text[0] == '"' && (!ok || each(got) != s) {
			t.Errorf("%q, want %q", got, s)
		}
	})
}

// check requires part to be a slice of whole.
func check(t *testing.T, whole, part []byte) {
	t.Helper()
	at := Offset(whole, part)
	if at < 0 || at+len(part) > len(whole) || !bytes.Equal(whole[at:at+len(part)], part) {
		t.Errorf("%q is not at %d", part, at)
	}
}
