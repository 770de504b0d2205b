package upkeep

// HeadMigration selects the head to migrate, and the version.
type HeadMigration struct {
	Branch string // the head of this branch; "" is the newest checkpoint of the lineage
	// Seq, if Branch is "", is the seq of the head. Use it for a head without a branch that was the
	// newest until other heads of the lineage were migrated. It counts as a head as long as no
	// checkpoint has it as its parent. 0 is the newest checkpoint.
	Seq    uint64
	To     uint64
	Down   bool // ways back are allowed
	DryRun bool // run the steps, but write nothing
}

// HeadMigrated is the result of MigrateHead, in checkpoints without data.
type HeadMigrated[Checkpoint any] struct {
	Old   Checkpoint // the head as it was
	New   Checkpoint // the head as it is now; nil after a dry run, or if it had that version already
	Steps []string   // that ran, as in engine.Migrated
}

// HistoryMigrated is the result of MigrateHistory.
type HistoryMigrated struct {
	Checkpoints int // of the thread, in all namespaces; 0 if all had that version already
	Migrated    int // those that had another version
}
