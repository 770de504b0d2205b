package migrate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// mustSet reads the set of the kind "agent" from files.
func mustSet(t testing.TB, files map[string]string) *Set {
	t.Helper()
	s, err := readSet(t, files)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func readSet(t testing.TB, files map[string]string) (*Set, error) {
	t.Helper()
	return readLimited(t, files, time.Minute) // more than any of them takes, except for those about time
}

func readLimited(t testing.TB, files map[string]string, limit time.Duration) (*Set, error) {
	fsys := fstest.MapFS{}
	for name, data := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(data)}
	}
	r := Reader{Limits: Limits{Time: limit, Memory: 4 << 20}}
	return r.ReadSet(t.Context(), fsys, "agent")
}

func jsonState(text string) State {
	return State{Channels: []Channel{{Name: "state", Type: "json", Data: []byte(text)}}}
}

func TestMigrateKeepsWhatStepsLeaveAlone(t *testing.T) {
	set := mustSet(t, map[string]string{
		"0002_rename.jq":      "# Rename the preference.\n.channels.state |= (.pref = .user_pref | del(.user_pref))",
		"0002_rename.down.jq": ".channels.state |= (.user_pref = .pref | del(.pref))",
		"0003_channel.jq":     ".channels.picture = .channels.avatar | del(.channels.avatar)",
	})
	state := State{Meta: []byte(`{ "a":1.50 }`), Labels: map[string]string{"env": "prod"}, Channels: []Channel{
		{"avatar", "bytes", []byte{0, 255, 1}},
		{"state", "json", []byte("{ \"z\" : 1.0,\n \"user_pref\":{\"b\":1e2, \"a\":\"\\u00e9\"}, \"n\":12345678901234567890, \"l\":[1 ,2]}")},
	}}
	got, steps, err := set.Migrate(t.Context(), state, 1, 3, false)
	if err != nil {
		t.Fatal(err)
	}
	want := State{Meta: state.Meta, Labels: state.Labels, Channels: []Channel{
		{"picture", "bytes", []byte{0, 255, 1}},
		{"state", "json", []byte("{ \"z\" : 1.0,\n \"n\":12345678901234567890,\n \"l\":[1 ,2],\n \"pref\" : {\"b\":1e2, \"a\":\"\\u00e9\"}}")},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
	if len(steps) != 2 || steps[0].Description != "Rename the preference." || steps[1].Description != "channel" {
		t.Errorf("steps: %+v", steps)
	}
}

func TestMigrateMsgpack(t *testing.T) {
	set := mustSet(t, map[string]string{
		"0002_inside.jq": `.channels.state.messages[0].value[2].text |= ascii_upcase | .channels.state.n += 1`,
	})
	inner := func(text string) string { // like an object of LangGraph: an extension around module, name, arguments
		return "\x93\xa1m\xa1n\x81\xa4text" + string([]byte{0xa0 + byte(len(text))}) + text
	}
	pack := func(text string, n string) []byte {
		payload := inner(text)
		return []byte("\x84\xa8messages\x91\xc7" + string([]byte{byte(len(payload))}) + "\x02" + payload +
			"\xa1n" + n + "\xa4when\xd6\xff\x00\x00\x00\x01\xa3raw\xc4\x02\x00\xff")
	}
	// The number's encoding is longer than necessary. It changes, and everything around it must
	// not.
	state := State{Channels: []Channel{{"state", "msgpack", pack("hello", "\xcd\x00\x07")}}}
	got, _, err := set.Migrate(t.Context(), state, 1, 2, false)
	if err != nil {
		t.Fatal(err)
	}
	if want := pack("HELLO", "\x08"); string(got.Channels[0].Data) != string(want) || got.Channels[0].Type != "msgpack" {
		t.Errorf("got %q\nwant %q", got.Channels[0].Data, want)
	}
}

func TestSetRefuses(t *testing.T) {
	const up = `.channels.state.x = 1`
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"empty", map[string]string{}, `kind "agent": no steps`},
		{"syntax", map[string]string{"0002_a.jq": ".channels\n  | .a ="}, "agent/0002_a.jq:2:"},
		{"unknown function", map[string]string{"0002_a.jq": "frobnicate"}, "agent/0002_a.jq: function not defined: frobnicate/0"},
		{"gap", map[string]string{"0002_a.jq": up, "0004_b.jq": up}, "no step from version 2 to 3, but agent/0004_b.jq continues from 3"},
		{"duplicate", map[string]string{"0002_a.jq": up, "0002_b.jq": up}, "agent/0002_a.jq and agent/0002_b.jq both lead from version 1 to 2"},
		{"way back without a way", map[string]string{"0002_a.jq": up, "0003_b.down.jq": up}, "no step from 2 to 3"},
		{"unknown file", map[string]string{"2_a.jq": up}, "agent/2_a.jq is not named like"},
		{"module", map[string]string{"0002_a.wasm": "\x00asm"}, "cannot run WebAssembly"},
		{"failing fixture", map[string]string{"0002_a.jq": up,
			"0002_a.fixtures.json": `[{"name":"plain","before":{"channels":{"state":{}}},"after":{"channels":{"state":{"x":2}}}}]`},
			`fixture agent/0002_a.fixtures.json "plain" (number 1), version 1 to 2: the outcome differs at /channels/state/x`},
		{"fixture of a way back", map[string]string{"0002_a.jq": up, "0002_a.down.jq": ".",
			"0002_a.fixtures.json": `[{"name":"plain","before":{"channels":{"state":{}}},"after":{"channels":{"state":{"x":1}}}}]`},
			`version 2 to 1: the outcome differs at /channels/state/x`},
		{"schema", map[string]string{"0002_a.jq": up, "0002.schema.json": `{"type": 7}`}, "schema agent/0002.schema.json"},
		{"schema from elsewhere", map[string]string{"0002_a.jq": up, "0002.schema.json": `{"$ref": "file:///etc/passwd"}`}, "cannot refer to anything outside of it"},
		{"names", map[string]string{"0002_a.jq": up, "versions.toml": "[names]\n7 = \"2.0\""}, `version 7 is named "2.0"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := readSet(t, tt.files)
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v\nwant ErrInvalid with %q on one line", err, tt.want)
			}
		})
	}
	set := mustSet(t, map[string]string{"0002_a.jq": up})
	if _, err := NewRegistry(set, set); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), `"agent"`) {
		t.Errorf("two sets of one kind: %v", err)
	}
}

func TestStepFails(t *testing.T) {
	for _, tt := range []struct{ name, program, want string }{
		{"nothing", "empty", "returns no value"},
		{"several", ".,.", "returns several values"},
		{"no object", ".channels.state.list", "the outcome is an array, not an object"},
		{"no channels", `{"state": 1}`, "not an object with the channels"},
		{"member", `.extra = 1`, "at /extra: a document has"},
		{"label", `.labels = {"a": 1}`, "at /labels/a: it is a number"},
		{"error", `error("wrong shape")`, "wrong shape"},
		{"type error", `.channels.state.list + 1`, "cannot add"},
		{"loop", `def f: f; f`, "did not finish within"},
		{"grows", `[range(1e12)]`, "memory"},
		{"doubles", `.channels.state.s = ("x" * 1000000 | def f: . + . | f; f)`, "memory"},
		{"clock", `.channels.state.t = now`, "at /channels/state/t: two runs on the same state differ"},
		{"not a number", `.channels.state.t = nan`, "at /channels/state: NaN"},
		{"opaque", `.channels.avatar = "new"`, "at /channels/avatar: a step can write only channels"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limit := time.Minute
			if tt.name == "loop" {
				limit = 100 * time.Millisecond
			}
			set, err := readLimited(t, map[string]string{"0002_a.jq": tt.program}, limit)
			if err != nil {
				t.Fatal(err)
			}
			state := jsonState(`{"list": [1]}`)
			state.Channels = append(state.Channels, Channel{"avatar", "bytes", []byte("x")})
			_, _, err = set.Migrate(t.Context(), state, 1, 2, false)
			step, ok := errors.AsType[*StepError](err)
			if !errors.Is(err, ErrStep) || !ok || step.Source != "agent/0002_a.jq" || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v\nwant a failure of the step with %q", err, tt.want)
			}
		})
	}
	set := mustSet(t, map[string]string{"0002_a.jq": "."})
	_, _, err := set.Migrate(t.Context(), jsonState(`{"a": `), 1, 2, false)
	if !errors.Is(err, ErrStep) || !strings.Contains(err.Error(), "at /channels/state: invalid JSON") {
		t.Errorf("a state that is not JSON: %v", err)
	}
	panics, err := NewSet(t.Context(), Spec{Kind: "agent", Steps: []Step{Go(1, 2, "", func(doc map[string]any) (map[string]any, error) {
		return doc["none"].(map[string]any), nil
	})}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := panics.Migrate(t.Context(), jsonState(`{}`), 1, 2, false); !errors.Is(err, ErrStep) || !strings.Contains(err.Error(), "panic") {
		t.Errorf("a function that panics: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := set.Migrate(ctx, jsonState(`{}`), 1, 2, false); !errors.Is(err, context.Canceled) || errors.Is(err, ErrStep) {
		t.Errorf("a caller that gave up: %v", err)
	}
}

func TestPath(t *testing.T) {
	set := mustSet(t, map[string]string{"0002_a.jq": ".", "0002_a.down.jq": ".", "0003_b.jq": ".", "0004_c.jq": ".", "0004_c.down.jq": "."})
	for _, tt := range []struct {
		from, to uint64
		down     bool
		steps    int
		err      error
	}{
		{1, 4, false, 3, nil}, {2, 2, false, 0, nil}, {2, 1, true, 1, nil}, {4, 3, true, 1, nil},
		{2, 1, false, 0, ErrTooNew}, {4, 2, true, 0, ErrTooNew}, {5, 4, true, 0, ErrTooNew},
		{0, 4, false, 0, ErrNoPath}, {1, 5, false, 0, ErrNoPath},
	} {
		steps, err := set.Path(tt.from, tt.to, tt.down)
		if len(steps) != tt.steps || !errors.Is(err, tt.err) {
			t.Errorf("Path(%d, %d, %v) = %d steps, %v; want %d, %v", tt.from, tt.to, tt.down, len(steps), err, tt.steps, tt.err)
		}
	}
}

func TestSchema(t *testing.T) {
	set := mustSet(t, map[string]string{"0002_a.jq": `.channels.state.age |= tonumber`, "0002.schema.json": `{"properties": {"channels": {"properties":
		{"state": {"properties": {"age": {"type": "integer"}, "name": {"type": "string"}}, "required": ["name"]}}}}}`})
	if _, _, err := set.Migrate(t.Context(), jsonState(`{"age": "7", "name": "a"}`), 1, 2, false); err != nil {
		t.Errorf("a state that fits: %v", err)
	}
	_, _, err := set.Migrate(t.Context(), jsonState(`{"age": "7.5", "name": "a"}`), 1, 2, false)
	if !errors.Is(err, ErrStep) || !strings.Contains(err.Error(), "at /channels/state/age: the outcome does not fit agent/0002.schema.json") {
		t.Errorf("a state that does not fit: %v", err)
	}
}

// TestThereAndBack walks random states through random chains of reversible steps.
func TestThereAndBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		n := 1 + rng.IntN(5)
		files := map[string]string{}
		for v := 2; v < 2+n; v++ {
			up, down := randomStep(rng, v)
			files[fmt.Sprintf("%04d_x.jq", v)], files[fmt.Sprintf("%04d_x.down.jq", v)] = up, down
		}
		set := mustSet(t, files)
		for range 100 {
			state := randomState(rng)
			up, steps, err := set.Migrate(t.Context(), state, 1, uint64(1+n), false)
			if err != nil || len(steps) != n {
				t.Fatalf("up: %d steps, %v\n%v\n%s", len(steps), err, files, state.Channels[0].Data)
			}
			back, _, err := set.Migrate(t.Context(), up, uint64(1+n), 1, true)
			if err != nil {
				t.Fatalf("down: %v\n%v\n%s", err, files, up.Channels[0].Data)
			}
			want, got := mustOpen(t, state), mustOpen(t, back)
			if !want.Equal(got) {
				t.Fatalf("down(up(x)) differs at %s\n%v\n%s\n%s\n%s", firstDifference(want.value, got.value), files, state.Channels[0].Data, up.Channels[0].Data, back.Channels[0].Data)
			}
		}
	}
}

func mustOpen(t *testing.T, s State) *Document {
	t.Helper()
	d, err := Open(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// randomStep returns a program and its inverse for the states of randomState.
func randomStep(rng *rand.Rand, v int) (up, down string) {
	key := string(rune('a' + rng.IntN(4)))
	switch rng.IntN(6) {
	case 0: // rename a member
		return fmt.Sprintf(`.channels.state |= with_entries(if .key == %q then .key = "r%d" else . end)`, key, v),
			fmt.Sprintf(`.channels.state |= with_entries(if .key == "r%d" then .key = %q else . end)`, v, key)
	case 1: // wrap the whole state
		return fmt.Sprintf(`.channels.state = {"w%d": .channels.state}`, v), fmt.Sprintf(`.channels.state = .channels.state["w%d"]`, v)
	case 2: // a default
		return fmt.Sprintf(`.channels.state["d%d"] = [1, "x"]`, v), fmt.Sprintf(`del(.channels.state["d%d"])`, v)
	case 3: // another channel
		return fmt.Sprintf(`.channels["c%d"] = {"made": true}`, v), fmt.Sprintf(`del(.channels["c%d"])`, v)
	case 4: // a type
		return `.meta.n |= tostring`, `.meta.n |= tonumber`
	default: // the type tag of a channel
		return `.types.state = (if .types.state == "json" then "msgpack" else "json" end)`, `.types.state = (if .types.state == "json" then "msgpack" else "json" end)`
	}
}

func randomState(rng *rand.Rand) State {
	var b strings.Builder
	b.WriteString("{")
	for i := range rng.IntN(5) {
		if i > 0 {
			b.WriteString([]string{",", ", ", " ,\n"}[rng.IntN(3)])
		}
		fmt.Fprintf(&b, "%q:%s", string(rune('a'+i)), randomJSON(rng, 3))
	}
	b.WriteString("}")
	s := jsonState(b.String())
	s.Meta = fmt.Appendf(nil, `{"n": %d}`, rng.IntN(1000))
	return s
}

func randomJSON(rng *rand.Rand, depth int) string {
	switch k := rng.IntN(8); {
	case k == 0 && depth > 0:
		return "[" + randomJSON(rng, depth-1) + " , " + randomJSON(rng, depth-1) + "]"
	case k == 1 && depth > 0:
		return `{"k":` + randomJSON(rng, depth-1) + `,"l": ` + randomJSON(rng, depth-1) + "}"
	case k == 2:
		return fmt.Sprintf("%q", strings.Repeat("é\"\\", rng.IntN(4)))
	case k == 3:
		return []string{"null", "true", "false", "[]", "{}", "1e2", "-0.5", "9007199254740993"}[rng.IntN(8)]
	default:
		return fmt.Sprint(rng.Int64N(1 << 40))
	}
}
