package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/migrate"
)

func TestSaveCrossesVersions(t *testing.T) {
	t.Run("splice", func(t *testing.T) { testSaveCrossesVersions(t, false) })
	t.Run("list of splices", func(t *testing.T) { testSaveCrossesVersions(t, true) })
}

func testSaveCrossesVersions(t *testing.T, list bool) {
	f := newFixture(t, Options{Migrations: only(supportSet(t))})
	ref := testRef("t")
	th := f.Thread(ref)
	long := strings.Replace(supportV1, "en", string(words(rand.New(rand.NewPCG(1, 1)), 22_000)), 1)
	old := mustSave(t, f, ref, supportDraft(long))
	got := mustLoad(t, th, Latest, LoadOptions{Schema: 4})
	state, _ := got.Channel("state")
	at := strings.Index(string(state.Data), `"attempts": 3`) + len(`"attempts": `)
	splice := Draft{Keep: true, SchemaVersion: 4, Channels: []Change{{Name: "state", Base: state.Version, Prefix: at, Suffix: len(state.Data) - at - 1, Data: []byte("7")}}}
	if list {
		splice.Channels[0] = Change{Name: "state", Base: state.Version, Splices: []Splice{{at, at + 1, []byte("7")}}}
	}
	now := mustSave(t, f, ref, splice)
	want := strings.Replace(string(state.Data), `"attempts": 3`, `"attempts": 7`, 1)
	for range 2 {
		cp := mustLoad(t, th, Latest)
		if cp.SchemaVersion != 4 || cp.Kind != "support" || valueOf(cp, "state") != want || valueOf(cp, "avatar") != "\x00\x01" || cp.Labels["schema"] != "three" {
			t.Errorf("version %d, labels %v, state %.100s", cp.SchemaVersion, cp.Labels, valueOf(cp, "state"))
		}
		if was := mustLoad(t, th, At(old.ID)); was.SchemaVersion != 1 || valueOf(was, "state") != long {
			t.Errorf("the old checkpoint is of version %d, %.100s", was.SchemaVersion, valueOf(was, "state"))
		}
		f.reopen()
		th = f.Thread(ref)
	}
	if now.Cost.Stored > 2000 || now.Cost.Full {
		t.Errorf("crossing a version stored %d bytes, in full: %v", now.Cost.Stored, now.Cost.Full)
	}
	next := mustSave(t, f, ref, Draft{Keep: true, SchemaVersion: 4, Channels: []Change{{Name: "avatar", Data: []byte("x")}}})
	if next.Labels["schema"] != "three" || valueOf(mustLoad(t, th, Latest), "state") != want {
		t.Errorf("the next checkpoint lost something: %+v", next)
	}
}

// The same save again is the same checkpoint, also when its parent has another version.
func TestSaveAcrossIsIdempotent(t *testing.T) {
	hooks := &testHooks{}
	f := newFixture(t, Options{Migrations: only(supportSet(t)), Hooks: hooks})
	for _, hooked := range []bool{false, true} {
		if hooked {
			hooks.set(hook.PreSave, &testChain{ids: []hook.Identity{{Name: "h"}}, run: func(_ context.Context, c *hook.Call) error {
				for i := range c.Items {
					if c.Items[i].Kind == hook.Channel && c.Items[i].Type == "json" && !strings.Contains(string(c.Items[i].Data), "preferences") && c.Place.SchemaVersion == 4 {
						t.Errorf("a hook saw %s", c.Items[i].Data)
					}
				}
				return nil
			}})
		}
		ref := testRef(fmt.Sprint("t", hooked))
		mustSave(t, f, ref, supportDraft(supportV1))
		d := Draft{ID: "mine", Keep: true, SchemaVersion: 4, Labels: map[string]string{"a": "b"}, Channels: []Change{{Name: "avatar", Data: []byte("x")}}}
		first := mustSave(t, f, ref, d)
		f.cache.forgetMigrated()
		if again := mustSave(t, f, ref, d); again.Seq != first.Seq {
			t.Errorf("hooked %v: again it is seq %d, was %d", hooked, again.Seq, first.Seq)
		}
		cp := mustLoad(t, f.Thread(ref), Latest)
		if cp.SchemaVersion != 4 || !strings.Contains(valueOf(cp, "state"), "preferences") || len(cp.Labels) != 1 || valueOf(cp, "avatar") != "x" {
			t.Errorf("hooked %v: %+v, %s", hooked, cp, valueOf(cp, "state"))
		}
	}
}

// A draft that would mix the states of two versions is refused, and nothing is written.
func TestSaveRefusesToMixVersions(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{Migrations: only(supportSet(t))})
	ref := testRef("t")
	th := f.Thread(ref)
	v4 := mustSave(t, f, ref, Draft{Kind: "support", SchemaVersion: 4, Channels: []Change{jsonChannel("state", `{"attempts":1,"preferences":{}}`)}})
	keep := func(version uint64) Draft {
		return Draft{Keep: true, SchemaVersion: version, Channels: []Change{jsonChannel("x", "1")}}
	}
	for version, want := range map[uint64]error{0: ErrNoMigration, 1: ErrSchemaTooNew, 2: ErrSchemaTooNew, 5: ErrNoMigration} {
		if _, err := th.Save(ctx, keep(version)); !errors.Is(err, want) || !strings.Contains(err.Error(), `thread "t"`) {
			t.Errorf("keeping at version %d: %v, want %v", version, err, want)
		}
	}
	if _, err := th.Save(ctx, Draft{SchemaVersion: 2, Channels: []Change{{Name: "state", Base: v4.Channels[0].Version, Prefix: 3}}}); !errors.Is(err, ErrSchemaTooNew) {
		t.Errorf("a splice at version 2: %v", err)
	}
	if _, err := th.Save(ctx, Draft{Keep: true, SchemaVersion: 3, Channels: []Change{{Name: "state", Base: v4.Channels[0].Version, Prefix: 3}}}); !errors.Is(err, ErrNeedFull) {
		t.Errorf("a splice on the bytes that are stored: %v", err)
	}
	if head := mustLoad(t, th, Latest); head.Seq != 1 {
		t.Fatalf("something was written: %+v", head)
	}
	down := mustSave(t, f, ref, keep(3))
	if cp := mustLoad(t, th, Latest); !sameJSON(t, valueOf(cp, "state"), `{"attempts":"1","preferences":{}}`) || down.SchemaVersion != 3 {
		t.Errorf("kept on the way back: %s", valueOf(cp, "state"))
	}
	mustSave(t, f, ref, Draft{SchemaVersion: 7, Channels: []Change{jsonChannel("x", "1")}}) // a whole state needs no way
	bare := testRef("bare")
	mustSave(t, f, bare, Draft{SchemaVersion: 1, Channels: []Change{jsonChannel("x", "1")}})
	mustSave(t, f, bare, Draft{SchemaVersion: 9, Keep: true}) // nothing is known of a thread without a kind
	bad := testRef("bad")
	mustSave(t, f, bad, supportDraft(`{"attempts":"many"}`))
	if _, err := f.Thread(bad).Save(ctx, keep(4)); !errors.Is(err, ErrMigration) || !strings.Contains(err.Error(), `thread "bad"`) {
		t.Errorf("on a state that does not migrate: %v", err)
	}
}

// Hooks rewrote a value that the migration changes: the submitter does not have the result.
func TestSaveAcrossRewritten(t *testing.T) {
	hooks := &testHooks{}
	f := newFixture(t, Options{Migrations: only(supportSet(t)), Hooks: hooks})
	hooks.set(hook.PreSave, &testChain{ids: []hook.Identity{{Name: "h"}}, run: func(_ context.Context, c *hook.Call) error {
		for i := range c.Items {
			c.Items[i].Data = []byte(strings.ReplaceAll(string(c.Items[i].Data), "en", "xx"))
		}
		return nil
	}})
	ref := testRef("t")
	mustSave(t, f, ref, supportDraft(supportV1))
	cp := mustSave(t, f, ref, Draft{Keep: true, SchemaVersion: 2, Channels: []Change{{Name: "avatar", Data: []byte("x")}}})
	state, _ := cp.Channel("state")
	if loaded, _ := mustLoad(t, f.Thread(ref), Latest).Channel("state"); !state.Rewritten || state.Version == loaded.Version {
		t.Errorf("the save returns %+v", state)
	}
}

// The model of the property test: a value n and a text, which versions 1 to 4 say in four ways.
type saying struct {
	n    int
	text string
}

func (s saying) at(version uint64) map[string]string {
	text, _ := json.Marshal(s.text)
	switch version {
	case 1:
		return map[string]string{"state": fmt.Sprintf(`{"n":%d,"text":%s}`, s.n, text)}
	case 2: // the text is a channel of its own
		return map[string]string{"state": fmt.Sprintf(`{"n":%d}`, s.n), "text": string(text)}
	case 3: // and has another name
		return map[string]string{"state": fmt.Sprintf(`{"n":%d}`, s.n), "words": string(text)}
	default: // the number is a text
		return map[string]string{"state": fmt.Sprintf(`{"n":"%d"}`, s.n), "words": string(text)}
	}
}

func sayingSet(t testing.TB) *migrate.Set {
	step := func(from, to uint64, change func(channels, state map[string]any)) migrate.Step {
		return migrate.Go(from, to, "", func(doc map[string]any) (map[string]any, error) {
			channels := doc["channels"].(map[string]any)
			change(channels, channels["state"].(map[string]any))
			return doc, nil
		})
	}
	move := func(from, to string) func(channels, _ map[string]any) {
		return func(channels, _ map[string]any) {
			channels[to] = channels[from]
			delete(channels, from)
		}
	}
	set, err := migrate.NewSet(t.Context(), migrate.Spec{Kind: "saying", Steps: []migrate.Step{
		step(1, 2, func(c, s map[string]any) { c["text"] = s["text"]; delete(s, "text") }),
		step(2, 1, func(c, s map[string]any) { s["text"] = c["text"]; delete(c, "text") }),
		step(2, 3, move("text", "words")), step(3, 2, move("words", "text")),
		step(3, 4, func(_, s map[string]any) { s["n"] = s["n"].(json.Number).String() }),
		step(4, 3, func(_, s map[string]any) { s["n"] = json.Number(s["n"].(string)) }),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// parse is the inverse of at.
func parseSaying(t testing.TB, cp *Checkpoint) saying {
	t.Helper()
	var s saying
	var state struct {
		N    any
		Text string
	}
	if err := json.Unmarshal([]byte(valueOf(cp, "state")), &state); err != nil {
		t.Fatal(err)
	}
	fmt.Sscan(fmt.Sprint(state.N), &s.n)
	s.text = state.Text
	for _, name := range []string{"text", "words"} {
		if v := valueOf(cp, name); v != "" {
			json.Unmarshal([]byte(v), &s.text)
		}
	}
	want := s.at(cp.SchemaVersion)
	for name, value := range want {
		if !sameJSONQuiet(valueOf(cp, name), value) {
			t.Errorf("version %d of %+v has %s %s, want %s", cp.SchemaVersion, s, name, valueOf(cp, name), value)
		}
	}
	if len(cp.Channels) != len(want) {
		t.Errorf("version %d has %d channels, want %d", cp.SchemaVersion, len(cp.Channels), len(want))
	}
	return s
}

func sameJSONQuiet(a, b string) bool {
	patch, why, _ := jsonPatch(context.Background(), []byte(a), []byte(b))
	return a == b || why == "" && string(patch) == "[]"
}

// say saves s on the result of a load at a version, in one of the ways a draft can express it.
func say(t testing.TB, th *Thread, r *rand.Rand, on *Checkpoint, s saying, version uint64, expect Expect) (*Checkpoint, error) {
	d := Draft{Kind: "saying", SchemaVersion: version, Step: int64(s.n), Expect: expect}
	way := r.IntN(3)
	for name, value := range s.at(version) {
		was, there := on.Channel(name)
		switch {
		case way == 0 || !there || on.SchemaVersion != version:
			d.Channels = append(d.Channels, jsonChannel(name, value))
		case string(was.Data) == value && way == 1:
			d.Keep = true
		default:
			d.Keep = true
			n := 0
			for n < len(value) && n < len(was.Data) && value[n] == was.Data[n] {
				n++
			}
			d.Channels = append(d.Channels, Change{Name: name, Base: was.Version, Prefix: n, Data: []byte(value[n:])})
		}
	}
	return th.Save(t.Context(), d)
}

// Programs of several versions share a thread. Each sees the last save in its own version, and the
// stored version always matches the stored content.
func TestVersionsSayTheSame(t *testing.T) {
	runsAlone(t)
	set := sayingSet(t)
	f := newFixture(t, Options{Migrations: only(set), CacheBytes: 1 << 20})
	runs := 10_000
	if testing.Short() {
		runs = 1000
	}
	r := rand.New(rand.NewPCG(5, 5))
	for i := 0; i < runs; {
		ref := testRef(fmt.Sprint("t", i))
		th := f.Thread(ref)
		s := saying{i, "début <&> \U0001F600"}
		on, err := say(t, th, r, &Checkpoint{}, s, 1+r.Uint64N(4), Expect{})
		if err != nil {
			t.Fatal(err)
		}
		said := map[uint64]saying{on.Seq: s}
		for range 20 {
			i++
			version := 1 + r.Uint64N(4)
			stored := mustLoad(t, th, Latest)
			if version < stored.SchemaVersion {
				if _, err := th.Load(t.Context(), Latest, LoadOptions{Schema: version}); !errors.Is(err, ErrSchemaTooNew) {
					t.Fatalf("version %d of %d: %v, want ErrSchemaTooNew", version, stored.SchemaVersion, err)
				}
			}
			on := mustLoad(t, th, Latest, LoadOptions{Schema: version, Down: true})
			if got := parseSaying(t, on); got != s || on.SchemaVersion != version {
				t.Fatalf("version %d says %+v, want %+v", version, got, s)
			}
			if s.n = i; r.IntN(2) == 0 {
				s.text += string(words(r, r.IntN(60)))
			}
			if r.IntN(8) == 0 {
				f.cache.forgetMigrated()
			}
			next, err := say(t, th, r, on, s, version, ExpectHead(on.Seq))
			if err != nil {
				t.Fatal(err)
			}
			said[next.Seq] = s
		}
		seq := 1 + r.Uint64N(20)
		for range 2 {
			if got := parseSaying(t, mustLoad(t, f.Thread(ref), AtSeq(seq))); got != said[seq] {
				t.Fatalf("seq %d says %+v, want %+v", seq, got, said[seq])
			}
			if r.IntN(20) == 0 {
				f.reopen()
			}
		}
	}
}

// The same concurrently, while the set is exchanged for another one with the same steps: no caller
// sees the content of one version under another.
func TestVersionsSayTheSameAtOnce(t *testing.T) {
	var set atomic.Pointer[migrate.Set]
	set.Store(sayingSet(t))
	f := newFixture(t, Options{Migrations: func(string, string) *migrate.Set { return set.Load() }, CacheBytes: 64 << 10})
	ref := testRef("t")
	first := mustSave(t, f, ref, Draft{Kind: "saying", SchemaVersion: 1, Channels: []Change{jsonChannel("state", saying{}.at(1)["state"])}})
	var last atomic.Int64
	last.Store(int64(first.Seq))
	var wg sync.WaitGroup
	for writer := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(writer), 9))
			th := f.Thread(ref)
			for i := range 150 {
				version := 1 + r.Uint64N(4)
				on, err := th.Load(t.Context(), Latest, LoadOptions{Schema: version, Down: true})
				if err != nil {
					t.Error(err)
					return
				}
				s := parseSaying(t, on)
				s.n++
				_, err = say(t, th, r, on, s, version, ExpectHead(on.Seq))
				switch {
				case err == nil:
					last.Add(1)
				case !errors.Is(err, ErrConflict) && !errors.Is(err, ErrNeedFull):
					t.Error(err)
				}
				if i%10 == 0 {
					set.Store(sayingSet(t))
				}
			}
		})
	}
	wg.Wait()
	for cp, err := range f.Thread(ref).History(t.Context(), HistoryOptions{Data: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if s := parseSaying(t, cp); uint64(s.n) != cp.Seq-1 {
			t.Errorf("seq %d says %d", cp.Seq, s.n)
		}
	}
	if head := mustLoad(t, f.Thread(ref), Latest); int64(head.Seq) != last.Load() {
		t.Errorf("the head has seq %d after %d saves", head.Seq, last.Load())
	}
}
