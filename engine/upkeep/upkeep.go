// Package upkeep is what those need of a store who administer or host it: garbage, retention,
// pruning, verification, migrations, and what is kept beside it. The engine has it all on handles of
// their own, which Store.Upkeep, User.Upkeep and Thread.Upkeep of package engine return; an agent's
// author needs none of them. The errors are those of package engine.
package upkeep

import (
	"context"
	"iter"
)

// Store is the upkeep of a store. Methods are safe for concurrent use.
type Store interface {
	// GC collects the garbage of a tenant: it applies the retention policy, deletes expired threads,
	// and removes what nothing reaches. What a checkpoint stands on always stays. It may run beside
	// everything else; a thread that it prunes waits meanwhile. Users whose data cannot be read are
	// skipped, and reported in the error, which may join several.
	GC(ctx context.Context, tenant string, o GCOptions) (*GCReport, error)

	// Retention returns the policy of a tenant, the zero value if it has none.
	Retention(ctx context.Context, tenant string) (RetentionPolicy, error)

	// SetRetention makes p the policy of a tenant from the next GC on; a zero KeepLast and OlderThan
	// remove the policy. It is durable when the call returns.
	SetRetention(ctx context.Context, tenant string, p RetentionPolicy) error

	// Verify reads what is stored and reports whatever is not as docs/format.md says: records,
	// chains, hash links, ids, branches, index and activity entries, parts, blobs and pending writes.
	// In the whole store it also looks for data of users whose keys are not in the keystore, which is
	// one problem for all of them. It may run beside everything else; what is saved meanwhile may be
	// left out. It holds up prunes and deletions of a thread while it reads it, and saves of a lineage
	// only to make sure of a problem that it found there. It needs about 300 bytes of memory for each
	// record of the longest lineage and 50 for each part of a user. An error means that it could not
	// come to its end; the report is then of what it saw.
	Verify(ctx context.Context, o VerifyOptions) (*VerifyReport, error)

	// Stats reads the headers of all checkpoints of a user and the keys of the tenant's index, so it
	// takes time in proportion to their number. Counts are of what was durable when it came by.
	Stats(ctx context.Context, tenant, user string) (*Stats, error)

	// DiskBytes returns how many bytes the files of the whole store take; 0 if the backend cannot
	// tell.
	DiskBytes(ctx context.Context) (int64, error)

	// CacheStats returns how well the cache does. It works on a closed store, too.
	CacheStats() CacheStats

	// Tenants yields the tenants that have users, in no particular order. A tenant whose name cannot
	// be read is an error in the sequence, which goes on after it.
	Tenants(ctx context.Context) iter.Seq2[string, error]

	// Users yields the users of a tenant that have keys, in no particular order. A user whose keys
	// cannot be read is an error in the sequence, which goes on after it.
	Users(ctx context.Context, tenant string) iter.Seq2[string, error]

	// SealSidecar seals what is kept outside the backend under a name: a value opens under no other
	// name, and in no other store. It appends to dst.
	SealSidecar(dst []byte, name string, plain []byte) ([]byte, error)

	// OpenSidecar is the inverse of SealSidecar. A value that was changed, or sealed under another
	// name, is engine.ErrCorrupt.
	OpenSidecar(name string, sealed []byte) ([]byte, error)

	// Pseudonym returns what stands for names in logs: 32 hexadecimal digits, always the same for the
	// same purpose and names of one store, from which without its keys nothing can be told. Those who
	// have them can compare it with the names there are.
	Pseudonym(purpose string, names ...string) string
}

// User is the upkeep of one user.
type User interface {
	// Create makes the keys of the user, durably, unless there are some. A first save does so as
	// well.
	Create(ctx context.Context) error

	// GC collects the garbage of the user, as Store.GC does for all users of a tenant.
	GC(ctx context.Context, o GCOptions) (*GCReport, error)

	// DeleteRun removes all checkpoints with a run id from all threads of the user, heads and pinned
	// ones too, and returns how many these were. Branches that ended there end at an ancestor then; a
	// thread that has no checkpoint left is deleted. Each thread is done by itself: after an error, a
	// new call goes on.
	DeleteRun(ctx context.Context, runID string) (int, error)
}

// Thread is the upkeep of one lineage, or of its whole thread where a method says so. Its checkpoints
// are those of the engine, *engine.Checkpoint, which imports this package and not the other way.
type Thread[Checkpoint any] interface {
	// Prune removes checkpoints of the lineage. The newest one, the heads of branches, and those with
	// the label "pin" always stay, and Remove must not name them (engine.ErrInvalid). What stays
	// keeps its id, hash and parent, and loads as before.
	//
	// Saves and loads of the thread wait meanwhile. The prune is durable batch by batch: one that
	// fails or is killed on its way has removed some of the checkpoints, and a new one goes on with
	// it; an erasing one has removed all or none of them, but may leave their bytes to the next one
	// or to GC.
	Prune(ctx context.Context, o PruneOptions) (*PruneReport, error)

	// MigrateHead saves the head, migrated, as a new checkpoint on itself, with the step, status, run
	// id, branch and blobs that it has. Its pending writes move along, and so do the branches that
	// end there; what is left of the time of a thread that expires stays the same. Where the id of
	// the head is a UUID that the caller chose, that of the new one is the next UUID; it is derived
	// from any other id that the caller chose. A branch whose head is not the newest checkpoint gets
	// its migrated head as the newest one, as with any save on a branch: whoever migrates all heads
	// of a lineage begins with the oldest.
	//
	// The steps and the hooks of saves run with no lock held; the other operations on the thread wait
	// while the outcome is written. If the head has moved meanwhile, that is engine.ErrConflict,
	// nothing is written, and the caller may look again.
	MigrateHead(ctx context.Context, o HeadMigration) (*HeadMigrated[Checkpoint], error)

	// UndoHead removes the head with a hash that MigrateHead made at newSeq of the checkpoint at
	// oldSeq, which is the head again: ids, branches and pending writes are as they were, and newSeq
	// is not used again. If something was saved on the migrated head, or writes were put there,
	// nothing is changed, and that is engine.ErrConflict; another checkpoint at newSeq is
	// engine.ErrInvalid. It is durable when the call returns; one that was done before, or was cut
	// short, is done again.
	UndoHead(ctx context.Context, oldSeq, newSeq uint64, hash [32]byte) error

	// MigrateHistory writes every checkpoint of the thread anew, in all namespaces, at a version:
	// with its id, seq, time and place, and with other hashes; what was removed or replaced leaves
	// stubs, as in a copy. The thread as it was is kept, until DropHistory; an erasing prune and
	// DeleteRun drop it, too. The new one appears at once, when all of it is durable; one that fails
	// or is killed leaves the thread as it was. All other operations on the thread wait meanwhile,
	// and the steps run within that time.
	//
	// If all is of that version, nothing is done; if something else is kept already, that is
	// engine.ErrConflict. A checkpoint that has no way to the version, or on which a step fails, is
	// an error that names its seq. What hooks of saves would have to see is engine.ErrRejected:
	// migrate the heads then.
	MigrateHistory(ctx context.Context, to uint64, down bool) (*HistoryMigrated, error)

	// RestoreHistory makes the thread what it was before MigrateHistory. If something was saved
	// since, put, or moved to another place, nothing is changed, and that is engine.ErrConflict. A
	// thread that keeps nothing is engine.ErrNotFound.
	RestoreHistory(ctx context.Context) error

	// DropHistory removes what MigrateHistory kept of the thread; then there is no way back. A thread
	// that keeps nothing is left as it is.
	DropHistory(ctx context.Context) error

	// KeepsHistory reports whether there is something for RestoreHistory.
	KeepsHistory(ctx context.Context) (bool, error)
}
