package redact

import (
	"errors"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/hook"
)

func TestConfig(t *testing.T) {
	c, err := ParseConfig([]byte(`
disable = ["personal"]
enable = ["email"]

[actions]
email = "mask"

[allow]
values = ["support@example.com"]
patterns = ['.*@our\.example']
paths = ["/public/**"]
keys = ["Contact"]

[block]
keys = ["Notes"]
paths = ["/user/*/name"]

[[rules]]
id = "ticket"
keywords = ["TCK-"]
pattern = 'TCK-\d{6}'
`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	in := `{"a":"bob@x.example support@example.com eve@our.example 415-555-0132 TCK-123456","public":{"x":["bob@x.example"]},` +
		`"contact":"bob@x.example","NOTES":[1,{"x":2}],"user":{"7":{"name":"Bob","age":7}},"null":null}`
	want := `{"a":"[REDACTED:email] support@example.com eve@our.example 415-555-0132 [REDACTED:ticket]","public":{"x":["bob@x.example"]},` +
		`"contact":"bob@x.example","NOTES":"[REDACTED:blocked]","user":{"7":{"name":"[REDACTED:blocked]","age":7}},"null":null}`
	if out := redacted(t, r, Input{Type: "json", Data: []byte(in)}); string(out.Data) != want {
		t.Errorf("got  %s\nwant %s", out.Data, want)
	}
}

func TestBlockedKeepsNull(t *testing.T) {
	r, err := New(Config{Block: Block{Keys: []string{"k"}}})
	if err != nil {
		t.Fatal(err)
	}
	in := `[{"k":null},{"k":""},{"k":false},{"k":"x"}]`
	want := `[{"k":null},{"k":""},{"k":"[REDACTED:blocked]"},{"k":"[REDACTED:blocked]"}]`
	if out := redacted(t, r, Input{Type: "json", Data: []byte(in)}); string(out.Data) != want {
		t.Errorf("%s", out.Data)
	}
}

func TestDigests(t *testing.T) {
	a, b := Default(), Default()
	if a.Digest() != b.Digest() || a.Digest() == [32]byte{} || a.ConfigDigest() != [32]byte{} {
		t.Error("two of the same differ, or the zero Config has a digest")
	}
	x, err := ParseConfig([]byte("disable = ['email']\n[actions]\nphone = 'hash'\ncard = 'drop'\n"))
	if err != nil {
		t.Fatal(err)
	}
	y, err := ParseConfig([]byte(`{"actions": {"card": "drop", "phone": "hash"}, "disable": ["email"]}`))
	if err != nil {
		t.Fatal(err)
	}
	rx, err := New(x)
	if err != nil {
		t.Fatal(err)
	}
	ry, err := New(y)
	if err != nil {
		t.Fatal(err)
	}
	if rx.ConfigDigest() != ry.ConfigDigest() || rx.ConfigDigest() == [32]byte{} || rx.Digest() != a.Digest() {
		t.Error("the same configuration in TOML and JSON has two digests")
	}
}

func TestConfigErrors(t *testing.T) {
	for text, want := range map[string]string{
		"disable = ['emial']":                                    `disable: unknown rule or group "emial"`,
		"[actions]\nemail = 'burn'":                              `actions.email "burn": use mask, hash, drop or reject`,
		"[actions]\nemial = 'mask'":                              `actions: unknown rule or group "emial"`,
		"[block]\naction = 'x'":                                  `block.action "x"`,
		"[allow]\npatterns = ['(']":                              `allow.patterns[0]`,
		"[allow]\npaths = ['a/b']":                               `allow.paths[0] "a/b": begin it with /`,
		"[[rules]]\nid = 'Bad Id'":                               `rules[0].id "Bad Id"`,
		"[[rules]]\nid = 'email'":                                `rules[0].id "email" is taken`,
		"[[rules]]\nid = 'x'":                                    `rule x: pattern is empty`,
		"[[rules]]\nid = 'x'\npattern = 'a'":                     `rule x: keywords is empty`,
		"[[rules]]\nid = 'x'\nkeywords=['a']\npattern='('":       `rule x: pattern: `,
		"[[rules]]\nid = 'x'\nkeywords=['a']\npattern='a*'":      `rule x: pattern matches the empty string`,
		"[[rules]]\nid = 'x'\nscanner='y'":                       `rule x: unknown scanner "y"`,
		"[[rules]]\nid = 'x'\nscanner='digits'\nshapes=['3--2']": `rule x: shape "3--2"`,
		"nonsense = 1":                                           `line 1: unknown field nonsense`,
		"= 1":                                                    `line 1: `,
		`{"x": 1}`:                                               `unknown field "x"`,
	} {
		c, err := ParseConfig([]byte(text))
		if err == nil {
			_, err = New(c)
		}
		if !errors.Is(err, hook.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Every rule in rules.toml is complete, and no rule matches the mask of another.
func TestRules(t *testing.T) {
	r := Default()
	ids := map[string]bool{}
	for _, rule := range r.Rules() {
		if ids[rule.ID] || !goodID(rule.ID) || rule.About == "" || rule.Group != "secrets" && rule.Group != "personal" {
			t.Errorf("%+v", rule)
		}
		ids[rule.ID] = true
		mask := "[REDACTED:" + rule.ID + "]"
		for _, text := range []string{mask, "password=" + mask, `"api_key": "` + mask + `"`, "https://x:" + mask + "@h/", mask + mask} {
			if out := redacted(t, r, Input{Type: "text", Data: []byte(text)}); out.Changed {
				t.Errorf("%s became %s", text, out.Data)
			}
		}
	}
	if len(ids) < 90 {
		t.Errorf("there are %d rules", len(ids))
	}
}

// Patterns that would compile to a large program are refused before compiling, and slow ones use up
// their work limit.
func TestLargePatterns(t *testing.T) {
	rule := func(id, pattern string) Rule { return Rule{ID: id, Keywords: []string{"zzz"}, Pattern: pattern} }
	for name, c := range map[string]struct {
		config Config
		want   string
	}{
		"repeats":   {Config{Rules: []Rule{rule("big", "zzz"+strings.Repeat(`\pL{1000}`, 100))}}, "rule big"},
		"long":      {Config{Rules: []Rule{rule("long", strings.Repeat("z", 5000))}}, "rule long"},
		"many":      {Config{Rules: make([]Rule, 201)}, "rules: 201 rules"},
		"allowed":   {Config{Allow: Allow{Patterns: []string{"(?:(?:a{30}){30}){30}b", "(?:b{500}){2}", strings.Repeat("(?:c{100})", 99)}}}, "allow.patterns[0]"},
		"together":  {Config{Rules: []Rule{rule("a", "zzz.{900}a{900}b{900}c{900}d{900}"), rule("b", "zzz.{900}a{900}b{900}c{900}d{900}e{900}f{900}")}}, "rule b"},
		"of a lead": {Config{Rules: []Rule{{ID: "led", Keywords: []string{"zzz"}, Pattern: "zzz", Lead: strings.Repeat(`\pL{1000}`, 100)}}}, "rule led"},
	} {
		_, err := New(c.config)
		if !errors.Is(err, hook.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r, err := New(Config{Rules: []Rule{rule("slow", `zzz\d`+strings.Repeat(".?", 2000)+"#")}})
	if err != nil {
		t.Fatal(err)
	}
	redacted(t, r, Input{Type: "text", Data: []byte("zzz1 and so on #, bob@example.org")})
	if _, err := r.Redact(t.Context(), Input{Type: "text", Data: []byte(strings.Repeat("zzz1 ", 4000))}); !errors.Is(err, hook.ErrLimit) {
		t.Error(err)
	}
}
