package jobs

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/migration"
	"github.com/ckptd/ckptd/migrate"
)

// Install installs the sets of a request.
func (m *Runner) Install(ctx context.Context, req *ckptdv1.InstallMigrationSetsRequest) ([]*ckptdv1.MigrationSet, error) {
	if m.o.Dir == "" {
		return nil, fmt.Errorf("%w: this store has no migrations directory", engine.ErrInvalid)
	}
	digests := map[string][32]byte{}
	for _, d := range req.GetDigests() {
		if len(d.GetDigest()) != 32 {
			return nil, fmt.Errorf("%w: kind %q: a digest has 32 bytes, not %d", engine.ErrInvalid, d.GetKind(), len(d.GetDigest()))
		}
		digests[d.GetKind()] = [32]byte(d.GetDigest())
	}
	files, err := filesOf(req.GetFiles())
	if err != nil {
		return nil, err
	}
	done, err := m.o.Sets.Install(ctx, req.GetTenant(), files, digests)
	if err != nil {
		return nil, err
	}
	return packSets(done), nil
}

// filesOf makes a directory of files.
func filesOf(files []*ckptdv1.MigrationFile) (fs.FS, error) {
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	had := map[string]bool{}
	for _, f := range files {
		name := f.GetPath()
		if !fs.ValidPath(name) || name == "." || path.Dir(name) == "." || had[name] {
			return nil, fmt.Errorf("%w: invalid or repeated migration file name %q: want KIND/NAME", migrate.ErrInvalid, name)
		}
		had[name] = true
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		if err == nil {
			_, err = w.Write(f.GetData())
		}
		if err != nil {
			return nil, err
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return zip.NewReader(bytes.NewReader(packed.Bytes()), int64(packed.Len()))
}

// InstalledSets returns the sets that are installed; with a tenant its own, and those of all that
// it has none of its own for.
func (m *Runner) InstalledSets(ctx context.Context, tenant string) ([]*ckptdv1.MigrationSet, error) {
	if m.o.Dir == "" {
		return nil, nil
	}
	all, err := m.o.Sets.Known(ctx)
	if err != nil {
		return nil, err
	}
	own := map[string]bool{}
	for _, in := range all {
		own[in.Kind] = own[in.Kind] || in.Tenant == tenant
	}
	var found []migration.Installed
	for _, in := range all {
		if tenant == "" || in.Tenant == tenant || in.Tenant == "" && !own[in.Kind] {
			found = append(found, in)
		}
	}
	return packSets(found), nil
}

func packSets(sets []migration.Installed) []*ckptdv1.MigrationSet {
	var ms []*ckptdv1.MigrationSet
	for i := range sets {
		ms = append(ms, PackSet(&sets[i]))
	}
	return ms
}

// Remove removes a set. One that is not there is engine.ErrNotFound.
func (m *Runner) Remove(ctx context.Context, tenant, kind string) error {
	if m.o.Dir == "" {
		return engine.ErrNotFound
	}
	err := m.o.Sets.Remove(ctx, tenant, kind)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: no migrations for kind %q are installed", engine.ErrNotFound, kind)
	}
	return err
}

// Status counts the heads of a tenant by kind and version.
func (m *Runner) Status(ctx context.Context, tenant string, spec *ckptdv1.MigrationSpec) ([]*ckptdv1.MigrationGroup, error) {
	groups, err := m.jobs().Status(ctx, SpecOf(tenant, spec).Scope)
	return PackGroups(groups), err
}

// Plan returns the steps that a job would take.
func (m *Runner) Plan(ctx context.Context, tenant string, spec *ckptdv1.MigrationSpec) (*ckptdv1.PlanMigrationResponse, error) {
	plan, err := m.jobs().Plan(ctx, SpecOf(tenant, spec))
	if err != nil {
		return nil, err
	}
	return &ckptdv1.PlanMigrationResponse{Groups: PackGroups(plan.Groups), Todo: uint64(plan.Todo)}, nil
}
