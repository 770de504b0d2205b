// Package backend is the contract between the engine and an ordered key-value store: five methods,
// a handful of errors, and nothing of any particular store. Drivers live in the packages below it;
// backendtest holds the suite that every driver must pass.
//
// A backend stores opaque values (they arrive sealed) under keys ordered as byte strings. Every key
// carries a version: a short string that the writer chose when it wrote the key. Conditions compare
// versions, so a writer can condition its next batch on its last write without reading it back.
//
// All methods may be called by many goroutines at once.
package backend

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Portable floor. Every driver accepts batches within it, and the engine never sends larger ones.
const (
	MaxKey        = 1 << 10 // bytes in a key
	MaxVersion    = 32      // bytes in a version
	MaxBatchKeys  = 64      // conditions and mutations of a batch together name at most this many distinct keys
	MaxBatchBytes = 1 << 20 // keys, versions and values of a batch, summed
)

var (
	// ErrConflict: a condition did not hold. Nothing was applied.
	ErrConflict = errors.New("backend: condition not met")
	// ErrAmbiguous: the outcome of a commit is unknown; all of it or none of it was applied.
	ErrAmbiguous = errors.New("backend: outcome unknown")
	// ErrTooLarge: a batch, key, version or value is over the portable floor. Nothing was applied.
	ErrTooLarge = errors.New("backend: over the size limit")
	// ErrUnavailable: the store cannot serve the call now, or has stopped for good. Nothing was
	// applied, unless the error is ErrAmbiguous as well: then it stopped in the middle of this
	// commit.
	ErrUnavailable = errors.New("backend: unavailable")
	// ErrInvalid: the batch, keys or range are malformed (an empty key or version, a key written or
	// conditioned twice, an absent condition on a key that the batch does not write, a negative
	// limit). Nothing was applied.
	ErrInvalid = errors.New("backend: malformed request")
	// ErrCorrupt: the store found its own files damaged.
	ErrCorrupt = errors.New("backend: store is damaged")
	// ErrNoSpace: the device has too little room to accept the batch. Nothing was applied. It wraps
	// ErrUnavailable.
	ErrNoSpace = &noSpaceError{}
	// ErrClosed: the backend was closed.
	ErrClosed = errors.New("store is closed")
	// ErrLocked: another process has the store open.
	ErrLocked = errors.New("backend: in use by another process")
	// ErrForeign: the location holds something that is not a store of this kind.
	ErrForeign = errors.New("backend: not a ckptd store")
	// ErrNewerFormat: the store was written by a newer version of the driver.
	ErrNewerFormat = errors.New("backend: written by a newer version")
	// ErrOlderFormat: the store was written by an older version of the driver, in a form that is
	// not read any more.
	ErrOlderFormat = errors.New("backend: written by an older version")
	// ErrLostCommits: commits that were acknowledged are missing, or may be. Nothing was changed.
	// It wraps ErrCorrupt.
	ErrLostCommits error = &corruptError{"backend: acknowledged commits are missing"}
	// ErrNoLog: the store's log is missing. Nothing was changed. It wraps ErrCorrupt.
	ErrNoLog error = &corruptError{"backend: the log is missing"}
	// ErrForeignLog: the log belongs to another store. Nothing was changed. It wraps ErrCorrupt.
	ErrForeignLog error = &corruptError{"backend: the log is that of another store"}
	// ErrNewerLog: the store's log was written by a newer version. Nothing was changed. It wraps
	// ErrNewerFormat.
	ErrNewerLog = fmt.Errorf("%w: its log", ErrNewerFormat)
	// ErrReadOnly: the location cannot be written.
	ErrReadOnly = errors.New("backend: location is read-only")
)

type noSpaceError struct{}

func (*noSpaceError) Error() string { return "backend: no space left" }
func (*noSpaceError) Unwrap() error { return ErrUnavailable }

type corruptError struct{ text string }

func (e *corruptError) Error() string { return e.text }
func (e *corruptError) Unwrap() error { return ErrCorrupt }

// Backend is an ordered key-value store with atomic conditional batches.
type Backend interface {
	// Caps returns the capabilities of the driver. It never blocks and never changes while the
	// backend is open.
	Caps() Caps

	// Get reads keys from one snapshot, any number of them. The result has one Entry per key, in
	// the order asked; the Entry of an absent key has an empty Version. Entry.Key is the slice
	// passed in; values belong to the caller.
	Get(ctx context.Context, keys ...[]byte) ([]Entry, error)

	// Scan reads one page of a range, in order, from one snapshot. next is nil at the end of the
	// range; otherwise it is the Start (forward) or End (reverse) of the Range that continues it.
	// Every page but an empty range's holds at least one entry. Entries and next belong to the
	// caller.
	Scan(ctx context.Context, r Range) (entries []Entry, next []byte, err error)

	// Commit applies a batch, all or nothing, in the order of arrival, and returns when it is as
	// durable as Caps says. The batch must not change until Commit returns; the driver keeps none
	// of it. A batch without mutations only checks its conditions. Batch.Validate says which
	// batches are refused before anything else.
	//
	// A context that ends before the batch was accepted gives the context's error and applies
	// nothing. Once accepted, Commit waits for the outcome.
	Commit(ctx context.Context, b Batch) error

	// Close waits for accepted commits and for reads in progress, and releases the store. Calls
	// after it, another Close among them, return ErrClosed.
	Close() error
}

// Caps are the properties of an open backend.
type Caps struct {
	Name      string // of the driver, for messages: "badger", "mem"
	Durable   bool   // Commit returns only after the batch survives a power loss
	Exclusive bool   // no other process can write while this one has the store open
}

// MakingRoom marks a context as that of work that makes room: deleting, pruning, collecting. A
// driver may keep some back for the commits that such work needs on a full device.
func MakingRoom(ctx context.Context) context.Context {
	return context.WithValue(ctx, makingRoom{}, true)
}

// MakesRoom reports whether a context is marked by MakingRoom.
func MakesRoom(ctx context.Context) bool { return ctx.Value(makingRoom{}) != nil }

type makingRoom struct{}

// Compactor is implemented by backends that can remove deleted and overwritten values from their
// files on request.
type Compactor interface {
	// Compact returns when no superseded or deleted value is left in the backend's files.
	Compact(ctx context.Context) error
}

// Sizer is implemented by backends that know their size on disk.
type Sizer interface {
	// DiskBytes is how many bytes the backend's files take on the device now.
	DiskBytes(ctx context.Context) (int64, error)
}

// Positioner is implemented by backends that can say how far they have come, so that one that was
// put back is noticed.
type Positioner interface {
	// Position is that of the newest commit that is durable.
	Position(ctx context.Context) (Position, error)
}

// Position tells how far a store has come. A store that goes on from another past than it had has a
// new incarnation, or another hash at the same number.
type Position struct {
	Store       [16]byte // the place that the backend is in
	Incarnation [16]byte
	N           uint64 // of the newest commit, or group of them, counted from 1
	Time        time.Time
	Hash        [32]byte // of all that was committed up to it
}

// Group tells of commits that shared a transaction and its sync, to whoever observes a backend.
type Group struct {
	Commits int           // those that were applied; the others' conditions did not hold
	Bytes   int           // of keys, versions and values that they wrote
	Took    time.Duration // from building the transaction until it was durable
}

// Entry is a key with its value and version.
type Entry struct {
	Key, Value []byte
	Version    string // never empty for a key that exists
}

// Range is a page request over Start <= key < End, in either direction. An empty Start begins at
// the first key, an empty End ends after the last.
type Range struct {
	Start, End []byte
	Reverse    bool // greatest key first
	Limit      int  // at most this many entries; 0 means the driver's own page size
	Bytes      int  // stop after the entry that reaches this many bytes of keys and returned values; 0: no limit
	KeysOnly   bool // leave Value nil
}

// Batch is a set of mutations applied all or nothing if every condition holds.
type Batch struct {
	// ID is unique to this batch, so that a driver over a network can look up its outcome.
	ID    [16]byte
	Conds []Cond
	Muts  []Mut // distinct keys
}

// Mut writes or deletes a key. Later conditions compare with Version: chosen by the writer, at most
// MaxVersion bytes, not empty unless Delete is set, when it and Value are ignored. Deleting an
// absent key is not an error. An empty Value is a value: the key exists.
type Mut struct {
	Key, Value []byte
	Version    string
	Delete     bool
}

// Cond requires a key to exist with a version, or, with an empty version, to be absent. An absent
// condition is only allowed on a key that the same batch writes.
type Cond struct {
	Key     []byte
	Version string
}
