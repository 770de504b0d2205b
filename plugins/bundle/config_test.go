package bundle

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ckptd/ckptd/hook"
)

func TestConfig(t *testing.T) {
	b := load(t, good())
	for _, tt := range []struct{ over, want string }{
		{``, `{"keep":["a@example.com"],"marker":"[mail]"}`},
		{`{}`, `{"keep":["a@example.com"],"marker":"[mail]"}`},
		{`{"marker":"<x>","keep":null}`, `{"marker":"<x>"}`},
		{` { "deep" : { "n/m" : 1.0e1 } , "keep":[] }`, `{"deep":{"n/m":10},"keep":[],"marker":"[mail]"}`},
	} {
		got, err := b.Config([]byte(tt.over))
		if err != nil || string(got) != tt.want {
			t.Errorf("over %s: %s, %v, want %s", tt.over, got, err, tt.want)
		}
	}
	for _, tt := range []struct{ over, want string }{
		{`{"marker":7}`, "mail@1.2.0: invalid plugin: its configuration does not fit config.schema.json at /marker: got number, want string"},
		{`{"keep":["a",2]}`, "at /keep/1: got number, want string"},
		{`{"deep":{"n/m":"x"}}`, "at /deep/n~1m: got string, want integer"},
		{`{"marke":"x"}`, "additional properties 'marke' not allowed"},
		{`[]`, "its configuration: it is not a JSON object"},
		{`{`, "its configuration: it is not JSON"},
		{`{} {}`, "extra data"},
		{`{"keep":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, "nested more than 64 deep"},
		{`{"deep":{"n/m":1e999999999}}`, "/deep/n~1m: the number is out of range"},
	} {
		_, err := b.Config([]byte(tt.over))
		if !errors.Is(err, hook.ErrInvalid) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("over %s: %v, want %s", tt.over, err, tt.want)
		}
	}
}

func TestNoConfig(t *testing.T) {
	contents := good()
	contents[ManifestFile] = strings.Replace(contents[ManifestFile], "config_schema = \"config.schema.json\"\n", "", 1)
	contents[ManifestFile] = strings.Replace(contents[ManifestFile], "[config]\nmarker = \"[mail]\"\nkeep = [\"a@example.com\"]\n", "", 1)
	delete(contents, "config.schema.json")
	b := load(t, contents)
	if got, err := b.Config(nil); got != nil || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := b.Config([]byte(`{"b":1,"a":-0}`)); string(got) != `{"a":0,"b":1}` || err != nil {
		t.Errorf("%s, %v", got, err)
	}
}

// TestCanonicalConfig: all encodings of a value have the same canonical text, which is canonical
// itself.
func TestCanonicalConfig(t *testing.T) {
	for want, spellings := range map[string][]string{
		`{"a":1,"b":[true,null,"é"]}`:   {`{"b":[true,null,"\u00e9"],"a":1}`, `{"a":1.0,"b":[true,null,"é"]}`, `{"a":10e-1,"b":[true,null,"é"]}`},
		`{"n":12345678901234567890123}`: {`{"n":12345678901234567890123}`},
		`{"n":0.1}`:                     {`{"n":1e-1}`, `{"n":0.10}`},
		`{"n":1e+30}`:                   {`{"n":1e30}`, `{"n":1E+30}`, `{"n":1000e27}`},
		`{"n":0}`:                       {`{"n":-0}`, `{"n":0.0}`, `{"n":-0.0}`},
		`{"h":"<&>"}`:                   {`{"h":"<&>"}`, `{"h":"\u003c&>"}`},
		fmt.Sprintf(`{"s":%q}`, strings.Repeat("x", 99)): {fmt.Sprintf(`{"s":%q}`, strings.Repeat("x", 99))},
	} {
		for _, s := range append(spellings, want) {
			got, err := merged(nil, []byte(`{"z":`+s+`}`))
			if err != nil || string(got) != `{"z":`+want+`}` {
				t.Errorf("%s: %s, %v, want %s", s, got, err, want)
			}
		}
	}
}

// TestHostileSchemas: a small schema can take forever to apply.
func TestHostileSchemas(t *testing.T) {
	var doubling strings.Builder
	for i := range 40 {
		fmt.Fprintf(&doubling, `"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i, i+1, i+1)
	}
	for name, text := range map[string]string{
		"doubling":  `{"$ref":"#/$defs/a0","$defs":{` + doubling.String() + `"a40":{}}}`,
		"recursion": `{"additionalProperties":{"allOf":[{"$ref":"#"},{"$ref":"#"},{"$ref":"#"}]}}`,
		"draft 7":   `{"$schema":"http://json-schema.org/draft-07/schema#","additionalProperties":{"allOf":[{"$ref":"#"},{"$ref":"#"},{"$ref":"#"}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			s, err := compileSchema([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- checkConfig(s, []byte(strings.Repeat(`{"a":`, 50)+"1"+strings.Repeat("}", 50))) }()
			select {
			case err := <-done:
				if err == nil || !strings.Contains(err.Error(), "takes too long") {
					t.Error(err)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("it does not end")
			}
		})
	}
}
