// Package upkeep defines the operations for administering or hosting a store: garbage collection,
// retention, pruning, verification, migrations, and sealing of files kept outside the backend.
// Store.Upkeep, User.Upkeep and Thread.Upkeep of package engine return handles for them. The author
// of an agent needs none of them. Their errors are those of package engine.
package upkeep

import (
	"context"
	"iter"
)

// Store administers a store. Methods are safe for concurrent use.
type Store interface {
	// GC collects the garbage of a tenant: it applies the retention policy, deletes expired
	// threads, and removes unreferenced data. Data that a checkpoint needs always stays. It can run
	// alongside everything else; operations on a thread wait while GC prunes it. GC skips users
	// whose data cannot be read, and reports them in the error, which may join several.
	GC(ctx context.Context, tenant string, o GCOptions) (*GCReport, error)

	// Retention returns the policy of a tenant; the zero value if it has none.
	Retention(ctx context.Context, tenant string) (RetentionPolicy, error)

	// SetRetention makes p the policy of a tenant, from the next GC on. If KeepLast and OlderThan
	// are zero it removes the policy. It is durable when the call returns.
	SetRetention(ctx context.Context, tenant string, p RetentionPolicy) error

	// Verify reads the stored data and reports all deviations from docs/format.md: in records,
	// deltas, hash links, ids, branches, index and activity entries, parts, blobs and pending
	// writes. For the whole store it also looks for data of users whose keys are not in the
	// keystore, and reports all of them as one problem. It can run alongside everything else, and
	// may leave out data saved in the meantime. Prunes and deletions of a thread wait while Verify
	// reads it; saves of a lineage wait only while Verify confirms a problem in it. It needs about
	// 300 bytes of memory for each record of the longest lineage and 50 for each part of a user. An
	// error means that Verify did not finish; the report then covers what it read.
	Verify(ctx context.Context, o VerifyOptions) (*VerifyReport, error)

	// Stats reads the headers of all checkpoints of a user and the keys of the tenant's index, so
	// its time is proportional to their number. It counts the durable state at the time of each
	// read.
	Stats(ctx context.Context, tenant, user string) (*Stats, error)

	// DiskBytes returns the size of the files of the whole store; 0 if the backend cannot tell.
	DiskBytes(ctx context.Context) (int64, error)

	// CacheStats returns the statistics of the cache. It works on a closed store, too.
	CacheStats() CacheStats

	// Tenants yields the tenants with users, in no particular order. If the name of a tenant cannot
	// be read, it yields an error and continues.
	Tenants(ctx context.Context) iter.Seq2[string, error]

	// Users yields the users of a tenant with keys, in no particular order. If the keys of a user
	// cannot be read, it yields an error and continues.
	Users(ctx context.Context, tenant string) iter.Seq2[string, error]

	// SealSidecar seals a value to be kept outside the backend under a name: it opens only under
	// that name, and only in this store. It appends to dst.
	SealSidecar(dst []byte, name string, plain []byte) ([]byte, error)

	// OpenSidecar is the inverse of SealSidecar. A value that was changed, or sealed under another
	// name, is engine.ErrCorrupt.
	OpenSidecar(name string, sealed []byte) ([]byte, error)

	// Pseudonym returns a stand-in for names in logs: 32 hexadecimal digits, always the same for
	// the same purpose and names in one store. Without the store's keys it reveals nothing; with
	// them it can be compared with existing names.
	Pseudonym(purpose string, names ...string) string
}

// User is the upkeep of one user.
type User interface {
	// Create durably makes the keys of the user, unless they exist. A first save does so, too.
	Create(ctx context.Context) error

	// GC collects the garbage of the user, as Store.GC does for all users of a tenant.
	GC(ctx context.Context, o GCOptions) (*GCReport, error)

	// DeleteRun removes all checkpoints with a run id from all threads of the user, including heads
	// and pinned ones, and returns their number. Branches that ended there then end at an ancestor;
	// a thread without checkpoints is deleted. It also removes ancestors that histories of remaining
	// checkpoints need, and returns these, newest first. Each thread is handled by itself: after an
	// error, a new call continues.
	DeleteRun(ctx context.Context, runID string) (removed int, lost []LostHistory, err error)
}

// LostHistory names a remaining checkpoint, and those of its delta channels (engine.Draft.Delta) whose
// history DeleteRun cut off: what is left begins after the checkpoints of the run.
type LostHistory struct {
	Thread, Namespace string
	ID                string
	Channels          []string // in order
}

// Thread administers one lineage or, where a method says so, its whole thread. Checkpoint is
// *engine.Checkpoint; package engine imports this package, so it cannot be named here.
type Thread[Checkpoint any] interface {
	// Prune removes checkpoints of the lineage. The newest one, the heads of branches, and those
	// with the label "pin" always stay, and Remove must not name them (engine.ErrInvalid).
	// Remaining checkpoints keep their id, hash and parent, and load as before.
	//
	// Saves and loads of the thread wait in the meantime. The prune is durable batch by batch: one
	// that fails or is killed has removed some of the checkpoints, and a new one continues. An
	// erasing prune has removed all or none of them, but may leave their bytes to the next one or
	// to GC.
	Prune(ctx context.Context, o PruneOptions) (*PruneReport, error)

	// MigrateHead saves the head, migrated, as a new checkpoint on itself, with the same step,
	// status, run id, branch and blobs. Its pending writes and the branches that end there move to
	// the new one; the expiry of the thread does not change. If the head's id is a UUID chosen by a
	// caller, the new id is the next UUID; if it is another id chosen by a caller, the new id is
	// derived from it. A branch whose head is not the newest checkpoint gets its migrated head as
	// the newest one, as with any save on a branch: to migrate all heads of a lineage, begin with
	// the oldest.
	//
	// The steps and the save hooks run with no lock held; other operations on the thread wait while
	// the result is written. If the head has moved in the meantime, that is engine.ErrConflict,
	// nothing is written, and the caller can try again.
	MigrateHead(ctx context.Context, o HeadMigration) (*HeadMigrated[Checkpoint], error)

	// UndoHead removes the head with a hash that MigrateHead made at newSeq from the checkpoint at
	// oldSeq, which becomes the head again: ids, branches and pending writes are as before, and
	// newSeq is not used again. If something was saved on the migrated head, writes were put there,
	// or a namespace was called from it (engine.Draft.CalledFrom), that is engine.ErrConflict, and
	// nothing changes; if newSeq has another checkpoint, that is engine.ErrInvalid. It is durable when
	// the call returns. Repeating it, or an interrupted one, is safe.
	UndoHead(ctx context.Context, oldSeq, newSeq uint64, hash [32]byte) error

	// MigrateHistory rewrites every checkpoint of the thread, in all namespaces, at a version: with
	// the same id, seq, time and order, and with other hashes; removed and replaced checkpoints
	// leave stubs, as in a copy. The thread's previous history is kept until DropHistory; an
	// erasing prune and DeleteRun drop it, too. The new history appears at once, when all of it is
	// durable; a migration that fails or is killed leaves the thread as it was. All other
	// operations on the thread wait in the meantime, including the time of the steps.
	//
	// If all checkpoints have that version, nothing happens; if another history is kept already,
	// that is engine.ErrConflict. If a checkpoint has no path to the version, or a step fails on
	// it, the error names its seq. If save hooks apply to the thread, that is engine.ErrRejected:
	// migrate its heads instead.
	MigrateHistory(ctx context.Context, to uint64, down bool) (*HistoryMigrated, error)

	// RestoreHistory restores the thread to its history before MigrateHistory. If anything was
	// saved, put or moved since, that is engine.ErrConflict, and nothing changes. If the thread
	// keeps no history, that is engine.ErrNotFound.
	RestoreHistory(ctx context.Context) error

	// DropHistory removes the history that MigrateHistory kept, for good. A thread that keeps none
	// is left as it is.
	DropHistory(ctx context.Context) error

	// KeepsHistory reports whether the thread keeps a history for RestoreHistory.
	KeepsHistory(ctx context.Context) (bool, error)
}
