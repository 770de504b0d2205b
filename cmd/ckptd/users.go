package main

import (
	"slices"

	"github.com/spf13/cobra"
)

func (a *app) usersCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "users",
		Short: "List the users of a tenant",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), false, func(s store) error {
				var names []string
				for name, err := range s.Users(cmd.Context(), a.tenant) {
					if err != nil {
						return err
					}
					names = append(names, name)
				}
				slices.Sort(names)
				return a.users(names)
			})
		},
	}
}

func (a *app) users(names []string) (err error) {
	for _, name := range names {
		if a.json {
			err = a.emit(map[string]string{"tenant": a.tenant, "user": name})
		} else {
			err = a.printf("%s\n", printable(name))
		}
		if err != nil {
			return err
		}
	}
	if len(names) == 0 && !a.json {
		a.note("tenant %s has no users", printable(a.tenant))
	}
	return nil
}
