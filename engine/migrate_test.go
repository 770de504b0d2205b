package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/migrate"
)

// testSet reads a set of the kind "support" from files.
func testSet(t testing.TB, files map[string]string) *migrate.Set {
	t.Helper()
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys["support/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	r := migrate.Reader{}
	reg, err := r.Read(t.Context(), fsys)
	if err != nil {
		t.Fatal(err)
	}
	return reg.Set("support")
}

// supportSet leads from version 1 to 4; the step from 2 to 3 has no way back.
func supportSet(t testing.TB) *migrate.Set {
	return testSet(t, map[string]string{
		"0002_rename.jq":        "# Call the preferences what the interface calls them.\n.channels.state |= (.preferences = .user_pref | del(.user_pref))",
		"0002_rename.down.jq":   ".channels.state |= (.user_pref = .preferences | del(.preferences))",
		"0003_tone.jq":          "# Give every state a tone.\n.channels.state.tone //= \"plain\" | .labels.schema = \"three\"",
		"0004_attempts.jq":      "# Count attempts as a number.\n.channels.state.attempts |= tonumber",
		"0004_attempts.down.jq": ".channels.state.attempts |= tostring",
	})
}

// only returns Options.Migrations with one set.
func only(set *migrate.Set) func(tenant, kind string) *migrate.Set {
	return func(_, kind string) *migrate.Set {
		if kind != set.Kind() {
			return nil
		}
		return set
	}
}

const supportV1 = `{"user_pref": {"lang": "en"}, "attempts": "3", "n": 1.50}`

func supportDraft(state string) Draft {
	return Draft{Kind: "support", SchemaVersion: 1, Channels: []Change{jsonChannel("state", state), {Name: "avatar", Data: []byte{0, 1}}}}
}

func valueOf(cp *Checkpoint, channel string) string {
	ch, _ := cp.Channel(channel)
	return string(ch.Data)
}

func TestLoadMigrates(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{Migrations: only(supportSet(t))})
	ref := testRef("t")
	old := mustSave(t, f, ref, supportDraft(supportV1))
	head := mustSave(t, f, ref, supportDraft(strings.Replace(supportV1, `"3"`, `"4"`, 1)))
	before := allEntries(t, f.be)
	for _, way := range []string{"in memory", "remembered", "from the disk", "remembered again"} {
		if way == "from the disk" {
			f.reopen()
		}
		for w, attempts := range map[Which]string{At(old.ID): "3", AtSeq(2): "4", Latest: "4"} {
			cp := mustLoad(t, f.Thread(ref), w, LoadOptions{Schema: 4})
			want := `{"attempts":` + attempts + `,"n":1.50,"preferences":{"lang":"en"},"tone":"plain"}`
			if !sameJSON(t, valueOf(cp, "state"), want) || !strings.Contains(valueOf(cp, "state"), "1.50") || valueOf(cp, "avatar") != "\x00\x01" {
				t.Errorf("%s: the state is %s, want %s", way, valueOf(cp, "state"), want)
			}
			steps := []string{"Call the preferences what the interface calls them. (support/0002_rename.jq)",
				"Give every state a tone. (support/0003_tone.jq)", "Count attempts as a number. (support/0004_attempts.jq)"}
			if diff := cmp.Diff(&Migrated{1, 4, steps}, cp.Migrated); diff != "" || cp.SchemaVersion != 4 || cp.Labels["schema"] != "three" {
				t.Errorf("%s: version %d, labels %v, migrated (-want +got):\n%s", way, cp.SchemaVersion, cp.Labels, diff)
			}
			if cp.Hash != old.Hash && cp.Hash != head.Hash {
				t.Errorf("%s: the hash is not that of the stored state", way)
			}
			clear(cp.Channels[0].Data) // the caller's own
			clear(cp.Channels[1].Data)
			cp.Labels["schema"] = "mine"
		}
	}
	if diff := cmp.Diff(before, allEntries(t, f.be)); diff != "" {
		t.Errorf("a load wrote something:\n%s", diff)
	}
	stored := mustLoad(t, f.Thread(ref), Latest, LoadOptions{})
	if stored.SchemaVersion != 1 || stored.Migrated != nil || valueOf(stored, "state") == "" {
		t.Errorf("without a version the load gives %+v", stored)
	}
	same, err := f.Thread(ref).Load(ctx, Latest, LoadOptions{Schema: 1})
	if diff := cmp.Diff(stored, same); diff != "" || err != nil {
		t.Errorf("at the version that is stored (-without +with): %v\n%s", err, diff)
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	patch, why := patchOf(t, []byte(a), []byte(b))
	return why == "" && string(patch) == "[]"
}

func TestLoadMigratesChannelsAndHeaders(t *testing.T) {
	f := newFixture(t, Options{Migrations: only(supportSet(t))})
	th := f.Thread(testRef("t"))
	saved := mustSave(t, f, testRef("t"), supportDraft(supportV1))
	for range 2 {
		cp := mustLoad(t, th, Latest, LoadOptions{Schema: 2, Channels: []string{"state"}})
		avatar, _ := cp.Channel("avatar")
		was, _ := saved.Channel("avatar")
		if len(cp.Channels) != 2 || !strings.Contains(valueOf(cp, "state"), "preferences") || avatar.Data != nil || avatar.Size != 2 || !avatar.Rewritten || avatar.Version == was.Version {
			t.Errorf("one channel: %+v", cp.Channels)
		}
	}
	cp := mustLoad(t, th, Latest, LoadOptions{Schema: 3, HeadersOnly: true})
	if cp.SchemaVersion != 1 || cp.Migrated == nil || cp.Migrated.To != 3 || len(cp.Migrated.Steps) != 2 || valueOf(cp, "state") != "" {
		t.Errorf("headers: %+v, %+v", cp, cp.Migrated)
	}
	if diff := cmp.Diff(saved.Channels, cp.Channels); diff != "" {
		t.Errorf("headers describe other channels than are stored:\n%s", diff)
	}
}

func TestLoadRefusesVersions(t *testing.T) {
	ctx := context.Background()
	set := supportSet(t)
	f := newFixture(t, Options{Migrations: only(set)})
	at := func(name, kind string, version uint64, state string) *Thread {
		mustSave(t, f, testRef(name), Draft{Kind: kind, SchemaVersion: version, Channels: []Change{jsonChannel("state", state)}})
		return f.Thread(testRef(name))
	}
	v4 := at("four", "support", 4, `{"attempts":3,"preferences":{},"tone":"plain"}`)
	v9 := at("nine", "support", 9, `{}`)
	bad := at("bad", "support", 1, `{"attempts":"many"}`)
	broken := at("broken", "support", 1, `{"attempts":`)
	strange := at("strange", "unknown", 2, `{}`)
	bare := at("bare", "", 2, `{}`)
	for _, c := range []struct {
		th   *Thread
		o    LoadOptions
		want error
		says []string
	}{
		{v4, LoadOptions{Schema: 3}, ErrSchemaTooNew, []string{`"support"`, "version 4", "want 3"}},
		{v4, LoadOptions{Schema: 2, Down: true}, ErrSchemaTooNew, []string{"no way back from 3 to 2"}},
		{v4, LoadOptions{Schema: 3, HeadersOnly: true}, ErrSchemaTooNew, nil},
		{v4, LoadOptions{Schema: 7}, ErrNoMigration, []string{"version 4", "want 7"}},
		{v9, LoadOptions{Schema: 4}, ErrSchemaTooNew, []string{"version 9", "want 4"}},
		{bad, LoadOptions{Schema: 4}, ErrMigration, []string{`thread "bad"`, "step 3 to 4", "0004_attempts.jq"}},
		{broken, LoadOptions{Schema: 4}, ErrMigration, []string{`thread "broken"`, "/channels/state"}},
		{strange, LoadOptions{Schema: 3}, ErrNoMigration, []string{`"unknown"`}},
		{strange, LoadOptions{Schema: 1}, ErrSchemaTooNew, []string{`"unknown"`, "version 2", "want 1"}},
		{bare, LoadOptions{Schema: 3}, ErrNoMigration, nil},
	} {
		cp, err := c.th.Load(ctx, Latest, c.o)
		if !errors.Is(err, c.want) || cp != nil {
			t.Errorf("%s, %+v: %v, %v, want %v", c.th.ref.Thread, c.o, cp, err, c.want)
			continue
		}
		for _, says := range c.says {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%s, %+v: %v does not say %s", c.th.ref.Thread, c.o, err, says)
			}
		}
	}
	var v *migrate.VersionError
	if _, err := v4.Load(ctx, Latest, LoadOptions{Schema: 3}); !errors.As(err, &v) || v.From != 4 || v.To != 3 {
		t.Errorf("%v holds no VersionError", err)
	}
	down := mustLoad(t, v4, Latest, LoadOptions{Schema: 3, Down: true})
	if down.SchemaVersion != 3 || !sameJSON(t, valueOf(down, "state"), `{"attempts":"3","preferences":{},"tone":"plain"}`) {
		t.Errorf("down: version %d, %s", down.SchemaVersion, valueOf(down, "state"))
	}
}

// The output of a step must be storable, or a save based on it would fail for no reason of its own.
func TestLoadRefusesWhatCannotBeStored(t *testing.T) {
	for name, step := range map[string]string{
		"long name":  `.channels["x" * 300] = 1`,
		"no name":    `.channels[""] = 1`,
		"long label": `.labels.a = "x" * 300`,
		"many":       `.labels = ([range(300) | {key: "l\(.)", value: "x"}] | from_entries)`,
		"meta":       `.meta = "x" * 1100000`,
		"channel":    `.channels.state = "x" * 3000000`,
	} {
		f := newFixture(t, Options{Migrations: only(testSet(t, map[string]string{"0002_x.jq": step})), MaxChannel: 2 << 20})
		mustSave(t, f, testRef("t"), supportDraft(supportV1))
		_, err := f.Thread(testRef("t")).Load(context.Background(), Latest, LoadOptions{Schema: 2})
		var step *migrate.StepError
		if !errors.As(err, &step) || step.Source != "support/0002_x.jq" || len(err.Error()) > 2000 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Another set is used from the next load on, even for cached states.
func TestLoadFollowsTheSet(t *testing.T) {
	var set atomic.Pointer[migrate.Set]
	one := testSet(t, map[string]string{"0002_x.jq": ".channels.state.by = 1"})
	two := testSet(t, map[string]string{"0002_x.jq": ".channels.state.by = 2"})
	f := newFixture(t, Options{Migrations: func(string, string) *migrate.Set { return set.Load() }})
	mustSave(t, f, testRef("t"), supportDraft("{}"))
	th := f.Thread(testRef("t"))
	if _, err := th.Load(t.Context(), Latest, LoadOptions{Schema: 2}); !errors.Is(err, ErrNoMigration) {
		t.Errorf("without a set: %v", err)
	}
	for i, s := range []*migrate.Set{one, two, one} {
		set.Store(s)
		if got, want := valueOf(mustLoad(t, th, Latest, LoadOptions{Schema: 2}), "state"), fmt.Sprintf(`{"by":%d}`, []int{1, 2, 1}[i]); got != want {
			t.Errorf("set %d makes %s, want %s", i, got, want)
		}
	}
}

// Load hooks see the output of steps.
func TestLoadHooksRunOnMigrated(t *testing.T) {
	hooks := &testHooks{}
	f := newFixture(t, Options{Migrations: only(supportSet(t)), Hooks: hooks})
	mustSave(t, f, testRef("t"), supportDraft(supportV1))
	chain := &testChain{run: func(_ context.Context, c *hook.Call) error {
		if c.Place.SchemaVersion != 2 || !bytes.Contains(c.Items[1].Data, []byte("preferences")) {
			t.Errorf("version %d, item %s", c.Place.SchemaVersion, c.Items[1].Data)
		}
		c.Items[1].Data = []byte("{}")
		return nil
	}}
	hooks.set(hook.Load, chain)
	for range 2 {
		if got := valueOf(mustLoad(t, f.Thread(testRef("t")), Latest, LoadOptions{Schema: 2}), "state"); got != "{}" {
			t.Errorf("state is %s", got)
		}
	}
}

// The cache keeps within its bytes, and a store that keeps nothing migrates all the same.
func TestMigratedStatesAreBounded(t *testing.T) {
	for _, most := range []int64{-1, 1 << 20} {
		f := newFixture(t, Options{Migrations: only(supportSet(t)), CacheBytes: most})
		for i := range 30 {
			ref := testRef(fmt.Sprint("t", i))
			mustSave(t, f, ref, supportDraft(strings.Replace(supportV1, "en", strings.Repeat("e", 100_000), 1)))
			mustLoad(t, f.Thread(ref), Latest, LoadOptions{Schema: 4})
			if n := f.Upkeep().CacheStats().Bytes; n > max(most, 0) {
				t.Fatalf("%d bytes are cached, want at most %d", n, most)
			}
		}
	}
}

func benchmarkLoad(b *testing.B, o LoadOptions, forget bool) {
	f := newFixture(b, Options{Migrations: only(supportSet(b))})
	var s strings.Builder
	s.WriteString(`{"user_pref": {"lang": "en"}, "attempts": "3", "messages": [`)
	for i := 0; s.Len() < 20_000; i++ {
		if i > 0 {
			s.WriteString(", ")
		}
		fmt.Fprintf(&s, `{"role": "user", "id": %d, "content": %q, "meta": {"a": [1, 2.50, null]}}`, i, strings.Repeat(`some words "quoted" `, 20))
	}
	s.WriteString("]}")
	mustSave(b, f, testRef("t"), supportDraft(s.String()))
	th := f.Thread(testRef("t"))
	mustLoad(b, th, Latest, o)
	b.ReportAllocs()
	for b.Loop() {
		if forget {
			f.cache.forgetMigrated()
		}
		mustLoad(b, th, Latest, o)
	}
}

func BenchmarkLoadPlain(b *testing.B)          { benchmarkLoad(b, LoadOptions{}, false) }
func BenchmarkLoadMigrating(b *testing.B)      { benchmarkLoad(b, LoadOptions{Schema: 4}, true) }
func BenchmarkLoadMigratedCached(b *testing.B) { benchmarkLoad(b, LoadOptions{Schema: 4}, false) }

// forgetMigrated drops all migrated states.
func (c *cache) forgetMigrated() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, e := range c.migratedStates {
		c.order.Remove(e)
		c.size -= e.Value.(*cachedState).m.memory()
		delete(c.migratedStates, n)
	}
}
