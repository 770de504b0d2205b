package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/migrate"
)

// attempt is a change of a lineage that is tried until its outcome is final, with what one try leaves to the next.
type attempt struct {
	t         *Thread
	chain     hook.Chain // the hooks that see the change; nil: none
	passage   *passage   // what they made of it; nil: they have yet to run
	crossings crossings  // the parents that were migrated for it

	conflicts, moves int
}

const (
	// conflictTries bounds how often a change is tried because others wrote meanwhile what it was to write: another process,
	// another lineage the record of the thread. Each time one of them has got there.
	conflictTries = 64
	// movedTries bounds how often hooks or migrations run because the parent changed meanwhile. Each time another save has
	// passed the same hooks, or has changed them.
	movedTries = 16
)

// run calls try until it needs nothing more. What a try can need is said by its error, which is private to the engine.
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
			a.passage = nil
			err = tooMany(&a.moves, movedTries, need)
		case *unmigratedError:
			if err = tooMany(&a.moves, movedTries, need); err == nil {
				err = a.migrate(ctx, need)
			}
		default:
			if !errors.Is(err, backend.ErrConflict) {
				return nil, err
			}
			err = tooMany(&a.conflicts, conflictTries, err)
		}
		if err != nil {
			return nil, err
		}
	}
}

// tooMany counts a try that others were in the way of, and gives up after so many.
func tooMany(tries *int, most int, why error) error {
	if *tries++; *tries < most {
		return nil
	}
	return fmt.Errorf("%w: gave up after %d attempts, because other writers kept changing its base: %w", ErrUnavailable, *tries, why)
}

// migrate migrates the parent for the next try, with no lock held.
func (a *attempt) migrate(ctx context.Context, e *unmigratedError) error {
	m, err := e.u.migrate(ctx, e.way, e.hash, func() migrate.State { return e.state })
	if err != nil {
		return ofThread(a.t.ref, err)
	}
	if a.crossings == nil {
		a.crossings = crossings{}
	}
	a.crossings[migratedName{e.u.Tok, e.hash, e.way.set, e.way.to}] = m
	return nil
}

// movedError: the hooks saw another parent than that of the save, and what is kept of this one has not passed them.
type movedError struct{}

func (*movedError) Error() string { return "the parent moved while hooks ran" }

// expiredError: the thread is past its time, and has to go before a save starts it afresh.
type expiredError struct{}

func (*expiredError) Error() string { return "the thread has expired" }

func (*expiredError) remove(ctx context.Context, t *Thread) error {
	if _, err := t.s.deleteThread(ctx, t.ref, true); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("removing expired thread: %w", err)
	}
	return nil
}
