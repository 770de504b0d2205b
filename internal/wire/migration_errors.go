package wire

import (
	"errors"
	"fmt"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/migrate"
)

// Errors of migration jobs, on both sides of the wire. The client exports them.
var (
	ErrNoJob      = errors.New("no such migration job")
	ErrJobBusy    = errors.New("a migration job is running")
	ErrJobState   = errors.New("the migration job is in the wrong state for that")
	ErrJobStopped = errors.New("too many states failed")
	ErrJobRefused = errors.New("nothing was migrated")
)

// packMigrationError makes the message of an error of migrations, nil for another one.
func packMigrationError(err error) *ckptdv1.MigrationError {
	if e, ok := errors.AsType[*migrate.StepError](err); ok {
		return &ckptdv1.MigrationError{Kind: toUTF8(e.Kind), From: e.From, To: e.To, Source: toUTF8(e.Source), Path: toUTF8(e.Path), Reason: toUTF8(e.Reason)}
	}
	if e, ok := errors.AsType[*migrate.VersionError](err); ok {
		return &ckptdv1.MigrationError{Kind: toUTF8(e.Of), From: e.From, To: e.To, Reason: toUTF8(e.Why)}
	}
	return nil
}

// unpackMigrationError is the inverse of packMigrationError, for the reasons of the table that may
// have such a message.
func unpackMigrationError(d *ckptdv1.ErrorDetail) error {
	var is error
	for _, row := range table {
		if row.Reason == d.GetReason() {
			is = row.Err
		}
	}
	m := d.GetMigration()
	if m == nil {
		return is
	}
	step := &migrate.StepError{Kind: m.GetKind(), From: m.GetFrom(), To: m.GetTo(), Source: m.GetSource(), Path: m.GetPath(), Reason: m.GetReason()}
	switch is {
	case migrate.ErrTooNew, migrate.ErrNoPath:
		return &migrate.VersionError{Kind: is, Of: m.GetKind(), From: m.GetFrom(), To: m.GetTo(), Why: m.GetReason()}
	case migrate.ErrStep:
		return step
	}
	return fmt.Errorf("%w: %w", is, step)
}
