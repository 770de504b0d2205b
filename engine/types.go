package engine

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/hook"
)

// Ref names a lineage: a thread of a user of a tenant, and in it a namespace. The unnamed namespace
// is the thread's own; others hold sub-lineages, such as subgraphs.
type Ref struct {
	Tenant, User, Thread string
	Namespace            string
}

// MaxName is the maximum length in bytes of a name: of a tenant, user, thread, channel, branch, label
// or status. MaxLongName is that of a namespace and of the path of a task, which grow with the depth
// of nested graphs.
const (
	MaxName     = codec.MaxName
	MaxLongName = codec.MaxLongName
)

// Well-known statuses. Any UTF-8 string of at most MaxName bytes is a status.
const (
	StatusRunning     = "running"
	StatusSucceeded   = "succeeded"
	StatusFailed      = "failed"
	StatusInterrupted = "interrupted"
	StatusCancelled   = "cancelled"
	StatusWaiting     = "waiting"
)

// Version names the bytes of a channel, as the engine issued it with a checkpoint: the same bytes
// of a user have the same version in every checkpoint, and different bytes a different one, except
// with a chance of 1 in 2^64. A splice names its base by its version. The zero Version names
// nothing.
type Version uint64

// BlobID is the digest that names a blob: a keyed hash of its content. The same content of one user
// has the same BlobID.
type BlobID [32]byte

// String returns the digest in hexadecimal.
func (id BlobID) String() string { return hex.EncodeToString(id[:]) }

// ParseBlobID is the inverse of String.
func ParseBlobID(s string) (BlobID, error) {
	var id BlobID
	if b, err := hex.DecodeString(s); err != nil || len(b) != len(id) {
		return id, fmt.Errorf("%w: %q is not a blob id, want %d hexadecimal digits", ErrInvalid, s, 2*len(id))
	} else {
		copy(id[:], b)
	}
	return id, nil
}

// Checkpoint is a version of a thread's state. It never changes, unless a save with its ID and
// other content replaces it. The value belongs to the caller that got it.
type Checkpoint struct {
	Ref        Ref
	Generation uint64 // of the lineage

	ID        string
	Parent    string // id of the parent, "" for a root
	Seq       uint64 // number of the save in its lineage, over all branches, from 1
	ParentSeq uint64 // 0 for a root or a dangling parent
	Branch    string // the named branch it was saved on, "" if none

	Time          time.Time // of the save, by the engine's clock, in milliseconds; never decreases along a lineage
	Step          int64
	Status        string
	Kind          string // of the thread: the agent or workflow it is a run of; "" if the drafts named none
	SchemaVersion uint64 // of the state, numbered per kind
	RunID         string
	Labels        map[string]string // nil when there are none
	Meta          []byte            // JSON, nil when there is none
	Blobs         []BlobID          // blobs that this checkpoint keeps alive

	// Hooks are the hooks that produced the state, labels and metadata (Options.Hooks), in order;
	// nil if there were none. Fuel is the fuel they used when the checkpoint was saved.
	Hooks []hook.Identity
	Fuel  uint64

	Delta []string // delta channels (Draft.Delta), in order of name

	// Channels in order of name. Data is nil unless the load asked for it.
	Channels []Channel

	// Histories are those that LoadOptions.History asked for, in its order.
	Histories []ChannelHistory

	// Hash covers all of the above (by commitments to the channels' bytes) and the hash of the
	// parent.
	Hash [32]byte

	// Cost is the cost of storing and reading this checkpoint; set by saves and loads.
	Cost Cost

	// Head is the newest checkpoint of the lineage (LoadOptions.Head); nil if the load did not ask.
	Head *Head

	// Migrated describes the migration that a load ran on the stored state (LoadOptions.Schema);
	// nil if it ran none. Hash is that of the stored state.
	Migrated *Migrated
}

// ChannelHistory is the state of a channel before a checkpoint: its value in the nearest ancestor
// that has it, and the pending writes to it from that ancestor (included) to the checkpoint
// (excluded). Values and writes are as stored, whatever LoadOptions.Schema is.
type ChannelHistory struct {
	Channel string
	BaseID  string           // the ancestor with the value; "" if none has one
	Base    *Channel         // its value, nil if none has one
	Writes  []AncestorWrites // oldest first
	// Lost says that an ancestor that may hold a part was removed, by DeleteRun or before the channel was
	// named as a delta channel: the history begins after it.
	Lost bool
}

// AncestorWrites are the pending writes of an ancestor to one channel, in order of task path, task id
// and index.
type AncestorWrites struct {
	CheckpointID string
	Writes       []PendingWrite
}

// Head names the newest checkpoint of a lineage.
type Head struct {
	Seq uint64
	ID  string
}

// Migrated names the stored version, the version asked for, and the steps.
type Migrated struct {
	From, To uint64
	Steps    []string // descriptions of the steps, with their sources, in the order in which they ran
}

// Channel returns the channel with that name.
func (c *Checkpoint) Channel(name string) (Channel, bool) {
	for _, ch := range c.Channels {
		if ch.Name == name {
			return ch, true
		}
	}
	return Channel{}, false
}

// Channel is a named part of a state.
type Channel struct {
	Name    string
	Type    string // type tag of Data: "json", "msgpack", "bytes", …
	Version Version
	Size    int64 // bytes of Data, also when Data was not loaded
	Data    []byte

	// Rewritten says that hooks changed these bytes. In the result of a save, and wherever Data is
	// not loaded, it compares the stored bytes with the submitted ones, so that a caller who kept
	// the latter knows they differ; in a load with Data it is set if load hooks changed the stored
	// bytes. Version is then not valid as a base: a Change that names it gets a *NeedFullError. To
	// splice on the bytes that hooks stored, load them.
	Rewritten bool
}

// Cost describes the size of a checkpoint on disk and the cost of reading it.
type Cost struct {
	State  int64 // bytes of all channels
	Stored int64 // bytes of the sealed record, and of parts newly stored with it
	Depth  int   // records that a restore of all channels reads
	Full   bool  // some channel was stored without a base
}

// Draft is a checkpoint to be saved. The zero value of each field is valid. The engine does not
// modify anything the draft points to and keeps none of it after Save returns.
type Draft struct {
	// ID of the checkpoint; "" makes the engine create a UUIDv7. Saving an ID again with the same
	// content returns the existing checkpoint; with other content it replaces the checkpoint.
	ID string

	// Parent is the id of the parent; "" is the head: that of Branch if Branch is named and exists,
	// else that of the lineage. A parent that is not the head starts another line. Root asks for none.
	Parent string
	Root   bool
	// AllowDangling accepts a Parent that does not exist, which is otherwise ErrUnknownParent.
	AllowDangling bool

	// Branch is the named head to extend; the save creates it if it does not exist.
	Branch string

	// Expect makes the save conditional on the lineage's head; see ExpectHead. The zero value
	// appends.
	Expect Expect
	// Generation, if not 0, must be that of the lineage, or that of the thread for any of its
	// namespaces, else the save gets ErrGeneration.
	Generation uint64
	// CalledFrom is the id of a checkpoint of the thread, in the unnamed namespace, that this other
	// namespace hangs on: a prune that removes the checkpoint removes the namespace. There need not be
	// such a checkpoint yet. "" leaves it as it is. A namespace hangs on the first one that is named;
	// another one is ErrInvalid.
	CalledFrom string

	Step   int64
	Status string // "" is StatusRunning

	// Kind is that of the thread; "" is the parent's. If it differs, that is ErrInvalid.
	Kind string
	// SchemaVersion is that of the state. If it differs from the parent's, and the kind has
	// migrations (Options.Migrations), the draft is based on the parent migrated to this version,
	// as a load with LoadOptions.Schema returns it: for the channels it keeps and for its splices.
	// If no migration leads there, that is ErrSchemaTooNew or ErrNoMigration. A draft with the
	// whole state needs no migration.
	SchemaVersion uint64

	// RunID, Labels, Meta and Blobs describe the checkpoint. With Keep, those that are "" or nil
	// are the parent's (an empty, non-nil value clears). Blobs that hooks store are added; a later
	// draft without Keep has to name them again if its state still refers to them. With NoRun the
	// checkpoint belongs to no run, whatever the parent's is.
	RunID  string
	NoRun  bool
	Labels map[string]string
	Meta   []byte
	Blobs  []BlobID

	// Delta names channels without a value whose state lies in pending writes of ancestors: in those to
	// the channel since the nearest ancestor that has it. Pruning keeps these ancestors, hidden, for
	// LoadOptions.History. With Keep, the parent's delta channels stay delta channels, unless Channels
	// sets or removes them.
	Delta []string

	// Channels are the whole state or, with Keep, the changes to the parent's.
	Channels []Change
	// Keep keeps those channels of the parent that Channels does not name.
	Keep bool

	// TTL, if positive, makes the thread expire that long after its last save. Negative clears it.
	TTL time.Duration
}

// Change sets one channel. With a Base it changes the parent's channel, which must have that
// version (else a *NeedFullError): Data replaces the bytes between the first Prefix and the last
// Suffix bytes of it. To change several places, use Splices, one for each, instead of Data, Prefix
// and Suffix.
type Change struct {
	Name, Type     string // an empty Type is "bytes", or the parent's type with a Base
	Data           []byte
	Base           Version
	Prefix, Suffix int
	// Splices are at most MaxSplices, in order, without overlap. Empty but not nil changes nothing.
	Splices []Splice
	Remove  bool // with Keep: drop the channel

	rewritten bool // made from a value that hooks rewrote and that the caller may not have read
}

// Splice replaces the bytes of a base from From up to, but not including, To by Data. Offsets are
// those in the base, regardless of other splices.
type Splice struct {
	From, To int
	Data     []byte
}

// Expect is a condition on the head of the lineage. The zero value is none.
type Expect struct {
	seq uint64
	set bool
}

// ExpectHead makes a save fail with a *ConflictError unless the newest checkpoint of the lineage
// has this seq; 0 means that there is none.
func ExpectHead(seq uint64) Expect { return Expect{seq: seq, set: true} }

// Head returns the seq that the newest checkpoint must have; not ok means any.
func (e Expect) Head() (seq uint64, ok bool) { return e.seq, e.set }

// Which names a checkpoint of a lineage. The zero value is Latest.
type Which struct {
	by   By
	name string
	seq  uint64
}

// By says how a Which names its checkpoint.
type By uint8

// The ways to name a checkpoint.
const (
	ByNewest     By = iota // Latest
	ByGreatestID           // LatestByID
	ByID                   // At
	BySeq                  // AtSeq
	ByBefore               // Before
	ByRun                  // LatestOfRun
	ByBranch               // HeadOf
)

// Parts returns how w names its checkpoint: BySeq by seq, all others by name, which is an id, a run
// id or a branch.
func (w Which) Parts() (by By, name string, seq uint64) { return w.by, w.name, w.seq }

// Latest is the newest checkpoint, by seq. A replacement counts as saved when the first checkpoint
// with its id was.
var Latest = Which{}

// LatestByID is the checkpoint with the greatest id, for callers whose ids are ordered UUIDs.
func LatestByID() Which { return Which{by: ByGreatestID} }

// At is the checkpoint with an id.
func At(id string) Which { return Which{by: ByID, name: id} }

// AtSeq is the checkpoint with a seq.
func AtSeq(seq uint64) Which { return Which{by: BySeq, seq: seq} }

// Before is the newest checkpoint before the one with this id: the one with the greatest smaller id
// where ids are UUIDs (the checkpoint itself need not exist), else the one saved before it.
func Before(id string) Which { return Which{by: ByBefore, name: id} }

// LatestOfRun is the newest checkpoint with a run id.
func LatestOfRun(runID string) Which { return Which{by: ByRun, name: runID} }

// HeadOf is the head of a named branch.
func HeadOf(branch string) Which { return Which{by: ByBranch, name: branch} }

// LoadOptions choose how much of a checkpoint to read.
type LoadOptions struct {
	// HeadersOnly leaves every Channel.Data nil. It reads the record and, in one batch, the records
	// that hold its attributes, the sizes of kept channels, and the parent's id.
	HeadersOnly bool
	// Channels, if not nil, are the only channels whose Data is read.
	Channels []string
	// Export says that the state leaves the store as a file or a stream: then the export hooks run,
	// too, after the load hooks.
	Export bool
	// History names channels whose histories Checkpoint.Histories returns.
	History []string
	// Head asks for Checkpoint.Head, for a save on this checkpoint that expects nothing newer. It is the
	// durable head from before the checkpoint was read, so a save in between is a conflict.
	Head bool

	// Schema is the schema version to return the state in, by the migrations of its kind; 0 is the
	// stored version. The whole state is read and migrated, in memory, even if Channels asks for
	// only some of it; a channel that was not asked for then has a Version that is not valid as a
	// base. With HeadersOnly no step runs: the checkpoint is described as stored, and Migrated
	// lists the steps that a load would run. A state that is newer than Schema is ErrSchemaTooNew
	// unless Down is set and every step can be reversed. A missing path is ErrNoMigration, and a
	// step that fails is ErrMigration.
	Schema uint64
	Down   bool
}
