package upkeep

// VerifyOptions select what to verify. The zero value is the whole store.
type VerifyOptions struct {
	Tenant string // only this tenant,
	User   string // only this user of it,
	Thread string // and only this thread of the user

	// Deep also restores every checkpoint, and checks all data that a restore reads.
	Deep bool
	// Progress, if not nil, is called with the number of threads done, in the goroutine of Verify.
	Progress func(done, total int)
}

// VerifyReport is the result of a verification. It counts what is readable; ghosts and stubs are
// not counted as checkpoints.
type VerifyReport struct {
	Users, Threads, Lineages   int
	Checkpoints, Ghosts, Stubs int
	Parts, Blobs, Writes       int
	IndexEntries               int
	Orphans                    int // unreferenced keys, left by a crash or not collected yet; harmless
	Problems                   []Problem
	Unlisted                   int // problems beyond MaxProblems
}

// Clean reports whether no problem was found.
func (r *VerifyReport) Clean() bool { return len(r.Problems) == 0 }

// Problem is a fault, and the thread or lineage it was found in, as far as known.
type Problem struct {
	Tenant, User, Thread, Namespace string
	Err                             error // errors.As finds the *engine.CorruptError
}

// MaxProblems is the maximum number of problems in a report.
const MaxProblems = 1000

// Stats counts the data of a user. Sizes are in bytes.
type Stats struct {
	Threads       int // neither deleted nor expired
	Lineages      int
	Checkpoints   int
	Ghosts        int   // records kept only because checkpoints are encoded against them
	Stubs         int   // each replaces a range of removed checkpoints
	StateBytes    int64 // all channels of all checkpoints, as submitted
	StoredBytes   int64 // sealed records
	Parts         int
	PartBytes     int64 // sealed parts: large values, shared first states, and blobs
	Blobs         int
	Keyframes     int   // checkpoints with a channel stored in full
	MaxDepth      int   // records that a restore of one channel reads at most
	MaxDepthBytes int64 // bytes of records and parts that it reads at most
	IndexEntries  int   // entries in the index
	KeptBytes     int64 // sealed records of threads as they were before MigrateHistory
	DiskBytes     int64 // files of the whole store; 0 if the backend cannot tell
}

// CacheStats are the statistics of a store's cache since the store was opened.
type CacheStats struct {
	// Hits counts the states and parts that loads and saves found in memory, Misses those that they
	// had to read. The state of a thread's first checkpoint counts as neither, and neither does the
	// result of a migration.
	Hits, Misses uint64
	// Bytes is the memory of the cached states, parts and users, including migrated states.
	Bytes int64
}
