package pipeline

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins"
	"github.com/ckptd/ckptd/plugins/bundle"
	"github.com/ckptd/ckptd/plugins/redact"
)

func names(t *testing.T, p *Pipeline, stage hook.Stage, tenant, thread string) []string {
	t.Helper()
	c, err := p.For(stage, tenant, thread)
	if err != nil {
		t.Fatal(err)
	}
	if c == nil {
		return nil
	}
	var all []string
	for _, id := range c.Identities() {
		all = append(all, id.Name)
	}
	return all
}

func TestFor(t *testing.T) {
	three := 3
	p := pipelineOf(
		redactor(t),
		bound(t, "late", preSave+"order = 9\n", replacing("", "")),
		bound(t, "beta", preSave, replacing("", "")),
		bound(t, "alpha", preSave+"[[hooks]]\nstage = \"load\"\n", replacing("", "")),
		Binding{Bundle: bundleOf(t, "acme", preSave+"order = 5\n"), Plugin: replacing("", ""), Tenants: []string{"acme", "other"}},
		Binding{Bundle: bundleOf(t, "support", preSave+"order = 5\n"), Plugin: replacing("", ""), Prefixes: []string{"support-", "help-"}, Order: &three},
	)
	for _, tt := range []struct {
		stage          hook.Stage
		tenant, thread string
		want           []string
	}{
		{hook.PreSave, "acme", "support-1", []string{"alpha@1.0.0", "beta@1.0.0", "support@1.0.0", "acme@1.0.0", "late@1.0.0", "redact"}},
		{hook.PreSave, "acme", "", []string{"alpha@1.0.0", "beta@1.0.0", "acme@1.0.0", "late@1.0.0", "redact"}},
		{hook.PreSave, "acme2", "help-", []string{"alpha@1.0.0", "beta@1.0.0", "support@1.0.0", "late@1.0.0", "redact"}},
		{hook.Load, "acme", "x", []string{"alpha@1.0.0"}},
		{hook.Export, "acme", "x", nil},
	} {
		if got := names(t, p, tt.stage, tt.tenant, tt.thread); !slices.Equal(got, tt.want) {
			t.Errorf("%v %s %s: %v, want %v", tt.stage, tt.tenant, tt.thread, got, tt.want)
		}
	}
}

func TestIdentities(t *testing.T) {
	b := bundleOf(t, "a", preSave+"channels = [\"x\"]\n"+preSave+"channels = [\"y\"]\n")
	p := pipelineOf(Binding{Bundle: b, Plugin: replacing("", ""), Config: []byte(`{"a":1}`)}, redactor(t))
	ids := chainOf(t, p, hook.PreSave).Identities()
	if len(ids) != 2 || ids[0].Digest != b.Digest() || ids[0].Config == [32]byte{} || ids[1].Digest != redact.Default().Digest() {
		t.Errorf("%v", ids)
	}
	other := bundleOf(t, "a", preSave+"channels = [\"x\", \"z\"]\n"+preSave+"channels = [\"y\"]\n")
	p.Replace([]Binding{{Bundle: other, Plugin: replacing("", "")}})
	if got := chainOf(t, p, hook.PreSave).Identities(); got[0].Digest == ids[0].Digest || got[0].Config != [32]byte{} {
		t.Errorf("with other filters it is the same: %v", got)
	}
}

func TestOrderOfWork(t *testing.T) {
	p := pipelineOf(redactor(t), bound(t, "b", preSave, replacing("two", "jane@example.com")), bound(t, "a", preSave, replacing("one", "two")))
	got := saved(t, p, channel("messages", `["one"]`), channel("other", `["1"]`))
	wantStrings(t, got, `["[REDACTED:email]"]`, `["1"]`)
}

func TestFilters(t *testing.T) {
	p := pipelineOf(bound(t, "a", preSave+"kinds = [\"channel\", \"label\", \"blob\"]\nchannels = [\"m*\"]\ntypes = [\"json\", \"text*\"]\n", replacing("x", "yy")))
	got := saved(t, p, channel("messages", `"x"`), channel("other", `"x"`),
		hook.Item{Kind: hook.Channel, Name: "m", Type: "msgpack", Data: []byte("x")},
		hook.Item{Kind: hook.Meta, Type: "json", Data: []byte(`"x"`)},
		hook.Item{Kind: hook.Blob, Type: "text/plain", Data: []byte("x")},
		hook.Item{Kind: hook.Label, Name: "k", Type: "text", Data: []byte("x")})
	wantStrings(t, got, `"yy"`, `"x"`, "x", `"x"`, "yy", "yy")
}

func TestLabels(t *testing.T) {
	run := func(p *Pipeline, key, value string) (hook.Item, error) {
		call := callOf(hook.Item{Kind: hook.Label, Name: key, Type: "text", Data: []byte(value)})
		err := chainOf(t, p, hook.PreSave).Run(context.Background(), call)
		return call.Items[0], err
	}
	const labels = preSave + "kinds = [\"label\"]\n"
	plugin := replacing("old", "new")
	it, err := run(pipelineOf(bound(t, "a", labels, plugin)), "oldest", "o\"ld old")
	if err != nil || it.Name != "newest" || string(it.Data) != `o"ld new` {
		t.Errorf("%q = %q, %v", it.Name, it.Data, err)
	}
	wantStrings(t, plugin.payloads(), `{"key":"oldest","value":"o\"ld old"}`)
	for _, out := range []string{`{"key":"a"}`, `{"key":1,"value":"b"}`, `{"key":"a","value":"b","more":1}`, `[]`} {
		if _, err := run(pipelineOf(bound(t, "a", labels, answering(out))), "k", "v"); !errors.Is(err, hook.ErrFailed) {
			t.Errorf("%s: %v", out, err)
		}
	}
	it, err = run(pipelineOf(redactor(t)), "jane@example.com", "plain")
	if err != nil || strings.Contains(it.Name, "jane") || string(it.Data) != "plain" {
		t.Errorf("%q = %q, %v", it.Name, it.Data, err)
	}
	it, err = run(pipelineOf(redactor(t)), "contact", "jane@example.com")
	if err != nil || it.Name != "contact" || string(it.Data) != "[REDACTED:email]" {
		t.Errorf("%q = %q, %v", it.Name, it.Data, err)
	}
	if _, err := run(pipelineOf(redactor(t)), "k", "\xff"); !errors.Is(err, hook.ErrRejected) {
		t.Errorf("a label that is not UTF-8: %v", err)
	}
}

// TestRedactorActions: data that the redactor drops is gone, and a rejection names the redactor.
func TestRedactorActions(t *testing.T) {
	for _, tt := range []struct {
		action redact.Action
		item   hook.Item
		want   error
	}{
		{redact.Drop, hook.Item{Kind: hook.Channel, Name: "a", Type: "text", Data: []byte("jane@example.com")}, nil},
		{redact.Drop, hook.Item{Kind: hook.Label, Name: "a", Type: "text", Data: []byte("jane@example.com")}, nil},
		{redact.Reject, hook.Item{Kind: hook.Label, Name: "a", Type: "text", Data: []byte("jane@example.com")}, hook.ErrRejected},
		{redact.Reject, channel("a", `["jane@example.com"]`), hook.ErrRejected},
	} {
		r, err := NewRedactor(redact.Config{Actions: map[string]redact.Action{"all": tt.action}})
		if err != nil {
			t.Fatal(err)
		}
		call := callOf(tt.item)
		err = chainOf(t, pipelineOf(Binding{Redactor: r}), hook.PreSave).Run(context.Background(), call)
		if !errors.Is(err, tt.want) || err == nil && !call.Items[0].Dropped {
			t.Errorf("%s of %v: %v, %+v", tt.action, tt.item.Kind, err, call.Items[0])
		}
		if err != nil && (strings.Contains(err.Error(), "jane") || !strings.HasPrefix(err.Error(), "redact: ")) {
			t.Error(err)
		}
	}
}

// TestNames: names, which are stored unchanged, may not contain secrets.
func TestNames(t *testing.T) {
	key := "ghp_0123456789abcdefghijABCDEFGHIJKLMNOP"
	chain := chainOf(t, pipelineOf(Binding{Redactor: newRedactor(redact.Default(), redact.Config{})}), hook.PreSave)
	for _, tt := range []struct {
		what string
		call *hook.Call
		want error
	}{
		{"namespace", &hook.Call{Names: []hook.Name{{What: "namespace", Text: key}}}, hook.ErrRejected},
		{"name of a channel", callOf(channel(key, "[]")), hook.ErrRejected},
		{"type of a write", callOf(hook.Item{Kind: hook.Write, Name: "a", Type: "x/" + key, Data: []byte("x")}), hook.ErrRejected},
		{"thread", &hook.Call{Names: []hook.Name{{What: "thread", Text: "jane@example.com"}, {What: "id", Text: "8d3f0a52-7a33-4a41-9b7a-4b1f5a0c9e11"}}}, nil},
	} {
		err := chain.Run(context.Background(), tt.call)
		if !errors.Is(err, tt.want) || err != nil && (!strings.Contains(err.Error(), tt.what) || strings.Contains(err.Error(), key)) {
			t.Errorf("%s: %v", tt.what, err)
		}
	}
	strict, err := NewRedactor(redact.Config{Actions: map[string]redact.Action{"email": redact.Reject}})
	if err != nil {
		t.Fatal(err)
	}
	call := &hook.Call{Names: []hook.Name{{What: "thread", Text: "jane@example.com"}}}
	if err := chainOf(t, pipelineOf(Binding{Redactor: strict}), hook.PreSave).Run(context.Background(), call); !errors.Is(err, hook.ErrRejected) {
		t.Error(err)
	}
}

func TestOutputs(t *testing.T) {
	for _, tt := range []struct {
		typ, in, out string
		ok           bool
	}{
		{"json", `[1]`, `[2]`, true}, {"json", `[1]`, `[2`, false}, {"json", `[1]`, ``, false}, {"json", `[1`, `[2`, true},
		{"json", `["a"]`, "[\"\xff\"]", false}, {"json", `[1]`, strings.Repeat("[", 1e6) + strings.Repeat("]", 1e6), false},
		{"text", "a", "b", true}, {"text", "a", "\xff", false}, {"text", "\xff", "\xfe", true}, {"text", "a", "", true},
	} {
		p := pipelineOf(bound(t, "a", preSave, answering(tt.out)))
		call := callOf(hook.Item{Kind: hook.Channel, Name: "c", Type: tt.typ, Data: []byte(tt.in)})
		err := chainOf(t, p, hook.PreSave).Run(context.Background(), call)
		if tt.ok && (err != nil || string(call.Items[0].Data) != tt.out) || !tt.ok && !errors.Is(err, hook.ErrFailed) {
			t.Errorf("%s %.20q to %.20q: %v", tt.typ, tt.in, tt.out, err)
		}
	}
}

// TestFailures: any failure in a plugin is an error that names the plugin and contains none of its
// own text.
func TestFailures(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want error
		text string
	}{
		{&hook.Error{Kind: hook.ErrFailed, Code: 16, Reason: "alice's secret"}, hook.ErrFailed, "bad@1.0.0: plugin reported an error in pre_save of channel c: code 16"},
		{&hook.Error{Kind: hook.ErrRejected, Reason: "alice's secret"}, hook.ErrRejected, "bad@1.0.0: rejected by a hook in pre_save of channel c"},
		{&hook.Error{Kind: hook.ErrTrap, Reason: "unreachable"}, hook.ErrTrap, "bad@1.0.0: plugin trapped in pre_save of channel c: unreachable"},
		{errors.New("alice's secret"), hook.ErrFailed, "bad@1.0.0: plugin reported an error in pre_save of channel c: it could not run"},
	} {
		p := pipelineOf(bound(t, "bad", preSave, failing(tt.err)), redactor(t))
		call := callOf(channel("c", "[]"))
		err := chainOf(t, p, hook.PreSave).Run(context.Background(), call)
		if !errors.Is(err, tt.want) || err.Error() != tt.text || call.Fuel != 3 {
			t.Errorf("%v, fuel %d, want %s", err, call.Fuel, tt.text)
		}
	}
	p := pipelineOf(bound(t, "empty", preSave, newFake(func(*plugins.Call) (*plugins.Result, error) { return &plugins.Result{}, nil })))
	if err := chainOf(t, p, hook.PreSave).Run(context.Background(), callOf(channel("c", "[]"))); !errors.Is(err, hook.ErrFailed) {
		t.Errorf("no output: %v", err)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p := New(Options{Failures: 1})
	p.Replace([]Binding{bound(t, "a", preSave, replacing("a", "b"))})
	for range 3 {
		err := chainOf(t, p, hook.PreSave).Run(ctx, callOf(channel("c", "[]")))
		if !errors.Is(err, hook.ErrTimeout) || !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	saved(t, p, channel("c", "[]")) // not suspended: it was not the plugin's fault

	ctx, cancel = context.WithCancel(context.Background())
	slow := newFake(func(*plugins.Call) (*plugins.Result, error) {
		cancel()
		return &plugins.Result{}, &hook.Error{Kind: hook.ErrTimeout}
	})
	p.Replace([]Binding{bound(t, "a", preSave, slow)})
	if err := chainOf(t, p, hook.PreSave).Run(ctx, callOf(channel("c", "[]"))); !errors.Is(err, hook.ErrTimeout) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := chainOf(t, p, hook.PreSave).Run(context.Background(), callOf(channel("c", "[]"))); !errors.Is(err, hook.ErrTimeout) {
		t.Errorf("after a call that the caller gave up: %v", err)
	}
}

func TestMissing(t *testing.T) {
	p := pipelineOf(Binding{Name: "gone@1.0.0", Missing: "its file is damaged: install it again", Stages: []hook.Stage{hook.PreSave}, Tenants: []string{"acme"}})
	_, err := p.For(hook.PreSave, "acme", "t")
	if !errors.Is(err, hook.ErrUnavailable) || err.Error() != "gone@1.0.0: plugin is unavailable in pre_save: its file is damaged: install it again" {
		t.Error(err)
	}
	for _, f := range []struct {
		stage  hook.Stage
		tenant string
	}{{hook.PreSave, "other"}, {hook.Load, "acme"}} {
		if c, err := p.For(f.stage, f.tenant, "t"); c != nil || err != nil {
			t.Errorf("%v: %v, %v", f, c, err)
		}
	}
	p.Replace([]Binding{{Name: "gone@1.0.0", Missing: "why"}})
	for _, stage := range []hook.Stage{hook.PreSave, hook.Load, hook.Export, hook.Migrate} {
		if _, err := p.For(stage, "any", ""); !errors.Is(err, hook.ErrUnavailable) {
			t.Errorf("%v: %v", stage, err)
		}
	}
}

func TestFailOpen(t *testing.T) {
	const open = "[[hooks]]\nstage = \"load\"\nfail = \"open\"\nredacts = false\n"
	run := func(err error) (string, error) {
		p := pipelineOf(bound(t, "a", open, failing(err)), bound(t, "b", "[[hooks]]\nstage = \"load\"\n", replacing("1", "2")))
		call := callOf(channel("c", "[1]"))
		err = chainOf(t, p, hook.Load).Run(context.Background(), call)
		return string(call.Items[0].Data), err
	}
	if got, err := run(&hook.Error{Kind: hook.ErrTrap}); got != "[2]" || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := run(&hook.Error{Kind: hook.ErrRejected}); !errors.Is(err, hook.ErrRejected) {
		t.Errorf("a rejection passed: %v", err)
	}
}

func TestSuspension(t *testing.T) {
	now := time.Unix(1000, 0)
	var events []Event
	p := New(Options{Failures: 3, Pause: time.Minute, Now: func() time.Time { return now }, Observe: func(e Event) { events = append(events, e) }})
	broken := true
	plugin := newFake(func(c *plugins.Call) (*plugins.Result, error) {
		if string(c.Payload) == "[0]" {
			return &plugins.Result{}, &hook.Error{Kind: hook.ErrRejected}
		}
		if broken {
			return &plugins.Result{}, &hook.Error{Kind: hook.ErrFuel}
		}
		return &plugins.Result{Unchanged: true}, nil
	})
	p.Replace([]Binding{bound(t, "a", preSave, plugin)})
	try := func(tenant, data string) error {
		c, err := p.For(hook.PreSave, tenant, "t")
		if err != nil {
			t.Fatal(err)
		}
		call := callOf(channel("c", data))
		call.Place.Tenant = tenant
		return c.Run(context.Background(), call)
	}
	want := func(when string, err, want error, calls int) {
		t.Helper()
		if !errors.Is(err, want) || len(plugin.payloads()) != calls {
			t.Fatalf("%s: %v, want %v", when, err, want)
		}
	}
	want("once", try("a", "[]"), hook.ErrFuel, 1)
	want("twice", try("a", "[]"), hook.ErrFuel, 1)
	want("rejected", try("a", "[0]"), hook.ErrRejected, 1) // which shows that the plugin works
	for range 3 {
		want("again", try("a", "[]"), hook.ErrFuel, 1)
	}
	if !events[len(events)-1].Suspended || !p.Stats()[0].Suspended {
		t.Error("nothing tells that it is suspended")
	}
	want("suspended", try("a", "[]"), hook.ErrUnavailable, 0)
	want("of another tenant", try("b", "[]"), hook.ErrFuel, 1)
	now = now.Add(time.Minute)
	want("probe", try("a", "[]"), hook.ErrFuel, 1)
	want("after the probe", try("a", "[]"), hook.ErrUnavailable, 0)
	now, broken = now.Add(time.Minute), false
	want("good probe", try("a", "[]"), nil, 1)
	want("well", try("a", "[]"), nil, 1)
	if p.Stats()[0].Suspended {
		t.Error("it is still suspended")
	}
	if s := p.Stats()[0]; s.Plugin != "a@1.0.0" || s.Calls != 10 || s.Errors != 7 {
		t.Errorf("%+v", s)
	}
}

// TestProbes: a suspended plugin gets one call at a time.
func TestProbes(t *testing.T) {
	c := circuit{failures: 1, pause: time.Second}
	now := time.Unix(0, 0)
	c.failed("t", now)
	now = now.Add(time.Second)
	if _, ok := c.allow("t", now); !ok {
		t.Fatal("no probe")
	}
	if _, ok := c.allow("t", now); ok {
		t.Fatal("two probes")
	}
	c.dunno("t")
	if _, ok := c.allow("t", now); !ok {
		t.Fatal("no probe after one that said nothing")
	}
}

func TestEvents(t *testing.T) {
	var events []Event
	p := New(Options{Observe: func(e Event) { e.Took = 0; events = append(events, e) }})
	p.Replace([]Binding{bound(t, "a", preSave, replacing("x", "y")), redactor(t)})
	call := callOf(channel("c", `["x jane@example.com"]`))
	if err := chainOf(t, p, hook.PreSave).Run(context.Background(), call); err != nil {
		t.Fatal(err)
	}
	want := []Event{
		{Plugin: "a@1.0.0", Stage: hook.PreSave, Kind: hook.Channel, Fuel: 10, Findings: map[string]int{"": 2}},
		{Plugin: "redact", Stage: hook.PreSave, Kind: hook.Channel, Findings: map[string]int{"email": 1}},
	}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Error(diff)
	}
	findings := []hook.Finding{{Rule: "own", Path: "/0", Item: "channel c", Count: 2}, {Rule: "email", Path: "/0", Item: "channel c", Count: 1}}
	if diff := cmp.Diff(findings, call.Findings); diff != "" || call.Fuel != 10 {
		t.Errorf("fuel %d\n%s", call.Fuel, diff)
	}
}

func TestMeta(t *testing.T) {
	plain, told := replacing("", ""), replacing("", "")
	p := pipelineOf(bound(t, "a", preSave, plain), bound(t, "b", "capabilities = [\"identity\"]\n"+preSave, told))
	saved(t, p, channel("messages", `[]`))
	const common = `{"abi":1,"stage":"pre_save","kind":"channel","name":"messages","type":"json","step":4,"status":"running","schema_version":3,"time":"2026-03-01T12:00:00Z"`
	if got := string(plain.calls[0].Meta); got != common+"}" {
		t.Error(got)
	}
	if got := string(told.calls[0].Meta); got != common+`,"tenant":"acme","user":"alice","thread":"support-1","namespace":"ns","checkpoint":"cp"}` {
		t.Error(got)
	}
	if a, b := plain.calls[0], told.calls[0]; a.Seed == b.Seed || a.Seed == [32]byte{8} || a.PseudonymKey != [32]byte{7} || !a.Time.Equal(callOf().Place.Time) {
		t.Errorf("%v", a)
	}
}

func TestCapabilities(t *testing.T) {
	var got []string
	put := func(c *plugins.Call) (*plugins.Result, error) {
		if c.Redact == nil || c.PutBlob == nil {
			got = append(got, "none")
			return &plugins.Result{Unchanged: true}, nil
		}
		for _, set := range []string{"", "secrets", "personal", "other"} {
			out, err := c.Redact(t.Context(), set, []byte(`["jane@example.com","sk-ant-api03-`+strings.Repeat("abcdEFGH1234_-xy", 6)+`AA"]`))
			if err != nil {
				out = []byte("error")
			}
			got = append(got, string(out))
		}
		if _, err := c.PutBlob([]byte("mail jane@example.com")); err != nil {
			return nil, err
		}
		_, err := c.PutBlob([]byte("\xff\xfe jane@example.com"))
		return &plugins.Result{Unchanged: true}, err
	}
	p := pipelineOf(bound(t, "a", "capabilities = [\"redact_builtin\", \"blob_put\"]\n"+preSave, newFake(put)), bound(t, "b", preSave, newFake(put)), redactor(t))
	call := callOf(channel("c", "[]"))
	call.PutBlob = func(data []byte) ([32]byte, error) {
		got = append(got, string(data))
		return [32]byte{}, nil
	}
	if err := chainOf(t, p, hook.PreSave).Run(context.Background(), call); err != nil {
		t.Fatal(err)
	}
	if len(got) != 7 || strings.Contains(got[0], "jane") || strings.Contains(got[0], "sk-ant") || !strings.Contains(got[1], "jane") || strings.Contains(got[1], "sk-ant") ||
		strings.Contains(got[2], "jane") || !strings.Contains(got[2], "sk-ant") || got[3] != "error" {
		t.Errorf("%q", got)
	}
	wantStrings(t, got[4:], "mail [REDACTED:email]", "\xff\xfe jane@example.com", "none")
}

func TestMigrations(t *testing.T) {
	const steps = "[[migrations]]\nkind = \"support\"\nfrom = 1\nto = 2\n"
	p := pipelineOf(bound(t, "a", steps, replacing("1", "2")), bound(t, "b", "[[migrations]]\nkind = \"support\"\nfrom = 2\nto = 3\n", replacing("2", "3")))
	if diff := cmp.Diff([]bundle.Migration{{Kind: "support", From: 1, To: 2}, {Kind: "support", From: 2, To: 3}}, p.Steps("acme", "t")); diff != "" {
		t.Error(diff)
	}
	c := chainOf(t, p, hook.Migrate)
	for _, tt := range []struct {
		from, to uint64
		in, want string
	}{{1, 2, "[1]", "[2]"}, {2, 3, "[2]", "[3]"}, {1, 3, "[1]", ""}} {
		call := callOf(channel("c", tt.in))
		call.Migrate.Kind, call.Migrate.From, call.Migrate.To = "support", tt.from, tt.to
		err := c.Run(context.Background(), call)
		if tt.want == "" && !errors.Is(err, hook.ErrUnavailable) || tt.want != "" && (err != nil || string(call.Items[0].Data) != tt.want) {
			t.Errorf("%d to %d: %s, %v", tt.from, tt.to, call.Items[0].Data, err)
		}
	}
}

// isClosed reports whether a plugin gets closed, after letting the cleanup run.
func isClosed(f *fake, within time.Duration) bool {
	for end := time.Now().Add(within); time.Now().Before(end); {
		runtime.GC()
		select {
		case <-f.closed:
			return true
		case <-time.After(time.Millisecond):
		}
	}
	return false
}

// TestReplace: chains keep the plugins that they began with. These are closed once nobody can run
// them any more.
func TestReplace(t *testing.T) {
	kept, old, young := replacing("kept", "K"), replacing("a", "old"), replacing("a", "new")
	keep := bound(t, "kept", preSave, kept)
	p := pipelineOf(keep, bound(t, "a", preSave, old))
	chain := chainOf(t, p, hook.PreSave)
	p.Replace([]Binding{keep, bound(t, "a", preSave, young)})
	wantStrings(t, saved(t, p, channel("c", `"a"`)), `"new"`)
	if isClosed(old, 20*time.Millisecond) {
		t.Fatal("a plugin was closed that a chain has")
	}
	call := callOf(channel("c", `"a"`))
	if err := chain.Run(context.Background(), call); err != nil || string(call.Items[0].Data) != `"old"` {
		t.Errorf("the old chain: %s, %v", call.Items[0].Data, err)
	}
	chain = nil
	if !isClosed(old, 10*time.Second) {
		t.Fatal("nothing closes the old plugin")
	}
	if isClosed(kept, 20*time.Millisecond) || isClosed(young, time.Millisecond) {
		t.Fatal("a plugin in use was closed")
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.For(hook.PreSave, "acme", "t"); !errors.Is(err, hook.ErrUnavailable) {
		t.Errorf("after Close: %v", err)
	}
	if !isClosed(kept, 10*time.Second) || !isClosed(young, 10*time.Second) {
		t.Error("a plugin outlived the pipeline")
	}
}

// TestLoad: a module must export the hooks that its manifest declares.
func TestLoad(t *testing.T) {
	b := bundleOf(t, "a", preSave)
	less := lesser{replacing("", "")}
	l := LoaderFunc(func(context.Context, plugins.Spec) (Plugin, error) { return less, nil })
	if _, err := Load(context.Background(), l, b, nil); !errors.Is(err, hook.ErrInvalid) || !strings.Contains(err.Error(), "exports no on_pre_save") {
		t.Error(err)
	}
	select {
	case <-less.closed:
	default:
		t.Error("it is left open")
	}
}

type lesser struct{ *fake }

func (lesser) Stages() []hook.Stage { return []hook.Stage{hook.Load} }
