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

const auditLogUsage = "`file` for denials, exports and administration (none for none; default: the data directory's name with .audit.jsonl)"

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

// recordOwn writes to an audit log what was done to a store that no server has open, if a server would. Without a log it
// does nothing.
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
		Short: "Show the audit log of a server, or verify that it was not changed",
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
	return nil, usagef("--audit-log none: name the files")
}

func (a *app) auditVerifyCmd(log *string) *cobra.Command {
	var expect string
	cmd := &cobra.Command{
		Use:   "verify [FILE]...",
		Short: "Verify that no line of the audit log was changed, taken out or put in",
		Long: `Verify follows the chain of hashes through the audit log or, if it was rotated, through the files that are named, the
oldest first. It needs no keys, and a server may be writing the log.

That the newest lines are gone cannot be seen in the file itself. So keep the hash that verify prints in another place, and
give it to the next verify with --expect: it must be in the chain still.`,
		RunE: func(_ *cobra.Command, args []string) error {
			if a.server.addr != "" {
				return usagef("audit verify reads files: leave out --server, and run it where they are")
			}
			paths, err := a.auditFiles(args, *log)
			if err != nil {
				return err
			}
			if sum, err := hex.DecodeString(expect); expect != "" && (err != nil || len(sum) != 32) {
				return usagef("--expect %q is no hash: want 64 hexadecimal digits", expect)
			}
			return a.auditVerify(paths, strings.ToLower(expect))
		},
	}
	cmd.Flags().StringVar(&expect, "expect", "", "`hash` of a line that must be there")
	return cmd
}

// auditView is what audit verify found, as --json prints it.
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
		a.note("after a crash the log was mended %s", count(r.Notices, "time"))
	}
	return a.printf("hash    %s\n", r.Hash)
}

func (a *app) auditShowCmd(log *string) *cobra.Command {
	var since string
	cmd := &cobra.Command{
		Use:   "show [FILE]...",
		Short: "Show the audit log with the names that its pseudonyms stand for",
		Long: `Show prints the audit log, or the files that are named, with the names of tenants, users and threads. They are found by
comparing all that there are, so what was deleted meanwhile keeps its pseudonym. With --server it prints the server's log;
else it needs the keys of the store, which no server may have open then. It verifies nothing.`,
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
	cmd.Flags().StringVar(&since, "since", "", "only what came since `TIME`: 24h, 30d, 2026-01-31")
	return cmd
}

func (a *app) auditShowServer(ctx context.Context, args []string, since time.Time) error {
	if len(args) > 0 {
		return usagef("with --server the log is the server's: leave out the files")
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

// namedEntries yields the entries of a file, with names in place of pseudonyms where they are known.
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
