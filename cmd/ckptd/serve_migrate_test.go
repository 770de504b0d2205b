//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/client"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/wasmtest"
)

// migratedServer is a daemon with threads of version 1, and migrations to version 2 that were
// installed through it.
type migratedServer struct {
	*served
	c       *client.Store
	threads int
}

func newMigratedServer(t *testing.T, threads int) *migratedServer {
	s := &migratedServer{served: newServed(t), threads: threads}
	s.start()
	s.c = s.client(client.Options{Attempts: 1000, MaxBackoff: 50 * time.Millisecond})
	var saves []client.BatchSave
	for i := range threads {
		saves = append(saves, client.BatchSave{Ref: s.ref(i), Draft: engine.Draft{Kind: "support", SchemaVersion: 1,
			Channels: []engine.Change{{Name: "state", Type: "json", Data: fmt.Appendf(nil, `{"n": "%d"}`, i)}}}})
	}
	results, err := s.c.SaveBatch(t.Context(), saves)
	must(t, err)
	for _, r := range results {
		must(t, r.Err)
	}
	dir := s.path("steps")
	must(t, os.MkdirAll(filepath.Join(dir, "support"), 0o777))
	must(t, os.WriteFile(filepath.Join(dir, "support", "0002_count.jq"), []byte(".channels.state.n |= tonumber"), 0o666))
	if out := s.migrate("install", dir); !strings.Contains(out, "versions 1 to 2") {
		t.Fatalf("install says %s", out)
	}
	return s
}

// migrate runs ckptd migrate through the daemon.
func (s *migratedServer) migrate(args ...string) string {
	s.t.Helper()
	cmd := exec.Command("ckptd", append(append([]string{"migrate"}, args...), "--server", "unix:"+s.path("s"))...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Errorf("ckptd migrate %q: %v", args, err)
	}
	return string(out)
}

func (s *migratedServer) ref(i int) engine.Ref {
	return engine.Ref{Tenant: "default", User: "local", Thread: fmt.Sprintf("t-%04d", i)}
}

// versions checks every head, and returns how many are of version 2.
func (s *migratedServer) versions() (migrated int) {
	s.t.Helper()
	for i := range s.threads {
		cp, err := s.c.Thread(s.ref(i)).Load(s.t.Context(), engine.Latest)
		must(s.t, err)
		want := fmt.Sprintf(`{"n": "%d"}`, i)
		if cp.SchemaVersion == 2 {
			want = fmt.Sprintf(`{"n": %d}`, i)
			migrated++
		}
		if got := string(cp.Channels[0].Data); got != want || cp.Kind != "support" {
			s.t.Errorf("thread %d of version %d: %s", i, cp.SchemaVersion, got)
		}
	}
	return migrated
}

// killed starts a job, kills the daemon in the middle, and returns the job when it is at its end
// all the same. Somebody watches it all the time.
func (s *migratedServer) killed(req *ckptdv1.StartMigrationJobRequest) *ckptdv1.MigrationJob {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	req.Tenant, req.Pace = "default", &ckptdv1.MigrationPace{Throttle: 300, Workers: 2}
	job, err := s.c.StartMigrationJob(ctx, req)
	must(s.t, err)
	under := make(chan struct{})
	var once sync.Once
	var told int
	var wg sync.WaitGroup
	var end *ckptdv1.MigrationJob
	wg.Go(func() {
		end, err = s.c.WatchMigrationJob(ctx, "default", job.GetId(), func(job *ckptdv1.MigrationJob) {
			if told++; job.GetStage() != "" && job.GetProgressDone() > 20 {
				once.Do(func() { close(under) })
			}
		})
	})
	select {
	case <-under:
	case <-time.After(20 * time.Second):
		s.t.Fatal("the job does not get on")
	}
	s.kill()
	s.start()
	wg.Wait()
	must(s.t, err)
	if told < 4 {
		s.t.Errorf("%d messages about a job of seconds", told)
	}
	return end
}

// TestServeMigrationKilled kills the daemon in the middle of a run and of its undo. Both go on by
// themselves, and in the end every thread is migrated, and then what it was.
func TestServeMigrationKilled(t *testing.T) {
	t.Parallel()
	s := newMigratedServer(t, 400)
	run := s.killed(&ckptdv1.StartMigrationJobRequest{Action: ckptdv1.MigrationAction_MIGRATION_ACTION_RUN, Spec: &ckptdv1.MigrationSpec{Kind: "support"}})
	if run.GetState() != "done" || run.GetStage() != "done" || run.GetMigrated() != 400 || run.GetTo()["support"] != 2 {
		t.Errorf("the run ended as %v", run)
	}
	if n := s.versions(); n != 400 {
		t.Errorf("%d of 400 are migrated", n)
	}
	undo := s.killed(&ckptdv1.StartMigrationJobRequest{Action: ckptdv1.MigrationAction_MIGRATION_ACTION_UNDO, Id: run.GetId()})
	if undo.GetState() != "done" || undo.GetStage() != "undone" || undo.GetUndone() != 400 || undo.GetKept() != 0 {
		t.Errorf("the undo ended as %v", undo)
	}
	if n := s.versions(); n != 0 {
		t.Errorf("%d of 400 are still migrated", n)
	}
	if out := s.migrate("finish", run.GetId()); !strings.Contains(out, "finished") {
		t.Errorf("finish says %s", out)
	}
	s.stop()
	if out := s.run("verify", "--deep"); !strings.Contains(out, "no problems") {
		t.Errorf("verify --deep says %s", out)
	}
}

// TestServeMigrateCommands does through a server what the commands do on a store of their own.
func TestServeMigrateCommands(t *testing.T) {
	t.Parallel()
	s := newMigratedServer(t, 5)
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"sets"}, []string{"support", "1 to 2"}},
		{[]string{"status"}, []string{"support", "5"}},
		{[]string{"plan"}, []string{"count", "5"}},
		{[]string{"dry-run"}, []string{"5", "would be migrated"}},
		{[]string{"run", "--yes", "--kind", "support", "--to", "2"}, []string{"5", "migrated"}},
		{[]string{"jobs"}, []string{"dry run done", "support 2"}},
	} {
		out := s.migrate(tt.args...)
		for _, want := range tt.want {
			if !strings.Contains(out, want) {
				t.Errorf("%q says %s, want %q in it", tt.args, out, want)
			}
		}
		t.Logf("%q:\n%s", tt.args, out)
	}
	jobs, err := s.c.MigrationJobs(t.Context(), "default")
	must(t, err)
	id := jobs[len(jobs)-1].GetId()
	for _, tt := range [][]string{{"watch", id, "migrated"}, {"cancel", id, "done"}, {"undo", id, "undone"}, {"finish", id, "finished"}, {"remove", "support", "removed"}} {
		if out := s.migrate(tt[:2]...); !strings.Contains(out, tt[2]) {
			t.Errorf("%q says %s", tt, out)
		}
	}
	if n := s.versions(); n != 0 {
		t.Errorf("%d are still migrated", n)
	}
}

// TestServeMigratesInWorkers: a step in WebAssembly runs where the plugins of the daemon run, not
// in the daemon.
func TestServeMigratesInWorkers(t *testing.T) {
	t.Parallel()
	s := newMigratedServer(t, 1)
	m := wasmtest.NewPlugin(1)
	m.Func("on_migrate", wasmtest.Sig(wasmtest.I64+wasmtest.I64, wasmtest.I32), "", wasmtest.I32Const(1)) // unchanged
	must(t, os.WriteFile(filepath.Join(s.path("steps"), "support", "0003_keep.wasm"), m.Bytes(), 0o666))
	if out := s.migrate("install", s.path("steps")); !strings.Contains(out, "versions 1 to 3") {
		t.Fatalf("install says %s", out)
	}
	cp, err := s.c.Thread(s.ref(0)).Load(t.Context(), engine.Latest, engine.LoadOptions{Schema: 3})
	must(t, err)
	if text := string(cp.Channels[0].Data); cp.SchemaVersion != 3 || text != `{"n": 0}` {
		t.Errorf("version %d: %s", cp.SchemaVersion, text)
	}
	if log := s.errs.String(); !strings.Contains(log, "plugins run in worker processes") {
		t.Errorf("nothing was started for the step:\n%s", lastLines(log, 20))
	}
}
