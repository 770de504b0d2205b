package jobs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/internal/migration"
	"github.com/ckptd/ckptd/internal/wire"
	"github.com/ckptd/ckptd/migrate"
)

// SpecOf is the inverse of PackSpec; no message is everything of the tenant.
func SpecOf(tenant string, m *ckptdv1.MigrationSpec) migration.Spec {
	return migration.Spec{Scope: migration.Scope{Tenant: tenant, User: m.GetUser(), Kind: m.GetKind()}, To: m.GetTo(), Down: m.GetDown(), Rewrite: m.GetRewrite()}
}

// PackSpec makes the message of a spec, without its tenant.
func PackSpec(s migration.Spec) *ckptdv1.MigrationSpec {
	return &ckptdv1.MigrationSpec{User: s.User, Kind: s.Kind, To: s.To, Down: s.Down, Rewrite: s.Rewrite}
}

// PackGroups makes the messages of groups.
func PackGroups(groups []migration.Group) []*ckptdv1.MigrationGroup {
	var ms []*ckptdv1.MigrationGroup
	for _, g := range groups {
		m := &ckptdv1.MigrationGroup{Kind: g.Kind, Version: g.Version, Name: g.Name, Heads: uint64(g.Heads), Example: wire.PackRef(g.Example), To: g.To, Steps: g.Steps}
		if g.Err != nil {
			m.Error = wire.PackSaveError(g.Err)
		}
		ms = append(ms, m)
	}
	return ms
}

// UnpackGroups is the inverse of PackGroups.
func UnpackGroups(ms []*ckptdv1.MigrationGroup) []migration.Group {
	var groups []migration.Group
	for _, m := range ms {
		g := migration.Group{Kind: m.GetKind(), Version: m.GetVersion(), Name: m.GetName(), Heads: count(m.GetHeads()), Example: wire.UnpackRef(m.GetExample()),
			To: m.GetTo(), Steps: m.GetSteps()}
		if m.GetError() != nil {
			g.Err = wire.UnpackSaveError(m.GetError())
		}
		groups = append(groups, g)
	}
	return groups
}

// UnpackJob makes the job of package migration of a message.
func UnpackJob(m *ckptdv1.MigrationJob) *migration.Job {
	return &migration.Job{ID: m.GetId(), Spec: SpecOf(m.GetTenant(), m.GetSpec()), To: m.GetTo(), State: migration.State(m.GetStage()),
		Created: m.GetCreated().AsTime(), Updated: m.GetUpdated().AsTime(), Migrated: count(m.GetMigrated()), Failed: count(m.GetFailed()),
		Undone: count(m.GetUndone()), Kept: count(m.GetKept())}
}

// PackReport makes the message of a report.
func PackReport(r *migration.Report) *ckptdv1.MigrationReport {
	m := &ckptdv1.MigrationReport{States: uint64(r.States), Current: uint64(r.Current), Left: uint64(r.Left), Migrated: uint64(r.Migrated), Gone: uint64(r.Gone),
		Failed: uint64(r.Failed)}
	for _, s := range r.Failures {
		f := &ckptdv1.MigrationFailures{Kind: s.Kind, From: s.From, To: s.To, Source: text(s.Source), Count: uint64(s.Count)}
		for _, e := range s.Examples {
			f.Examples = append(f.Examples, &ckptdv1.MigrationFailure{Ref: wire.PackRef(e.Ref), Id: e.ID, Seq: e.Seq, Path: text(e.Path), Reason: text(e.Reason)})
		}
		m.Failures = append(m.Failures, f)
	}
	return m
}

// UnpackReport is the inverse of PackReport; nil gives nil.
func UnpackReport(m *ckptdv1.MigrationReport) *migration.Report {
	if m == nil {
		return nil
	}
	r := &migration.Report{States: count(m.GetStates()), Current: count(m.GetCurrent()), Left: count(m.GetLeft()), Migrated: count(m.GetMigrated()),
		Gone: count(m.GetGone()), Failed: count(m.GetFailed())}
	for _, f := range m.GetFailures() {
		s := migration.StepFailures{Kind: f.GetKind(), From: f.GetFrom(), To: f.GetTo(), Source: f.GetSource(), Count: count(f.GetCount())}
		for _, e := range f.GetExamples() {
			s.Examples = append(s.Examples, migration.Failure{Ref: wire.UnpackRef(e.GetRef()), ID: e.GetId(), Seq: e.GetSeq(), Path: e.GetPath(), Reason: e.GetReason()})
		}
		r.Failures = append(r.Failures, s)
	}
	return r
}

// PackSet makes the message of an installed set.
func PackSet(in *migration.Installed) *ckptdv1.MigrationSet {
	m := &ckptdv1.MigrationSet{Tenant: in.Tenant, Kind: in.Kind, Digest: in.Digest[:], Installed: timestamppb.New(in.Installed), Names: map[uint64]string{}}
	m.Oldest, m.Newest = in.Set.Versions()
	for v := m.Oldest; v <= m.Newest; v++ {
		if name, ok := strings.CutPrefix(in.Set.Name(v), fmt.Sprintf("%d (", v)); ok {
			m.Names[v] = strings.TrimSuffix(name, ")")
		}
	}
	return m
}

// count makes an int of a number that came over the wire.
func count(n uint64) int { return int(min(n, math.MaxInt)) }

// text makes a text fit for a message.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// UnpackSet makes of a message a set that knows its versions and their names. Its steps refuse to
// run.
func UnpackSet(m *ckptdv1.MigrationSet) (migration.Installed, error) {
	in := migration.Installed{Tenant: m.GetTenant(), Kind: m.GetKind(), Installed: m.GetInstalled().AsTime()}
	if len(m.GetDigest()) != len(in.Digest) || m.GetNewest()-m.GetOldest() > maxSteps {
		return in, fmt.Errorf("%w: the answer has no valid migration set", migrate.ErrInvalid)
	}
	copy(in.Digest[:], m.GetDigest())
	spec := migrate.Spec{Kind: in.Kind, Names: m.GetNames(), Digest: in.Digest}
	for v := m.GetOldest(); v < m.GetNewest(); v++ {
		spec.Steps = append(spec.Steps, migrate.Step{From: v, To: v + 1, Source: "the server", Run: func(context.Context, any) (any, error) {
			return nil, errors.New("the step runs on the server only")
		}})
	}
	var err error
	in.Set, err = migrate.NewSet(context.Background(), spec)
	return in, err
}

// maxSteps limits the steps that a server can claim.
const maxSteps = 1 << 16
