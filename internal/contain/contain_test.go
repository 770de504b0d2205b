package contain

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

// PostgreSQL 15 gives the same results, except for the last five, which it refuses to read:
// SELECT doc::jsonb @> object::jsonb.
func TestIn(t *testing.T) {
	for _, c := range []struct {
		doc, object string
		want        bool
	}{
		{`{"a":1}`, `{}`, true},
		{`{}`, `{}`, true},
		{`[]`, `{}`, false},
		{`[{"a":1}]`, `{"a":1}`, false},
		{`1`, `{}`, false},
		{`{"a":1,"b":2}`, `{"b":2}`, true},
		{`{"a":1}`, `{"a":1.0}`, true},
		{`{"a":10}`, `{"a":1e1}`, true},
		{`{"a":0.1}`, `{"a":1E-1}`, true},
		{`{"a":-0}`, `{"a":0.00e7}`, true},
		{`{"a":100000000000000000001}`, `{"a":100000000000000000000}`, false},
		{`{"a":100000000000000000001}`, `{"a":100000000000000000001.0}`, true},
		{`{"a":-1}`, `{"a":1}`, false},
		{`{"a":1}`, `{"a":"1"}`, false},
		{`{"a":null}`, `{"a":null}`, true},
		{`{}`, `{"a":null}`, false},
		{`{"a":false}`, `{"a":null}`, false},
		{`{"a":true}`, `{"a":true}`, true},
		{`{"a":[1,2,3]}`, `{"a":[3,1]}`, true},
		{`{"a":[1,2]}`, `{"a":[1,1,1]}`, true},
		{`{"a":[1,2]}`, `{"a":[]}`, true},
		{`{"a":[1]}`, `{"a":1}`, false},
		{`{"a":1}`, `{"a":[1]}`, false},
		{`{"a":[]}`, `{"a":{}}`, false},
		{`{"a":{"b":{"c":1,"d":2}}}`, `{"a":{"b":{"d":2}}}`, true},
		{`{"a":{"b":{"c":1,"d":2}}}`, `{"b":{"d":2}}`, false},
		{`{"a":[{"b":1,"c":2},{"b":3}]}`, `{"a":[{"b":3}]}`, true},
		{`{"a":[{"b":1},{"c":2}]}`, `{"a":[{"b":1,"c":2}]}`, false},
		{`{"a":[[1,2],[3]]}`, `{"a":[[2]]}`, true},
		{`{"a":[[1],[2]]}`, `{"a":[[1,2]]}`, false},
		{`{"a":[1,[2]]}`, `{"a":[2]}`, false},
		{`{"a":[{}]}`, `{"a":[[]]}`, false},
		{`{"a":1,"a":2}`, `{"a":2}`, true},
		{`{"a":1,"a":2}`, `{"a":1}`, false},
		{`{"a":2}`, `{"a":1,"a":2}`, true},
		{`{"a":1}`, `{"a":1,"a":2}`, false},
		{`{"\u0061":"\u00e9"}`, `{"a":"é"}`, true},
		{`{"a":"\"\\"}`, `{"a":"\u0022\u005c"}`, true},
		{"{\"a\" :\t[ 1 , {\"b\" : \"x,y:[{\" } ]\n}", `{"a":[{"b":"x,y:[{"}]}`, true},
		{`{"a":"x"}`, `{"A":"x"}`, false},
		{`{"a":""}`, `{"a":""}`, true},
		{`{"":1}`, `{"":1}`, true},
		{`not JSON`, `{}`, false},
		{``, `{}`, false},
		{`{"a":1e999999999999999999999}`, `{"a":1e999999999999999999999}`, true},
		{`{"a":1e999999999999999999999}`, `{"a":1e999999999999999999998}`, false},
		{`{"a":0e999999999999999999999}`, `{"a":0}`, true},
	} {
		o, err := Parse([]byte(c.object))
		if err != nil {
			t.Fatalf("%s: %v", c.object, err)
		}
		if got, err := o.In([]byte(c.doc)); got != c.want || err != nil {
			t.Errorf("%s @> %s: %t, %v, want %t", c.doc, c.object, got, err, c.want)
		}
	}
}

func TestParse(t *testing.T) {
	for _, text := range []string{``, `[]`, `1`, `"a"`, `null`, `{`, `{"a":1}}`, "{\"a\":\"\xff\"}"} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

// The work is bounded, whatever is compared.
func TestSteps(t *testing.T) {
	items := func(item string, n int) string { return "[" + strings.Repeat(item+",", n-1) + item + "]" }
	for _, c := range []struct{ doc, object string }{
		{`{"a":` + items(`[1,2]`, 5000) + `}`, `{"a":` + items(`[3]`, 5000) + `}`},
		{`{"a":` + items(`1`, 100_000) + `}`, `{"a":` + items(`2`, 1) + `}`}, // linear
		{`{"a":` + items(items(`[0]`, 300), 300) + `}`, `{"a":` + items(items(`[1]`, 300), 300) + `}`},
		{`{` + strings.Repeat(`"a":1,`, 100_000) + `"b":1}`, `{` + strings.Repeat(`"c":1,`, 1000) + `"b":1}`},
		{strings.Repeat(`{"a":[`, 5000) + strings.Repeat(`]}`, 5000), strings.Repeat(`{"a":[`, 5000) + strings.Repeat(`]}`, 5000)},
		{`{"a":` + items(`1`+strings.Repeat("0", 5000), 100) + `}`, `{"a":` + items(`1`+strings.Repeat("0", 4999)+"2", 100) + `}`},
	} {
		o, err := Parse([]byte(c.object))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.In([]byte(c.doc)); err != nil && !errors.Is(err, ErrSteps) {
			t.Error(err)
		}
	}
	o, _ := Parse([]byte(`{"a":` + items(`[3]`, 5000) + `}`))
	if _, err := o.In([]byte(`{"a":[` + strings.Repeat(`[1,2],`, 5000) + `[3]]}`)); !errors.Is(err, ErrSteps) {
		t.Errorf("25 million comparisons: %v", err)
	}
}

// Random documents, against an evaluation of decoded values.
func TestInRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	yes := 0
	for range 200_000 {
		doc, object := marshal(t, value(r, 3, '{')), marshal(t, value(r, 3, '{'))
		o, err := Parse(object)
		if err != nil {
			t.Fatal(err)
		}
		want := contains(decode(t, doc), decode(t, object))
		if got, err := o.In(doc); got != want || err != nil {
			t.Fatalf("%s @> %s: %t, %v, want %t", doc, object, got, err, want)
		}
		if n := len(parse(doc).nodes); n > most(doc) {
			t.Fatalf("%s: %d nodes, at most %d expected", doc, n, most(doc))
		}
		if want {
			yes++
		}
	}
	if yes < 1000 {
		t.Errorf("only %d contained", yes)
	}
}

func value(r *rand.Rand, depth int, kind byte) any {
	if kind == 0 {
		kind = "{[0\"tn"[r.IntN(6)]
	}
	if depth == 0 && kind != '{' {
		kind = '0'
	}
	switch kind {
	case '{':
		m := map[string]any{}
		for range r.IntN(3) {
			m[[]string{"a", "b", "é\""}[r.IntN(3)]] = value(r, max(depth-1, 0), "0[{"[r.IntN(3)])
			if depth == 0 {
				m = map[string]any{"a": 1}
			}
		}
		return m
	case '[':
		a := []any{}
		for range r.IntN(3) {
			a = append(a, value(r, depth-1, 0))
		}
		return a
	case '"':
		return []string{"", "x", "\n\\"}[r.IntN(3)]
	case 't':
		return r.IntN(2) == 0
	case 'n':
		return nil
	}
	return json.Number([]string{"1", "1.0", "10e-1", "2", "-1"}[r.IntN(5)])
}

func marshal(t *testing.T, v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func decode(t *testing.T, b []byte) (v any) {
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func contains(a, b any) bool {
	switch b := b.(type) {
	case map[string]any:
		a, ok := a.(map[string]any)
		for k, v := range b {
			have, there := a[k]
			ok = ok && there && contains(have, v)
		}
		return ok
	case []any:
		a, ok := a.([]any)
		for _, v := range b {
			found := false
			for _, have := range a {
				found = found || contains(have, v)
			}
			ok = ok && found
		}
		return ok
	}
	switch a.(type) {
	case map[string]any, []any:
		return false
	}
	return a == b
}

func FuzzIn(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":"x"}]}`), []byte(`{"a":[{"b":"x"}]}`))
	f.Fuzz(func(t *testing.T, doc, object []byte) {
		o, err := Parse(object)
		if err != nil {
			return
		}
		if _, err := o.In(doc); err != nil && !errors.Is(err, ErrSteps) {
			t.Error(err)
		}
		if yes, err := o.In(object); err == nil && !yes {
			t.Errorf("%q does not contain itself", object)
		}
	})
}
