package jobs

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/backend/mem"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/migration"
	"github.com/ckptd/ckptd/internal/wire"
	"github.com/ckptd/ckptd/migrate"
)

const (
	dryRun = ckptdv1.MigrationAction_MIGRATION_ACTION_DRY_RUN
	run    = ckptdv1.MigrationAction_MIGRATION_ACTION_RUN
	undo   = ckptdv1.MigrationAction_MIGRATION_ACTION_UNDO
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newRunner returns a runner over a store with so many threads of version 1, which a set brings to
// version 2.
func newRunner(t *testing.T, threads int) *Runner { return newRunnerWith(t, threads, new(atomic.Bool)) }

// newRunnerWith is newRunner whose store panics when it looks for a set while broken.
func newRunnerWith(t *testing.T, threads int, broken *atomic.Bool) *Runner {
	t.Helper()
	root, err := crypto.GenerateRootKey()
	must(t, err)
	dir := t.TempDir()
	sets := migration.NewSets(filepath.Join(dir, "sets"), &migrate.Reader{}, nil)
	find := func(tenant, kind string) *migrate.Set {
		if broken.Load() {
			panic("a state that nobody thought of")
		}
		return sets.For(tenant, kind)
	}
	store, err := engine.Open(t.Context(), mem.Open(), engine.Options{Root: root, Keystore: crypto.NewMemKeystore(), Create: true, Migrations: find})
	must(t, err)
	t.Cleanup(func() { store.Close() })
	sets.Open(store.Upkeep())
	_, err = sets.Install(t.Context(), "acme", fstest.MapFS{"support/0002_say.jq": {Data: []byte(".channels.x.version = 2")}}, nil)
	must(t, err)
	for i := range threads {
		_, err := store.Thread(engine.Ref{Tenant: "acme", User: "alice", Thread: fmt.Sprint(i)}).Save(t.Context(),
			engine.Draft{Kind: "support", SchemaVersion: 1, Channels: []engine.Change{{Name: "x", Type: "json", Data: []byte(`{}`)}}})
		must(t, err)
	}
	r := New(Options{Store: store, Dir: dir, Sets: sets, Find: sets.For})
	t.Cleanup(r.Close)
	return r
}

func (r *Runner) await(t *testing.T, id string) (job *ckptdv1.MigrationJob) {
	t.Helper()
	must(t, r.Watch(t.Context(), "acme", id, time.Second, func(now *ckptdv1.MigrationJob) error { job = now; return nil }))
	return job
}

// A tenant has one job under way: what asks for the same gets that, and another one has to wait.
// One that is canceled goes on where it was.
func TestOneAtATime(t *testing.T) {
	r := newRunner(t, 60)
	slow := &ckptdv1.StartMigrationJobRequest{Tenant: "acme", Action: run, Pace: &ckptdv1.MigrationPace{Throttle: 10}}
	job, err := r.Start(slow)
	must(t, err)
	if again, err := r.Start(slow); err != nil || again.GetId() != job.GetId() {
		t.Errorf("asked for again: %v, %v", again, err)
	}
	if _, err := r.Start(&ckptdv1.StartMigrationJobRequest{Tenant: "acme", Action: dryRun}); !errors.Is(err, wire.ErrJobBusy) {
		t.Errorf("another job: %v", err)
	}
	if other, err := r.Start(&ckptdv1.StartMigrationJobRequest{Tenant: "umbrella", Action: dryRun}); err != nil || other.GetId() == job.GetId() {
		t.Errorf("of another tenant: %v, %v", other, err)
	}
	for now := job; now.GetStage() == ""; time.Sleep(time.Millisecond) {
		now, err = r.Job("acme", job.GetId())
		must(t, err)
	}
	canceled, err := r.Cancel(t.Context(), "acme", job.GetId())
	must(t, err)
	if canceled.GetState() != Canceled || canceled.GetStage() != string(migration.Running) {
		t.Errorf("canceled: %v", canceled)
	}
	_, err = r.Start(&ckptdv1.StartMigrationJobRequest{Tenant: "acme", Action: run, Id: job.GetId()})
	must(t, err)
	if done := r.await(t, job.GetId()); done.GetState() != Done || done.GetMigrated() != 60 {
		t.Errorf("gone on with: %v", done)
	}
}

// Only so many dry runs are kept, and everything that can be undone.
func TestForgetOld(t *testing.T) {
	r := newRunner(t, 1)
	first, err := r.Start(&ckptdv1.StartMigrationJobRequest{Tenant: "acme", Action: run})
	must(t, err)
	r.await(t, first.GetId())
	for range mostForgettable + 5 {
		job, err := r.Start(&ckptdv1.StartMigrationJobRequest{Tenant: "acme", Action: dryRun})
		must(t, err)
		r.await(t, job.GetId())
	}
	all, err := r.Jobs("acme")
	must(t, err)
	if len(all) != mostForgettable+1 || all[0].GetId() != first.GetId() {
		t.Errorf("%d jobs are kept, the oldest is %s", len(all), all[0].GetId())
	}
	if _, err := r.Start(&ckptdv1.StartMigrationJobRequest{Tenant: "acme", Action: undo, Id: first.GetId()}); err != nil {
		t.Error(err)
	}
	r.await(t, first.GetId())
}

// What comes back from the wire is what went.
func TestPack(t *testing.T) {
	ref := engine.Ref{Tenant: "acme", User: "alice", Thread: "t", Namespace: "n"}
	report := &migration.Report{States: 1, Current: 2, Left: 3, Migrated: 4, Gone: 5, Failed: 6, Failures: []migration.StepFailures{{Kind: "support", From: 1, To: 2,
		Source: "jq a.jq", Count: 6, Examples: []migration.Failure{{Ref: ref, ID: "id", Seq: 7, Path: "/x", Reason: "no"}}}}}
	if diff := cmp.Diff(report, UnpackReport(PackReport(report))); diff != "" {
		t.Error(diff)
	}
	groups := []migration.Group{{Kind: "support", Version: 1, Name: "1", Heads: 3, Example: ref, To: 2, Steps: []string{"a"}}}
	if diff := cmp.Diff(groups, UnpackGroups(PackGroups(groups))); diff != "" {
		t.Error(diff)
	}
	spec := migration.Spec{Scope: migration.Scope{Tenant: "acme", User: "alice", Kind: "support"}, To: 2, Down: true, Rewrite: true}
	if got := SpecOf("acme", PackSpec(spec)); got != spec {
		t.Errorf("%+v", got)
	}
	set, err := migrate.NewSet(t.Context(), migrate.Spec{Kind: "support", Names: map[uint64]string{3: "1.2.0"}, Digest: [32]byte{1},
		Steps: []migrate.Step{migrate.Go(1, 2, "", nil), migrate.Go(2, 3, "", nil)}})
	must(t, err)
	in, err := UnpackSet(PackSet(&migration.Installed{Tenant: "acme", Kind: "support", Digest: set.Digest(), Installed: time.Unix(1, 0), Set: set}))
	must(t, err)
	if v, ok := in.Set.Version("1.2.0"); !ok || v != 3 || in.Set.Digest() != set.Digest() || in.Tenant != "acme" {
		t.Errorf("the set arrives as %+v", in)
	}
}

// A job that panics fails, and neither the process nor the other jobs notice. It is not gone on
// with at the next start, where it would panic again.
func TestPanickedJobIsNotResumed(t *testing.T) {
	var broken atomic.Bool
	r := newRunnerWith(t, 3, &broken)
	broken.Store(true)
	job, err := r.Start(&ckptdv1.StartMigrationJobRequest{Tenant: "acme", Action: dryRun})
	must(t, err)
	if job = r.await(t, job.GetId()); job.GetState() != Failed || job.GetError() == nil {
		t.Errorf("it ended as %v", job)
	}
	r.Close() // as the daemon would end
	next := New(r.o)
	t.Cleanup(next.Close)
	must(t, next.Resume())
	if len(next.tenants) != 0 {
		t.Error("it goes on")
	}
	broken.Store(false)
	_, err = next.o.Store.Thread(engine.Ref{Tenant: "acme", User: "bob", Thread: "t"}).Save(t.Context(),
		engine.Draft{Kind: "support", SchemaVersion: 1, Channels: []engine.Change{{Name: "x", Type: "json", Data: []byte(`{}`)}}})
	must(t, err)
	job, err = next.Start(&ckptdv1.StartMigrationJobRequest{Tenant: "acme", Action: run, Spec: &ckptdv1.MigrationSpec{User: "bob"}})
	must(t, err)
	if job = next.await(t, job.GetId()); job.GetState() != Done || job.GetMigrated() != 1 {
		t.Errorf("the next job ended as %v", job)
	}
}

// TestResumedForALimitedTime: a job that ends the process is not resumed for ever. It can be asked
// for again.
func TestResumedForALimitedTime(t *testing.T) {
	r := newRunner(t, 2)
	job, err := r.next(&ckptdv1.StartMigrationJobRequest{Tenant: "acme", Action: run})
	must(t, err)
	job.Action, job.State = run, Running
	must(t, r.keep(job))
	for i := range mostResumed { // and killed before it could be carried out
		if times, err := r.resumed(job.GetId()); err != nil || times != i+1 {
			t.Fatalf("%d times, %v", times, err)
		}
	}
	next := New(r.o)
	t.Cleanup(next.Close)
	must(t, next.Resume())
	if kept, err := next.kept(job.GetId()); err != nil || kept.GetState() != Failed || kept.GetError() == nil {
		t.Fatalf("%v, %v", kept, err)
	}
	_, err = next.Start(&ckptdv1.StartMigrationJobRequest{Tenant: "acme", Action: run, Id: job.GetId()})
	must(t, err)
	if job = next.await(t, job.GetId()); job.GetState() != Done || job.GetMigrated() != 2 {
		t.Errorf("asked for again it ended as %v", job)
	}
	if times, err := next.resumed(job.GetId()); err != nil || times != 1 {
		t.Errorf("%d times after its end, %v", times, err)
	}
}
