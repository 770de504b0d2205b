package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/migrate"
)

// Errors of any operation.
var (
	ErrClosed       = backend.ErrClosed
	ErrInvalid      = errors.New("invalid argument")
	ErrTooLarge     = errors.New("over the limit")
	ErrCorrupt      = errors.New("stored data is damaged")
	ErrKeyDestroyed = crypto.ErrKeyDestroyed
	ErrKeyMissing   = errors.New("keys are missing") // the user has data, and the keystore no keys to read it
	ErrUnavailable  = backend.ErrUnavailable
	ErrNoSpace      = error(backend.ErrNoSpace)
	ErrAmbiguous    = backend.ErrAmbiguous
	ErrNewerFormat  = errors.New("written by a newer version of ckptd")
	ErrOlderFormat  = errors.New("the store has storage format 1; the last version to read it is ckptd 0.1")
)

// ErrRejected means that hooks rejected data: by policy, because a hook failed, or because a
// required hook is missing. errors.As finds the *hook.Error that names the hook, the stage and the
// reason. Nothing of the rejected input was stored.
var ErrRejected = errors.New("rejected by hooks")

// Errors of loads.
var (
	// ErrNotFound: no such thread, checkpoint, branch or blob. It does not tell missing from
	// expired.
	ErrNotFound = errors.New("not found")
)

// Errors of saves. A save that returns one of them wrote nothing.
var (
	ErrConflict      = errors.New("head has moved")
	ErrUnknownParent = errors.New("unknown parent")
	ErrGeneration    = errors.New("thread or namespace was deleted in the meantime")
	ErrNeedFull      = errors.New("base of the splice is not the parent's version")
	ErrExhausted     = errors.New("lineage is full")
)

// Errors of migrations, by loads and saves. errors.As finds the *migrate.VersionError or
// *migrate.StepError with the details.
var (
	ErrSchemaTooNew = migrate.ErrTooNew // the state is newer than asked for, with no way back
	ErrNoMigration  = migrate.ErrNoPath // no steps lead from the version of the state to the one asked for
	ErrMigration    = migrate.ErrStep   // a step failed on the state
)

// ConflictError names the current head. It matches ErrConflict.
type ConflictError struct {
	HeadSeq uint64 // 0: the lineage is empty
	HeadID  string
}

func (e *ConflictError) Error() string {
	if e.HeadSeq == 0 {
		return "head has moved: the lineage has no checkpoint"
	}
	return fmt.Sprintf("head has moved: it is now %s (seq %d)", e.HeadID, e.HeadSeq)
}
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// NeedFullError names the channels whose splices could not be applied: send them whole. It matches
// ErrNeedFull.
type NeedFullError struct{ Channels []string }

func (e *NeedFullError) Error() string {
	return fmt.Sprintf("base of the splice is not the parent's version: send channels %q whole", e.Channels)
}
func (e *NeedFullError) Is(target error) bool { return target == ErrNeedFull }

// LimitError names a value that is over a limit. It matches ErrTooLarge.
type LimitError struct {
	What       string
	Size, Most int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s is %d bytes, over the limit of %d", e.What, e.Size, e.Most)
}
func (e *LimitError) Is(target error) bool { return target == ErrTooLarge }

// CorruptError names the damaged record and the damage. It matches ErrCorrupt.
type CorruptError struct {
	Record string // kind, tokens and seq, never an id
	Reason string
	Err    error // may be nil
}

func (e *CorruptError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("stored data is damaged: %s: %s: %v", e.Record, e.Reason, e.Err)
	}
	return fmt.Sprintf("stored data is damaged: %s: %s", e.Record, e.Reason)
}
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }
func (e *CorruptError) Unwrap() error        { return e.Err }

func corrupt(record, reason string, err error) error {
	return &CorruptError{Record: record, Reason: reason, Err: err}
}

// ofKeys translates an error of the keyring into one for callers: the keyring is closed with the
// store, and a keystore that cannot be read or written is unavailable storage.
func ofKeys(err error) error {
	if errors.Is(err, crypto.ErrClosed) {
		return ErrClosed
	}
	_, onDisk := errors.AsType[*fs.PathError](err)
	if _, link := errors.AsType[*os.LinkError](err); link {
		onDisk = true
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok && onDisk && !errors.Is(err, crypto.ErrKeystoreEntry) {
		return &keystoreError{err, errno}
	}
	return err
}

// keystoreError is an input or output error of the keystore. Its text goes to the callers of a
// daemon, so it names no path; errors.As finds the *fs.PathError or *os.LinkError that does.
type keystoreError struct {
	err   error
	errno syscall.Errno
}

func (e *keystoreError) Error() string {
	return "the keystore cannot be read or written: " + e.errno.Error()
}

func (e *keystoreError) Unwrap() []error {
	if e.errno == syscall.ENOSPC {
		return []error{ErrNoSpace, e.err}
	}
	return []error{ErrUnavailable, e.err}
}
