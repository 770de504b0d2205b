package migration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
	"github.com/ckptd/ckptd/internal/trajectory"
	"github.com/ckptd/ckptd/migrate"
	"github.com/ckptd/ckptd/plugins"
	"github.com/ckptd/ckptd/plugins/examples"
	"github.com/ckptd/ckptd/plugins/pipeline"
)

// The 200 real runs of tau-bench, saved message by message as version 1, are migrated to version 4
// by jq, Go and WebAssembly steps: the results are the same, and an undo restores all exactly.
func TestRealRunsInThreeLanguages(t *testing.T) {
	path, err := filepath.Abs(filepath.Join("..", "..", "..", "shared", "data", "tau-bench", "gpt-4o-airline.json"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		t.Skip("the tau-bench runs are not there: ", path)
	}
	if testing.Short() {
		t.Skip("it takes some seconds")
	}
	t.Parallel()
	var want map[string]string
	for _, language := range []string{"jq", "go", "wasm"} {
		if !t.Run(language, func(t *testing.T) {
			w := newWorld(t, fstest.MapFS{})
			w.sets = airline(t, language)
			threads := w.importRuns(path)
			before := w.snapshot()
			id := w.begin(acme, RunOptions{})
			report, err := w.jobs.Run(t.Context(), id, RunOptions{})
			if err != nil || report.Migrated != 200 || threads != 200 {
				t.Fatalf("%d threads, %+v, %v", threads, report, err)
			}
			got := w.canonical()
			if want == nil {
				want = got
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("other than by jq (-jq +%s):\n%.2000s", language, diff)
			}
			if r, err := w.store.Upkeep().Verify(t.Context(), upkeep.VerifyOptions{Deep: true}); err != nil || !r.Clean() {
				t.Errorf("verify: %+v, %v", r, err)
			}
			if _, err := w.jobs.Undo(t.Context(), id, RunOptions{}); err != nil {
				t.Fatal(err)
			}
			if after := w.snapshot(); !cmp.Equal(before, after) {
				t.Errorf("the undo left something")
			}
		}) {
			return
		}
	}
}

// airline is the set of the airline agents.
func airline(t *testing.T, language string) *migrate.Registry {
	t.Helper()
	switch language {
	case "jq":
		return registry(t, fstest.MapFS{
			"airline/0002_history.jq": {Data: []byte(".channels.history = .channels.messages | del(.channels.messages)")},
			"airline/0003_turns.jq":   {Data: []byte(".channels.history |= {turns: ., count: length}")},
			"airline/0004_tone.jq":    {Data: []byte(`.channels.history.tone //= "plain" | .labels = {origin: "tau"}`)},
		})
	case "wasm":
		dir := t.TempDir()
		root, err := filepath.Abs("../..")
		if err != nil {
			t.Fatal(err)
		}
		source, err := os.ReadFile("testdata/steps/main.go")
		if err != nil {
			t.Fatal(err)
		}
		mod := fmt.Sprintf("module example.com/steps\n\ngo 1.24\n\nrequire github.com/ckptd/ckptd/plugins/pdk v0.0.0\n\nreplace github.com/ckptd/ckptd/plugins/pdk => %s\n",
			filepath.Join(root, "plugins", "pdk"))
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "main.go"), source, 0o666), os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o666)); err != nil {
			t.Fatal(err)
		}
		binary := examples.Build(t, dir, "steps.wasm")
		host, err := plugins.New(plugins.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { host.Close() })
		load := pipeline.LoaderFunc(func(ctx context.Context, s plugins.Spec) (pipeline.Plugin, error) {
			most := plugins.HardLimits() // all of it takes long under the race detector, beside other work
			s.Limits.Compile, s.Limits.Init, s.Limits.Call = most.Compile, most.Init, most.Call
			return host.Load(ctx, s)
		})
		r, err := (&migrate.Reader{Load: Modules(load), Limits: migrate.Limits{Time: time.Minute}}).Read(t.Context(), fstest.MapFS{
			"airline/0002_history.wasm": {Data: binary}, "airline/0003_turns.wasm": {Data: binary}, "airline/0004_tone.wasm": {Data: binary}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	s, err := migrate.NewSet(t.Context(), migrate.Spec{Kind: "airline", Steps: []migrate.Step{
		migrate.Go(1, 2, "call it history", func(doc map[string]any) (map[string]any, error) {
			channels := doc["channels"].(map[string]any)
			channels["history"] = channels["messages"]
			delete(channels, "messages")
			return doc, nil
		}),
		migrate.Go(2, 3, "count the turns", func(doc map[string]any) (map[string]any, error) {
			channels := doc["channels"].(map[string]any)
			turns := channels["history"].([]any)
			channels["history"] = map[string]any{"turns": turns, "count": jsonNumber(len(turns))}
			return doc, nil
		}),
		migrate.Go(3, 4, "give it a tone", func(doc map[string]any) (map[string]any, error) {
			history := doc["channels"].(map[string]any)["history"].(map[string]any)
			if history["tone"] == nil {
				history["tone"] = "plain"
			}
			doc["labels"] = map[string]any{"origin": "tau"}
			return doc, nil
		}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := migrate.NewRegistry(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// importRuns saves the runs of a file, a checkpoint for each message.
func (w *world) importRuns(path string) (threads int) {
	w.Helper()
	f, err := os.Open(path)
	if err != nil {
		w.Fatal(err)
	}
	defer f.Close()
	for run, err := range trajectory.Parse(f, trajectory.Options{File: path}) {
		if err != nil {
			w.Fatal(err)
		}
		threads++
		for i := range run.Messages {
			d := engine.Draft{Kind: "airline", SchemaVersion: 1, Step: int64(i), Meta: run.Meta,
				Channels: []engine.Change{{Name: "messages", Type: "json", Data: trajectory.State(run.Messages[:i+1])}}}
			if len(d.Meta) > 1<<20 {
				d.Meta = nil
			}
			w.save(ref(fmt.Sprintf("airline/%04d", run.Index)), d)
		}
	}
	return threads
}

// canonical is the newest state of every thread as canonical JSON.
func (w *world) canonical() map[string]string {
	w.Helper()
	all := map[string]string{}
	for info, err := range w.store.User("acme", "ada").Threads(w.Context(), engine.ThreadOptions{}) {
		if err != nil {
			w.Fatal(err)
		}
		cp, err := w.store.Thread(info.Ref).Load(w.Context(), engine.Latest)
		if err != nil {
			w.Fatal(err)
		}
		s := migrate.State{Meta: cp.Meta, Labels: cp.Labels}
		for _, ch := range cp.Channels {
			s.Channels = append(s.Channels, migrate.Channel{Name: ch.Name, Type: ch.Type, Data: ch.Data})
		}
		doc, err := migrate.Open(s)
		if err != nil {
			w.Fatal(err)
		}
		text, err := doc.JSON()
		if err != nil {
			w.Fatal(err)
		}
		all[info.Ref.Thread] = fmt.Sprintf("%d %s", cp.SchemaVersion, text)
	}
	return all
}

func jsonNumber(n int) json.Number { return json.Number(fmt.Sprint(n)) }
