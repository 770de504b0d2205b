package migration

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/ckptd/ckptd/backend/mem"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
	"github.com/ckptd/ckptd/migrate"
)

type set = migrate.Set

// threeSteps is the example of docs/migrations.md, with a way back from the last.
var threeSteps = fstest.MapFS{
	"support/0002_rename.jq":      {Data: []byte(".channels.state |= (.preferences = .user_pref | del(.user_pref))")},
	"support/0002_rename.down.jq": {Data: []byte(".channels.state |= (.user_pref = .preferences | del(.preferences))")},
	"support/0003_split.jq": {Data: []byte(`.channels.state |= ((.customer | split(" ")) as $p | .customer = {given: $p[0], family: ($p[1:] | join(" "))}
		| .preferences.tone //= "plain")`)},
	"support/0004_count.jq":      {Data: []byte(".channels.state.attempts |= tonumber")},
	"support/0004_count.down.jq": {Data: []byte(".channels.state.attempts |= tostring")},
}

func registry(t testing.TB, files fstest.MapFS) *migrate.Registry {
	t.Helper()
	r, err := new(migrate.Reader).Read(t.Context(), files)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// world is a store with jobs.
type world struct {
	*testing.T
	store *engine.Store
	jobs  *Jobs
	sets  *migrate.Registry
}

func newWorld(t *testing.T, files fstest.MapFS) *world {
	t.Helper()
	w := &world{T: t, sets: registry(t, files)}
	find := func(_, kind string) *set { return w.sets.Set(kind) }
	root, err := crypto.GenerateRootKey()
	if err != nil {
		t.Fatal(err)
	}
	keys, err := crypto.OpenFileKeystore(filepath.Join(t.TempDir(), "keys"), true)
	if err != nil {
		t.Fatal(err)
	}
	if w.store, err = engine.Open(t.Context(), mem.Open(), engine.Options{Root: root, Keystore: keys, Create: true, Migrations: find}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r, err := w.store.Upkeep().Verify(context.Background(), upkeep.VerifyOptions{Deep: true})
		if err != nil || !r.Clean() {
			t.Errorf("verify: %+v, %v", r, err)
		}
		w.store.Close()
	})
	w.jobs = New(w.store, filepath.Join(t.TempDir(), "jobs"), find)
	return w
}

func ref(thread string) engine.Ref { return engine.Ref{Tenant: "acme", User: "ada", Thread: thread} }

// save saves a state of version 1, or that of the draft.
func (w *world) save(r engine.Ref, d engine.Draft) *engine.Checkpoint {
	w.Helper()
	if d.Channels == nil {
		d.Channels = []engine.Change{{Name: "state", Type: "json", Data: fmt.Appendf(nil, `{"user_pref": {"lang": "en"}, "customer": "Mia Li", "attempts": "%d"}`, d.Step)}}
	}
	if d.SchemaVersion == 0 {
		d.Kind, d.SchemaVersion = "support", 1
	}
	cp, err := w.store.Thread(r).Save(w.Context(), d)
	if err != nil {
		w.Fatal(err)
	}
	return cp
}

var acme = Spec{Scope: Scope{Tenant: "acme"}}

// begin starts a job that must begin.
func (w *world) begin(spec Spec, o RunOptions) string {
	w.Helper()
	job, report, err := w.jobs.Start(w.Context(), spec, o)
	if err != nil {
		w.Fatalf("starting: %v, %+v", err, report)
	}
	return job.ID
}
