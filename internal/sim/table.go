package sim

func kinds() []*kind {
	return []*kind{
		{"save", 100, makeSave},
		{"replace", 14, makeReplace},
		{"repeat", 8, makeRepeat},
		{"appends", 6, makeAppends},
		{"load", 50, makeLoad},
		{"history", 10, makeHistory},
		{"tree", 4, func(g *gen) action { return &tree{call: call{ref: g.ref()}} }},
		{"diff", 5, makeDiff},
		{"query", 5, makeQuery},
		{"label", 12, makeLabel},
		{"branch", 14, makeMove},
		{"forks", 0, makeForks},
		{"put writes", 8, makePutWrites},
		{"read writes", 6, makeReadWrites},
		{"blob", 4, makeBlob},
		{"prune", 8, makePrune},
		{"gc", 3, makeCollect},
		{"shed", 1, makeShed},
		{"delete", 1, makeDelete},
		{"delete namespace", 1, makeDeleteNamespace},
		{"delete run", 1, makeDeleteRun},
		{"copy", 2, makeCopy},
		{"migrate head", 6, makeHeadMigration},
		{"undo head", 4, makeUndo},
		{"tryout", 2, makeTryout},
		{"migrate history", 2, makeHistoryMigration},
		{"restore history", 2, makeHistoryRestore},
	}
}
