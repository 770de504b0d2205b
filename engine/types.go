package engine

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/hook"
)

// Ref names a lineage: a thread of a user of a tenant, and in it a namespace. The unnamed namespace is the thread's
// own; others hold sub-lineages, such as subgraphs.
type Ref struct {
	Tenant, User, Thread string
	Namespace            string
}

// MaxName is how many bytes a name has at most: of a tenant, user, thread, namespace, channel, branch, label or status.
const MaxName = codec.MaxName

// Well-known statuses. Any UTF-8 string of at most MaxName bytes is a status.
const (
	StatusRunning     = "running"
	StatusSucceeded   = "succeeded"
	StatusFailed      = "failed"
	StatusInterrupted = "interrupted"
	StatusCancelled   = "cancelled"
	StatusWaiting     = "waiting"
)

// Version names the bytes of a channel as the engine issued it with a checkpoint: the same bytes of a user have the same
// version in every checkpoint, and others another one, but for one chance in 2^64. A splice names its base by it. The zero
// Version names nothing.
type Version uint64

// BlobID is the digest that names a blob: a keyed hash of its content, the same for the same content of one user.
type BlobID [32]byte

// String returns the digest in hexadecimal.
func (id BlobID) String() string { return hex.EncodeToString(id[:]) }

// ParseBlobID is the inverse of String.
func ParseBlobID(s string) (BlobID, error) {
	var id BlobID
	if b, err := hex.DecodeString(s); err != nil || len(b) != len(id) {
		return id, fmt.Errorf("%w: %q is no blob id, want %d hexadecimal digits", ErrInvalid, s, 2*len(id))
	} else {
		copy(id[:], b)
	}
	return id, nil
}

// Checkpoint is a version of a thread's state. It never changes, unless a save with its ID and other content replaces
// it. The value is the caller's.
type Checkpoint struct {
	Ref        Ref
	Generation uint64 // of the thread, counts its deletions; starts at 1

	ID        string
	Parent    string // id of the parent, "" for a root
	Seq       uint64 // counts the saves of the lineage over all its branches, from 1
	ParentSeq uint64 // 0 for a root or a dangling parent
	Branch    string // the named branch it was saved on, "" for none

	Time          time.Time // of the save, by the engine's clock, in milliseconds; never decreases along a lineage
	Step          int64
	Status        string
	Kind          string // of the thread: the agent or workflow that it is a run of; "" if none was said
	SchemaVersion uint64 // of the state, counted for each kind
	RunID         string
	Labels        map[string]string // nil when there are none
	Meta          []byte            // JSON, nil when there is none
	Blobs         []BlobID          // blobs that this checkpoint keeps alive

	// Hooks are what made the state, labels and metadata what they are (Options.Hooks), in order; nil when there were
	// none. Fuel is what they took when the checkpoint was saved.
	Hooks []hook.Identity
	Fuel  uint64

	// Channels in order of name. Data is nil unless the load asked for it.
	Channels []Channel

	// Hash covers all of the above (by commitments to the channels' bytes) and the hash of the parent.
	Hash [32]byte

	// Cost is what the record of this checkpoint takes, known after a save and after a load.
	Cost Cost

	// Migrated tells what a load made of what is stored (LoadOptions.Schema); nil: nothing. Hash is that of what is
	// stored.
	Migrated *Migrated
}

// Migrated is the way from the version that is stored to the one asked for.
type Migrated struct {
	From, To uint64
	Steps    []string // their descriptions, with their sources, in the order in which they ran
}

// Channel returns the channel of that name.
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

	// Rewritten says that hooks made these bytes of others: in what a save returns, and wherever the state is without
	// Data, of what was submitted, so that who has that does not have these; in a load with Data, of what is stored.
	// Version then serves no splice: a Change with it as Base gets a *NeedFullError. To splice on what hooks stored,
	// load it.
	Rewritten bool
}

// Cost tells what a checkpoint takes on disk and what reading it takes.
type Cost struct {
	State  int64 // bytes of all channels
	Stored int64 // bytes of the sealed record, and of parts newly stored with it
	Depth  int   // records that a restore of all channels reads
	Full   bool  // some channel was stored without a base
}

// Draft is a checkpoint to be saved. The zero value of each field is a valid choice. The engine does not modify what
// the draft points to and keeps none of it after Save returns.
type Draft struct {
	// ID of the checkpoint; "" lets the engine make a UUIDv7. Saving an ID again with the same content is
	// acknowledged as the first time; with other content it replaces the checkpoint.
	ID string

	// Parent is the id of the parent; "" is the head: of Branch if that is named and exists, else of the
	// lineage. A parent that is not the head forks. Root asks for no parent at all.
	Parent string
	Root   bool
	// AllowDangling accepts a Parent that does not exist; without it that is ErrUnknownParent.
	AllowDangling bool

	// Branch is a named head to extend; it is created if it does not exist.
	Branch string

	// Expect makes the save conditional on the head of the lineage; see ExpectHead. The zero value appends.
	Expect Expect
	// Generation, when not 0, must be the thread's: a late save of a deleted thread gets ErrGeneration.
	Generation uint64

	Step   int64
	Status string // "" is StatusRunning

	// Kind is that of the thread; "" is the parent's. Another one than a parent has is ErrInvalid.
	Kind string
	// SchemaVersion is that of the state. If it is not the parent's, and the kind has migrations (Options.Migrations),
	// what the draft keeps and what its splices stand on is the parent as migrated to this version, which is what a
	// load with LoadOptions.Schema gives; if there is no way, that is ErrSchemaTooNew or ErrNoMigration. A draft with
	// the whole state needs no way.
	SchemaVersion uint64

	// RunID, Labels, Meta and Blobs describe the checkpoint. With Keep, those that are "" or nil are kept from
	// the parent (an empty, non-nil value clears). Blobs that hooks put come to those of the draft; a later draft
	// without Keep names them again, if its state still refers to them.
	RunID  string
	Labels map[string]string
	Meta   []byte
	Blobs  []BlobID

	// Channels are the whole state or, with Keep, the changes to the parent's.
	Channels []Change
	// Keep keeps the parent's channels that Channels does not name.
	Keep bool

	// TTL, when positive, lets the thread expire that long after its last save. Negative clears it.
	TTL time.Duration
}

// Change sets one channel. With Base it stands on the parent's channel, which must have that version (else a
// *NeedFullError): Data replaces what stands between the first Prefix and the last Suffix bytes of it. Where it changes at
// several places, Splices has a splice for each, and Data, Prefix and Suffix are not used.
type Change struct {
	Name, Type     string // an empty Type is "bytes", or the parent's type with a Base
	Data           []byte
	Base           Version
	Prefix, Suffix int
	// Splices are at most MaxSplices, in order, and each begins where the one before ends, or behind. Empty and not nil
	// changes nothing.
	Splices []Splice
	Remove  bool // with Keep: the channel is dropped

	rewritten bool // it is made of a value that hooks rewrote, and that the caller need not have read
}

// Splice puts Data in place of the bytes of a base from From up to, and without, To. Places are those of the base,
// whatever other splices do.
type Splice struct {
	From, To int
	Data     []byte
}

// Expect is a condition on the head of the lineage. The zero value is none.
type Expect struct {
	seq uint64
	set bool
}

// ExpectHead makes a save fail with a *ConflictError unless the newest checkpoint of the lineage has this seq; 0 means
// that there must be none yet.
func ExpectHead(seq uint64) Expect { return Expect{seq: seq, set: true} }

// Head returns the seq that the newest checkpoint must have; not ok: any will do.
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

// Parts returns how w names its checkpoint: with BySeq by seq, else by name, which may be an id, a run id or a branch.
func (w Which) Parts() (by By, name string, seq uint64) { return w.by, w.name, w.seq }

// Latest is the newest checkpoint, by seq. One that replaces another counts as saved when the first with its id was.
var Latest = Which{}

// LatestByID is the checkpoint with the greatest id, for callers whose ids are ordered UUIDs.
func LatestByID() Which { return Which{by: ByGreatestID} }

// At is the checkpoint with an id.
func At(id string) Which { return Which{by: ByID, name: id} }

// AtSeq is the checkpoint with a seq.
func AtSeq(seq uint64) Which { return Which{by: BySeq, seq: seq} }

// Before is the newest checkpoint before the one with this id: the one with the greatest smaller id where ids are
// UUIDs (the checkpoint itself need not exist), else the one saved before it.
func Before(id string) Which { return Which{by: ByBefore, name: id} }

// LatestOfRun is the newest checkpoint with a run id.
func LatestOfRun(runID string) Which { return Which{by: ByRun, name: runID} }

// HeadOf is the head of a named branch.
func HeadOf(branch string) Which { return Which{by: ByBranch, name: branch} }

// LoadOptions choose how much of a checkpoint is read.
type LoadOptions struct {
	// HeadersOnly leaves every Channel.Data nil. Besides the record it reads those that tell its attributes, the size of
	// what it keeps, and the parent's id, all at once.
	HeadersOnly bool
	// Channels, when not nil, are the only ones whose Data is read.
	Channels []string
	// Export says that the state leaves the store as a file or a stream: the hooks of that stage run after those of
	// the loads.
	Export bool

	// Schema is the version that the state is wanted in, by the migrations of its kind; 0 is as it is stored. All of
	// the state is read and migrated, in memory, also where Channels wants only some of it; a channel that was not
	// asked for has a Version that serves no splice then. With HeadersOnly no step runs: the checkpoint is described
	// as it is stored, and Migrated says which steps a load would run. A state that is newer is ErrSchemaTooNew unless
	// Down is set and every step has a way back; one that has no way there is ErrNoMigration, and one on which a step
	// fails is ErrMigration.
	Schema uint64
	Down   bool
}
