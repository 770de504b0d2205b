package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
)

// errNoSet: there are no migrations of a kind to be removed.
var errNoSet = errors.New("no migrations are installed")

func (a *app) migrateInstallCmd() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "install DIR",
		Short: "Install migration sets for every command and server of the store",
		Long: `Install installs the migration sets of a directory, replacing installed sets of the same kinds. They
apply to --tenant or, with --all-tenants, to every tenant without a set of its own. All fixtures must
pass first.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := os.ReadDir(args[0]); err != nil {
				return err
			}
			return a.withSets(cmd.Context(), true, func(sets setKeeper) error {
				done, err := sets.Install(cmd.Context(), a.tenantOr(all), os.DirFS(args[0]), nil)
				if err != nil {
					return err
				}
				for _, in := range done {
					if err := a.showSet(in.Tenant, in.Set); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all-tenants", false, "install for every tenant")
	return cmd
}

// tenantOr is the tenant that sets are for, "" for all.
func (a *app) tenantOr(all bool) string {
	if all {
		return ""
	}
	return a.tenant
}

func (a *app) migrateSetsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "sets",
		Short: "List the installed migration sets",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withSets(cmd.Context(), false, func(sets setKeeper) error {
				all, err := sets.List(cmd.Context())
				if err != nil {
					return err
				}
				for _, in := range all {
					if err := a.showSet(in.Tenant, in.Set); err != nil {
						return err
					}
				}
				if len(all) == 0 && !a.json {
					a.note("no migrations are installed")
				}
				return nil
			})
		},
	}
}

func (a *app) migrateRemoveCmd() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "remove KIND",
		Short: "Remove an installed migration set, without undoing its migrations",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSets(cmd.Context(), false, func(sets setKeeper) error {
				err := sets.Remove(cmd.Context(), a.tenantOr(all), args[0])
				switch {
				case errors.Is(err, fs.ErrNotExist):
					return fmt.Errorf("%w for kind %q", errNoSet, args[0])
				case err != nil:
					return err
				case a.json:
					return a.emit(map[string]string{"removed": args[0]})
				}
				return a.printf("removed the migrations of %s\n", printable(args[0]))
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all-tenants", false, "remove the set installed for every tenant")
	return cmd
}
