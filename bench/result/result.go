// Package result is the result of a bench run as JSON: the machine, its physical limits, and the
// measurements of every rival. bench/run writes it and bench/report reads it; that is all they know
// of each other.
//
// All figures are in base units: seconds, bytes, counts, and each of them per second. Nothing here
// is a verdict: bench/report derives goals and misses from a Run.
package result

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Schema is the version of the JSON. A reader refuses a later version. Members may be added without
// a new version.
const Schema = 1

// ErrSchema matches the error of Read for a file written by another version of the bench.
var ErrSchema = errors.New("unknown schema of results")

// Run is one run of the bench.
type Run struct {
	Schema int       `json:"schema"`
	Began  time.Time `json:"began"`
	Took   float64   `json:"took"` // seconds
	// Command is the command line to repeat the run, without paths of the machine.
	Command string  `json:"command"`
	Version string  `json:"version"` // of ckptd: commit and whether the tree was modified; "" if unknown
	Set     string  `json:"set"`     // set of measurements: smoke, some, full, or a custom one
	Seed    uint64  `json:"seed"`
	Rounds  int     `json:"rounds"` // each figure is the median of this many rounds
	Turn    float64 `json:"turn"`   // seconds that a rival runs at a time
	Cache   int64   `json:"cache"`  // ckptd's cache size in bytes

	Machine Machine `json:"machine"`
	Limits  []Limit `json:"limits"`
	Rivals  []Rival `json:"rivals"`
	Points  []Point `json:"points"`
	Curves  []Curve `json:"curves"`
	Skipped []Skip  `json:"skipped"`
}

// Machine describes the machine of a run, without its name.
type Machine struct {
	CPU        string  `json:"cpu"`
	Cores      int     `json:"cores"`  // available to the run
	Memory     int64   `json:"memory"` // bytes
	System     string  `json:"system"` // GOOS/GOARCH and the kernel's release
	FileSystem string  `json:"fileSystem"`
	Go         string  `json:"go"`
	Load       float64 `json:"load"` // one-minute load average at the start: above 0.5 per core, other work was running
}

// Figure is a median over rounds with its spread.
type Figure struct {
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Rounds []float64 `json:"rounds,omitempty"` // in order
	// Limit names the physical limit that the figure is compared with, or "". Fraction is the share
	// of the limit that was reached: 1 is at the limit, whichever direction is better.
	Limit    string  `json:"limit,omitempty"`
	Fraction float64 `json:"fraction,omitempty"`
}

// FigureOf returns the figure for some rounds.
func FigureOf(rounds []float64) Figure {
	if len(rounds) == 0 {
		return Figure{}
	}
	sorted := slices.Sorted(slices.Values(rounds))
	n := len(sorted)
	return Figure{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1], Rounds: rounds}
}

// Spread returns the range of the rounds as a fraction of the median.
func (f Figure) Spread() float64 {
	if f.Median == 0 {
		return 0
	}
	return (f.Max - f.Min) / f.Median
}

// Limit is the machine's own performance in the same run.
type Limit struct {
	Name string `json:"name"` // one of the Limit constants
	Unit string `json:"unit"` // "s" (for one), "B/s", "saves/s"
	What string `json:"what"` // how it was measured
	Figure
}

// Names of the limits.
const (
	LimitSync     = "fdatasync" // s, p50: overwrite a page in a preallocated file, then fdatasync
	LimitWrite    = "write"     // B/s: sequential, with a final fdatasync
	LimitRead     = "read"      // B/s: sequential, not in the page cache
	LimitCopy     = "memcpy"    // B/s
	LimitAESGCM   = "aes-gcm"   // B/s
	LimitZstd     = "zstd"      // B/s of input, fastest level, on the chat workload
	LimitChanged  = "changed"   // not measured: the bytes that a step changes, which must be stored at least once
	LimitPipeline = "pipeline"  // saves/s on all cores: the rate that the CPU time of ckptd's own save allows, without its commit
)

// Limit returns the limit of that name.
func (r *Run) Limit(name string) (Limit, bool) {
	i := slices.IndexFunc(r.Limits, func(l Limit) bool { return l.Name == name })
	if i < 0 {
		return Limit{}, false
	}
	return r.Limits[i], true
}

// Rival describes a participant.
type Rival struct {
	Name    string `json:"name"`
	What    string `json:"what"`              // one line: the store and its way of saving
	Durable string `json:"durable"`           // its settings in the durable table
	Default string `json:"default,omitempty"` // those in the other table; "" if they are the same and it isn't run again
	Version string `json:"version,omitempty"`
}

// Names of ckptd's own rows.
const (
	Ckptd      = "ckptd"       // receives changes, as its clients send them
	CkptdWhole = "ckptd-whole" // receives whole states
)

// The two tables.
const (
	Durable = "durable" // each save is on disk before it returns
	Default = "default" // each rival with its default settings
)

// Kinds of points.
const (
	Speed = "speed" // Writers concurrently save as fast as they can, or at Rate
	Space = "space" // the same saves for every rival, by one writer, followed by loads
)

// Point holds the measurements of one rival at one workload.
type Point struct {
	Kind     string            `json:"kind"`
	Table    string            `json:"table"`
	Workload string            `json:"workload"`
	Size     int               `json:"size"` // requested bytes of a state; 0: the workload's own
	Rival    string            `json:"rival"`
	Writers  int               `json:"writers"`
	Threads  int               `json:"threads"`
	Rate     float64           `json:"rate,omitempty"` // saves/s offered by an open loop; 0: a closed loop
	Figures  map[string]Figure `json:"figures"`        // by name of measure
	Note     string            `json:"note,omitempty"` // caveats for the reader, such as a turn that ended early
}

// The x axis of a curve.
const (
	OverSteps   = "steps"   // of one thread that grows by 1 kB per step
	OverSize    = "size"    // bytes of the state
	OverThreads = "threads" // in the store, 1 kB each
)

// Curve is one rival's growth.
type Curve struct {
	Over     string       `json:"over"`
	Workload string       `json:"workload"`
	Rival    string       `json:"rival"`
	Points   []CurvePoint `json:"points"`         // ordered by X
	Note     string       `json:"note,omitempty"` // such as the reason why it ends early
}

// CurvePoint is a point on a curve.
type CurvePoint struct {
	X       float64           `json:"x"`
	Figures map[string]Figure `json:"figures"`
	// Sampled means that only windows of the history up to X were saved, because all of it would
	// fill the disk. DiskBytes is then an extrapolation from the windows to the entire history.
	Sampled bool `json:"sampled,omitempty"`
}

// Skip names something that was not measured, and the reason.
type Skip struct {
	What string `json:"what"` // a rival, or a rival at a point
	Why  string `json:"why"`
}

// Write writes r as indented JSON.
func Write(w io.Writer, r *Run) error {
	r.Schema = Schema
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("writing results: %w", err)
	}
	return nil
}

// Read reads the output of Write.
func Read(rd io.Reader) (*Run, error) {
	r := &Run{}
	if err := json.NewDecoder(rd).Decode(r); err != nil {
		return nil, fmt.Errorf("reading results: %w", err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("reading results: %w: %d, this bench knows %d: measure again", ErrSchema, r.Schema, Schema)
	}
	return r, nil
}
