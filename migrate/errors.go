package migrate

import (
	"errors"
	"fmt"
)

// Errors of sets and migrations, to test with errors.Is.
var (
	// ErrInvalid reports an invalid set, step, fixture or schema. No step ran on a state.
	ErrInvalid = errors.New("invalid migration")
	// ErrTooNew reports a state that is newer than the requested version or the set, where a way
	// back was not requested or doesn't exist.
	ErrTooNew = errors.New("schema version is too new")
	// ErrNoPath reports that there are no steps from the version of the state to the requested one.
	ErrNoPath = errors.New("no migration")
	// ErrStep reports a step that failed on a state. See StepError.
	ErrStep = errors.New("migration failed")
)

// VersionError reports a state that cannot be migrated to a version. It matches Kind.
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

// StepError reports which step failed on a state, where in the state, and why. Reason may quote the
// state: it is meant for the state's owner, not for logs. It matches ErrStep and Err.
type StepError struct {
	Kind     string
	From, To uint64
	Source   string // of the step, such as "jq migrations/support/0002_rename.jq"
	Path     string // JSON pointer into the document, "" for all of it
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
