package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/client"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/internal/audit"
	"github.com/ckptd/ckptd/internal/migration"
	"github.com/ckptd/ckptd/internal/trajectory"
	"github.com/ckptd/ckptd/internal/wire"
	"github.com/ckptd/ckptd/migrate"
	"github.com/ckptd/ckptd/plugins/scaffold"
)

// Exit codes. They are an interface: none is ever given another meaning.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitConflict    = 4
	exitDamaged     = 5
	exitKey         = 6
	exitLocked      = 7
	exitForeign     = 8
	exitInput       = 9
	exitUnavailable = 10
	exitDenied      = 11
	exitBusy        = 12
	exitRejected    = 13
	exitPlugin      = 14
	exitFound       = 15
	exitMigration   = 16
	exitInterrupted = 130
	exitPipe        = 141
)

// exitCodes is the table that `ckptd help exit-codes` prints.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitOK, "done"},
	{exitError, "any other error"},
	{exitUsage, "the command line is wrong: nothing was done"},
	{exitNotFound, "no such store, thread, checkpoint, branch or blob"},
	{exitConflict, "a thread or branch has gone on meanwhile, or exists with other content"},
	{exitDamaged, "stored data is damaged, or verify found problems"},
	{exitKey, "the key file is missing or cannot be used, or the key is the wrong one or was destroyed"},
	{exitLocked, "another process has the store open"},
	{exitForeign, "the directory is not a ckptd store, or was written by a newer version"},
	{exitInput, "input is malformed, not valid, or over a limit"},
	{exitUnavailable, "no space left, read-only, no permission, the device fails, or the server cannot be reached"},
	{exitDenied, "no valid credentials for the server, or not allowed with them"},
	{exitBusy, "the server is overloaded or shutting down; nothing was done"},
	{exitRejected, "a plugin or a rule rejected it; nothing was saved"},
	{exitPlugin, "a plugin that it must pass failed or is not there; nothing was saved"},
	{exitFound, "redact --check found something"},
	{exitMigration, "a state cannot be migrated: a step failed, there is no way, or the state is too new"},
	{exitInterrupted, "interrupted by a signal; what was acknowledged is saved"},
	{exitPipe, "the reader of the output went away"},
}

func exitCodesTopic() *cobra.Command {
	var b strings.Builder
	b.WriteString("Exit codes of ckptd:\n")
	for _, e := range exitCodes {
		fmt.Fprintf(&b, "\n  %3d  %s", e.code, e.meaning)
	}
	return &cobra.Command{Use: "exit-codes", Short: "Exit codes and what they mean", Long: b.String()}
}

// Errors of the command line itself.
var (
	errInterrupted = errors.New("interrupted")
	errNoStore     = errors.New("there is no store")
	errProblems    = errors.New("problems found")
	errExists      = errors.New("exists already")
	errDeclined    = errors.New("nothing was deleted")
)

// pluginAdvice is for a plugin that ran and did not do its work.
const pluginAdvice = "ckptd plugin show tells more of the plugin; roll it back or disable it if it is at fault"

type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// outputError is a failure to write to standard output or an output file.
type outputError struct{ err error }

func (e outputError) Error() string { return "writing output: " + e.err.Error() }
func (e outputError) Unwrap() error { return e.err }

// explanations is the one table from errors to exit codes and advice. The first match wins.
var explanations = []struct {
	is     error
	code   int
	advice string
}{
	{errInterrupted, exitInterrupted, "what was acknowledged is saved"},
	{context.Canceled, exitInterrupted, ""},
	{errNoStore, exitNotFound, "name its directory with --data, or make one with ckptd import or ckptd demo"},
	{errProblems, exitDamaged, "restore what is named from a copy of the store"},
	{errExists, exitConflict, "take another name, or delete it first"},
	{errSocketTaken, exitLocked, "stop that one, or name another socket"},
	{errFound, exitFound, "ckptd redact without --check replaces it"},
	{errNoToken, exitNotFound, "ckptd token list shows those there are"},
	{audit.ErrBroken, exitDamaged, "keep it as it is, and find out who could write to it"},

	{client.ErrUnauthenticated, exitDenied, "give one with --token-file, " + tokenVariable + " or --tls-cert; one that is wrong, was revoked or has expired is refused alike"},
	{client.ErrDenied, exitDenied, "ckptd whoami shows what you may do"},
	{client.ErrOverloaded, exitBusy, ""},
	{client.ErrShuttingDown, exitBusy, "try again when it is back"},
	{client.ErrUnreachable, exitUnavailable, "check --server, and whether ckptd serve runs there"},
	{context.DeadlineExceeded, exitUnavailable, "it took too long: try again, or allow the server more with --request-timeout"},

	{errTriedRejected, exitRejected, ""},
	{errTried, exitPlugin, ""},
	{errFixtures, exitPlugin, ""},
	{errSigningKey, exitKey, ""},
	{scaffold.ErrName, exitUsage, ""},
	{scaffold.ErrLanguage, exitUsage, ""},
	{scaffold.ErrNoProject, exitInput, "name the directory of a plugin's source"},
	{scaffold.ErrBuild, exitInput, ""},
	{hook.ErrRejected, exitRejected, "take out what must not be stored"},
	{hook.ErrUnavailable, exitPlugin, "ckptd plugin list shows the state of the plugins"},
	{hook.ErrInvalid, exitInput, ""},
	{hook.ErrFailed, exitPlugin, pluginAdvice},
	{hook.ErrFuel, exitPlugin, pluginAdvice},
	{hook.ErrTimeout, exitPlugin, pluginAdvice},
	{hook.ErrTrap, exitPlugin, pluginAdvice},
	{hook.ErrLimit, exitPlugin, pluginAdvice},
	{engine.ErrRejected, exitPlugin, pluginAdvice},
	{migration.ErrNoJob, exitNotFound, "ckptd migrate jobs shows those there are"},
	{migration.ErrBusy, exitBusy, ""},
	{migration.ErrState, exitConflict, ""},
	{migration.ErrStopped, exitMigration, "mend the step and run it again, or undo the job"},
	{migration.ErrRefused, exitMigration, ""},
	{client.ErrNoJob, exitNotFound, "ckptd migrate jobs shows those there are"},
	{client.ErrJobBusy, exitBusy, ""},
	{client.ErrJobState, exitConflict, ""},
	{client.ErrJobStopped, exitMigration, "mend the step and run it again, or undo the job"},
	{client.ErrJobRefused, exitMigration, ""},
	{errNotMigrated, exitError, ""},
	{errUndone, exitConflict, ""},
	{errNoSet, exitNotFound, "ckptd migrate sets shows those there are"},
	{migrate.ErrInvalid, exitInput, ""},
	{migrate.ErrStep, exitMigration, ""},
	{migrate.ErrNoPath, exitMigration, "name migrations with --migrations, or install some with ckptd migrate install"},
	{migrate.ErrTooNew, exitMigration, "use newer migrations, or --down if there are ways back"},

	{errNoPlugin, exitNotFound, "ckptd plugin list shows those there are"},
	{errNoKey, exitNotFound, "ckptd plugin keys shows those there are"},

	{crypto.ErrKeyFileMissing, exitKey, "bring the key file back or name it with --key-file; without it nothing can be read"},
	{crypto.ErrKeyFileMode, exitKey, ""},
	{crypto.ErrKeyFileFormat, exitKey, "use the file that ckptd wrote, unchanged"},
	{crypto.ErrKeyUnset, exitKey, "set it, or use --key-file"},
	{crypto.ErrWrongKey, exitKey, "name the key file of this store with --key-file"},
	{crypto.ErrNoStore, exitKey, "bring the keystore back or name it with --keystore; without it nothing can be read"},
	{crypto.ErrKeyDestroyed, exitKey, "what it sealed is gone for good"},
	{engine.ErrKeyMissing, exitKey, "put back the newest copy of the keystore"},
	{crypto.ErrForeignKeystore, exitForeign, "name the keystore of this store with --keystore"},
	{crypto.ErrKeystoreEntry, exitDamaged, "bring an intact copy of the keystore back"},
	{crypto.ErrInvalidID, exitInput, ""},

	{backend.ErrLocked, exitLocked, "wait until it ends, use another --data or, if that is ckptd serve, work through it with --server unix:DATA.sock"},
	{backend.ErrForeign, exitForeign, "name another directory with --data; nothing in it was touched"},
	{backend.ErrNewerFormat, exitForeign, "use a newer ckptd; nothing was touched"},
	{backend.ErrOlderFormat, exitForeign, "export from it with that version and import here; nothing was touched"},
	{engine.ErrNewerFormat, exitForeign, "use a newer ckptd; nothing was touched"},
	{engine.ErrOlderFormat, exitForeign, "export from it with that version and import here: that carries agent runs, but no branches or labels"},
	{crypto.ErrNewerFormat, exitForeign, "use a newer ckptd; nothing was touched"},
	{backend.ErrReadOnly, exitUnavailable, "make it writable: a store is never opened without its lock"},
	{engine.ErrNoSpace, exitUnavailable, "make room on the device and run the command again; what was acknowledged is saved"},
	{engine.ErrCorrupt, exitDamaged, "run ckptd verify --deep for the extent of it"},
	{backend.ErrCorrupt, exitDamaged, "restore the directory from a copy"},

	{engine.ErrTooLarge, exitInput, ""},
	{trajectory.ErrTooLarge, exitInput, "allow more with --max-message"},
	{trajectory.ErrRead, exitUnavailable, ""},
	{trajectory.ErrSyntax, exitInput, "correct it and import it again, what is there is skipped"},
	{engine.ErrInvalid, exitInput, ""},
	{engine.ErrExhausted, exitInput, "go on in another thread"},
	{engine.ErrNeedFull, exitConflict, "save the channels whole"},
	{engine.ErrConflict, exitConflict, "look at ckptd log and try again"},
	{engine.ErrGeneration, exitConflict, "it is gone; run the command again to start afresh"},
	{engine.ErrUnknownParent, exitNotFound, "ckptd log shows what there is"},
	{engine.ErrNotFound, exitNotFound, "ckptd threads and ckptd log show what there is"},
	{engine.ErrClosed, exitBusy, ""},
	{engine.ErrUnavailable, exitUnavailable, "look at the device and try again"},
	{engine.ErrAmbiguous, exitUnavailable, "run the command again: what was saved is skipped"},
	{fs.ErrPermission, exitUnavailable, "check who may read and write there"},
	{syscall.ENOSPC, exitUnavailable, "make room on the device"},
	{syscall.EROFS, exitUnavailable, ""},
	{fs.ErrNotExist, exitNotFound, "check the path"},
}

// explain returns the exit code of an error and the line that tells the user, "" for none.
func explain(err error) (int, string) {
	switch {
	case err == nil:
		return exitOK, ""
	case errors.Is(err, syscall.EPIPE):
		return exitPipe, ""
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage, oneLine(err.Error())
	}
	if wire.PluginUnfit(err) {
		return exitInput, oneLine(err.Error())
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return exitUnavailable, oneLine(err.Error()) + ": name the authority of the server's certificate with --tls-ca"
	}
	for _, e := range explanations {
		if errors.Is(err, e.is) {
			if e.advice == "" {
				return e.code, oneLine(err.Error())
			}
			return e.code, oneLine(err.Error()) + ": " + e.advice
		}
	}
	if _, ok := errors.AsType[outputError](err); ok {
		return exitUnavailable, oneLine(err.Error())
	}
	return exitError, oneLine(err.Error())
}

// oneLine makes a message fit to be shown: errors.Join puts line feeds between its errors.
func oneLine(message string) string {
	return printable(strings.ReplaceAll(message, "\n", "; "))
}
