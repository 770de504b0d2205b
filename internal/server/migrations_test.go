package server

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/internal/access"
)

func (b *bed) migrations(token string) ckptdv1.MigrationServiceClient {
	return ckptdv1.NewMigrationServiceClient(b.httpClient(token), baseURL)
}

// oldState saves a state of version 1 of the kind support.
func oldState(t *testing.T, b *bed, tenant, thread, text string) {
	t.Helper()
	d := &ckptdv1.Draft{Kind: "support", SchemaVersion: 1, Channels: []*ckptdv1.Change{{Name: "x", Type: "json", Content: &ckptdv1.Change_Text{Text: text}}}}
	mustSave(t, b.checkpoints(""), &ckptdv1.Ref{Tenant: tenant, User: "alice", Thread: thread}, d)
}

// ended starts a job and waits for its end.
func ended(t *testing.T, c ckptdv1.MigrationServiceClient, req *ckptdv1.StartMigrationJobRequest) *ckptdv1.MigrationJob {
	t.Helper()
	res, err := c.StartMigrationJob(t.Context(), connect.NewRequest(req))
	must(t, err)
	return watched(t, c, req.GetTenant(), res.Msg.GetJob().GetId())
}

func watched(t *testing.T, c ckptdv1.MigrationServiceClient, tenant, id string) (job *ckptdv1.MigrationJob) {
	t.Helper()
	stream, err := c.WatchMigrationJob(t.Context(), connect.NewRequest(&ckptdv1.WatchMigrationJobRequest{Tenant: tenant, Id: id}))
	must(t, err)
	defer stream.Close()
	for stream.Receive() {
		job = stream.Msg().GetJob()
	}
	must(t, stream.Err())
	return job
}

const (
	dryRun = ckptdv1.MigrationAction_MIGRATION_ACTION_DRY_RUN
	run    = ckptdv1.MigrationAction_MIGRATION_ACTION_RUN
	undo   = ckptdv1.MigrationAction_MIGRATION_ACTION_UNDO
	finish = ckptdv1.MigrationAction_MIGRATION_ACTION_FINISH
)

// A state that a step fails on is found by a dry run, keeps a run from beginning, and is told with
// its place; nobody's state is written, and none gets into the audit log.
func TestMigrationThatFails(t *testing.T) {
	b := newBed(t, Limits{})
	c := b.migrations("")
	_, err := c.InstallMigrationSets(t.Context(), connect.NewRequest(&ckptdv1.InstallMigrationSetsRequest{Tenant: "acme", Files: setFiles("support")}))
	must(t, err)
	oldState(t, b, "acme", "good", `{}`)
	oldState(t, b, "acme", "bad", `"a secret text"`)
	dry := ended(t, c, &ckptdv1.StartMigrationJobRequest{Tenant: "acme", Action: dryRun})
	if r := dry.GetReport(); dry.GetState() != "done" || r.GetStates() != 2 || r.GetFailed() != 1 || r.GetFailures()[0].GetExamples()[0].GetRef().GetThread() != "bad" {
		t.Errorf("the dry run ended as %v", dry)
	}
	refused := ended(t, c, &ckptdv1.StartMigrationJobRequest{Tenant: "acme", Action: run})
	if e := refused.GetError(); refused.GetState() != "failed" || e.GetDetail().GetReason() != ckptdv1.Reason_REASON_MIGRATION_REFUSED || refused.GetStage() != "" {
		t.Errorf("the run ended as %v", refused)
	}
	_, err = c.StartMigrationJob(t.Context(), connect.NewRequest(&ckptdv1.StartMigrationJobRequest{Tenant: "acme", Action: undo, Id: refused.GetId()}))
	wantCode(t, err, connect.CodeFailedPrecondition, ckptdv1.Reason_REASON_MIGRATION_STATE)
	_, err = b.checkpoints("").Load(t.Context(), connect.NewRequest(&ckptdv1.LoadRequest{Ref: ref("bad"), Schema: 2}))
	wantCode(t, err, connect.CodeFailedPrecondition, ckptdv1.Reason_REASON_MIGRATION_FAILED)
	log, err := os.ReadFile(filepath.Join(b.dir, "audit"))
	must(t, err)
	if bytes.Contains(log, []byte("secret text")) || !bytes.Contains(log, []byte("migration:"+dry.GetId())) {
		t.Errorf("the audit log is\n%s", log)
	}
}

// What was migrated is known after a restart of the server, and can be undone and finished.
func TestMigrationAcrossARestart(t *testing.T) {
	b := newBed(t, Limits{})
	_, err := b.migrations("").InstallMigrationSets(t.Context(), connect.NewRequest(&ckptdv1.InstallMigrationSetsRequest{Files: setFiles("support")}))
	must(t, err)
	oldState(t, b, "acme", "run-1", `{}`)
	done := ended(t, b.migrations(""), &ckptdv1.StartMigrationJobRequest{Tenant: "acme", Action: run})
	if done.GetState() != "done" || done.GetMigrated() != 1 || done.GetReport().GetMigrated() != 1 {
		t.Fatalf("the run ended as %v", done)
	}
	b.stop()
	b.start()
	c := b.migrations("")
	if again := watched(t, c, "acme", done.GetId()); again.GetReport().GetMigrated() != 1 || again.GetStage() != "done" {
		t.Errorf("after a restart the job is %v", again)
	}
	load := func() *ckptdv1.Checkpoint {
		res, err := b.checkpoints("").Load(t.Context(), connect.NewRequest(&ckptdv1.LoadRequest{Ref: ref("run-1"), Text: true}))
		must(t, err)
		return res.Msg.GetCheckpoint()
	}
	if cp := load(); cp.GetSchemaVersion() != 2 || cp.GetKind() != "support" {
		t.Errorf("migrated: %v", cp)
	}
	if job := ended(t, c, &ckptdv1.StartMigrationJobRequest{Tenant: "acme", Action: undo, Id: done.GetId()}); job.GetStage() != "undone" || job.GetUndone() != 1 {
		t.Errorf("the undo ended as %v", job)
	}
	if cp := load(); cp.GetSchemaVersion() != 1 || cp.GetChannels()[0].GetText() != `{}` {
		t.Errorf("undone: %v", cp)
	}
	if job := ended(t, c, &ckptdv1.StartMigrationJobRequest{Tenant: "acme", Action: finish, Id: done.GetId()}); job.GetState() != "done" || job.GetStage() != "" {
		t.Errorf("the finish ended as %v", job)
	}
}

// The admin of a tenant sees and changes nothing of another one's: neither sets nor jobs.
func TestMigrationsOfAnotherTenant(t *testing.T) {
	b := newBed(t, Limits{})
	owner := b.migrations("")
	_, err := owner.InstallMigrationSets(t.Context(), connect.NewRequest(&ckptdv1.InstallMigrationSetsRequest{Tenant: "acme", Files: setFiles("support")}))
	must(t, err)
	oldState(t, b, "acme", "run-1", `{}`)
	oldState(t, b, "umbrella", "run-1", `{}`)
	theirs := ended(t, owner, &ckptdv1.StartMigrationJobRequest{Tenant: "acme", Action: run}).GetId()
	c := b.migrations(b.token(access.Grant{Role: access.Admin, Tenant: "umbrella", User: access.Any}))
	for tenant, want := range map[string]ckptdv1.Reason{"acme": ckptdv1.Reason_REASON_NOT_FOUND, "umbrella": ckptdv1.Reason_REASON_NO_JOB} {
		_, get := c.GetMigrationJob(t.Context(), connect.NewRequest(&ckptdv1.GetMigrationJobRequest{Tenant: tenant, Id: theirs}))
		_, cancel := c.CancelMigrationJob(t.Context(), connect.NewRequest(&ckptdv1.CancelMigrationJobRequest{Tenant: tenant, Id: theirs}))
		_, taken := c.StartMigrationJob(t.Context(), connect.NewRequest(&ckptdv1.StartMigrationJobRequest{Tenant: tenant, Action: undo, Id: theirs}))
		for _, err := range []error{get, cancel, taken} {
			wantCode(t, err, connect.CodeNotFound, want)
		}
	}
	_, err = c.StartMigrationJob(t.Context(), connect.NewRequest(&ckptdv1.StartMigrationJobRequest{Tenant: "acme", Action: dryRun}))
	wantCode(t, err, connect.CodeNotFound, ckptdv1.Reason_REASON_NOT_FOUND)
	sets, err := c.ListMigrationSets(t.Context(), connect.NewRequest(&ckptdv1.ListMigrationSetsRequest{Tenant: "umbrella"}))
	must(t, err)
	jobs, err := c.ListMigrationJobs(t.Context(), connect.NewRequest(&ckptdv1.ListMigrationJobsRequest{Tenant: "umbrella"}))
	must(t, err)
	if len(sets.Msg.GetSets()) != 0 || len(jobs.Msg.GetJobs()) != 0 {
		t.Errorf("umbrella sees %v and %v", sets.Msg, jobs.Msg)
	}
	// Its own migrations are its own: acme's set does not reach its states.
	_, err = b.checkpoints("").Load(t.Context(), connect.NewRequest(&ckptdv1.LoadRequest{Ref: &ckptdv1.Ref{Tenant: "umbrella", User: "alice", Thread: "run-1"}, Schema: 2}))
	wantCode(t, err, connect.CodeFailedPrecondition, ckptdv1.Reason_REASON_NO_MIGRATION)
}

// A hundred sets do not burst the audit log.
func TestAboutSets(t *testing.T) {
	sets := make([]*ckptdv1.MigrationSet, 100)
	for i := range sets {
		sets[i] = &ckptdv1.MigrationSet{Digest: make([]byte, 32)}
	}
	if about := aboutSets(sets); len(about) > 256 || !strings.Contains(about, "and 92 more") {
		t.Errorf("%d bytes: %s", len(about), about)
	}
}

// A set that is not the one that was meant is not installed, and neither is one that does not read.
func TestInstallPinned(t *testing.T) {
	b := newBed(t, Limits{})
	c := b.migrations("")
	install := func(m *ckptdv1.InstallMigrationSetsRequest) error {
		_, err := c.InstallMigrationSets(t.Context(), connect.NewRequest(m))
		return err
	}
	files := setFiles("support")
	for name, m := range map[string]*ckptdv1.InstallMigrationSetsRequest{
		"another digest": {Files: files, Digests: []*ckptdv1.MigrationDigest{{Kind: "support", Digest: make([]byte, 32)}}},
		"no file":        {},
		"a path up":      {Files: []*ckptdv1.MigrationFile{{Path: "../0002_x.jq", Data: []byte(".")}}},
		"twice":          {Files: append(files, files[0])},
		"no jq":          {Files: []*ckptdv1.MigrationFile{{Path: "support/0002_x.jq", Data: []byte(".a |")}}},
	} {
		t.Run(name, func(t *testing.T) {
			wantCode(t, install(m), connect.CodeInvalidArgument, ckptdv1.Reason_REASON_MIGRATION_INVALID)
		})
	}
	sets, err := c.ListMigrationSets(t.Context(), connect.NewRequest(&ckptdv1.ListMigrationSetsRequest{}))
	must(t, err)
	if len(sets.Msg.GetSets()) != 0 {
		t.Errorf("installed: %v", sets.Msg)
	}
	must(t, install(&ckptdv1.InstallMigrationSetsRequest{Files: files}))
	sets, err = c.ListMigrationSets(t.Context(), connect.NewRequest(&ckptdv1.ListMigrationSetsRequest{}))
	must(t, err)
	must(t, install(&ckptdv1.InstallMigrationSetsRequest{Files: files, Digests: []*ckptdv1.MigrationDigest{{Kind: "support", Digest: sets.Msg.GetSets()[0].GetDigest()}}}))
	keyed := b.plugins("")
	_, err = keyed.TrustKey(t.Context(), connect.NewRequest(&ckptdv1.TrustKeyRequest{PublicKey: bytes.Repeat([]byte{7}, 32)}))
	must(t, err)
	wasm := []*ckptdv1.MigrationFile{{Path: "support/0002_x.wasm", Data: []byte("x")}}
	wantCode(t, install(&ckptdv1.InstallMigrationSetsRequest{Files: wasm}), connect.CodeInvalidArgument, ckptdv1.Reason_REASON_PLUGIN_INVALID)
}
