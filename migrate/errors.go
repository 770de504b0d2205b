package migrate

import (
	"errors"
	"fmt"
)

// Errors of sets and migrations, to be told apart by errors.Is.
var (
	// ErrInvalid: a set, a step, a fixture or a schema is not what it must be. Nothing was run on a state.
	ErrInvalid = errors.New("invalid migration")
	// ErrTooNew: the state is newer than the version asked for or than the set, and no way back was wanted or exists.
	ErrTooNew = errors.New("schema version is too new")
	// ErrNoPath: there are no steps from the version of the state to the one that was asked for.
	ErrNoPath = errors.New("no migration")
	// ErrStep: a step failed on a state. See StepError.
	ErrStep = errors.New("migration failed")
)

// VersionError says that a state cannot be brought to a version. It matches Kind.
type VersionError struct {
	Kind     error // ErrTooNew or ErrNoPath
	Of       string
	From, To uint64
	Why      string
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%v: the state of kind %q has version %d, want %d: %s", e.Kind, e.Of, e.From, e.To, e.Why)
}
func (e *VersionError) Unwrap() error { return e.Kind }

// StepError says which step failed on a state, where in it, and why. Reason may quote the state: it is for who owns the
// state, and not for logs. It matches ErrStep, and Err.
type StepError struct {
	Kind     string
	From, To uint64
	Source   string // of the step, such as "jq migrations/support/0002_rename.jq"
	Path     string // JSON pointer in the document, "" for the whole
	Reason   string
	Err      error // may be nil
}

func (e *StepError) Error() string {
	text := fmt.Sprintf("%v: step %d to %d of %q (%s)", ErrStep, e.From, e.To, e.Kind, e.Source)
	if e.Path != "" {
		text += " at " + e.Path
	}
	return text + ": " + e.Reason
}

// Unwrap lets errors.Is find ErrStep and the cause.
func (e *StepError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrStep}
	}
	return []error{ErrStep, e.Err}
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}
