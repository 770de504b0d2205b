package spans

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// checkJSON compares the ends of all values of a valid text with those that encoding/json finds.
func checkJSON(t *testing.T, data []byte) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	depth := 0
	for {
		at := int(d.InputOffset())
		for at < len(data) && (Blank(data[at]) || data[at] == ',' || data[at] == ':') {
			at++
		}
		token, err := d.Token()
		if err != nil {
			return // at the end
		}
		if token == json.Delim(']') || token == json.Delim('}') {
			depth--
			continue
		}
		var raw json.RawMessage
		whole := json.NewDecoder(bytes.NewReader(data[at:]))
		if err := whole.Decode(&raw); err != nil {
			t.Fatal(err)
		}
		want := at + int(whole.InputOffset())
		if end, err := JSON(data, at, math.MaxInt); end != want || err != nil {
			t.Fatalf("the value at byte %d of %q ends at %d, %v, want %d", at, data, end, err, want)
		}
		switch token.(type) {
		case json.Delim:
			depth++
		case string:
			quote, escaped := StringEnd(data, at+1)
			if quote != want-1 || escaped != (bytes.IndexByte(raw, '\\') >= 0) {
				t.Fatalf("the string at byte %d of %q has its end at %d, escapes: %t", at, data, quote, escaped)
			}
		default:
			if end := LiteralEnd(data, at); end != want {
				t.Fatalf("the literal at byte %d of %q ends at %d, want %d", at, data, end, want)
			}
		}
		if depth == 0 {
			return // what follows is another text
		}
	}
}

// someJSON writes a value, nested at most so deep.
func someJSON(rng *rand.Rand, deep int) string {
	blank := func() string { return strings.Repeat([]string{"", " ", "\n\t\r"}[rng.IntN(3)], rng.IntN(2)) }
	text := func() string {
		var b strings.Builder
		for range rng.IntN(5) {
			b.WriteString([]string{`\"`, `\\`, `\u00e9`, `\n`, "{", "]", "é", strings.Repeat("x", rng.IntN(1200)), ",", ":"}[rng.IntN(10)])
		}
		return `"` + b.String() + `"`
	}
	kind := rng.IntN(7)
	if deep == 0 {
		kind %= 4
	}
	switch kind {
	case 0:
		return []string{"true", "false", "null"}[rng.IntN(3)]
	case 1:
		return []string{"0", "-12", "1.5e+7", "2E-3"}[rng.IntN(4)]
	case 2, 3:
		return text()
	case 4:
		var all []string
		for range rng.IntN(4) {
			all = append(all, blank()+someJSON(rng, deep-1)+blank())
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	var all []string
	for range rng.IntN(4) {
		all = append(all, blank()+text()+blank()+":"+blank()+someJSON(rng, deep-1)+blank())
	}
	return "{" + strings.Join(all, ",") + "}"
}

func TestJSON(t *testing.T) {
	for seed := range uint64(2000) {
		data := []byte(someJSON(rand.New(rand.NewPCG(seed, 0)), 5))
		if !json.Valid(data) {
			t.Fatalf("the test made %q", data)
		}
		checkJSON(t, data)
		if data[0] != '"' && data[0] != '[' && data[0] != '{' {
			continue // a part of a word is a word
		}
		for cut := range data {
			if end, err := JSON(data[:cut], 0, math.MaxInt); !errors.Is(err, ErrNone) {
				t.Fatalf("%q, cut off, ends at %d, %v", data[:cut], end, err)
			}
		}
	}
}

func TestNoJSON(t *testing.T) {
	for _, data := range []string{``, ` `, `,`, `:`, `]`, `}`, `}{`, `][`, `$`, `"`, `"\`, `"\"`, `[`, `["]`, `{"a":`} {
		if end, err := JSON([]byte(data), 0, math.MaxInt); !errors.Is(err, ErrNone) {
			t.Errorf("%s ends at %d, %v", data, end, err)
		}
	}
}

func TestDepthOfJSON(t *testing.T) {
	data := []byte(`{"a":[[1],[2]]}`)
	if end, err := JSON(data, 0, 3); end != len(data) || err != nil {
		t.Error(end, err)
	}
	if _, err := JSON(data, 0, 2); !errors.Is(err, ErrDeep) {
		t.Error(err)
	}
	deep := bytes.Repeat([]byte("["), 1_000_000)
	if _, err := JSON(deep, 0, math.MaxInt); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
	if _, err := JSON(deep, 0, 1000); !errors.Is(err, ErrDeep) {
		t.Error(err)
	}
}

// What ends a string may be anywhere in or between the windows that are looked at.
func TestStringEnd(t *testing.T) {
	for n := range 1300 {
		text := strings.Repeat("x", n)
		if quote, escaped := StringEnd([]byte(text+`" \"`), 0); quote != n || escaped {
			t.Fatalf("%d bytes: %d, %t", n, quote, escaped)
		}
		if quote, escaped := StringEnd([]byte(text+`\"\\"`), 0); quote != n+4 || !escaped {
			t.Fatalf("%d bytes and escapes: %d, %t", n, quote, escaped)
		}
		if quote, _ := StringEnd([]byte(text+`\"`), 0); quote != -1 {
			t.Fatalf("%d bytes without an end: %d", n, quote)
		}
	}
}

func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,"\"]",{}],"b":null}`, `[1,2`, `"\u00e9\\"`, `}{`, `[[}]`, `-1.5e+7 `} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, data []byte, most int) {
		if json.Valid(data) {
			checkJSON(t, data)
		}
		for at := range data {
			end, err := JSON(data, at, math.MaxInt)
			if err == nil && (end <= at || end > len(data)) {
				t.Fatalf("the value at byte %d of %q ends at %d", at, data, end)
			}
			if bounded, deep := JSON(data, at, most); deep == nil && (bounded != end || err != nil) {
				t.Fatalf("the value at byte %d of %q ends at %d, and bounded by %d at %d", at, data, end, most, bounded)
			}
		}
	})
}

func BenchmarkStringEnd(b *testing.B) {
	for _, c := range []struct{ name, text string }{
		{"plain", strings.Repeat("x", 1<<20)}, {"lines", strings.Repeat(strings.Repeat("x", 60)+`\n`, 1<<14)}, {"short", "role"},
	} {
		data := []byte(c.text + `"`)
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				StringEnd(data, 0)
			}
		})
	}
}
