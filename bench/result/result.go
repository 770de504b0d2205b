// Package result is what a run of the bench found, as JSON: the machine, its physical limits, and for every rival what
// was measured of it. bench/run writes it, bench/report reads it; neither knows more of the other.
//
// All figures are in base units: seconds, bytes, counts, and each per second. Nothing here is a verdict: goals and what
// is missed by how much are made of a Run by bench/report.
package result

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Schema is the version of the JSON. A reader refuses a later one; members may be added within one.
const Schema = 1

// ErrSchema is matched by the error of Read for a file that another version of the bench wrote.
var ErrSchema = errors.New("unknown schema of results")

// Run is one run of the bench.
type Run struct {
	Schema int       `json:"schema"`
	Began  time.Time `json:"began"`
	Took   float64   `json:"took"` // seconds
	// Command is how to make it again, without paths of the machine.
	Command string  `json:"command"`
	Version string  `json:"version"` // of ckptd: commit and whether the tree was changed; "" if unknown
	Set     string  `json:"set"`     // which measurements: smoke, some, full, or what was asked for
	Seed    uint64  `json:"seed"`
	Rounds  int     `json:"rounds"` // that each figure is the median of
	Turn    float64 `json:"turn"`   // seconds that a rival measures at a time
	Cache   int64   `json:"cache"`  // bytes that ckptd may cache

	Machine Machine `json:"machine"`
	Limits  []Limit `json:"limits"`
	Rivals  []Rival `json:"rivals"`
	Points  []Point `json:"points"`
	Curves  []Curve `json:"curves"`
	Skipped []Skip  `json:"skipped"`
}

// Machine describes where a run was made, without its name.
type Machine struct {
	CPU        string  `json:"cpu"`
	Cores      int     `json:"cores"`  // that the run may use
	Memory     int64   `json:"memory"` // bytes
	System     string  `json:"system"` // GOOS/GOARCH and the kernel's release
	FileSystem string  `json:"fileSystem"`
	Go         string  `json:"go"`
	Load       float64 `json:"load"` // of one minute, when the run began: above 0.5 a core others were at work
}

// Figure is a median over rounds and its spread.
type Figure struct {
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Rounds []float64 `json:"rounds,omitempty"` // as they came
	// Limit names the physical limit that the figure is compared with, "" for none, and Fraction is how much of it was
	// reached: 1 is at the limit, whether more or less is better.
	Limit    string  `json:"limit,omitempty"`
	Fraction float64 `json:"fraction,omitempty"`
}

// FigureOf is the figure of some rounds.
func FigureOf(rounds []float64) Figure {
	if len(rounds) == 0 {
		return Figure{}
	}
	sorted := slices.Sorted(slices.Values(rounds))
	n := len(sorted)
	return Figure{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1], Rounds: rounds}
}

// Spread is how far the rounds are apart, as a fraction of the median.
func (f Figure) Spread() float64 {
	if f.Median == 0 {
		return 0
	}
	return (f.Max - f.Min) / f.Median
}

// Limit is what the machine itself could do in the same run.
type Limit struct {
	Name string `json:"name"` // one of the Limit constants
	Unit string `json:"unit"` // "s" (for one), "B/s", "saves/s"
	What string `json:"what"` // how it was measured, in words
	Figure
}

// The limits.
const (
	LimitSync     = "fdatasync" // s: a page written over in a preallocated file, and fdatasync: p50
	LimitWrite    = "write"     // B/s: sequential, with fdatasync in the end
	LimitRead     = "read"      // B/s: sequential, not in the page cache
	LimitCopy     = "memcpy"    // B/s
	LimitAESGCM   = "aes-gcm"   // B/s
	LimitZstd     = "zstd"      // B/s of what goes in, fastest level, on the chat workload
	LimitChanged  = "changed"   // not measured: the bytes that a step changes, of which none must be stored twice
	LimitPipeline = "pipeline"  // saves/s of all cores: what the CPU time of ckptd's own save allows, its commit left out
)

// Limit returns the limit of that name.
func (r *Run) Limit(name string) (Limit, bool) {
	i := slices.IndexFunc(r.Limits, func(l Limit) bool { return l.Name == name })
	if i < 0 {
		return Limit{}, false
	}
	return r.Limits[i], true
}

// Rival describes one who took part.
type Rival struct {
	Name    string `json:"name"`
	What    string `json:"what"`              // one line: what it is and how it saves
	Durable string `json:"durable"`           // its settings in the durable table
	Default string `json:"default,omitempty"` // those in the other; "" where they are the same and it is not run again
	Version string `json:"version,omitempty"`
}

// Names of the rows of ckptd itself.
const (
	Ckptd      = "ckptd"       // is handed what changed, as its clients do
	CkptdWhole = "ckptd-whole" // is handed whole states
)

// The two tables.
const (
	Durable = "durable" // each save is on disk before it returns
	Default = "default" // each rival as it comes
)

// Kinds of points.
const (
	Speed = "speed" // Writers at a time save as fast as they can, or at Rate
	Space = "space" // the same saves for every rival, by one writer, and then loads
)

// Point is what was measured of one rival at one workload.
type Point struct {
	Kind     string            `json:"kind"`
	Table    string            `json:"table"`
	Workload string            `json:"workload"`
	Size     int               `json:"size"` // bytes of a state that it was asked for; 0: the workload's own
	Rival    string            `json:"rival"`
	Writers  int               `json:"writers"`
	Threads  int               `json:"threads"`
	Rate     float64           `json:"rate,omitempty"` // saves/s offered by an open loop; 0: a closed one
	Figures  map[string]Figure `json:"figures"`        // by the name of the measure
	Note     string            `json:"note,omitempty"` // what a reader must know, such as a turn that ended early
}

// What a curve is over.
const (
	OverSteps   = "steps"   // of one thread that grows by 1 kB a step
	OverSize    = "size"    // bytes of the state
	OverThreads = "threads" // in the store, 1 kB each
)

// Curve is one rival's growth.
type Curve struct {
	Over     string       `json:"over"`
	Workload string       `json:"workload"`
	Rival    string       `json:"rival"`
	Points   []CurvePoint `json:"points"`         // by X
	Note     string       `json:"note,omitempty"` // such as why it ends early
}

// CurvePoint is a place on a curve.
type CurvePoint struct {
	X       float64           `json:"x"`
	Figures map[string]Figure `json:"figures"`
	// Sampled says that not all of the history up to X was saved, but windows of it, because all of it would fill the
	// disk; DiskBytes is what all of it would take then, by the windows.
	Sampled bool `json:"sampled,omitempty"`
}

// Skip is what was not measured, and why.
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

// Read reads what Write wrote.
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
