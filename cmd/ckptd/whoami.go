package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/client"
)

func (a *app) whoamiCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "whoami",
		Short: "Show who you are to the server, and your rights",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.server.addr == "" {
				return usagef("whoami needs --server: without one, the keys of the store grant every right")
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			caller, grants, err := c.WhoAmI(cmd.Context())
			if err != nil {
				return err
			}
			return a.whoami(caller, grants)
		},
	}
}

// callerView is a caller as --json prints it.
type callerView struct {
	Caller string      `json:"caller"`
	Grants []grantView `json:"grants"`
}

// grantView is a grant as --json prints it; "*" is every tenant or user.
type grantView struct {
	Role    string     `json:"role"`
	Tenant  string     `json:"tenant"`
	User    string     `json:"user"`
	Prefix  string     `json:"thread_prefix,omitempty"`
	Expires *time.Time `json:"expires,omitempty"`
}

func (a *app) whoami(caller string, grants []client.Grant) error {
	v := callerView{caller, []grantView{}}
	for _, g := range grants {
		v.Grants = append(v.Grants, viewGrant(g))
	}
	if a.json {
		return a.emit(v)
	}
	a.printf("%s\n", printable(v.Caller))
	for _, g := range v.Grants {
		if err := a.printf("  %s\n", grantText(g)); err != nil {
			return err
		}
	}
	return nil
}

func viewGrant(g client.Grant) grantView {
	v := grantView{Role: g.Role, Tenant: g.Tenant, User: g.User, Prefix: g.ThreadPrefix}
	if !g.Expires.IsZero() {
		at := g.Expires.UTC()
		v.Expires = &at
	}
	return v
}

func grantText(g grantView) string {
	text := pad(printable(g.Role), 8) + "  of " + scopeText("tenant", g.Tenant) + ", " + scopeText("user", g.User)
	if g.Prefix != "" {
		text += ", threads beginning with " + printable(g.Prefix)
	}
	if g.Expires != nil {
		text += ", until " + g.Expires.Local().Format("2006-01-02 15:04")
	}
	return text
}

func scopeText(what, name string) string {
	if name == "*" {
		return "every " + what
	}
	return what + " " + printable(name)
}
