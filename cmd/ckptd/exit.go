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
	exitLost        = 17
	exitForeignLog  = 18
	exitNoLog       = 19
	exitNewerLog    = 20
	exitWitness     = 21
	exitInterrupted = 130
	exitPipe        = 141
)

// exitCodes is the table that `ckptd help exit-codes` prints.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitOK, "success"},
	{exitError, "any other error"},
	{exitUsage, "invalid command line; nothing was done"},
	{exitNotFound, "no such store, thread, checkpoint, branch or blob"},
	{exitConflict, "a thread or branch has changed meanwhile, or already exists with other content"},
	{exitDamaged, "stored data is damaged, or verify found problems"},
	{exitKey, "the key file is missing or unusable, or the key is wrong or was destroyed"},
	{exitLocked, "another process has the store open"},
	{exitForeign, "the directory is not a ckptd store, or was written by a newer version"},
	{exitInput, "the input is malformed, invalid, or over a limit"},
	{exitUnavailable, "no space left, read-only, no permission, a device error, an address in use, or the server is unreachable"},
	{exitDenied, "no valid credentials for the server, or not permitted with them"},
	{exitBusy, "the server is overloaded or shutting down; nothing was done"},
	{exitRejected, "rejected by a plugin or a redaction rule; nothing was saved"},
	{exitPlugin, "a required plugin failed or is missing; nothing was saved"},
	{exitFound, "redact --check found something"},
	{exitMigration, "a state cannot be migrated: a step failed or is missing, or the state is too new"},
	{exitLost, "acknowledged commits are missing; nothing was changed"},
	{exitForeignLog, "the log in the store directory belongs to another store; nothing was changed"},
	{exitNoLog, "the store directory has no log; nothing was changed"},
	{exitNewerLog, "the store's log was written by a newer version; nothing was changed"},
	{exitWitness, "verify --witness: the store is behind the witness, or has a different past"},
	{exitInterrupted, "interrupted by a signal; acknowledged saves are kept"},
	{exitPipe, "the reader of the output closed it"},
}

func exitCodesTopic() *cobra.Command {
	var b strings.Builder
	b.WriteString("Exit codes of ckptd:\n")
	for _, e := range exitCodes {
		fmt.Fprintf(&b, "\n  %3d  %s", e.code, e.meaning)
	}
	return &cobra.Command{Use: "exit-codes", Short: "List of exit codes", Long: b.String()}
}

// Errors of the command line itself.
var (
	errInterrupted = errors.New("interrupted")
	errNoStore     = errors.New("no store found")
	errProblems    = errors.New("problems found")
	errExists      = errors.New("already exists")
	errDeclined    = errors.New("nothing was deleted")
)

// doctorAdvice is for a directory that is not opened as it is.
const doctorAdvice = "run ckptd doctor for a diagnosis and repair options"

// pluginAdvice is for a plugin that ran and did not do its work.
const pluginAdvice = "see ckptd plugin show; roll the plugin back or disable it if it is at fault"

type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// notSeenError is that of a server which does not have something, or does not show it.
type notSeenError struct{ error }

func (e notSeenError) Unwrap() error { return e.error }

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
	{errInterrupted, exitInterrupted, "acknowledged saves are kept"},
	{context.Canceled, exitInterrupted, ""},
	{errNoStore, exitNotFound, "name its directory with --data, or create one with ckptd save, import, demo or serve"},
	{errProblems, exitDamaged, "restore the named data from a copy of the store"},
	{errExists, exitConflict, "choose another name, or delete it first"},
	{errSocketTaken, exitLocked, "stop it, or choose another socket"},
	{errAddressTaken, exitUnavailable, "stop the program that listens there, or choose another address"},
	{errFound, exitFound, "run ckptd redact without --check to redact it"},
	{errNoToken, exitNotFound, "see ckptd token list"},
	{audit.ErrBroken, exitDamaged, "keep the file as it is, and find out who could write to it"},

	{client.ErrUnauthenticated, exitDenied, "set --token-file, " + tokenVariable + " or --tls-cert; a wrong, revoked or expired one is refused, too"},
	{client.ErrDenied, exitDenied, "see your rights with ckptd whoami"},
	{client.ErrOverloaded, exitBusy, ""},
	{client.ErrShuttingDown, exitBusy, "try again later"},
	{client.ErrUnreachable, exitUnavailable, "check --server, and that ckptd serve is running there"},
	{context.DeadlineExceeded, exitUnavailable, "try again, or raise the server's --request-timeout"},

	{errTriedRejected, exitRejected, ""},
	{errTried, exitPlugin, ""},
	{errFixtures, exitPlugin, ""},
	{errSigningKey, exitKey, ""},
	{scaffold.ErrName, exitUsage, ""},
	{scaffold.ErrLanguage, exitUsage, ""},
	{scaffold.ErrNoProject, exitInput, "name a directory with the source of a plugin"},
	{scaffold.ErrBuild, exitInput, ""},
	{hook.ErrRejected, exitRejected, "remove the rejected content and save again"},
	{hook.ErrUnavailable, exitPlugin, "see ckptd plugin list"},
	{hook.ErrInvalid, exitInput, ""},
	{hook.ErrFailed, exitPlugin, pluginAdvice},
	{hook.ErrFuel, exitPlugin, pluginAdvice},
	{hook.ErrTimeout, exitPlugin, pluginAdvice},
	{hook.ErrTrap, exitPlugin, pluginAdvice},
	{hook.ErrLimit, exitPlugin, pluginAdvice},
	{engine.ErrRejected, exitPlugin, pluginAdvice},
	{client.ErrNoJob, exitNotFound, "see ckptd migrate jobs"},
	{client.ErrJobBusy, exitBusy, ""},
	{client.ErrJobState, exitConflict, ""},
	{client.ErrJobStopped, exitMigration, "correct the step and run it again, or undo the job"},
	{client.ErrJobRefused, exitMigration, ""},
	{errNotMigrated, exitError, ""},
	{errUndone, exitConflict, ""},
	{errNoSet, exitNotFound, "see ckptd migrate sets"},
	{migrate.ErrInvalid, exitInput, ""},
	{migrate.ErrStep, exitMigration, ""},
	{migrate.ErrNoPath, exitMigration, "name migrations with --migrations, or install them with ckptd migrate install"},
	{migrate.ErrTooNew, exitMigration, "use newer migrations, or --down if there are reverse steps"},

	{errNoPlugin, exitNotFound, "see ckptd plugin list"},
	{errNoKey, exitNotFound, "see ckptd plugin keys"},

	{crypto.ErrKeyFileMissing, exitKey, "restore the key file or name it with --key-file; without it no data can be read"},
	{crypto.ErrKeyFileMode, exitKey, ""},
	{crypto.ErrKeyFileFormat, exitKey, "use the original file that ckptd wrote"},
	{crypto.ErrKeyUnset, exitKey, "set it, or use --key-file"},
	{crypto.ErrWrongKey, exitKey, "name the key file of this store with --key-file and its keystore with --keystore"},
	{crypto.ErrNoStore, exitKey, "restore the keystore or name it with --keystore; without it no data can be read"},
	{crypto.ErrKeyDestroyed, exitKey, "its data can never be read again"},
	{engine.ErrKeyMissing, exitKey, "restore the newest copy of the keystore"},
	{crypto.ErrForeignKeystore, exitForeign, "name the keystore of this store with --keystore"},
	{crypto.ErrKeystoreEntry, exitDamaged, "restore the keystore from an intact copy"},
	{crypto.ErrInvalidID, exitInput, ""},

	{backend.ErrLocked, exitLocked, ""},
	{backend.ErrForeign, exitForeign, "choose another directory with --data; nothing was changed"},
	{errWitness, exitWitness, "find out who replaced the directory; to start over, remove the file of the witness"},
	{errSalvaged, exitDamaged, ""},
	{errUndamaged, exitInput, ""},
	{backend.ErrLostCommits, exitLost, doctorAdvice},
	{backend.ErrForeignLog, exitForeignLog, doctorAdvice},
	{backend.ErrNoLog, exitNoLog, doctorAdvice},
	{backend.ErrNewerLog, exitNewerLog, "use a newer ckptd; nothing was changed"},
	{backend.ErrNewerFormat, exitForeign, "use a newer ckptd; nothing was changed"},
	{backend.ErrOlderFormat, exitForeign, "export with that version and import here; nothing was changed"},
	{engine.ErrNewerFormat, exitForeign, "use a newer ckptd; nothing was changed"},
	{engine.ErrOlderFormat, exitForeign, "export with that version and import here (agent runs only, without branches and labels)"},
	{crypto.ErrNewerFormat, exitForeign, "use a newer ckptd; nothing was changed"},
	{backend.ErrReadOnly, exitUnavailable, "make it writable: opening a store needs its lock"},
	{engine.ErrNoSpace, exitUnavailable, "free space on the device and run the command again; acknowledged saves are kept"},
	{engine.ErrCorrupt, exitDamaged, "run ckptd verify --deep to find out its extent"},
	{backend.ErrCorrupt, exitDamaged, "restore the directory from a copy, or " + doctorAdvice},

	{engine.ErrTooLarge, exitInput, ""},
	{trajectory.ErrTooLarge, exitInput, "raise --max-message"},
	{trajectory.ErrRead, exitUnavailable, ""},
	{trajectory.ErrSyntax, exitInput, "correct it and import it again; import skips imported runs"},
	{engine.ErrInvalid, exitInput, ""},
	{engine.ErrExhausted, exitInput, "continue in another thread"},
	{engine.ErrNeedFull, exitConflict, "save the whole channels"},
	{engine.ErrConflict, exitConflict, "see ckptd log and try again"},
	{engine.ErrGeneration, exitConflict, "run the command again to start a new one"},
	{engine.ErrUnknownParent, exitNotFound, "see ckptd log"},
	{engine.ErrNotFound, exitNotFound, "see ckptd threads and ckptd log"},
	{engine.ErrClosed, exitBusy, ""},
	{engine.ErrUnavailable, exitUnavailable, "check the device and try again"},
	{engine.ErrAmbiguous, exitUnavailable, "run the command again; it skips saved checkpoints"},
	{fs.ErrPermission, exitUnavailable, "check the file permissions"},
	{syscall.ENOSPC, exitUnavailable, "free space on the device"},
	{syscall.EROFS, exitUnavailable, ""},
	{fs.ErrNotExist, exitNotFound, "check the path"},
}

// explain returns the exit code of an error and the line for the user, "" for none.
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
	if d, ok := errors.AsType[diagnosedError](err); ok {
		code, _ := explain(d.why)
		return code, oneLine(err.Error())
	}
	if wire.PluginUnfit(err) {
		return exitInput, oneLine(err.Error())
	}
	if _, ok := errors.AsType[notSeenError](err); ok {
		return exitNotFound, oneLine(err.Error()) + ": see your rights with ckptd whoami, or name another --tenant or --user"
	}
	if e, ok := errors.AsType[*engine.BranchExistsError](err); ok {
		return exitConflict, fmt.Sprintf("%s: choose another name, or extend it with ckptd save --branch %s", oneLine(err.Error()), printable(e.Name))
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return exitUnavailable, oneLine(err.Error()) + ": name the server's CA certificate with --tls-ca"
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
