package examples

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins"
	"github.com/ckptd/ckptd/plugins/bundle"
	"github.com/ckptd/ckptd/plugins/scaffold"
	"github.com/ckptd/ckptd/plugins/trial"
)

// bed is shared by the tests of the examples, because building and compiling dominate their time.
type bed struct {
	Builder
	host   *plugins.Host
	loaded map[string]*plugins.Plugin
}

func TestExamples(t *testing.T) {
	b := &bed{host: newHost(t), loaded: map[string]*plugins.Plugin{}}
	t.Run("sdk", b.sdk)
	t.Run("fixtures", b.fixtures)
	t.Run("redactors", b.redactors)
	t.Run("agree", b.agree)
	t.Run("summary", b.summary)
	t.Run("channels", b.channels)
}

// load loads an example.
func (b *bed) load(t testing.TB, name, config string) *plugins.Plugin {
	t.Helper()
	if p := b.loaded[name]; p != nil {
		return p
	}
	spec := plugins.Spec{Name: name, Binary: b.Module(t, name), Capabilities: plugins.Capabilities{PutBlob: true}}
	if config != "" {
		spec.Config = []byte(config)
	}
	p, err := patient(b.host)(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	b.loaded[name] = p
	return p
}

// newHost returns a host that compiles each module only once, which takes long with the race
// detector.
func newHost(t testing.TB) *plugins.Host {
	t.Helper()
	h, err := plugins.New(plugins.Options{CacheDir: filepath.Join(t.TempDir(), "cache"), CacheKey: [32]byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// patient returns a load function with the maximum compile time.
func patient(h *plugins.Host) func(context.Context, plugins.Spec) (*plugins.Plugin, error) {
	return func(ctx context.Context, s plugins.Spec) (*plugins.Plugin, error) {
		s.Limits.Compile, s.Limits.Init = plugins.HardLimits().Compile, plugins.HardLimits().Init
		return h.Load(ctx, s)
	}
}

// fixtures runs the fixtures of every example.
func (b *bed) fixtures(t *testing.T) {
	for _, name := range All() {
		t.Run(name, func(t *testing.T) { try(t, b.host, b.Bundle(t, name)) })
	}
}

// try runs the fixtures of the bundle in a directory.
func try(t testing.TB, h *plugins.Host, dir string) {
	t.Helper()
	plugin, err := bundle.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	load := func(ctx context.Context, s plugins.Spec) (trial.Plugin, error) { return patient(h)(ctx, s) }
	outcomes, err := trial.FixturesIn(context.Background(), load, plugin)
	if err != nil || len(outcomes) < 2 {
		t.Fatalf("%d outcomes, %v", len(outcomes), err)
	}
	for _, o := range outcomes {
		if o.Problem != "" {
			t.Errorf("%s: %s: %s", o.Fixture.Input, o.Problem, o.Result.Output)
		}
	}
}

// redact passes a payload through a redactor twice: the second time must change nothing.
func redact(t testing.TB, p *plugins.Plugin, payload []byte) []byte {
	t.Helper()
	once := payload
	for pass := range 2 {
		r, err := p.Call(context.Background(), &plugins.Call{Stage: hook.PreSave, Payload: once})
		if err != nil {
			t.Fatalf("%q: %v", payload, err)
		}
		switch {
		case pass > 0 && !r.Unchanged:
			t.Fatalf("%q: redacted twice it is %q, and once %q", payload, r.Output, once)
		case r.Unchanged:
			return once
		}
		once = r.Output
	}
	return once
}

// Texts that the four redactors have to find, and texts that they must not.
var addresses = []struct{ text, want string }{
	{`bob@example.com`, `[EMAIL]`},
	{`"bob@example.com"`, `"[EMAIL]"`},
	{`<a.b_c%d+e-f@a-1.b-2.example>,`, `<[EMAIL]>,`},
	{`"\nbob@example.com"`, `"\n[EMAIL]"`},
	{`"{\"to\":\"\\nbob@example.com\"}"`, `"{\"to\":\"\\n[EMAIL]\"}"`},
	{`"\u0062ob\u0040ex\u0061mple\u002ecom"`, `"[EMAIL]"`},
	{`"\\u0062ob\\u0040example.com\\u0020"`, `"[EMAIL]\\u0020"`},
	{`"\u00e9bob@example.com"`, `"\u00e9[EMAIL]"`},
	{"é bob@example.comé", "é [EMAIL]é"},
	{`a@b.cd,e@f.gh;i@j.kl`, `[EMAIL],[EMAIL];[EMAIL]`},
	{`bob@example.com.`, `[EMAIL].`},
	{`bob@example.co.uk/x`, `[EMAIL]/x`},
	{`a@b@c.de`, `a@[EMAIL]`},
	{`@example.com bob@ @ @@ bob@localhost bob@1.2.3.4 bob@a.b c@d.e5`, ``},
	{`C:\new\table\u00zz\`, ``},
	{`\`, ``}, {`\\`, ``}, {`\u`, ``}, {`\u004`, ``}, {`a@`, ``}, {`a@b.`, ``}, {`\u0040`, ``}, {``, ``},
	{`a\@b.cd`, ``},
}

func (b *bed) redactors(t *testing.T) {
	for _, name := range Redactors() {
		t.Run(name, func(t *testing.T) {
			p := b.load(t, name, "")
			for _, tt := range addresses {
				want := tt.want
				if want == "" {
					want = tt.text
				}
				if got := string(redact(t, p, []byte(tt.text))); got != want {
					t.Errorf("%s: got %s, want %s", tt.text, got, want)
				}
			}
		})
	}
}

// The redactors agree on any input, JSON stays JSON, and the count of a finding equals the number
// of removals.
func (b *bed) agree(t *testing.T) {
	type made struct {
		name string
		p    *plugins.Plugin
	}
	var all []made
	for _, name := range Redactors() {
		t.Run(name, func(t *testing.T) { all = append(all, made{name, b.load(t, name, "")}) }) // if its toolchain is installed
	}
	random := rand.New(rand.NewPCG(4, 4))
	for range 2000 {
		payload := jumble(random)
		var first []byte
		for i, m := range all {
			got := redact(t, m.p, payload)
			if i == 0 {
				first = got
			} else if !bytes.Equal(first, got) {
				t.Fatalf("of %q %s makes %q, and %s %q", payload, all[0].name, first, m.name, got)
			}
		}
		if json.Valid(payload) && !json.Valid(first) {
			t.Fatalf("of %s became %s", payload, first)
		}
	}
}

// jumble returns text that is difficult for redactors, half of the time as a JSON string.
func jumble(random *rand.Rand) []byte {
	pieces := []string{"bob", "@", "@", ".", "example", "com", "-", "\\", "\n", `\u0040`, `\u0061`, `\\u002e`, `\n`, `"`, "é", " ", "x1", "_", "u00", "\x00", "[EMAIL]"}
	var text strings.Builder
	for range 1 + random.IntN(20) {
		text.WriteString(pieces[random.IntN(len(pieces))])
	}
	payload := []byte(text.String())
	for range random.IntN(3) {
		payload, _ = json.Marshal(string(payload)) // a string cannot fail
	}
	return payload
}

func (b *bed) summary(t *testing.T) {
	p := b.load(t, "go/summary", `{"longest":1000,"head":20,"tail":10}`)
	long := strings.Repeat("é\"page\"\n", 200)
	quoted, err := json.Marshal(long)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ before, after string }{
		"a message of OpenAI":    {`{"role":"tool","tool_call_id":"1","content":`, `}`},
		"a list of them":         {`[{"role":"user","content":"?"}, {"role": "tool", "content" : `, ` ,"n":1.0}]`},
		"one of LangChain":       {`[{"content":`, `,"type":"tool"}]`},
		"a part of Anthropic's":  {`[{"role":"user","content":[{"type":"tool_result","content":`, `}]}]`},
		"in a member of a state": {`{"messages":[{"role":"tool","content":`, `}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			var blobs []string
			put := func(data []byte) ([32]byte, error) {
				blobs = append(blobs, string(data))
				return [32]byte{0xab, 31: byte(len(blobs))}, nil
			}
			in := tt.before + string(quoted) + tt.after
			r, err := p.Call(t.Context(), &plugins.Call{Stage: hook.PreSave, Payload: []byte(in), PutBlob: put})
			if err != nil {
				t.Fatal(err)
			}
			out := string(r.Output)
			if len(blobs) != 1 || blobs[0] != long {
				t.Errorf("%d blobs", len(blobs))
			}
			if !strings.HasPrefix(out, tt.before) || !strings.HasSuffix(out, tt.after) || !json.Valid(r.Output) || len(out) > 1000 {
				t.Errorf("%s", out)
			}
			if !strings.Contains(out, fmt.Sprintf("%x%060d01", 0xab, 0)) {
				t.Errorf("no id in %s", out)
			}
			again, err := p.Call(t.Context(), &plugins.Call{Stage: hook.PreSave, Payload: r.Output, PutBlob: put})
			if err != nil || !again.Unchanged {
				t.Errorf("a second time: %s, %v", again.Output, err)
			}
		})
	}
	for _, in := range []string{string(quoted), `{"role":"user","content":` + string(quoted) + `}`, `{"role":"tool","content":"short"}`, `[`, ``,
		`{"role":"tool","content":` + string(quoted[:len(quoted)-1])} {
		if r, err := p.Call(t.Context(), &plugins.Call{Stage: hook.PreSave, Payload: []byte(in)}); err != nil || !r.Unchanged {
			t.Errorf("%.40s: %v", in, err)
		}
	}
	spec := plugins.Spec{Name: "summary", Binary: b.Module(t, "go/summary"), Config: []byte(`{"longest":10}`)}
	if _, err := patient(b.host)(t.Context(), spec); err == nil {
		t.Error("a limit that cannot be kept is accepted")
	}
}

func (b *bed) channels(t *testing.T) {
	for _, name := range []string{"go/channels", "assemblyscript/channels"} {
		t.Run(name, func(t *testing.T) {
			p := b.load(t, name, "")
			for _, tt := range []struct {
				from, to uint64
				in, want string
			}{
				{1, 2, `{"channels":{"msgs":[{"msgs":1}],"a":"\"msgs\":"},"types":{"msgs":"json","a":"json"},"meta":{"msgs":0}}`,
					`{"channels":{"messages":[{"msgs":1}],"a":"\"msgs\":"},"types":{"messages":"json","a":"json"},"meta":{"msgs":0}}`},
				{2, 1, `{"types":{"messages":"x"},"channels":{"b":{"channels":{"messages":1}},"messages":{}}}`,
					`{"types":{"msgs":"x"},"channels":{"b":{"channels":{"messages":1}},"msgs":{}}}`},
				{1, 2, `{"channels":{"other":[["msgs",{"msgs":1}],"msgs"]}}`, ``},
				{1, 2, `{"channels":{}}`, ``},
			} {
				r, err := p.Call(t.Context(), &plugins.Call{Stage: hook.Migrate, From: tt.from, To: tt.to, Payload: []byte(tt.in)})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, string(r.Output)); diff != "" {
					t.Errorf("%s: %s", tt.in, diff)
				}
			}
			for _, tt := range []struct {
				from, to uint64
				in       string
			}{{2, 3, `{}`}, {1, 2, `{"channels":{"msgs":1,"messages":2}}`}, {1, 2, `{"channels":{"messages":2,"msgs":1}}`}} {
				_, err := p.Call(t.Context(), &plugins.Call{Stage: hook.Migrate, From: tt.from, To: tt.to, Payload: []byte(tt.in)})
				if e, ok := err.(*hook.Error); !ok || e.Kind != hook.ErrFailed {
					t.Errorf("%s from %d to %d: %v", tt.in, tt.from, tt.to, err)
				}
			}
		})
	}
}

// A new project builds, and does what its fixtures say.
func TestNewProjects(t *testing.T) {
	h := newHost(t)
	for _, language := range scaffold.Languages() {
		t.Run(language, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "p")
			if _, err := scaffold.New(dir, "first-try", language); err != nil {
				t.Fatal(err)
			}
			if language == "assemblyscript" {
				LinkCompiler(t, dir)
			}
			Build(t, dir, "first-try.wasm")
			try(t, h, dir)
		})
	}
}
