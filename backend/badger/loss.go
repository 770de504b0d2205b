package badger

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/commitlog"
	"github.com/ckptd/ckptd/internal/durable"
)

// withoutLog refuses a store whose log is none of it, or goes on without one where that was
// accepted.
func (o *opening) withoutLog(class error, why string) error {
	o.logGone = true
	o.lost = &Loss{Why: plain(class) + ": " + why}
	return o.refuse(fmt.Errorf("%w: %s; nothing was changed: put the directory back from a copy", class, why))
}

// refuse ends the opening of a store that lacks commits, unless that was accepted.
func (o *opening) refuse(why error) error {
	if o.refused == nil {
		o.refused = why
	}
	if !o.accept {
		return why
	}
	return nil
}

// lack says what is missing and what to do.
func (o *opening) lack(beyond uint64) error {
	o.lost = &Loss{Groups: beyond - o.last.N, After: o.last, Why: "neither the log nor Badger's memory files have them"}
	if len(o.tail.Notes) > 0 {
		o.lost.Why = o.tail.Notes[0] + ", and Badger's memory files do not have it"
	}
	return o.refuse(fmt.Errorf("%w: %s; nothing was changed: put the directory back from a copy, or keep it for ckptd doctor",
		backend.ErrLostCommits, o.lost))
}

// checkUnnamed makes sure that what is lost is not in a table that the MANIFEST fails to name:
// Badger would remove it.
func (o *opening) checkUnnamed() error {
	paths, err := filesIn(o.s.dir, ".sst")
	if err != nil {
		return err
	}
	if name, pos := o.goesFurther(paths); name != "" {
		return fmt.Errorf("%w: the MANIFEST does not name %s, which has groups up to %d", backend.ErrCorrupt, name, pos.N)
	}
	return nil
}

// goesFurther finds a table that is not used and has groups beyond the last one that counts, or of
// another life of the store; "" if there is none. Damaged tables count, if the part of them that
// says it can be read.
func (o *opening) goesFurther(paths []string) (name string, pos commitlog.Position) {
	for _, path := range paths {
		name = filepath.Base(path)
		if slices.Contains(o.tables.names, name) {
			continue
		}
		if pos, _ = peek(path); pos.N > o.last.N || pos.N > 0 && pos.Incarnation != o.last.Incarnation {
			return name, pos
		}
	}
	return "", pos
}

// newIncarnation has the store go on, from what stands, as one that is not what it was.
func (o *opening) newIncarnation() { rand.Read(o.last.Incarnation[:]) }

// replaceLog removes all of the log and makes a new one. The tables have the new incarnation by
// now, so that what is left of the old log is refused if this is cut short.
func (o *opening) replaceLog() error {
	if o.s.logs != nil {
		if err := o.s.logs.Close(); err != nil {
			return dirError(err)
		}
		o.s.logs = nil
	}
	if err := emptyDir(filepath.Join(o.s.dir, logDir)); err != nil {
		return err
	}
	return o.create()
}

// emptyDir removes what is in a directory, durably. The directory stays, as it can be a link.
func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	if err == nil {
		err = durable.SyncDir(dir)
	}
	return dirError(err)
}

// incarnationOfMemory takes the incarnation from the memory files of a store that has neither a log
// nor tables.
func (o *opening) incarnationOfMemory() error {
	paths, err := memoryFiles(o.s.dir)
	if err != nil {
		return err
	}
	for _, path := range paths {
		err := transactionsIn(path, func(muts []commitlog.Mutation) {
			if g, ok := groupOf(muts); ok && g.pos.N == 1 {
				o.tables.pos.Incarnation = g.pos.Incarnation
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}
