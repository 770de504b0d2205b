package upkeep

import "time"

// DefaultGrace is GCOptions.Grace when it is 0.
const DefaultGrace = time.Hour

// GCOptions configure a collection. The zero value is a normal one.
type GCOptions struct {
	// DryRun counts what would be removed and changes nothing. It does not count consequences, such
	// as the parts of checkpoints that retention removes.
	DryRun bool

	// Compact makes the backend, if it can, remove deleted data from its files before the call
	// returns.
	Compact bool

	// Grace is the minimum age of unreferenced blobs and parts, which may have been stored to be
	// referenced soon: 0 is DefaultGrace, negative is none. Ages are known to the hour.
	Grace time.Duration

	// Progress, if not nil, is called for each stage, in the goroutine of GC.
	Progress func(GCProgress)
}

// GCProgress is the progress of a collection.
type GCProgress struct {
	User  string // "" for work on the whole tenant
	Stage string // "threads", "leftovers", "parts", "index", "compact"
	Done  int    // users done so far
}

// GCReport counts what a collection removed or, in a dry run, would remove.
type GCReport struct {
	Users        int
	Threads      int   // that are left
	Expired      int   // threads that were past their time
	Pruned       int   // checkpoints that the retention policy removed
	Leftovers    int   // keys of unused epochs: the leftovers of killed deletions and rewrites
	IndexEntries int   // that led nowhere
	Blobs, Parts int   // that nothing named
	Bytes        int64 // of removed records, blobs and parts, as stored
	Compacted    bool
}

// RetentionPolicy says what GC removes from every lineage of a tenant, like PruneOptions. The zero
// value keeps everything.
type RetentionPolicy struct {
	KeepLast     int
	OlderThan    time.Duration // in whole milliseconds, rounded up
	KeepLabelled bool
}

// PruneOptions select the checkpoints to remove. At least one of KeepLast, OlderThan and Remove
// must be set.
//
// A namespace goes with the checkpoint that it hangs on (engine.Draft.CalledFrom), if the unnamed
// namespace is pruned. If a checkpoint in it has the label engine.LabelPin, both stay.
type PruneOptions struct {
	// KeepLast and OlderThan are a policy: remove checkpoints that are neither among the newest
	// KeepLast nor younger than OlderThan. 0 protects none; if both are 0 there is no policy.
	KeepLast  int
	OlderThan time.Duration
	// ByID counts KeepLast by id: the newest checkpoint, which is never removed, is that with the
	// greatest id, bytewise, instead of the latest save.
	ByID bool
	// KeepLabelled protects checkpoints with labels from the policy.
	KeepLabelled bool

	// Remove lists the ids of checkpoints to remove regardless of the policy.
	Remove []string

	// AllNamespaces prunes all lineages of the thread, each by itself.
	AllNamespaces bool

	// Erase leaves no trace of removed data, also of earlier prunes: the remaining checkpoints are
	// encoded again, the rest is purged, including parts and blobs not referenced elsewhere, and
	// the backend is compacted before Prune returns.
	Erase bool

	// DryRun reports what would be removed and changes nothing.
	DryRun bool
}

// PruneReport describes what a prune removed or, in a dry run, would remove.
type PruneReport struct {
	Removed    []PruneItem // newest first in each namespace, those of Namespaces included
	Namespaces []string    // removed with the checkpoints that they hang on, in order
	Kept       int         // checkpoints that stay
	Ghosts     int         // records hidden instead of removed, because others are encoded against them
	FreedBytes int64       // of deleted records; GC collects parts that are now unreferenced
	Compacted  bool        // the backend removed all erased data from its files
}

// PruneItem is a removed checkpoint.
type PruneItem struct {
	Namespace, ID string
	Seq           uint64
	Bytes         int64 // of its record
	Ghost         bool  // the record stays for now
}
