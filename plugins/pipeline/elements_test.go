package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins"
)

const byElement = "idempotent = true\n" + preSave + "scope = \"element\"\n"

func split(data string) ([]string, bool) {
	s := splitter{data: []byte(data)}
	var all []string
	for {
		e, ok := s.next()
		if !ok {
			return all, s.state == splitEnd
		}
		all = append(all, data[e.start:e.end])
	}
}

func TestSplit(t *testing.T) {
	for _, tt := range []struct{ data, want string }{
		{`[1, "a,]\"" ,{"b":[2]},[3]]`, `1|"a,]\""|{"b":[2]}|[3]`},
		{` { "m" : [ {"a":1} , 2 ] , "n":null,"o":{"p":[4]} , "q":[]} `, `{"a":1}|2|null|{"p":[4]}`},
		{`[]`, ``}, {`{}`, ``}, {`"x"`, `"x"`}, {` 12 `, `12`}, {`["\\"]`, `"\\"`}, {`["\\\"]"]`, `"\\\"]"`},
	} {
		got, ok := split(tt.data)
		if !ok || strings.Join(got, "|") != tt.want {
			t.Errorf("%s: %q, %v", tt.data, got, ok)
		}
	}
	for _, data := range []string{``, `[`, `[1`, `["a]`, `{"a"}`, `{1:2}`, `[1]2`, `{"a":[1}`, `[}`} {
		if got, ok := split(data); ok {
			t.Errorf("%s was split: %q", data, got)
		}
	}
}

// TestElements: a plugin sees only new elements, one by one, and its input contains nothing that
// changes with the checkpoint.
func TestElements(t *testing.T) {
	plugin := replacing("x", "y")
	p := pipelineOf(bound(t, "a", byElement, plugin))
	it := channel("c", `{"m":["kept y", "x1" , 2 ],"n":"x2"}`)
	wantStrings(t, saved(t, p, it), `{"m":["kept y", "y1" , 2 ],"n":"y2"}`)
	call := plugin.calls[0]
	wantStrings(t, plugin.payloads(), `"kept y"`, `"x1"`, `2`, `"x2"`)
	if string(call.Meta) != `{"abi":1,"stage":"pre_save","kind":"channel","name":"c","type":"json"}` || call.Time.Unix() != 0 {
		t.Errorf("%s %v", call.Meta, call.Time)
	}
	it.Prev = []byte(`{"n":["kept y","y1",2]}`)
	wantStrings(t, saved(t, p, it), `{"m":["kept y", "y1" , 2 ],"n":"y2"}`)
	wantStrings(t, plugin.payloads(), `"x1"`, `"x2"`)
	it.Data = it.Prev
	saved(t, p, it)
	wantStrings(t, plugin.payloads())
	wantStrings(t, saved(t, p, channel("c", `["x"`)), `["y"`) // not JSON: passed as a whole
	plugin.payloads()
	for _, tt := range []struct{ data, prev, want string }{
		{`[1,12]`, `[1,123]`, `12`}, {`[1,12]`, `[1,12,3]`, ``}, {`["a"]`, `["a","b"]`, ``}, {`["a","b"]`, `["a"]`, `"b"`}, {`12`, `123`, `12`}, {`12`, `12`, ``},
		{`[[1]]`, `[[1],2]`, ``}, {`{"a":tru}`, `{"a":true}`, `tru`},
	} {
		it := channel("c", tt.data)
		it.Prev = []byte(tt.prev)
		saved(t, p, it)
		if got := strings.Join(plugin.payloads(), "|"); got != tt.want {
			t.Errorf("of %s after %s: %s, want %s", tt.data, tt.prev, got, tt.want)
		}
	}
}

// TestElementsOfAppended: the cost of an appended element does not grow with the history.
func TestElementsOfAppended(t *testing.T) {
	plugin := replacing("x", "y")
	p := pipelineOf(bound(t, "a", byElement, plugin))
	var history []string
	prev := ""
	for i := range 30 {
		history = append(history, fmt.Sprintf(`{"n":%d,"body":"y"}`, i))
		it := channel("c", "["+strings.Join(history, ",")+"]")
		if prev != "" {
			it.Prev = []byte(prev)
		}
		prev = saved(t, p, it)[0]
		if got := plugin.payloads(); len(got) != 1 {
			t.Fatalf("step %d: %d calls", i, len(got))
		}
	}
}

func TestManyElements(t *testing.T) {
	p := pipelineOf(bound(t, "a", byElement, replacing("x", "y")))
	call := callOf(channel("c", "["+strings.Repeat("1,", maxElements)+"1]"))
	if err := chainOf(t, p, hook.PreSave).Run(context.Background(), call); !errors.Is(err, hook.ErrLimit) {
		t.Error(err)
	}
}

// shout leaves its own and the redactor's output unchanged: it turns some words to upper case and
// replaces each ? with random digits.
func shout(c *plugins.Call) (*plugins.Result, error) {
	out := bytes.ReplaceAll(c.Payload, []byte("?"), fmt.Appendf(nil, "%X", c.Seed[:2]))
	for _, word := range []string{"text", "user", "deep"} {
		out = bytes.ReplaceAll(out, []byte(word), []byte(strings.ToUpper(word)))
	}
	return &plugins.Result{Output: out}, nil
}

// history returns consecutive values like those of an agent: mostly appended to, sometimes
// truncated or edited.
func history(rng *rand.Rand, steps int) []string {
	element := func() string {
		n := rng.IntN(1000)
		return []string{fmt.Sprintf(`{"role":"user","content":"mail jane%d@example.com ?"}`, n), fmt.Sprintf(`"text %d ?"`, n), fmt.Sprint(n),
			`[["deep?",{"a":"b"}]]`, `true`, `"\u0061lice@example.com \"?"`}[rng.IntN(6)]
	}
	var list []string
	var values []string
	for range steps {
		switch n := rng.IntN(10); {
		case n == 0 && len(list) > 2:
			list = append([]string{element()}, list[len(list)/2:]...)
		case n == 1 && len(list) > 0:
			list[rng.IntN(len(list))] = element()
		default:
			list = append(list, element())
		}
		body := "[" + strings.Join(list, []string{",", " ,\n"}[rng.IntN(2)]) + "]"
		if rng.IntN(3) == 0 {
			body = `{"messages":` + body + `,"n":` + element() + `}`
		}
		values = append(values, body)
	}
	return values
}

// TestElementsEqualTheWhole: given the parent's result, the result equals that of processing
// everything. The caller continues from what it sent, or from what was stored.
func TestElementsEqualTheWhole(t *testing.T) {
	p := pipelineOf(bound(t, "a", "idempotent = true\n"+preSave+"scope = \"element\"\ntypes = [\"json\"]\n", newFake(shout)), redactor(t))
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var prev []byte
		for i, value := range history(rng, 15) {
			data := []byte(value)
			if prev != nil && rng.IntN(2) == 0 && bytes.HasPrefix(prev, []byte("[")) {
				data = append(append(bytes.Clone(prev[:len(prev)-1]), `,"and more ? bob@example.com"`...), ']')
			}
			all := callOf(hook.Item{Kind: hook.Channel, Name: "c", Type: "json", Data: data})
			some := callOf(hook.Item{Kind: hook.Channel, Name: "c", Type: "json", Data: data, Prev: prev})
			some.Place.Step, some.Place.Checkpoint, some.Seed = int64(i), "other", [32]byte{byte(i)}
			for _, call := range []*hook.Call{all, some} {
				if err := chainOf(t, p, hook.PreSave).Run(context.Background(), call); err != nil {
					t.Fatal(err)
				}
			}
			if a, b := all.Items[0].Data, some.Items[0].Data; !bytes.Equal(a, b) {
				t.Fatalf("seed %d step %d of\n%s\nwith\n%s\nall:\n%s\nsome:\n%s", seed, i, data, prev, a, b)
			}
			if prev = all.Items[0].Data; !json.Valid(prev) || bytes.Contains(prev, []byte("example.com")) {
				t.Fatalf("%s", prev)
			}
		}
	}
}

// FuzzChangedElements: the elements found in JSON are in order, each is JSON, and none that isn't
// in prev is left out.
func FuzzChangedElements(f *testing.F) {
	f.Add(`[1,"a",{"b":[2]}]`, `[1,"a"]`)
	f.Add(`{"m":[1,2],"n":"x"}`, `{"m":[1],"n":"x"}`)
	f.Add(`[1`, `]`)
	f.Add(`["\\\"",[`, `{"a":[`)
	f.Fuzz(func(t *testing.T, data, prev string) {
		changed, ok := changedElements([]byte(data), []byte(prev))
		last := 0
		for _, e := range changed {
			if e.start < last || e.end <= e.start || e.end > len(data) {
				t.Fatalf("%v", changed)
			}
			last = e.end
		}
		if !json.Valid([]byte(data)) {
			return
		}
		all, whole := split(data)
		if !ok || !whole {
			t.Fatal("JSON was not split")
		}
		known := map[string]bool{}
		for _, e := range changed {
			known[data[e.start:e.end]] = true
		}
		if old, good := split(prev); good {
			for _, e := range old {
				known[e] = true
			}
		} else if len(changed) != len(all) && !strings.HasPrefix(prev, data[:1]) {
			t.Fatal("elements were left out for a prev that has none")
		}
		for _, e := range all {
			if !json.Valid([]byte(e)) {
				t.Fatalf("%q is no JSON", e)
			}
			if !known[e] && strings.Count(prev, e) == 0 {
				t.Fatalf("%q was left out", e)
			}
		}
	})
}
