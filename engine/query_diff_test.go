package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/backendtest"
)

// decode reads a JSON value with its numbers as they are spelled.
func decode(t testing.TB, b []byte) (v any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("decoding %.200q: %v", b, err)
	}
	return v
}

// wantPatch applies a patch with another library and compares the values. That library takes only
// objects and arrays, so the values are put into one.
func wantPatch(t testing.TB, old, now, patch []byte) {
	t.Helper()
	var ops []map[string]json.RawMessage
	if err := json.Unmarshal(patch, &ops); err != nil {
		t.Fatalf("patch %s: %v", patch, err)
	}
	for _, op := range ops {
		for _, field := range []string{"path", "from"} {
			if op[field] != nil {
				op[field] = append([]byte(`"/doc`), op[field][1:]...)
			}
		}
	}
	inDoc, err := json.Marshal(ops)
	if err != nil {
		t.Fatal(err)
	}
	p, err := jsonpatch.DecodePatch(inDoc)
	if err != nil {
		t.Fatalf("patch %s: %v", patch, err)
	}
	wrap := func(b []byte) []byte { return fmt.Appendf(nil, `{"doc":%s}`, b) }
	got, err := p.Apply(wrap(old))
	if err != nil {
		t.Fatalf("applying %.2000s to %.2000s: %v", patch, old, err)
	}
	if !reflect.DeepEqual(decode(t, wrap(now)), decode(t, got)) {
		t.Fatalf("patch %.2000s of %.2000s gives %.2000s, want %.2000s", patch, old, got, now)
	}
}

func TestJSONPatch(t *testing.T) {
	for _, c := range []struct{ old, now, patch string }{
		{`[1,2]`, `[1,2,3]`, `[{"value":3,"op":"add","path":"/2"}]`},
		{`["a","b","c","d"]`, `["summary","c","d"]`, ``},
		{`[1,2,3,4]`, `[3,4]`, `[{"op":"remove","path":"/0"},{"op":"remove","path":"/0"}]`},
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`, `[{"value":9007199254740992,"op":"replace","path":"/a"}]`},
		{`{"a":1}`, `{"a":123456789012345678901234567890.000000000000000000001}`, ``},
		{`{"a":1}`, `{"a":1.0}`, `[{"value":1.0,"op":"replace","path":"/a"}]`},
		{`{"a":1}`, `{"a":1e400,"b":-0}`, ``},
		{`{"a":null}`, `{"a":false,"b":null,"c":"","d":[],"e":{},"f":0}`, ``},
		{`{"a":false,"b":null,"c":"","d":[],"e":{}}`, `{"a":null}`, ``},
		{`{"a/b":1,"m~n":{"":2}}`, `{"a/b":2,"m~n":{"":3,"~1":4}}`, ``},
		{`{"a":"\ud83d\ude00 \\ud800 <&> \u2028"}`, `{"a":"\ud83d\ude01 \\ud800 <&>","b":"\u0000"}`, ``},
		{`{ "a" : [ 1 ] }`, `{"a":[1]}`, `[]`},
		{`1`, `2`, ``}, {`"x"`, `{"a":1}`, ``}, {`[1]`, `{"0":1}`, ``}, {`null`, `[]`, ``}, {`{}`, `null`, ``},
	} {
		patch, why := patchOf(t, []byte(c.old), []byte(c.now))
		if why != "" || c.patch != "" && string(patch) != c.patch {
			t.Errorf("%s to %s: %s, %s; want %s", c.old, c.now, patch, why, c.patch)
			continue
		}
		wantPatch(t, []byte(c.old), []byte(c.now), patch)
	}
}

func TestJSONPatchRefused(t *testing.T) {
	deep := strings.Repeat("[", maxPatchDepth) + "1" + strings.Repeat("]", maxPatchDepth)
	for _, c := range []struct{ value, why string }{
		{``, "is not JSON"}, {`{`, "is not JSON"}, {`1 2`, "is not JSON"}, {`NaN`, "is not JSON"},
		{"\"\xff\"", "not Unicode"}, {`"\ud800"`, "not Unicode"}, {`"\ud800x"`, "not Unicode"}, {`"\udc00\ud800"`, "not Unicode"},
		{`"\ud800\n"`, "not Unicode"}, {`"\ud800\ud800\udc00"`, "not Unicode"},
		{deep, "nested deeper"},
		{`"` + strings.Repeat("x", MaxPatchInput) + `"`, "larger than 8 MiB"},
	} {
		for i, sides := range [][2]string{{c.value, "1"}, {"1", c.value}} {
			patch, why := patchOf(t, []byte(sides[0]), []byte(sides[1]))
			if patch != nil || !strings.Contains(why, c.why) {
				t.Errorf("%.80q as side %d: %s, %q", c.value, i, patch, why)
			}
		}
	}
	for _, fine := range []string{`"\\ud800"`, `"\\\\ud800"`, `"\ud800\udc00"`, `"\uD83D\uDE00\u0041"`, `"ud800"`, deep[1 : len(deep)-1]} {
		patch, why := patchOf(t, []byte("1"), []byte(fine))
		if why != "" {
			t.Errorf("%q is refused: %s", fine, why)
			continue
		}
		wantPatch(t, []byte("1"), []byte(fine), patch)
	}
}

// randomJSON makes a value of a few levels.
func randomJSON(r *rand.Rand, depth int) any {
	switch n := r.IntN(10); {
	case n < 3 && depth > 0:
		a := make([]any, r.IntN(8))
		for i := range a {
			a[i] = randomJSON(r, depth-1)
		}
		return a
	case n < 6 && depth > 0:
		o := map[string]any{}
		for range r.IntN(6) {
			o[string("ab~/ é"[r.IntN(6)])+fmt.Sprint(r.IntN(3))] = randomJSON(r, depth-1)
		}
		return o
	case n < 7:
		return []any{nil, true, false, "", []any{}, map[string]any{}}[r.IntN(6)]
	case n < 8:
		return json.Number(fmt.Sprint(r.Uint64()))
	}
	return string([]rune("xyz<\"\\")[r.IntN(6)])
}

// changeJSON changes a value here and there.
func changeJSON(r *rand.Rand, v any) any {
	if r.IntN(8) == 0 {
		return randomJSON(r, 2)
	}
	switch v := v.(type) {
	case []any:
		out := append([]any{}, v...)
		for i := range out {
			if r.IntN(3) == 0 {
				out[i] = changeJSON(r, out[i])
			}
		}
		for range r.IntN(3) {
			at := r.IntN(len(out) + 1)
			if r.IntN(2) == 0 {
				out = append(out[:at:at], append([]any{randomJSON(r, 2)}, out[at:]...)...)
			} else if at < len(out) {
				out = append(out[:at:at], out[at+1:]...)
			}
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			if r.IntN(5) > 0 {
				out[k] = changeJSON(r, e)
			}
		}
		out[fmt.Sprint("n", r.IntN(3))] = randomJSON(r, 1)
		return out
	}
	return v
}

func TestJSONPatchRandom(t *testing.T) {
	runsAlone(t)
	r := rand.New(rand.NewPCG(4, 2))
	longest := 0
	for range 4000 {
		a := randomJSON(r, 5)
		b := changeJSON(r, a)
		old, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		now, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		patch, why := patchOf(t, old, now)
		if why != "" {
			t.Fatalf("%s to %s: %s", old, now, why)
		}
		longest = max(longest, bytes.Count(patch, []byte(`"op"`)))
		wantPatch(t, old, now, patch)
	}
	if longest < 20 {
		t.Errorf("the longest patch has %d operations: the values are too plain", longest)
	}
}

// Arrays too long to match element by element are compared place by place, and that is right too.
func TestJSONPatchLongArrays(t *testing.T) {
	var a, b []any
	for i := range 3000 {
		a = append(a, fmt.Sprint(i))
		if i%7 > 0 {
			b = append(b, fmt.Sprint(i))
		}
	}
	old, _ := json.Marshal(a)
	now, _ := json.Marshal(b)
	for _, sides := range [][2][]byte{{old, now}, {now, old}} {
		patch, why := patchOf(t, sides[0], sides[1])
		if why != "" {
			t.Fatal(why)
		}
		wantPatch(t, sides[0], sides[1], patch)
	}
}

func TestDiff(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	blobs := []BlobID{mustPutBlob(t, f.User("acme", "alice"), []byte("one")), mustPutBlob(t, f.User("acme", "alice"), []byte("two"))}
	huge := bytes.Repeat([]byte("0123456789"), MaxPatchInput/10+1)
	hugeJSON := func(end string) []byte { return append(append([]byte(`["`), huge...), `",`+end+`]`...) }
	first := save(t, th, Draft{Step: 1, RunID: "r1", Meta: []byte(`{"id":12345678901234567890}`), Labels: map[string]string{"gone": "1", "kept": "k", "other": "a"}, Blobs: blobs[:1],
		Channels: []Change{jsonChannel("messages", `["hello"]`), {Name: "same", Data: []byte("same")}, {Name: "gone", Data: []byte("gone!")}, jsonChannel("bad", `{"a":`),
			{Name: "text", Type: "text", Data: []byte("the quick fox")}, {Name: "typed", Type: "a", Data: []byte("x")}, {Name: "huge", Type: "json", Data: hugeJSON("1")}, {Name: "spelled", Type: "json", Data: []byte("[1]")}}})
	second := save(t, th, Draft{Step: 2, Status: StatusFailed, SchemaVersion: 7, Branch: "b", Meta: []byte(`{"id":12345678901234567891}`), Labels: map[string]string{"new": "2", "kept": "k", "other": "b"}, Blobs: blobs[1:],
		Channels: []Change{jsonChannel("messages", `["hello","world"]`), {Name: "same", Data: []byte("same")}, {Name: "added", Type: "text", Data: []byte("new")}, jsonChannel("bad", `{"a":1}`),
			{Name: "text", Type: "text", Data: []byte("the slow fox")}, {Name: "typed", Type: "b", Data: []byte("x")}, {Name: "huge", Type: "json", Data: hugeJSON("2")}, {Name: "spelled", Type: "json", Data: []byte("[ 1 ]")}}})
	n := int64(len(hugeJSON("1")))
	want := []ChannelDiff{
		{"added", "", "text", ValueDiff{Kind: Added, NewSize: 3}},
		{"bad", "json", "json", ValueDiff{Kind: Changed, OldSize: 5, NewSize: 7, Prefix: 5, NoPatch: "the old value is not JSON"}},
		{"gone", "bytes", "", ValueDiff{Kind: Removed, OldSize: 5}},
		{"huge", "json", "json", ValueDiff{Kind: Changed, OldSize: n, NewSize: n, Prefix: n - 2, Suffix: 1, NoPatch: "larger than 8 MiB"}},
		{"messages", "json", "json", ValueDiff{Kind: Changed, OldSize: 9, NewSize: 17, Prefix: 8, Suffix: 1, Patch: []byte(`[{"value":"world","op":"add","path":"/1"}]`)}},
		{"same", "bytes", "bytes", ValueDiff{Kind: Same, OldSize: 4, NewSize: 4, Prefix: 4}},
		{"spelled", "json", "json", ValueDiff{Kind: Changed, OldSize: 3, NewSize: 5, Prefix: 1, Suffix: 1, Patch: []byte("[]")}},
		{"text", "text", "text", ValueDiff{Kind: Changed, OldSize: 13, NewSize: 12, Prefix: 4, Suffix: 4}},
		{"typed", "a", "b", ValueDiff{Kind: Changed, OldSize: 1, NewSize: 1, Prefix: 1}},
	}
	for range 2 {
		d, err := th.Diff(ctx, At(first.ID), Latest)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, d.Channels); diff != "" {
			t.Errorf("channels (-want +got):\n%s", diff)
		}
		if d.From.ID != first.ID || d.To.ID != second.ID || d.From.Channels[0].Data != nil {
			t.Errorf("compared %s with %s", d.From.ID, d.To.ID)
		}
		wantPatch(t, first.Meta, second.Meta, d.Meta.Patch)
		fields := []FieldDiff{{"blob", Removed, blobs[0].String(), ""}, {"blob", Added, "", blobs[1].String()}, {"branch", Added, "", "b"}, {"run id", Removed, "r1", ""},
			{"schema version", Changed, "0", "7"}, {"status", Changed, "running", "failed"}, {"step", Changed, "1", "2"}}
		labels := []FieldDiff{{"gone", Removed, "1", ""}, {"new", Added, "", "2"}, {"other", Changed, "a", "b"}}
		if diff := cmp.Diff([][]FieldDiff{fields, labels}, [][]FieldDiff{d.Fields, d.Labels}); diff != "" {
			t.Errorf("fields and labels (-want +got):\n%s", diff)
		}
		f.reopen()
		th = f.Thread(testRef("t"))
	}
	d, err := th.Diff(ctx, Latest, AtSeq(2))
	if err != nil || d.Fields != nil || d.Labels != nil || d.Meta.Kind != Same {
		t.Fatalf("a checkpoint and itself: %+v, %v", d, err)
	}
	for _, c := range d.Channels {
		if c.Kind != Same || c.Prefix != c.NewSize || c.OldSize != c.NewSize {
			t.Errorf("a checkpoint and itself: %+v", c)
		}
	}
}

// Channels that hold the same bytes are the same, however they came by them.
func TestDiffOfBranches(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	root := save(t, th, Draft{Channels: []Change{jsonChannel("n", "[0]")}})
	one := save(t, th, Draft{Parent: root.ID, Channels: []Change{jsonChannel("n", "[1]")}})
	two := save(t, th, Draft{Parent: root.ID, Channels: []Change{jsonChannel("n", "[1]"), jsonChannel("m", "1")}})
	d, err := th.Diff(ctx, At(one.ID), At(two.ID))
	if err != nil {
		t.Fatal(err)
	}
	want := []ChannelDiff{{"m", "", "json", ValueDiff{Kind: Added, NewSize: 1}}, {"n", "json", "json", ValueDiff{Kind: Same, OldSize: 3, NewSize: 3, Prefix: 3}}}
	if diff := cmp.Diff(want, d.Channels); diff != "" || d.Fields != nil {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDiffErrors(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{CacheBytes: -1})
	fault := backendtest.NewFault(f.be)
	f.be = fault.Backend()
	f.reopen()
	th := f.Thread(testRef("t"))
	if _, err := th.Diff(ctx, Latest, Latest); !errors.Is(err, ErrNotFound) {
		t.Errorf("a thread that does not exist: %v", err)
	}
	saveLine(t, th, 3)
	for _, w := range [][2]Which{{At("x"), Latest}, {Latest, At("x")}, {AtSeq(4), Latest}, {Latest, HeadOf("b")}} {
		if _, err := th.Diff(ctx, w[0], w[1]); !errors.Is(err, ErrNotFound) {
			t.Errorf("%+v: %v", w, err)
		}
	}
	for k := 0; ; k++ {
		fault.Arm(backendtest.Plan{Ops: backendtest.OpAny, After: k, Err: backend.ErrUnavailable})
		d, err := th.Diff(ctx, AtSeq(1), Latest)
		fault.Disarm()
		if fault.Fired() == 0 {
			if err != nil || k == 0 {
				t.Errorf("fault %d never came: %v", k, err)
			}
			break
		}
		if !errors.Is(err, ErrUnavailable) || d != nil {
			t.Errorf("fault %d: %+v, %v", k, d, err)
		}
	}
}

// Whatever a patch is made of, applying it gives the new value.
func FuzzJSONPatch(f *testing.F) {
	for _, seed := range [][2]string{
		{`[1,2,3]`, `[3,1]`}, {`{"a":[{"b":"\ud83d\ude00"}]}`, `{"a":[],"":null}`}, {`"\\ud800"`, `"\ud800"`}, {`{"a":1e9}`, `{"a":1e09}`},
		{`{"a":1,"a":2}`, `{"a":2,"a":1}`}, {`{"a/~b":[[],{}]}`, `{"a/~b":[{},[]]}`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, old, now []byte) {
		if patch, why := patchOf(t, old, now); why == "" {
			wantPatch(t, old, now, patch)
		} else if patch != nil {
			t.Errorf("%q to %q: a patch and a reason, %s", old, now, why)
		}
	})
}

// patchOf is jsonPatch with all the room that there is.
func patchOf(t *testing.T, old, now []byte) (patch []byte, why string) {
	t.Helper()
	patch, why, err := jsonPatch(context.Background(), old, now)
	must(t, err)
	return patch, why
}
