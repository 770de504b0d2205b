// Package rival drives what users would pick to keep checkpoints: ckptd, and what they would write themselves on a
// database that they know. All get the same states and give the same bytes back.
//
// Each driver does what its users would do when they do it well: the best of the usual settings, batches where the
// database has them, one table or bucket, and a key that finds the newest state at once.
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

// ErrNotInstalled is matched by the error of Rival.Installed where a program is missing.
var ErrNotInstalled = errors.New("not installed")

// ErrUnknown is matched by the error of Lookup for a name that is none of the rivals.
var ErrUnknown = errors.New("unknown rival")

// Rival is a way to keep checkpoints.
type Rival struct {
	Name string
	What string // one line: what it is and how it saves

	// Durable and Default are its settings in words. An empty Default says that it is durable as it comes.
	Durable, Default string

	// Whole says that it stores whole states, so that a history takes the square of its length.
	Whole bool
	// Respells says that it gives back another spelling of the same JSON.
	Respells bool

	// Installed tells whether its programs are there, and their version; nil if it is all in this one.
	Installed func() (version string, err error)
	Open      func(ctx context.Context, o Options) (Driver, error)
}

// Options open a driver.
type Options struct {
	Dir     string // exists, and is its own; what was saved there before is there again
	Durable bool   // each save is on disk before it returns, else as the rival comes
	Writers int    // that save at a time
	Cache   int64  // bytes that ckptd may cache, 0 is its default
	Small   bool   // the process is to stay small, as far as the rival's manual says how
}

// Driver is an open rival. Save and Load may be called by many goroutines at once, but no thread is saved twice at a time.
type Driver interface {
	// Save saves a step. It keeps nothing of it.
	Save(ctx context.Context, s *workload.Step) error
	// Load returns the state after a step of a thread; a negative step is the one saved last.
	Load(ctx context.Context, thread, step int) ([]byte, error)
	// Settle does what the rival would do in time by itself: merge, compact, shorten its logs.
	Settle(ctx context.Context) error
	// Process returns the id of the server's main process, 0 if there is none.
	Process() int
	// Close ends it, with all processes that Open started.
	Close() error
}

// Adaptable is a Driver that can be told that another number of writers save at a time from now on. No save is under way
// then.
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

// Same reports whether a state that r gave back is the one that was saved: the same bytes, or for rivals that spell JSON
// anew the same value.
func Same(r Rival, got, want []byte) bool {
	if bytes.Equal(got, want) || !r.Respells {
		return bytes.Equal(got, want)
	}
	var a, b any
	return json.Unmarshal(got, &a) == nil && json.Unmarshal(want, &b) == nil && reflect.DeepEqual(a, b)
}
