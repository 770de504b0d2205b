package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/migrate"
)

// attempt is a change to a lineage that is tried until its outcome is final, with the results that
// one try leaves to the next.
type attempt struct {
	t        *Thread
	chain    hook.Chain      // the hooks to run on the draft; nil: none
	hooked   *hookedDraft    // their output; nil: they have not run yet
	migrated migratedParents // the parents that were migrated for it

	conflicts, moves int
}

const (
	// conflictTries bounds how often a change is tried again because others wrote the same keys in
	// the meantime: another process, or another lineage the thread record. Each time one of them
	// has succeeded.
	conflictTries = 64
	// movedTries bounds how often hooks or migrations run again because the parent changed in the
	// meantime. Each time another save has run the same hooks, or has changed them.
	movedTries = 16
)

// run calls try until it needs nothing more. A try names its need by its error, which is private to
// the engine.
func (a *attempt) run(ctx context.Context, try func() (*Checkpoint, error)) (*Checkpoint, error) {
	for {
		cp, err := try()
		switch need := err.(type) {
		case nil:
			return cp, nil
		case *pendingError:
			err = need.wait(ctx)
		case *expiredError:
			err = need.remove(ctx, a.t)
		case *movedError:
			a.hooked = nil
			err = countTry(&a.moves, movedTries, need)
		case *unmigratedError:
			if err = countTry(&a.moves, movedTries, need); err == nil {
				err = a.migrate(ctx, need)
			}
		default:
			if !errors.Is(err, backend.ErrConflict) {
				return nil, err
			}
			err = countTry(&a.conflicts, conflictTries, err)
		}
		if err != nil {
			return nil, err
		}
	}
}

// countTry counts a failed try, and gives up after most.
func countTry(tries *int, most int, why error) error {
	if *tries++; *tries < most {
		return nil
	}
	return fmt.Errorf("%w: gave up after %d tries because of concurrent changes: %w", ErrUnavailable, *tries, why)
}

// migrate migrates the parent for the next try, with no lock held.
func (a *attempt) migrate(ctx context.Context, e *unmigratedError) error {
	m, err := e.u.migrate(ctx, e.path, e.hash, func() migrate.State { return e.state })
	if err != nil {
		return ofThread(a.t.ref, err)
	}
	if a.migrated == nil {
		a.migrated = migratedParents{}
	}
	a.migrated[migrationKey{e.u.Tok, e.hash, e.path.set, e.path.to}] = m
	return nil
}

// movedError: the hooks saw another parent than the current one, whose kept channels have not run
// through them.
type movedError struct{}

func (*movedError) Error() string { return "the parent moved while hooks ran" }

// expiredError: the thread has expired, and has to be removed before a save starts it again.
type expiredError struct{}

func (*expiredError) Error() string { return "the thread has expired" }

func (*expiredError) remove(ctx context.Context, t *Thread) error {
	if _, err := t.s.deleteThread(ctx, t.ref, true); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("removing expired thread: %w", err)
	}
	return nil
}
