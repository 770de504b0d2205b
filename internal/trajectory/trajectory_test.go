package trajectory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

// read parses text and returns the runs and the errors.
func read(t testing.TB, text string, o Options) (runs []*Run, errs []*Error) {
	t.Helper()
	for run, err := range Parse(strings.NewReader(text), o) {
		if err == nil {
			runs = append(runs, run)
			continue
		}
		e, ok := err.(*Error)
		if !ok {
			t.Fatalf("error %v is a %T", err, err)
		}
		errs = append(errs, e)
	}
	return runs, errs
}

// write returns a file with the runs.
func write(t testing.TB, form Form, runs []*Run) string {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b, form)
	for _, r := range runs {
		if err := w.Write(r.Meta, State(r.Messages)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestForms(t *testing.T) {
	const (
		a    = `{"id":1.50,"traj":[{"role":"user","content":"h\u00e9 <b>"},{"n":1e3}],"reward":1.0,"t\u00e9":null}`
		b    = `{"messages":["x"],"reward":0.0}`
		swe  = `{"trajectory":[{"action":"ls"}],"history":[{"role":"system"},{"role":"user"}],"info":{}}`
		none = `{"history":[]}`
	)
	for _, c := range []struct {
		name, in, out string
		form, want    Form
		counts        []int
		statuses      string
	}{
		{"array", " [" + a + " ,\n" + b + "] ", "", Auto, Array, []int{2, 1}, "succeeded failed"},
		{"no runs", "[ ]", "[]\n", Auto, Array, nil, ""},
		{"lines", a + "\n\n" + b + "\r\n" + none, a + "\n" + b + "\n" + none + "\n", Auto, Lines, []int{2, 1, 0}, "succeeded failed running"},
		{"one line", b + "\n", b + "\n", Lines, Lines, []int{1}, "failed"},
		{"no lines", "\n", "", Lines, Lines, nil, ""},
		{"pretty objects", "{\"messages\":\n[\"x\"]}\n" + b, `{"messages":["x"]}` + "\n" + b + "\n", Auto, Lines, []int{1, 1}, "running failed"},
		{"object", swe, "", Auto, Object, []int{2}, "running"},
		{"byte order mark", "\ufeff" + none, "", Auto, Object, []int{0}, "running"},
	} {
		t.Run(c.name, func(t *testing.T) {
			runs, errs := read(t, c.in, Options{Form: c.form})
			if len(errs) > 0 {
				t.Fatal(errs[0])
			}
			var counts []int
			var statuses []string
			for i, r := range runs {
				if r.Index != i || r.Form != c.want {
					t.Errorf("run %d: index %d, form %s", i, r.Index, r.Form)
				}
				if f, ok := FormOf(r.Meta); !ok || f != c.want {
					t.Errorf("run %d: form of the metadata is %s", i, f)
				}
				counts, statuses = append(counts, len(r.Messages)), append(statuses, r.Status)
			}
			if !reflect.DeepEqual(counts, c.counts) || strings.Join(statuses, " ") != c.statuses {
				t.Errorf("messages %v, statuses %v; want %v, %q", counts, statuses, c.counts, c.statuses)
			}
			got := write(t, c.want, runs)
			if c.out != "" && got != c.out {
				t.Errorf("written again:\n%s\nwant\n%s", got, c.out)
			}
			if c.out == "" && len(c.in) > 1 {
				var x, y bytes.Buffer
				if json.Compact(&x, []byte(strings.TrimPrefix(c.in, "\ufeff"))) != nil || json.Compact(&y, []byte(got)) != nil || x.String() != y.String() {
					t.Errorf("written again: %s\nwant %s", y.String(), x.String())
				}
			}
		})
	}
}

func TestMetaKeepsTheOtherMembers(t *testing.T) {
	runs, errs := read(t, `[{"b": 1.0, "messages" : null, "traj" : [ 1 ], "b":{"x" : "\u00e9"}}]`, Options{})
	if len(errs) > 0 {
		t.Fatal(errs[0])
	}
	want := `{"b":1.0,"messages":null,"traj":"ckptd:array","b":{"x":"\u00e9"}}`
	if got := string(runs[0].Meta); got != want {
		t.Errorf("meta %s, want %s", got, want)
	}
}

func TestIndentIsThatOfPython(t *testing.T) {
	// The output of json.dumps(runs, indent=2) of Python 3.12, and a line feed.
	const want = `[
  {
    "traj": [
      {
        "role": "user",
        "parts": [],
        "extra": {}
      }
    ],
    "f": 1e-07
  },
  {
    "traj": []
  }
]
`
	runs, errs := read(t, want, Options{})
	if len(errs) > 0 {
		t.Fatal(errs[0])
	}
	if got := write(t, Array, runs); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestErrors(t *testing.T) {
	deep := strings.Repeat("[", 20000) + strings.Repeat("]", 20000)
	for _, c := range []struct {
		name, in string
		o        Options
		runs     int
		want     []string
		kind     error
	}{
		{"empty", "", Options{}, 0, []string{`f:1 (offset 0): the file is empty; nothing after it was read`}, ErrSyntax},
		{"scalar", "12", Options{}, 0, []string{`f:1 (offset 0): found '1', want a JSON array or object of agent runs; nothing after it was read`}, ErrSyntax},
		{"truncated", "[{\"traj\":[1]},\n{\"traj\":[1,", Options{}, 1, []string{`f:2 (offset 26): run 1: unexpected end of the file; nothing after it was read`}, ErrSyntax},
		{"bad token", "[{\"traj\":[1]},\n{\"traj\":[\n{\"a\":tru}]}]", Options{}, 1, []string{`f:3 (offset 33): run 1: invalid character '}' in literal true (expecting 'e'); nothing after it was read`}, ErrSyntax},
		{"no comma", `[{"traj":[1]}{"traj":[1]}]`, Options{}, 1, []string{`f:1 (offset 13): found '{', want one of ",]"; nothing after it was read`}, ErrSyntax},
		{"trailing comma", `[{"traj":[1],}]`, Options{}, 0, []string{`f:1 (offset 13): run 0: found '}', want one of "\""; nothing after it was read`}, ErrSyntax},
		{"crossed brackets", `[{"traj":[{"a":[1}]}]}]`, Options{}, 0, []string{`f:1 (offset 17): run 0: invalid character '}' after array element; nothing after it was read`}, ErrSyntax},
		{"trailing text", `[{"traj":[1]}] x`, Options{}, 1, []string{`f:1 (offset 15): found 'x' after the end of the array; nothing after it was read`}, ErrSyntax},
		{"not runs", `[1,{"a":2},{"traj":3},{"traj":[1]}]`, Options{}, 1, []string{
			`f:1 (offset 1): run 0: not an object`,
			`f:1 (offset 3): run 1: no array named traj, messages, history or trajectory`,
			`f:1 (offset 11): run 2: no array named traj, messages, history or trajectory`}, ErrSyntax},
		{"reserved", `[{"traj":"ckptd:array","messages":[1]}]`, Options{}, 0, []string{`f:1 (offset 1): run 0: another member contains the text "ckptd:array"`}, ErrSyntax},
		{"invalid UTF-8", "[{\"traj\":[\"ab\xff\"]}]", Options{}, 0, []string{`f:1 (offset 13): run 0: invalid UTF-8; nothing after it was read`}, ErrSyntax},
		{"too deep", `[{"traj":[` + deep + `]}]`, Options{}, 0, []string{`f:1 (offset 10010): run 0: invalid character '[' exceeded max depth; nothing after it was read`}, ErrSyntax},
		{"bad lines", "{\"traj\":[1]}\n{\"traj\":[1\n{\"traj\":[2]}\nnonsense\n{\"traj\":[1 2]} 3\n{\"traj\":[3]", Options{}, 2, []string{
			`f:2 (offset 23): run 1: unexpected end of the line`,
			`f:4 (offset 38): run 3: invalid character 'o' in literal null (expecting 'u')`,
			`f:5 (offset 57): run 4: found '2', want one of ",]"`,
			`f:6 (offset 74): run 5: unexpected end of the file`}, ErrSyntax},
		{"bad first line", "{\"traj\":[\n{\"traj\":[2]}\n", Options{Form: Lines}, 1, []string{`f:1 (offset 9): run 0: unexpected end of the line`}, ErrSyntax},
		{"second object", `{"traj":[1]}{"traj":[1]}`, Options{Form: Object}, 1, []string{`f:1 (offset 12): found '{' after the end of the object; nothing after it was read`}, ErrSyntax},
		{"large message", `[{"traj":[1,"123456789",2]},{"traj":[1]}]`, Options{MaxMessage: 10}, 1, []string{`f:1 (offset 12): run 0: message 1: a value of 11 bytes is over the limit of 10`}, ErrTooLarge},
		{"large run", `[{"traj":["123456789","123456789"]},{"traj":[1]}]`, Options{MaxMessage: 20, MaxRun: 20}, 1, []string{`f:1 (offset 22): run 0: message 1: the run is over the limit of 20 bytes`}, ErrTooLarge},
		{"large element", `["1234567890",{"traj":[1]}]`, Options{MaxMessage: 10, MaxRun: 11}, 1, []string{`f:1 (offset 1): run 0: a value of 12 bytes is over the limit of 11`}, ErrTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.File = "f"
			runs, errs := read(t, c.in, c.o)
			var got []string
			for _, e := range errs {
				got = append(got, e.Error())
				if !errors.Is(e, c.kind) {
					t.Errorf("%v does not match %v", e, c.kind)
				}
			}
			if len(runs) != c.runs || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%d runs, want %d\nerrors %q\nwant   %q", len(runs), c.runs, got, c.want)
			}
		})
	}
}

func TestReaderFails(t *testing.T) {
	for _, in := range []string{"", "[", `[{"traj":[1]}`, `[{"traj":[1]}]`, `{"traj":[1]}`, "{\"traj\":[1]}\n{\"traj\":[1]}\n"} {
		broken := io.MultiReader(strings.NewReader(in), iotest.ErrReader(errors.New("disk on fire")))
		var last error
		for _, err := range Parse(broken, Options{}) {
			last = err
		}
		if !errors.Is(last, ErrRead) || !strings.Contains(last.Error(), "disk on fire") {
			t.Errorf("%q: last error is %v", in, last)
		}
	}
}

// Every truncation of a file gives the runs that are complete in it, and an error unless the file
// is complete.
func TestTruncations(t *testing.T) {
	const whole = `[{"traj":[{"a":"\u00e9\""},[1,{}]],"reward":1},{"messages":[1.5,null],"b":"x"}]`
	first := strings.Index(whole, "1},{") + 2
	for n := range len(whole) {
		for _, r := range []io.Reader{strings.NewReader(whole[:n]), iotest.OneByteReader(strings.NewReader(whole[:n]))} {
			runs, fails := 0, 0
			for _, err := range Parse(r, Options{}) {
				if err == nil {
					runs++
				} else if fails++; !errors.Is(err, ErrSyntax) || !err.(*Error).Fatal {
					t.Errorf("%q: %v", whole[:n], err)
				}
			}
			want := 0
			if n >= first {
				want++
			}
			if n == len(whole)-1 {
				want++
			}
			if runs != want || fails != 1 {
				t.Errorf("%q: %d runs, want %d; %d errors", whole[:n], runs, want, fails)
			}
		}
	}
}

// A message above the limit is not kept while it is read.
func TestLargeMessageTakesNoMemory(t *testing.T) {
	for _, quote := range []string{`"`, ""} { // a string, a number
		const size, limit = 32 << 20, 1 << 20
		in := io.MultiReader(strings.NewReader(`[{"traj":[`+quote), io.LimitReader(sevens{}, size), strings.NewReader(quote+`]},{"traj":[1]}]`))
		var before, after runtime.MemStats
		var runs int
		var tooLarge error
		runtime.ReadMemStats(&before)
		for _, err := range Parse(in, Options{MaxMessage: limit}) {
			if err == nil {
				runs++
			} else {
				tooLarge = err
			}
		}
		runtime.ReadMemStats(&after)
		if runs != 1 || !errors.Is(tooLarge, ErrTooLarge) {
			t.Errorf("%d runs, error %v", runs, tooLarge)
		}
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 8*limit {
			t.Errorf("%d bytes allocated for a limit of %d", allocated, limit)
		}
	}
}

type sevens struct{}

func (sevens) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '7'
	}
	return len(p), nil
}

func TestJoinWithoutMark(t *testing.T) {
	for _, c := range [][3]string{
		{``, `[1]`, `{"messages":[1]}`},
		{`{}`, `[1]`, `{"messages":[1]}`},
		{`{"a":1 }`, `[1]`, `{"a":1,"messages":[1]}`},
	} {
		if got, err := Join([]byte(c[0]), []byte(c[1])); err != nil || string(got) != c[2] {
			t.Errorf("Join(%s, %s) = %s, %v; want %s", c[0], c[1], got, err, c[2])
		}
	}
	for _, bad := range [][2]string{{`[1]`, `[]`}, {`{"a"`, `[]`}, {`{}`, `[`}, {`"x"`, `[]`}} {
		if got, err := Join([]byte(bad[0]), []byte(bad[1])); err == nil {
			t.Errorf("Join(%s, %s) = %s", bad[0], bad[1], got)
		}
	}
}

func TestParseForm(t *testing.T) {
	for f := Auto; f <= Object; f++ {
		if got, err := ParseForm(f.String()); err != nil || got != f {
			t.Errorf("ParseForm(%q) = %v, %v", f, got, err)
		}
	}
	if _, err := ParseForm("yaml"); err == nil {
		t.Error("yaml is a form")
	}
}

// The 200 runs of tau-bench come back byte for byte.
func TestRealRuns(t *testing.T) {
	path := filepath.Join("..", "..", "..", "shared", "data", "tau-bench", "gpt-4o-airline.json")
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("the tau-bench runs are not there: ", path)
	} else if err != nil {
		t.Fatal(err)
	}
	runs, errs := read(t, string(data), Options{})
	if len(errs) > 0 {
		t.Fatal(errs[0])
	}
	messages := 0
	for _, r := range runs {
		messages += len(r.Messages)
		if r.Status == Running {
			t.Errorf("run %d has no reward", r.Index)
		}
	}
	if len(runs) != 200 || messages != 5308 {
		t.Errorf("%d runs of %d messages", len(runs), messages)
	}
	if write(t, Array, runs) != string(data) {
		t.Error("written again, the file is another one")
	}
}

// Whatever the input, reading ends, a run that was read is written and read again as the same run.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "[]", "{}", `[{"traj":[]}]`, `{"history":[1],"trajectory":[2]}`, "{\"messages\":[1]}\n{\"messages\":[2]}\n",
		`[{"traj":[{"a":"\u00e9"}],"reward":0.5,"traj":[1]}]`, "{\"messages\":[1]}\nx\n{\"traj\":[]}", "\ufeff[1,2]",
		`{"traj":"ckptd:object","messages":[]}`, "[{\"traj\":[1,\"\xff\"]}]", `{"tr\u0061j":[1]}`, `{"messages":[1]} {"traj":[{}]}`,
	} {
		f.Add(seed, byte(Auto))
	}
	f.Add("{\"traj\":[\n{\"traj\":[2]}\n", byte(Lines))
	f.Fuzz(func(t *testing.T, in string, form byte) {
		runs, errs := read(t, in, Options{Form: Form(form % 4), MaxMessage: 1 << 10, MaxRun: 1 << 12})
		for i, e := range errs {
			if e.Line < 1 || e.Offset < 0 || e.Offset > int64(len(in)) || e.Fatal && i != len(errs)-1 {
				t.Errorf("error %d of %d: %#v", i, len(errs), e)
			}
		}
		for _, r := range runs {
			text := write(t, Object, []*Run{r})
			again, errs := read(t, text, Options{Form: Object})
			if len(errs) > 0 || len(again) != 1 {
				t.Fatalf("run %+v was written as %s: %d runs, %v", r, text, len(again), errs)
			}
			if !reflect.DeepEqual(again[0].Messages, r.Messages) || again[0].Status != r.Status {
				t.Errorf("read again: %+v\nwas %+v", again[0], r)
			}
			want := strings.Replace(string(r.Meta), placeholder(r.Form), placeholder(Object), 1)
			if string(again[0].Meta) != want {
				t.Errorf("metadata read again: %s\nwant %s", again[0].Meta, want)
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	var in bytes.Buffer
	w := NewWriter(&in, Array)
	for range 100 {
		var messages []json.RawMessage
		for i := range 30 {
			messages = append(messages, json.RawMessage(fmt.Sprintf(`{"role":"user","content":%q}`, strings.Repeat("word ", 20*i))))
		}
		if err := w.Write(nil, State(messages)); err != nil {
			b.Fatal(err)
		}
	}
	w.Close()
	b.SetBytes(int64(in.Len()))
	for b.Loop() {
		for _, err := range Parse(bytes.NewReader(in.Bytes()), Options{}) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}
