package upkeep

// VerifyOptions say what to verify. The zero value is the whole store.
type VerifyOptions struct {
	Tenant string // only this tenant,
	User   string // only this user of it,
	Thread string // and only this thread of the user

	// Deep also restores every checkpoint, and looks at what a restore reads.
	Deep bool
	// Progress, if not nil, is told how many threads are done, in the goroutine of Verify.
	Progress func(done, total int)
}

// VerifyReport is what was found. The counts are of what is readable; checkpoints are those that are
// neither ghosts nor stubs.
type VerifyReport struct {
	Users, Threads, Lineages   int
	Checkpoints, Ghosts, Stubs int
	Parts, Blobs, Writes       int
	IndexEntries               int
	Orphans                    int // keys that nothing leads to, left by a crash or not yet collected; harmless
	Problems                   []Problem
	Unlisted                   int // problems beyond MaxProblems
}

// Clean reports whether nothing is wrong.
func (r *VerifyReport) Clean() bool { return len(r.Problems) == 0 }

// Problem is one thing that is wrong, and the thread or lineage it was found in, as far as known.
type Problem struct {
	Tenant, User, Thread, Namespace string
	Err                             error // errors.As finds the *engine.CorruptError
}

// MaxProblems is how many problems a report lists.
const MaxProblems = 1000

// Stats counts what a user has stored. Sizes are in bytes.
type Stats struct {
	Threads       int // neither deleted nor expired
	Lineages      int
	Checkpoints   int
	Ghosts        int   // records that are only there because checkpoints are encoded against them
	Stubs         int   // what stands for runs of removed checkpoints
	StateBytes    int64 // all channels of all checkpoints, as they were handed in
	StoredBytes   int64 // sealed records
	Parts         int
	PartBytes     int64 // sealed parts: large values, shared first states, and blobs
	Blobs         int
	Keyframes     int   // checkpoints with a channel that is stored in full
	MaxDepth      int   // records that a restore of one channel reads at most
	MaxDepthBytes int64 // bytes of records and parts that it reads at most
	IndexEntries  int   // entries in the index
	KeptBytes     int64 // sealed records of threads as they were before MigrateHistory
	DiskBytes     int64 // files of the whole store; 0 if the backend cannot tell
}

// CacheStats tells how well the cache of a store does, since it was opened.
type CacheStats struct {
	// Hits counts the states and parts that loads and saves found in memory, Misses those that they
	// had to read. The state of a thread's first checkpoint is neither, and neither is what a
	// migration made.
	Hits, Misses uint64
	// Bytes is how much memory the cached states, parts and users take, migrated states among them.
	Bytes int64
}
