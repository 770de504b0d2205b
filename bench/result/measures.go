package result

// The measures, which are the keys of Figures.
const (
	SaveRate   = "save.rate" // saves/s of all writers
	SaveP50    = "save.p50"  // s; in an open loop, from the time the save was due
	SaveP99    = "save.p99"
	SaveP999   = "save.p999"
	SaveCPU    = "save.cpu"    // s per save: of the process, and of the server if there is one
	SaveAllocs = "save.allocs" // allocations per save, in the process
	SaveBytes  = "save.alloc-bytes"

	LoadWarm = "load.warm" // s, p50: the newest state of a thread, in a process that just saved
	LoadCold = "load.cold" // s, p50: the same in a newly opened store, with an empty page cache
	LoadOld  = "load.old"  // s, p50: the state after a random earlier step

	DiskBytes    = "disk.bytes"     // allocated once everything has settled, minus those of an empty store
	DiskPerSave  = "disk.per-save"  // the same per save
	WriteAmp     = "write.amp"      // bytes written, including settling, per byte changed
	WritePerSave = "write.per-save" // bytes written per save
	PeakRSS      = "rss.peak"       // bytes of process and server, including the writers' own states and mapped files

	// PeakAnonymous excludes mapped files, which the system reclaims when it needs memory. It is
	// sampled ten times a second.
	PeakAnonymous = "rss.anonymous"
)

// Measure describes how to read a figure.
type Measure struct {
	Name, Unit string // the unit is "s", "B", "saves/s" or "" for counts and ratios
	Title      string
	More       bool // more is better
}

// Measures lists all measures in the order used by reports.
func Measures() []Measure {
	return []Measure{
		{SaveRate, "saves/s", "saves per second", true},
		{SaveP50, "s", "save, p50", false},
		{SaveP99, "s", "save, p99", false},
		{SaveP999, "s", "save, p99.9", false},
		{SaveCPU, "s", "CPU time per save", false},
		{SaveAllocs, "", "allocations per save", false},
		{SaveBytes, "B", "allocated bytes per save", false},
		{LoadWarm, "s", "load of the newest state, warm, p50", false},
		{LoadCold, "s", "load of the newest state, cold, p50", false},
		{LoadOld, "s", "load of a random old step, p50", false},
		{DiskBytes, "B", "on disk, settled", false},
		{DiskPerSave, "B", "on disk per save", false},
		{WriteAmp, "", "bytes written per byte changed", false},
		{WritePerSave, "B", "bytes written per save", false},
		{PeakRSS, "B", "peak RSS", false},
		{PeakAnonymous, "B", "peak RSS without mapped files", false},
	}
}
