package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/client"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/access"
)

var errNoToken = errors.New("no such token")

// tokenKeeper has the methods that the commands need to manage tokens, on a server or in the files
// of a store.
type tokenKeeper interface {
	CreateToken(ctx context.Context, note string, grants ...client.Grant) (client.Token, string, error)
	Tokens(ctx context.Context) ([]client.Token, error)
	RevokeToken(ctx context.Context, id string, keepChildren bool) (revoked []string, err error)
}

func (a *app) tokenCmd() *cobra.Command {
	files := besideFiles{a: a}
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Create, list and revoke server access tokens",
		Long: `A token grants its bearer a role for a user, a tenant or the whole store:
  reader    read everything
  approver  read, and set labels, branches and pending writes, to approve a paused run
  writer    all of approver, and save, copy, prune and delete
  auditor   see headers, lists and statistics, but no content; for all tenants, also the audit log
  admin     all of the above, and manage retention, users and tokens

Without --server, the commands work on the store's files, and no server can have the store open.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&files.tokens, "tokens", os.Getenv(envName("tokens")), "sealed token `file` (default: DATA.tokens)")
	cmd.PersistentFlags().StringVar(&files.log, "audit-log", os.Getenv(envName("audit-log")), auditLogUsage)
	cmd.AddCommand(a.tokenCreateCmd(&files), a.tokenListCmd(&files), a.tokenRevokeCmd(&files))
	return cmd
}

// tokenScope has the flags for a new token.
type tokenScope struct {
	role                   string
	allUsers, allTenants   bool
	tenantGiven, userGiven bool // on the command line
	prefixes               []string
	expires                string
}

func (a *app) tokenCreateCmd(files *besideFiles) *cobra.Command {
	var scope tokenScope
	var note string
	cmd := &cobra.Command{
		Use:   "create --role ROLE",
		Short: "Create a token and print it (shown only once)",
		Long: `Create creates a token for --user of --tenant and prints only the token to standard output. The store
keeps just its hash: save the token where only those who need it can read it. Through --server, only an
admin can create tokens, and only with rights that the admin has.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			scope.tenantGiven, scope.userGiven = cmd.Flags().Changed("tenant"), cmd.Flags().Changed("user")
			grants, err := a.grants(scope, time.Now())
			if err != nil {
				return err
			}
			return files.with(cmd.Context(), func(k tokenKeeper) error {
				t, secret, err := k.CreateToken(cmd.Context(), note, grants...)
				if err != nil {
					return err
				}
				return a.tokenCreated(t, secret)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&scope.role, "role", "", "`role`: reader, approver, writer, auditor or admin")
	f.BoolVar(&scope.allUsers, "all-users", false, "valid for every user of --tenant")
	f.BoolVar(&scope.allTenants, "all-tenants", false, "valid for every user of every tenant")
	f.StringArrayVar(&scope.prefixes, "thread-prefix", nil, "only for threads whose names begin with `TEXT` (repeatable)")
	f.StringVar(&scope.expires, "expires", "", "expiry `time`: 12h, 30d or 2w from now, or a time such as 2027-01-31 (default: never)")
	f.StringVar(&note, "note", "", "`text` shown with the token, such as its purpose")
	cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]cobra.Completion{"reader", "approver", "writer", "auditor", "admin"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// grants returns the grants that the command line asks for.
func (a *app) grants(s tokenScope, now time.Time) ([]client.Grant, error) {
	g := client.Grant{Role: s.role, Tenant: a.tenant, User: a.user}
	switch {
	case s.role == "":
		return nil, usagef("--role is missing: want reader, approver, writer, auditor or admin")
	case access.Role(s.role).Permissions() == 0:
		return nil, usagef("--role %q: want reader, approver, writer, auditor or admin", s.role)
	case a.tenant == access.Any || a.user == access.Any:
		return nil, usagef("* is not a tenant or user: use --all-users or --all-tenants")
	case s.allTenants && (s.tenantGiven || s.userGiven):
		return nil, usagef("--all-tenants covers every user of every tenant: omit --tenant and --user")
	case s.allUsers && s.userGiven:
		return nil, usagef("--all-users covers every user of the tenant: omit --user")
	case s.allTenants:
		g.Tenant, g.User = access.Any, access.Any
	case s.allUsers:
		g.User = access.Any
	}
	if s.expires != "" {
		var err error
		if g.Expires, err = parseExpiry(s.expires, now); err != nil {
			return nil, err
		}
	}
	if len(s.prefixes) == 0 {
		return []client.Grant{g}, nil
	}
	var grants []client.Grant
	for _, p := range s.prefixes {
		if p == "" {
			return nil, usagef("--thread-prefix cannot be empty: omit it to match every thread")
		}
		g.ThreadPrefix = p
		grants = append(grants, g)
	}
	return grants, nil
}

// parseExpiry reads a moment to come: an age from now, a date, or a time of RFC 3339.
func parseExpiry(s string, now time.Time) (time.Time, error) {
	at := now
	if age, err := parseAge(s); err == nil {
		at = now.Add(age)
	} else if at, err = parseTime(s, now); err != nil {
		return at, usagef("--expires %q is neither a duration such as 12h or 30d nor a time such as 2027-01-31 or 2027-01-31T12:00:00Z", s)
	}
	if !at.After(now) {
		return at, usagef("--expires %s is in the past", s)
	}
	return at, nil
}

// tokenView is a token as --json prints it. The secret is there only when it was just made.
type tokenView struct {
	ID      string      `json:"id"`
	Note    string      `json:"note,omitempty"`
	Created time.Time   `json:"created"`
	Grants  []grantView `json:"grants"`
	MadeBy  string      `json:"made_by,omitempty"`
	Secret  string      `json:"secret,omitempty"`
}

func viewToken(t client.Token, secret string) tokenView {
	v := tokenView{ID: t.ID, Note: t.Note, Created: t.Created.UTC(), Grants: []grantView{}, MadeBy: t.MadeBy, Secret: secret}
	for _, g := range t.Grants {
		v.Grants = append(v.Grants, viewGrant(g))
	}
	return v
}

func (a *app) tokenCreated(t client.Token, secret string) error {
	if a.json {
		return a.emit(viewToken(t, secret))
	}
	for _, g := range t.Grants {
		a.note("token %s: %s", t.ID, grantText(viewGrant(g)))
	}
	return a.printf("%s\n", secret)
}

func (a *app) tokenListCmd(files *besideFiles) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List tokens, without their secrets",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return files.with(cmd.Context(), func(k tokenKeeper) error {
				tokens, err := k.Tokens(cmd.Context())
				if err != nil {
					return err
				}
				return a.tokens(tokens)
			})
		},
	}
}

func (a *app) tokens(tokens []client.Token) error {
	for _, t := range tokens {
		if a.json {
			if err := a.emit(viewToken(t, "")); err != nil {
				return err
			}
			continue
		}
		for i, g := range t.Grants {
			line := strings.Repeat(" ", len(t.ID))
			if i == 0 {
				line = a.paint.bold(t.ID)
			}
			line += "  " + grantText(viewGrant(g))
			if i == 0 && t.Note != "" {
				line += "  " + a.paint.dim(printable(t.Note))
			}
			if i == 0 && t.MadeBy != "" {
				line += "  " + a.paint.dim("created by "+printable(t.MadeBy))
			}
			if err := a.printf("%s\n", line); err != nil {
				return err
			}
		}
	}
	if len(tokens) == 0 && !a.json {
		a.note("no tokens")
	}
	return nil
}

func (a *app) tokenRevokeCmd(files *besideFiles) *cobra.Command {
	keep := false
	cmd := &cobra.Command{
		Use:   "revoke ID...",
		Short: "Revoke tokens immediately",
		Long: `Revoke revokes tokens immediately, along with every token created with them, directly or indirectly:
a leaked token may have been used to create others. It prints all revoked tokens.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return files.with(cmd.Context(), func(k tokenKeeper) error {
				done := map[string]bool{}
				for _, id := range args {
					if done[id] {
						continue
					}
					revoked, err := k.RevokeToken(cmd.Context(), id, keep)
					if errors.Is(err, engine.ErrNotFound) {
						err = fmt.Errorf("%w %q", errNoToken, id)
					}
					if err == nil {
						err = a.revoked(revoked)
					}
					if err != nil {
						return err
					}
					for _, id := range revoked {
						done[id] = true
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&keep, "keep-children", false, "do not revoke tokens created with these tokens")
	return cmd
}

func (a *app) revoked(ids []string) error {
	for _, id := range ids {
		var err error
		if a.json {
			err = a.emit(map[string]string{"revoked": id})
		} else {
			err = a.printf("revoked %s\n", id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// besideFiles are the token file and the audit log of a store.
type besideFiles struct {
	a           *app
	tokens, log string
}

// with calls f with the tokens of the server, if there is one, or of the store.
func (b *besideFiles) with(ctx context.Context, f func(tokenKeeper) error) error {
	if b.a.server.addr != "" {
		c, err := b.a.dial()
		if err != nil {
			return err
		}
		return errors.Join(f(c), c.Close())
	}
	return b.a.withOwn(ctx, false, func(s *engine.Store) error {
		path := b.tokens
		if path == "" {
			path = b.a.base + ".tokens"
		}
		tokens, err := access.OpenTokens(path, s.Upkeep())
		if err != nil {
			return err
		}
		return f(ownTokens{tokens, b.a.auditLog(b.log)})
	})
}

// ownTokens are the tokens of a store that no server has open. Operations on them go to the audit
// log.
type ownTokens struct {
	kept *access.Tokens
	log  string // path, "" for none
}

func (o ownTokens) CreateToken(_ context.Context, note string, grants ...client.Grant) (client.Token, string, error) {
	var gs []access.Grant
	for _, g := range grants {
		gs = append(gs, access.Grant{Role: access.Role(g.Role), Tenant: g.Tenant, User: g.User, ThreadPrefix: g.ThreadPrefix, Expires: g.Expires})
	}
	owner := &access.Caller{Grants: []access.Grant{access.Everything()}}
	if uid := os.Geteuid(); uid >= 0 { // there are none on Windows
		owner.Name = fmt.Sprintf("peer:%d", uid)
	}
	t, secret, err := o.kept.Issue(owner, note, gs, time.Now())
	if err == nil {
		err = recordOwn(o.log, ckptdv1.AdminServiceCreateTokenProcedure, t.Summary())
	}
	return clientToken(t), secret, err
}

func (o ownTokens) Tokens(context.Context) ([]client.Token, error) {
	var all []client.Token
	for _, t := range o.kept.List() {
		all = append(all, clientToken(t))
	}
	return all, nil
}

func (o ownTokens) RevokeToken(_ context.Context, id string, keepChildren bool) (revoked []string, err error) {
	t, err := o.kept.Get(id)
	if err == nil {
		revoked, err = o.kept.Revoke(id, keepChildren)
	}
	if err != nil {
		return nil, err
	}
	return revoked, recordOwn(o.log, ckptdv1.AdminServiceRevokeTokenProcedure, t.Summary())
}

func clientToken(t access.Token) client.Token {
	c := client.Token{ID: t.ID, Note: t.Note, Created: t.Created, MadeBy: t.MadeBy}
	for _, g := range t.Grants {
		c.Grants = append(c.Grants, client.Grant{Role: string(g.Role), Tenant: g.Tenant, User: g.User, ThreadPrefix: g.ThreadPrefix, Expires: g.Expires})
	}
	return c
}
