package result

// The measures, which are the keys of Figures.
const (
	SaveRate   = "save.rate" // saves/s of all writers
	SaveP50    = "save.p50"  // s; in an open loop from when the save was due
	SaveP99    = "save.p99"
	SaveP999   = "save.p999"
	SaveCPU    = "save.cpu"    // s a save: of the process, and of the server if there is one
	SaveAllocs = "save.allocs" // allocations a save, in the process
	SaveBytes  = "save.alloc-bytes"

	LoadWarm = "load.warm" // s, p50: the newest state of a thread, by a process that just saved
	LoadCold = "load.cold" // s, p50: the same by a store that was just opened, with nothing of it in the page cache
	LoadOld  = "load.old"  // s, p50: the state after a random earlier step

	DiskBytes    = "disk.bytes"     // allocated once all is settled, less those of an empty store
	DiskPerSave  = "disk.per-save"  // the same for one save
	WriteAmp     = "write.amp"      // bytes written, settling included, for each byte that changed
	WritePerSave = "write.per-save" // bytes written for one save
	PeakRSS      = "rss.peak"       // bytes of process and server, the writers' own states among them, and mapped files

	// PeakAnonymous is without mapped files, which the system takes back when it needs the memory. It is looked at ten
	// times a second.
	PeakAnonymous = "rss.anonymous"
)

// Measure says how a figure is read.
type Measure struct {
	Name, Unit string // the unit is "s", "B", "saves/s" or "" for counts and ratios
	Title      string
	More       bool // is better
}

// Measures lists all measures in the order in which reports give them.
func Measures() []Measure {
	return []Measure{
		{SaveRate, "saves/s", "saves a second", true},
		{SaveP50, "s", "save, p50", false},
		{SaveP99, "s", "save, p99", false},
		{SaveP999, "s", "save, p99.9", false},
		{SaveCPU, "s", "CPU time a save", false},
		{SaveAllocs, "", "allocations a save", false},
		{SaveBytes, "B", "allocated bytes a save", false},
		{LoadWarm, "s", "load of the newest, warm, p50", false},
		{LoadCold, "s", "load of the newest, cold, p50", false},
		{LoadOld, "s", "load of a random old step, p50", false},
		{DiskBytes, "B", "on disk, settled", false},
		{DiskPerSave, "B", "on disk a save", false},
		{WriteAmp, "", "bytes written for each that changed", false},
		{WritePerSave, "B", "bytes written a save", false},
		{PeakRSS, "B", "peak RSS", false},
		{PeakAnonymous, "B", "peak RSS without mapped files", false},
	}
}
