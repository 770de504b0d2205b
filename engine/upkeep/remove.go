package upkeep

import "time"

// DefaultGrace is GCOptions.Grace when it is 0.
const DefaultGrace = time.Hour

// GCOptions say how to collect garbage. The zero value is the ordinary way.
type GCOptions struct {
	// DryRun counts what would go and changes nothing. What goes only as a consequence is not
	// counted: the parts of checkpoints that retention removes, say.
	DryRun bool

	// Compact makes a backend that can do so remove what was deleted from its files, before the call
	// returns.
	Compact bool

	// Grace is how old blobs and parts that nothing names must be, since they may have been stored to
	// be named: 0 is DefaultGrace, negative is none. Ages are known to the hour.
	Grace time.Duration

	// Progress, if not nil, is told what is being done, from the goroutine that called GC.
	Progress func(GCProgress)
}

// GCProgress tells how far a collection is.
type GCProgress struct {
	User  string // "" for what concerns the whole tenant
	Stage string // "threads", "leftovers", "parts", "index", "compact"
	Done  int    // users done so far
}

// GCReport tells what a collection removed, or would.
type GCReport struct {
	Users        int
	Threads      int   // that are left
	Expired      int   // threads that were past their time
	Pruned       int   // checkpoints that the retention policy removed
	Leftovers    int   // keys of epochs that are no thread's: what deletions and rewrites that were killed left
	IndexEntries int   // that led nowhere
	Blobs, Parts int   // that nothing named
	Bytes        int64 // of records, blobs and parts that were removed, as stored
	Compacted    bool
}

// RetentionPolicy says what GC removes from every lineage of a tenant, as PruneOptions do. The zero
// value keeps all.
type RetentionPolicy struct {
	KeepLast     int
	OlderThan    time.Duration // in whole milliseconds, rounded up
	KeepLabelled bool
}

// PruneOptions say which checkpoints go. There must be at least one of KeepLast, OlderThan and
// Remove.
type PruneOptions struct {
	// KeepLast and OlderThan are a policy: what is neither among the newest KeepLast checkpoints nor
	// younger than OlderThan goes. 0 is no such reason to stay; both 0 is no policy.
	KeepLast  int
	OlderThan time.Duration
	// KeepLabelled keeps checkpoints with labels from the policy.
	KeepLabelled bool

	// Remove are the ids of checkpoints that go whatever the policy says.
	Remove []string

	// AllNamespaces prunes all lineages of the thread, each by itself.
	AllNamespaces bool

	// Erase leaves nothing of what was removed, now or before: what stays is encoded anew, the rest
	// is purged with the parts and blobs that nothing else names, and the backend compacted before
	// Prune returns.
	Erase bool

	// DryRun reports what would go and changes nothing.
	DryRun bool
}

// PruneReport tells what a prune removed, or would.
type PruneReport struct {
	Removed    []PruneItem // newest first in each namespace
	Kept       int         // checkpoints that stay
	Ghosts     int         // records that stay hidden, because what stays is encoded against them
	FreedBytes int64       // of deleted records; parts that nothing names any more are collected by GC
	Compacted  bool        // the backend has left nothing of what was erased in its files
}

// PruneItem is a checkpoint that goes.
type PruneItem struct {
	Namespace, ID string
	Seq           uint64
	Bytes         int64 // of its record
	Ghost         bool  // the record stays for now
}
