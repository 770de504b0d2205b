package schema

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ckptd/ckptd/internal/endtest"
)

func mustRead(t testing.TB, text string) *Schema {
	t.Helper()
	s, err := Read([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func value(t testing.TB, text string) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestCheckNamesThePlace(t *testing.T) {
	s := mustRead(t, `{"properties":{"a":{"items":{"type":"integer","minimum":3}}}}`)
	if err := s.Check(t.Context(), value(t, `{"a":[3,4.0]}`)); err != nil {
		t.Error(err)
	}
	err := s.Check(t.Context(), value(t, `{"a":[3,2]}`))
	if e, ok := errors.AsType[*Error](err); !ok || e.Path != "/a/1" || !strings.Contains(e.Reason, "minimum") {
		t.Errorf("%v", err)
	}
}

// TestNumbersOutOfRange: the library takes fractions of numbers, which are nil or take all memory
// if they are too large.
func TestNumbersOutOfRange(t *testing.T) {
	for _, number := range []string{"1e4000000", "-1e4000000", "1e-4000000", "1e300000", "1e99999999999999999999", "0.1e-9999", strings.Repeat("9", 500)} {
		for _, keyword := range []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "const"} {
			s := mustRead(t, fmt.Sprintf(`{"properties":{"n":{%q:3}}}`, keyword))
			endtest.Must(t, func() {
				err := s.Check(t.Context(), value(t, `{"n":`+number+`}`))
				if e, ok := errors.AsType[*Error](err); !ok || e.Path != "/n" || !strings.Contains(e.Reason, "out of range") {
					t.Errorf("%s of %.20s: %v", keyword, number, err)
				}
				if _, err := Read(fmt.Appendf(nil, `{%q:%s}`, keyword, number)); err == nil || !strings.Contains(err.Error(), "out of range") {
					t.Errorf("%s %.20s: %v", keyword, number, err)
				}
			})
		}
	}
	s := mustRead(t, `{"minimum":-1e300,"maximum":1e300}`)
	for _, number := range []string{"0", "-0", "0.0", "0e5", "1e300", "-1.5e-300", "12345678901234567890123"} {
		if err := s.Check(t.Context(), value(t, number)); err != nil {
			t.Errorf("%s: %v", number, err)
		}
	}
}

// doubling is a schema each part of which leads to the next one twice.
func doubling(leaf string) string {
	var b strings.Builder
	for i := range 40 {
		fmt.Fprintf(&b, `"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i, i+1, i+1)
	}
	return `{"$ref":"#/$defs/a0","$defs":{` + b.String() + `"a40":` + leaf + `}}`
}

func nested(depth int) string {
	return strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)
}

func repeated(n int, format string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = strings.ReplaceAll(format, "#i", fmt.Sprint(i))
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// hostile are schemas and values that take forever, or all the stack, if nobody counts.
var hostile = map[string]struct{ schema, value string }{
	"doubling":          {doubling(`{}`), `1`},
	"doubling, draft 7": {strings.Replace(doubling(`{}`), `{`, `{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{},`, 1), `1`},
	"doubling, no type": {doubling(`{"type":"string"}`), `1`},
	"doubling to false": {strings.ReplaceAll(doubling(`false`), "allOf", "anyOf"), `1`},
	"choices":           {doubling(`{"enum":` + repeated(5000, `"#i"`) + `}`), `"x"`},
	"recursion":         {`{"additionalProperties":{"allOf":[{"$ref":"#"},{"$ref":"#"},{"$ref":"#"}]}}`, nested(50)},
	"no way":            {`{"additionalProperties":{"anyOf":[{"allOf":[{"$ref":"#"},false]},{"allOf":[{"$ref":"#"},false]},true]}}`, nested(60)},
	"unevaluated":       {`{"anyOf":` + repeated(1500, `{"properties":{"p#i":true}}`) + `,"unevaluatedProperties":false}`, `{` + strings.Trim(repeated(20000, `"x#i":1`), "[]") + `}`},
	"patterns":          {`{"items":{"allOf":` + repeated(4, `{"pattern":"(x+x+){#i,900}y"}`) + `}}`, repeated(3, `"`+strings.Repeat("x", 300_000)+`"`)},
	"names":             {`{"patternProperties":{"^(a?){900}b":{},"^(a?){901}b":{},"^(a?){902}b":{}}}`, `{"` + strings.Repeat("a", 3_000_000) + `":1}`},
	"uniqueItems":       {`{"allOf":` + repeated(3000, `{"uniqueItems":true}`) + `}`, repeated(30000, "#i")},
	"contains":          {`{"allOf":` + repeated(300, `{"contains":{"enum":`+repeated(30, `"e#i"`)+`}}`) + `}`, repeated(30000, "#i")},
	"chain by depth":    {chained(3000), nested(9000)},
}

// chained is a schema in which many schemas are applied to one value within each other, and then to
// the next.
func chained(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"a%d":{"$ref":"#/$defs/a%d"},`, i, i+1)
	}
	return fmt.Sprintf(`{"$ref":"#/$defs/a0","$defs":{%s"a%d":{"additionalProperties":{"$ref":"#"}}}}`, b.String(), n)
}

func TestHostileSchemas(t *testing.T) {
	for name, h := range hostile {
		t.Run(name, func(t *testing.T) {
			endtest.Must(t, func() {
				s, err := Read([]byte(h.schema))
				if err == nil {
					err = s.Check(t.Context(), value(t, h.value))
				}
				if err == nil {
					t.Error("it was checked to the end")
				}
				t.Logf("%.200v", err)
			})
		})
	}
}

// TestCheckEndsWithItsContext also shows that a check that was cut short leaves the schema usable.
func TestCheckEndsWithItsContext(t *testing.T) {
	s := mustRead(t, `{"items":{"type":"integer"}}`)
	v := value(t, repeated(50_000, "#i"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Check(ctx, v); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	if err := s.Check(t.Context(), v); err != nil {
		t.Error(err)
	}
}

func TestReadRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"a file":        `{"$ref":"file:///etc/passwd"}`,
		"an address":    `{"$ref":"http://127.0.0.1:1/x"}`,
		"a dialect":     `{"$schema":"file:///etc/hostname"}`,
		"no schema":     `{"type":3}`,
		"no JSON":       `{`,
		"too large":     `{"enum":` + repeated(30_000, "#i") + `}`,
		"too deep":      strings.Repeat(`{"not":`, 5000) + "true" + strings.Repeat("}", 5000),
		"long pattern":  `{"pattern":"` + strings.Repeat("x", 5000) + `"}`,
		"many patterns": `{"allOf":` + repeated(1000, `{"pattern":"a{900}"}`) + `}`,
	} {
		endtest.Must(t, func() {
			if _, err := Read([]byte(text)); err == nil {
				t.Errorf("%s: it was read", name)
			} else if strings.Contains(err.Error(), "\n") && len(err.Error()) > 2000 {
				t.Errorf("%s: %d bytes of error", name, len(err.Error()))
			}
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	s := mustRead(b, `{"properties":{"channels":{"required":["state"],"properties":{"state":{"properties":{
		"messages":{"items":{"type":"object","required":["role"],"properties":{"role":{"enum":["user","assistant"]},"n":{"type":"integer","minimum":0}}}}}}}}}}`)
	var text bytes.Buffer
	if err := json.Compact(&text, []byte(`{"channels":{"state":{"messages":`+repeated(100, `{"role":"user","n":#i,"content":"some words"}`)+`}}}`)); err != nil {
		b.Fatal(err)
	}
	v := value(b, text.String())
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Check(b.Context(), v); err != nil {
			b.Fatal(err)
		}
	}
}
