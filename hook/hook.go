// Package hook is the vocabulary between the engine and what runs hooks: the engine hands over what comes in and what
// goes out, in plain bytes, and knows nothing of modules, manifests or rules. What runs hooks (plugins/pipeline) knows
// nothing of threads, records or keys.
//
// The walk of a save: the engine asks Hooks for the Chain of the stage and place, hands it every Item that the save
// changes, and stores what the Chain made of them. A Chain that fails makes the save fail, and nothing was stored.
package hook

import (
	"context"
	"errors"
	"time"
)

// Stage is when hooks run.
type Stage uint8

// The stages. PreSave, Export and Migrate fail closed: an error rejects the whole operation.
const (
	PreSave Stage = iota + 1 // before anything that comes in is encoded
	Load                     // on what a load gives to its caller; nothing is stored
	Export                   // on what leaves the store as a file or a stream
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

// Kind is what an Item is.
type Kind uint8

// The kinds of what comes in.
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

// Item is one thing that passes the hooks. A Chain replaces Data (and, of a label, Name) and never modifies the bytes
// that Data pointed to when it was called, nor keeps them.
type Item struct {
	Kind Kind
	Name string // of the channel, or the key of the label; "" for metadata and blobs
	Type string // type tag of Data: "json", "msgpack", "text", "bytes", …
	Data []byte

	// Prev, when not nil, is what a chain with the same identities made of this item in the parent, so only what
	// differs from it needs to be looked at. The result must not depend on it.
	Prev []byte

	// Dropped is set by a chain that wants the item gone.
	Dropped bool
}

// Place is where the items belong. A place is not told to plugins, except for what their manifest asks for.
type Place struct {
	Tenant, User, Thread, Namespace string

	Checkpoint    string // its id, "" if the engine will make one
	Step          int64
	Status        string
	SchemaVersion uint64
	Time          time.Time // the clock of the plugins
}

// Call is one run of a Chain over the items of one operation.
type Call struct {
	Place Place
	Items []Item

	// Names are what else comes in and is stored as it is, because things are found by it. A chain of PreSave may refuse
	// them, and the names and types of the items, but changes none.
	Names []Name

	// Seed is what the random numbers of plugins come from, and PseudonymKey what pseudonyms are made with: keys of
	// the user's, gone when the user is shredded.
	Seed, PseudonymKey [32]byte

	// PutBlob takes a blob for the user and returns its id. It is stored if the operation succeeds, and then belongs
	// to the checkpoint. Nil where no blobs can be stored. It must not be called after Run returned.
	PutBlob func(data []byte) (id [32]byte, err error)

	// Migrate is set in the stage of that name.
	Migrate struct {
		Kind     string
		From, To uint64
	}

	// Set by the chain:
	Fuel     uint64    // of all plugins
	Findings []Finding // of all plugins and rules
}

// Name is an id, a kind, a path or the like.
type Name struct {
	What string // "namespace" and so on, for errors
	Text string
}

// Finding says that a rule matched at a path, and how often. It never quotes what matched; a path has the names of
// members only where they are names of a schema, not data.
type Finding struct {
	Rule  string
	Path  string // JSON pointer in the item, "" for the whole
	Item  string // kind and name of the item, such as "channel messages"
	Count int
}

// Identity names what touched a checkpoint, for the checkpoint to record.
type Identity struct {
	Name   string   // "NAME@VERSION" of a plugin, "redact" of the built-in rules
	Digest [32]byte // of the plugin's bundle (its manifest decides what it sees), or of the rules
	Config [32]byte // SHA-256 of its configuration as canonical JSON, zero without one
}

// Hooks finds the chain for an operation. Methods are safe for concurrent use.
type Hooks interface {
	// For returns what runs at a stage for the threads of a tenant whose name is thread, as it is now: what is
	// installed later does not change a chain. A nil Chain and no error: nothing runs. An error (a plugin that must
	// run is missing) rejects the operation. For blobs and memory items, which belong to no thread, thread is "".
	For(stage Stage, tenant, thread string) (Chain, error)
}

// Chain runs the hooks of one stage and place, in order.
type Chain interface {
	// Identities lists what runs, in order. The same list means the same result for the same items.
	Identities() []Identity
	// Run passes the items through every hook. On an error the items are not to be used.
	Run(ctx context.Context, c *Call) error
}

// The ways in which a hook fails, each wrapped in an *Error.
var (
	ErrInvalid     = errors.New("invalid plugin")      // binary, manifest, ABI or configuration
	ErrLimit       = errors.New("over a plugin limit") // memory, input, output, size
	ErrFuel        = errors.New("plugin out of fuel")  // deterministic
	ErrTimeout     = errors.New("plugin timed out")    // or the caller's context ended
	ErrTrap        = errors.New("plugin trapped")      // unreachable, division by zero, exit, stack overflow, …
	ErrRejected    = errors.New("rejected by a hook")  // by policy: the plugin or rule wants it so
	ErrFailed      = errors.New("plugin reported an error")
	ErrUnavailable = errors.New("plugin is unavailable") // missing, disabled while needed, pool exhausted, worker killed
)

// Error tells which hook failed, where, and how. It matches Kind. Its text never has what the items hold.
type Error struct {
	Kind   error  // one of the errors above
	Plugin string // "NAME@VERSION", or "redact"
	Stage  Stage  // 0 outside of a call
	Item   string // kind and name of the item, "" if it concerns none
	Code   int32  // of ErrFailed: what the plugin returned
	Reason string // one line, without content of the items
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
