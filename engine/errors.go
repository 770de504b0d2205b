package engine

import (
	"errors"
	"fmt"

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
	ErrOlderFormat  = errors.New("the store has storage format 1, which ckptd 0.1 is the last to read")
)

// ErrRejected: hooks did not let something in or out, because they say so, because one failed, or because one that must
// run is missing. errors.As finds the *hook.Error that tells which hook, where and how. Nothing was stored of what did
// not come in.
var ErrRejected = errors.New("rejected by hooks")

// Errors of loads.
var (
	// ErrNotFound: no such thread, checkpoint, branch or blob. Missing and expired are not told apart.
	ErrNotFound = errors.New("not found")
)

// Errors of saves. None of them wrote anything.
var (
	ErrConflict      = errors.New("head has moved")
	ErrUnknownParent = errors.New("unknown parent")
	ErrGeneration    = errors.New("thread was deleted since")
	ErrNeedFull      = errors.New("base of the splice is not the parent's version")
	ErrExhausted     = errors.New("lineage is full")
)

// Errors of migrations, by loads and saves. errors.As finds the *migrate.VersionError or *migrate.StepError that tells more.
var (
	ErrSchemaTooNew = migrate.ErrTooNew // the state is newer than what was asked for, and there is no way back
	ErrNoMigration  = migrate.ErrNoPath // there are no steps from the version of the state to the one asked for
	ErrMigration    = migrate.ErrStep   // a step failed on the state
)

// ConflictError tells where the head is. It matches ErrConflict.
type ConflictError struct {
	HeadSeq uint64 // 0: there is no checkpoint
	HeadID  string
}

func (e *ConflictError) Error() string {
	if e.HeadSeq == 0 {
		return "head has moved: the lineage has no checkpoint"
	}
	return fmt.Sprintf("head has moved: it is now %s (seq %d)", e.HeadID, e.HeadSeq)
}
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// NeedFullError names the channels whose splice could not be applied: send them whole. It matches ErrNeedFull.
type NeedFullError struct{ Channels []string }

func (e *NeedFullError) Error() string {
	return fmt.Sprintf("base of the splice is not the parent's version: send channels %q whole", e.Channels)
}
func (e *NeedFullError) Is(target error) bool { return target == ErrNeedFull }

// LimitError tells what is over which limit. It matches ErrTooLarge.
type LimitError struct {
	What       string
	Size, Most int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s is %d bytes, over the limit of %d", e.What, e.Size, e.Most)
}
func (e *LimitError) Is(target error) bool { return target == ErrTooLarge }

// CorruptError tells which record is damaged and how. It matches ErrCorrupt.
type CorruptError struct {
	Record string // kind and place, by token and seq, never by id
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

// ofKeys is an error of the key ring as callers know it: it is closed with the store.
func ofKeys(err error) error {
	if errors.Is(err, crypto.ErrClosed) {
		return ErrClosed
	}
	return err
}
