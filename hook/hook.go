// Package hook is the interface between the engine and the runner of hooks. The engine passes input
// and output in plain bytes, and knows nothing of modules, manifests or rules. The runner
// (plugins/pipeline) knows nothing of threads, records or keys.
//
// On a save the engine asks Hooks for the Chain of the stage and place, passes it every Item that
// the save changes, and stores the Chain's output. If the Chain fails, so does the save, and
// nothing is stored.
package hook

import (
	"context"
	"errors"
	"time"
)

// Stage says when hooks run.
type Stage uint8

// The stages. PreSave, Export and Migrate fail closed: an error rejects the whole operation.
const (
	PreSave Stage = iota + 1 // on input, before it is encoded
	Load                     // on the result of a load; nothing is stored
	Export                   // on state that leaves the store as a file or a stream
	Migrate                  // a step of a schema migration
)

var stageNames = [...]string{PreSave: "pre_save", Load: "load", Export: "export", Migrate: "migrate"}

// String returns the name as manifests write it.
func (s Stage) String() string {
	if s == 0 || int(s) >= len(stageNames) {
		return "unknown"
	}
	return stageNames[s]
}

// ParseStage is the inverse of String.
func ParseStage(name string) (Stage, bool) {
	for s, n := range stageNames {
		if n == name && s > 0 {
			return Stage(s), true
		}
	}
	return 0, false
}

// Kind is the kind of an Item.
type Kind uint8

// The kinds of items.
const (
	Channel Kind = iota + 1 // the whole value of a channel
	Write                   // a pending write of a task
	Meta                    // a checkpoint's metadata, JSON
	Label                   // Name is the key, Data the value
	Blob                    // of a text type
	Memory                  // an item of long-term memory
)

var kindNames = [...]string{Channel: "channel", Write: "write", Meta: "meta", Label: "label", Blob: "blob", Memory: "memory"}

// String returns the name as manifests write it.
func (k Kind) String() string {
	if k == 0 || int(k) >= len(kindNames) {
		return "unknown"
	}
	return kindNames[k]
}

// ParseKind is the inverse of String.
func ParseKind(name string) (Kind, bool) {
	for k, n := range kindNames {
		if n == name && k > 0 {
			return Kind(k), true
		}
	}
	return 0, false
}

// Item is one value that runs through the hooks. A Chain replaces Data (and, of a label, Name); it
// must neither modify the bytes that Data points to nor keep them.
type Item struct {
	Kind Kind
	Name string // of the channel, or the key of the label; "" for metadata and blobs
	Type string // type tag of Data: "json", "msgpack", "text", "bytes", …
	Data []byte

	// Prev, if not nil, is the output of a chain with the same identities for this item in the
	// parent, so the chain need only process the differences. The result must not depend on it.
	Prev []byte

	// Dropped is set by a chain to drop the item.
	Dropped bool
}

// Place is where in the store the items belong. Plugins see only the parts of it that their
// manifest asks for.
type Place struct {
	Tenant, User, Thread, Namespace string

	Checkpoint    string // its id; "" if the engine will make one
	Step          int64
	Status        string
	SchemaVersion uint64
	Time          time.Time // the time that plugins see
}

// Call is one run of a Chain over the items of one operation.
type Call struct {
	Place Place
	Items []Item

	// Names are strings of the operation that are stored unchanged, because data is found by them.
	// A PreSave chain can refuse them, and the names and types of the items, but not change them.
	Names []Name

	// Seed is the seed of the plugins' random numbers, and PseudonymKey the key of pseudonyms: both
	// are derived from the user's keys, and lost with them.
	Seed, PseudonymKey [32]byte

	// PutBlob stores a blob for the user and returns its id. It is stored if the operation
	// succeeds, and then belongs to the checkpoint. Nil if blobs cannot be stored. It must not be
	// called after Run has returned.
	PutBlob func(data []byte) (id [32]byte, err error)

	// Migrate is set in the Migrate stage.
	Migrate struct {
		Kind     string
		From, To uint64
	}

	// Set by the chain:
	Fuel     uint64    // of all plugins
	Findings []Finding // of all plugins and rules
}

// Name is an id, a kind, a path or another such string.
type Name struct {
	What string // "namespace" and so on, for errors
	Text string
}

// Finding says that a rule matched at a path, and how often. It never quotes the match; a path
// contains member names only if they belong to a schema, not to data.
type Finding struct {
	Rule  string
	Path  string // JSON pointer in the item, "" for the whole
	Item  string // kind and name of the item, such as "channel messages"
	Count int
}

// Identity names a hook that ran on a checkpoint, for the checkpoint's record.
type Identity struct {
	Name   string   // "NAME@VERSION" of a plugin, "redact" of the built-in rules
	Digest [32]byte // of the plugin's bundle (its manifest decides what it sees), or of the rules
	Config [32]byte // SHA-256 of its configuration as canonical JSON, zero without one
}

// Hooks finds the chain for an operation. Methods are safe for concurrent use.
type Hooks interface {
	// For returns the hooks of a stage for a thread of a tenant as they are now: later
	// installations do not change a chain. A nil Chain without an error means no hooks. An error (a
	// required plugin is missing) rejects the operation. For blobs and memory items, which belong
	// to no thread, thread is "".
	For(stage Stage, tenant, thread string) (Chain, error)
}

// Chain runs the hooks of one stage and place, in order.
type Chain interface {
	// Identities lists the hooks, in order. The same list means the same result for the same items.
	Identities() []Identity
	// Run runs every hook on the items. After an error the items must not be used.
	Run(ctx context.Context, c *Call) error
}

// The reasons why a hook fails, each wrapped in an *Error.
var (
	ErrInvalid     = errors.New("invalid plugin")      // binary, manifest, ABI or configuration
	ErrLimit       = errors.New("over a plugin limit") // memory, input, output, size
	ErrFuel        = errors.New("plugin out of fuel")  // deterministic
	ErrTimeout     = errors.New("plugin timed out")    // or the caller's context ended
	ErrTrap        = errors.New("plugin trapped")      // unreachable, division by zero, exit, stack overflow, …
	ErrRejected    = errors.New("rejected by a hook")  // deliberately, by a plugin or rule
	ErrFailed      = errors.New("plugin reported an error")
	ErrUnavailable = errors.New("plugin is unavailable") // missing, disabled while needed, pool exhausted, worker killed
)

// Error names the hook that failed, the stage and the reason. It matches Kind. Its text never
// contains data of the items.
type Error struct {
	Kind   error  // one of the errors above
	Plugin string // "NAME@VERSION", or "redact"
	Stage  Stage  // 0 outside of a call
	Item   string // kind and name of the item; "" if the error concerns none
	Code   int32  // of ErrFailed: the plugin's return code
	Reason string // one line, without data of the items
}

func (e *Error) Error() string {
	text := e.Kind.Error()
	if e.Plugin != "" {
		text = e.Plugin + ": " + text
	}
	if e.Stage != 0 {
		text += " in " + e.Stage.String()
	}
	if e.Item != "" {
		text += " of " + e.Item
	}
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

func (e *Error) Unwrap() error { return e.Kind }
