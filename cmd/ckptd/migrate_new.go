package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/migrate"
)

func (a *app) migrateNewCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "new KIND NAME",
		Short: "Create a migration step: a jq program, its reverse, and fixtures",
		Long: `New creates the step to the next schema version of a kind: three files in the kind's folder in
--migrations (default: ./migrations) with the step, the reverse step and fixtures for both. The
generated steps change nothing: edit them, then run ckptd migrate check. Delete the reverse step if
the step cannot be reversed.`,
		Example: `  ckptd migrate new support rename_user_pref`,
		Args:    cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := a.migrations.dir
			if dir == "" {
				dir = "migrations"
			}
			return a.newMigration(dir, args[0], args[1])
		},
	}
}

var (
	migrationName   = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	migrationNumber = regexp.MustCompile(`^(\d{4,})[_.]`)
)

// migrationFiles are the files of a new step.
var migrationFiles = []struct{ ending, text string }{
	{".jq", "# %s.\n.channels.state |= .\n"},
	{".down.jq", "# Back: %s.\n.channels.state |= .\n"},
	{".fixtures.json", `[{"name": "plain",
  "before": {"channels": {"state": {}}},
  "after": {"channels": {"state": {}}}}]
`},
}

func (a *app) newMigration(dir, kind, name string) error {
	if kind == "" || kind[0] == '.' {
		return usagef("%q is not a valid kind", kind)
	}
	if !migrationName.MatchString(name) || len(name) > 100 {
		return usagef("%q is not a valid step name: use letters, digits, - and _", name)
	}
	folder := filepath.Join(dir, migrate.FolderOf(kind))
	next, err := nextVersion(folder)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	for _, f := range migrationFiles {
		text := f.text
		if f.ending != ".fixtures.json" {
			text = fmt.Sprintf(text, name)
		}
		path := filepath.Join(folder, fmt.Sprintf("%04d_%s%s", next, name, f.ending))
		if err := writeNew(path, []byte(text), 0o666); err != nil {
			return err
		}
		if a.json {
			err = a.emit(map[string]any{"file": path, "version": next})
		} else {
			err = a.printf("wrote %s\n", printable(path))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// nextVersion is the version after those that the files of a folder lead to; the first step leads
// to 2.
func nextVersion(folder string) (uint64, error) {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	versions := []uint64{1}
	for _, e := range entries {
		if m := migrationNumber.FindStringSubmatch(e.Name()); m != nil {
			n, err := strconv.ParseUint(m[1], 10, 32)
			if err != nil {
				return 0, fmt.Errorf("%w: %s: the number is too large", migrate.ErrInvalid, filepath.Join(folder, e.Name()))
			}
			versions = append(versions, n)
		}
	}
	return slices.Max(versions) + 1, nil
}

func (a *app) migrateCheckCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Check the migration sets in --migrations and run their fixtures",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.migrations.dir == "" {
				a.migrations.dir = "migrations"
			}
			r, err := a.migrations.read(cmd.Context())
			if err != nil {
				return err
			}
			for _, kind := range r.Kinds() {
				if err := a.showSet("", r.Set(kind)); err != nil {
					return err
				}
			}
			if len(r.Kinds()) == 0 && !a.json {
				a.note("%s has no folder named after a kind", a.migrations.dir)
			}
			return nil
		},
	}
}

// setView is a set as --json prints it.
type setView struct {
	Tenant string `json:"tenant,omitempty"`
	Kind   string `json:"kind"`
	Oldest uint64 `json:"oldest"`
	Newest uint64 `json:"newest"`
	Digest string `json:"sha256"`
}

// showSet prints a set. tenant is the one that it is installed for.
func (a *app) showSet(tenant string, s *migrate.Set) error {
	oldest, newest := s.Versions()
	v := setView{tenant, s.Kind(), oldest, newest, fmt.Sprintf("%x", s.Digest())}
	if a.json {
		return a.emit(v)
	}
	line := fmt.Sprintf("%s: versions %s to %s, %s", a.paint.bold(printable(v.Kind)), s.Name(oldest), s.Name(newest), a.paint.dim("sha256:"+v.Digest[:12]))
	if tenant != "" {
		line += ", for tenant " + printable(tenant)
	}
	return a.printf("%s\n", line)
}
