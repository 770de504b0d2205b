// Package rival drives the alternatives for storing checkpoints: ckptd, and the code that users
// would otherwise write on a database they know. All receive the same states and return the same
// bytes.
//
// Each driver follows good practice: the best of the usual settings, batches where the database
// supports them, one table or bucket, and a key that finds the newest state directly.
package rival

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/ckptd/ckptd/bench/workload"
)

// ErrNotInstalled matches the error of Rival.Installed if a program is missing.
var ErrNotInstalled = errors.New("not installed")

// ErrUnknown matches the error of Lookup for an unknown rival.
var ErrUnknown = errors.New("unknown rival")

// Rival is a way to store checkpoints.
type Rival struct {
	Name string
	What string // one line: the store and its way of saving

	// Durable and Default describe its settings. An empty Default means that it is durable by
	// default.
	Durable, Default string

	// Whole means that it stores whole states, so the size of a history is quadratic in its length.
	Whole bool
	// Respells means that it returns a different encoding of the same JSON.
	Respells bool

	// Installed checks for its programs and returns their version; nil if it needs none.
	Installed func() (version string, err error)
	Open      func(ctx context.Context, o Options) (Driver, error)
}

// Options are the options to open a driver.
type Options struct {
	Dir     string // an existing folder of its own, including data saved there before
	Durable bool   // every save is on disk before it returns; otherwise the rival's default
	Writers int    // concurrent writers
	Cache   int64  // ckptd's cache in bytes; 0 is its default
	Small   bool   // keep the process small, as described in the rival's manual
}

// Driver is an open rival. Save and Load are safe for concurrent use, except that a thread is never
// saved twice at the same time.
type Driver interface {
	// Save saves a step. It keeps no reference to it.
	Save(ctx context.Context, s *workload.Step) error
	// Load returns the state after a step of a thread; a negative step is the latest.
	Load(ctx context.Context, thread, step int) ([]byte, error)
	// Settle does the work that the rival would eventually do by itself: merge, compact, truncate
	// its logs.
	Settle(ctx context.Context) error
	// Process returns the process id of the server, or 0 if there is none.
	Process() int
	// Close closes the driver and ends all processes that Open started.
	Close() error
}

// Adaptable is a Driver whose number of concurrent writers can be changed while no save is running.
type Adaptable interface{ Writers(n int) }

// All lists the rivals, ckptd first.
func All() []Rival {
	return []Rival{ckptdRival(false), ckptdRival(true), rawBadger(), zstdBadger(), bboltRival(), sqliteRival(), postgres(), postgresLangGraph(), redisRival(), filesRival()}
}

// Lookup finds a rival of All by its name.
func Lookup(name string) (Rival, error) {
	all := All()
	i := slices.IndexFunc(all, func(r Rival) bool { return r.Name == name })
	if i < 0 {
		names := make([]string, len(all))
		for i, r := range all {
			names[i] = r.Name
		}
		return Rival{}, fmt.Errorf("%w %q: there are %s", ErrUnknown, name, strings.Join(names, ", "))
	}
	return all[i], nil
}

// Same reports whether a state returned by r equals the saved one: the same bytes or, for rivals
// that re-encode JSON, the same value.
func Same(r Rival, got, want []byte) bool {
	if bytes.Equal(got, want) || !r.Respells {
		return bytes.Equal(got, want)
	}
	var a, b any
	return json.Unmarshal(got, &a) == nil && json.Unmarshal(want, &b) == nil && reflect.DeepEqual(a, b)
}
