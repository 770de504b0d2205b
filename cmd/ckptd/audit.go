package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/client"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/audit"
	"github.com/ckptd/ckptd/internal/contract"
)

const auditLogUsage = "audit log `file` for denials, exports and administration (none to disable; default: DATA.audit.jsonl)"

// auditLog is the path of the audit log, "" for none.
func (a *app) auditLog(flag string) string {
	switch flag {
	case "":
		return a.base + ".audit.jsonl"
	case "none":
		return ""
	}
	return flag
}

// recordOwn records an operation on a store that no server has open in the audit log, as a server
// would. Without a log it does nothing.
func recordOwn(log, procedure, about string) error {
	if log == "" || !contract.API.Method(procedure).GetAudited() {
		return nil
	}
	l, err := audit.Open(log)
	if err != nil {
		return err
	}
	e := audit.Entry{Kind: audit.Admin, Method: procedure, Caller: fmt.Sprintf("peer:%d", os.Geteuid()), About: about, Code: "ok"}
	return errors.Join(l.Append(e), l.Close())
}

func (a *app) auditCmd() *cobra.Command {
	var log string
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show or verify the audit log of a server",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&log, "audit-log", os.Getenv(envName("audit-log")), auditLogUsage)
	cmd.AddCommand(a.auditVerifyCmd(&log), a.auditShowCmd(&log))
	return cmd
}

// auditFiles are the files that the command line names, or the audit log.
func (a *app) auditFiles(args []string, log string) ([]string, error) {
	if len(args) > 0 {
		return args, nil
	}
	if path := a.auditLog(log); path != "" {
		return []string{path}, nil
	}
	return nil, usagef("--audit-log is none: name the files")
}

func (a *app) auditVerifyCmd(log *string) *cobra.Command {
	var expect string
	cmd := &cobra.Command{
		Use:   "verify [FILE]...",
		Short: "Verify that no line of the audit log was changed, removed or inserted",
		Long: `Verify follows the hash chain through the audit log or, if the log was rotated, through the named
files, oldest first. It needs no keys and works while a server writes the log.

The file itself cannot show that its newest lines were cut off. Keep the hash that verify prints
somewhere else and pass it to the next verify with --expect: the chain must still contain it.`,
		RunE: func(_ *cobra.Command, args []string) error {
			if a.server.addr != "" {
				return usagef("audit verify reads files: omit --server, and run it on the server's machine")
			}
			paths, err := a.auditFiles(args, *log)
			if err != nil {
				return err
			}
			if sum, err := hex.DecodeString(expect); expect != "" && (err != nil || len(sum) != 32) {
				return usagef("--expect %q is not a hash: want 64 hexadecimal digits", expect)
			}
			return a.auditVerify(paths, strings.ToLower(expect))
		},
	}
	cmd.Flags().StringVar(&expect, "expect", "", "`hash` of a line that the log must contain")
	return cmd
}

// auditView is the result of audit verify in JSON.
type auditView struct {
	Lines   int    `json:"lines"`
	First   uint64 `json:"first"`
	Last    uint64 `json:"last"`
	Hash    string `json:"hash"`
	Notices int    `json:"notices"`
	Intact  bool   `json:"intact"`
}

func (a *app) auditVerify(paths []string, expect string) error {
	var files []io.Reader
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("reading the audit log: %w", err)
		}
		defer f.Close()
		files = append(files, f)
	}
	r, err := audit.Verify(expect, files...)
	if broken, ok := errors.AsType[*audit.BrokenError](err); ok {
		err = fmt.Errorf("%s: %w", paths[broken.File], err)
	}
	if a.json && (err == nil || errors.Is(err, audit.ErrBroken)) {
		return errors.Join(a.emit(auditView{r.Lines, r.First, r.Last, r.Hash, r.Notices, err == nil}), err)
	}
	if err != nil {
		return err
	}
	if r.Lines == 0 {
		return a.printf("the audit log is empty\n")
	}
	a.printf("intact  %s, numbers %d to %d\n", count(r.Lines, "line"), r.First, r.Last)
	if r.First > 1 {
		a.note("the lines before number %d are not in these files", r.First)
	}
	if r.Notices > 0 {
		a.note("the log was repaired %s after crashes", count(r.Notices, "time"))
	}
	return a.printf("hash    %s\n", r.Hash)
}

func (a *app) auditShowCmd(log *string) *cobra.Command {
	var since string
	cmd := &cobra.Command{
		Use:   "show [FILE]...",
		Short: "Show the audit log with real names in place of pseudonyms",
		Long: `Show prints the audit log, or the named files, with the names of tenants, users and threads. It finds
them by hashing all existing names, so deleted ones keep their pseudonyms. With --server it prints
the server's log; otherwise it needs the keys of the store and no server can have the store open.
It does not verify the log: see ckptd audit verify.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := parseTime(since, time.Now())
			if err != nil {
				return err
			}
			if a.server.addr != "" {
				return a.auditShowServer(cmd.Context(), args, from)
			}
			paths, err := a.auditFiles(args, *log)
			if err != nil {
				return err
			}
			return a.withOwn(cmd.Context(), false, func(s *engine.Store) error {
				names, err := auditNames(cmd.Context(), s)
				if err != nil {
					return err
				}
				for _, path := range paths {
					if err := a.auditShow(namedEntries(path, names), from); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "only entries since `TIME`: 24h, 30d, 2026-01-31")
	return cmd
}

func (a *app) auditShowServer(ctx context.Context, args []string, since time.Time) error {
	if len(args) > 0 {
		return usagef("with --server, show reads the server's log: omit the files")
	}
	c, err := a.dial()
	if err != nil {
		return err
	}
	return errors.Join(a.auditShow(c.ReadAudit(ctx, since), since), c.Close())
}

// auditNames maps the pseudonyms of all tenants, users and threads of a store to their names.
func auditNames(ctx context.Context, s *engine.Store) (map[string]string, error) {
	names, upkeep := map[string]string{"": ""}, s.Upkeep()
	for tenant, err := range upkeep.Tenants(ctx) {
		if err != nil {
			return nil, err
		}
		names[upkeep.Pseudonym("audit", tenant)] = tenant
		for user, err := range upkeep.Users(ctx, tenant) {
			if err != nil {
				return nil, err
			}
			names[upkeep.Pseudonym("audit", tenant, user)] = user
			for info, err := range s.User(tenant, user).Threads(ctx, engine.ThreadOptions{}) {
				if errors.Is(err, engine.ErrKeyDestroyed) {
					break
				}
				if err != nil {
					return nil, err
				}
				names[upkeep.Pseudonym("audit", tenant, user, info.Ref.Thread)] = info.Ref.Thread
			}
		}
	}
	return names, nil
}

// namedEntries yields the entries of a file, with names in place of pseudonyms where they are
// known.
func namedEntries(path string, names map[string]string) iter.Seq2[client.AuditEntry, error] {
	name := func(pseudonym string) string {
		if n, ok := names[pseudonym]; ok {
			return n
		}
		return pseudonym
	}
	return func(yield func(client.AuditEntry, error) bool) {
		f, err := os.Open(path)
		if err != nil {
			yield(client.AuditEntry{}, fmt.Errorf("reading the audit log: %w", err))
			return
		}
		defer f.Close()
		for e, err := range audit.Read(f) {
			if err != nil {
				err = fmt.Errorf("%s: %w", path, err)
			}
			if !yield(client.AuditEntry{Number: e.Number, Time: e.Time, Kind: string(e.Kind), Method: e.Method, Caller: e.Caller,
				Tenant: name(e.Tenant), User: name(e.User), Thread: name(e.Thread), About: e.About, Code: e.Code, Count: e.Count}, err) {
				return
			}
		}
	}
}

// entryView is a line of the audit log as --json prints it.
type entryView struct {
	Number uint64    `json:"n"`
	Time   time.Time `json:"time"`
	Kind   string    `json:"kind"`
	Method string    `json:"method"`
	Caller string    `json:"caller"`
	Tenant string    `json:"tenant,omitempty"`
	User   string    `json:"user,omitempty"`
	Thread string    `json:"thread,omitempty"`
	About  string    `json:"about,omitempty"`
	Code   string    `json:"code"`
	Count  int       `json:"count"`
}

func (a *app) auditShow(entries iter.Seq2[client.AuditEntry, error], since time.Time) error {
	for e, err := range entries {
		if err != nil {
			return err
		}
		if e.Time.Before(since) {
			continue
		}
		if a.json {
			err = a.emit(entryView{e.Number, e.Time.UTC(), e.Kind, e.Method, e.Caller, e.Tenant, e.User, e.Thread, e.About, e.Code, max(e.Count, 1)})
		} else {
			err = a.printf("%s\n", a.auditLine(e))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *app) auditLine(e client.AuditEntry) string {
	method := e.Method[strings.LastIndexByte(e.Method, '.')+1:] // without the package
	line := fmt.Sprintf("%6d  %s  %s  %s  %s  %s", e.Number, e.Time.Local().Format("2006-01-02 15:04:05"), pad(printable(e.Kind), 6),
		pad(printable(e.Code), 17), printable(method), printable(e.Caller))
	for _, part := range [][2]string{{"tenant", e.Tenant}, {"user", e.User}, {"thread", e.Thread}, {"about", e.About}} {
		if part[1] != "" {
			line += "  " + a.paint.dim(part[0]) + " " + printable(part[1])
		}
	}
	if e.Count > 1 {
		line += fmt.Sprintf("  %d times", e.Count)
	}
	return line
}
