package upkeep

// HeadMigration says which head is migrated, and to which version.
type HeadMigration struct {
	Branch string // the head of this branch; "" is the newest checkpoint of the lineage
	// Seq, if Branch is "", is the seq of the head: for one in which no branch ends, and that was the
	// newest until other heads of the lineage were migrated. It is a head as long as no checkpoint
	// stands on it. 0 is the newest checkpoint.
	Seq    uint64
	To     uint64
	Down   bool // ways back are allowed
	DryRun bool // the steps run, and nothing is written
}

// HeadMigrated tells what became of a head, in checkpoints without data.
type HeadMigrated[Checkpoint any] struct {
	Old   Checkpoint // the head as it was
	New   Checkpoint // the head as it is now; nil after a dry run, and if it was of that version already
	Steps []string   // that ran, as in engine.Migrated
}

// HistoryMigrated tells what became of the history of a thread.
type HistoryMigrated struct {
	Checkpoints int // of the thread, in all namespaces; 0 if all were of that version already
	Migrated    int // of these, those that were of another version
}
