package codec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
)

// Mode says how an entry holds the value of its channel.
type Mode uint8

const (
	Keep    Mode = iota // as the first record of Path holds it
	ByDelta             // against the first record of Path
	Full                // without a base
)

// Parts of the mode byte that are not a Mode.
const (
	keepRun  = 3 // a Keep of more than one channel
	inParts  = 4 // added if the payload is in parts
	minEntry = 5 // size of the shortest entry, a Keep with a path of one record
)

// CheckPath returns an error if the path of e is too long for a record: with the record itself, a
// restore reads at most MaxPath.
func (e *Entry) CheckPath() error {
	const most = MaxPath - 1
	if n := e.Path.Len(); n > most {
		return fmt.Errorf("channel %d needs %d records, at most %d are allowed", e.Number, n, most)
	}
	return nil
}

// PartID names a part.
type PartID [16]byte

// Entry is the state of one channel in a checkpoint record, or of several with the same path.
type Entry struct {
	Number uint64
	More   uint64 // of Keep: how many channels with consecutive numbers share the path
	Mode   Mode
	Path   Path // of Keep and ByDelta

	// Of ByDelta and Full:
	Size       uint64 // bytes of the value
	Commitment [32]byte
	Payload    []byte   // nil if in parts
	PartBytes  uint64   // bytes of all Parts
	Parts      []PartID // the payload's, in order
}

// Record is a checkpoint record without its seq, which is in its key.
type Record struct {
	Ghost    bool
	Holds    bool  // a ghost that keeps its pending writes for the histories of others
	Abridged bool  // a ghost without the channels that no history needs
	Took     bool  // it took over the pending writes of its parent
	Time     int64 // Unix milliseconds
	Step     int64
	Status   string
	Schema   uint64

	ID   string   // the caller's, "" for an id of the engine's
	UUID [16]byte // the engine's, if stored in full, else zero

	ParentDist uint64 // 0: no parent record
	ParentID   string // of a dangling parent
	ParentHash [32]byte
	Replaced   uint64 // distance of the replaced record, 0: none

	Writes Ledger // of the parent, at the time of this save; zero if it had no pending writes

	Fuel uint64 // used by hooks

	Entries []Entry
}

// Channels yields the numbers of all channels, those of the attributes first, with their entries.
func (rec *Record) Channels(yield func(number uint64, e *Entry) bool) {
	for i := range rec.Entries {
		e := &rec.Entries[i]
		for number := e.Number; number <= e.Number+e.More; number++ {
			if !yield(number, e) {
				return
			}
		}
	}
}

// Count is the number of channels, the attributes included.
func (rec *Record) Count() int {
	n := len(rec.Entries)
	for i := range rec.Entries {
		n += int(rec.Entries[i].More)
	}
	return n
}

// Entry is the entry of a channel; nil if the checkpoint does not have it.
func (rec *Record) Entry(number uint64) *Entry {
	i, ok := slices.BinarySearchFunc(rec.Entries, number, func(e Entry, number uint64) int {
		switch {
		case number < e.Number:
			return 1
		case number > e.Number+e.More:
			return -1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return &rec.Entries[i]
}

const (
	flagCallerID = 0x01
	flagUUID     = 0x02
	flagParent   = 0x04
	flagDangling = 0x08
	flagReplaced = 0x10
	flagWrites   = 0x20
	flagGhost    = 0x40
	flagFuel     = 0x80
	flagTook     = 0x100
	flagHolds    = 0x200
	flagAbridged = 0x400
	flagsKnown   = 0x7ff
)

var statusCodes = [...]string{1: "running", 2: "succeeded", 3: "failed", 4: "interrupted", 5: "cancelled", 6: "waiting"}

func (rec *Record) flags() (f uint64) {
	for _, b := range [...]struct {
		on  bool
		bit uint64
	}{
		{rec.ID != "", flagCallerID}, {rec.UUID != [16]byte{}, flagUUID}, {rec.ParentDist != 0, flagParent},
		{rec.ParentID != "", flagDangling}, {rec.Replaced != 0, flagReplaced},
		{rec.Writes.Changes != 0, flagWrites}, {rec.Ghost, flagGhost}, {rec.Fuel != 0, flagFuel},
		{rec.Took, flagTook}, {rec.Holds, flagHolds}, {rec.Abridged, flagAbridged},
	} {
		if b.on {
			f |= b.bit
		}
	}
	return f
}

// AppendRecord appends the plaintext of the record at seq (docs/format.md §5). The caller must fill
// rec as ParseRecord demands: with a Status, with Entries in increasing order from number 0, equal
// neighbours merged into one keep, a Path below seq wherever the mode has one, a Time of 0 to
// MaxTime, and lengths within their limits.
func AppendRecord(dst []byte, seq uint64, rec *Record) []byte {
	dst = binary.AppendUvarint(dst, rec.flags())
	dst = appendTime(dst, rec.Time)
	dst = binary.AppendVarint(dst, rec.Step)
	if code := slices.Index(statusCodes[1:], rec.Status) + 1; code > 0 {
		dst = append(dst, byte(code))
	} else {
		dst = appendString(append(dst, 0), rec.Status)
	}
	dst = binary.AppendUvarint(dst, rec.Schema)
	switch {
	case rec.ID != "":
		dst = appendString(dst, rec.ID)
	case rec.UUID != [16]byte{}:
		dst = append(dst, rec.UUID[:]...)
	}
	switch {
	case rec.ParentDist != 0:
		dst = binary.AppendUvarint(dst, rec.ParentDist)
		dst = append(dst, rec.ParentHash[:]...)
	case rec.ParentID != "":
		dst = appendString(dst, rec.ParentID)
	}
	if rec.Replaced != 0 {
		dst = binary.AppendUvarint(dst, rec.Replaced)
	}
	if rec.Writes.Changes != 0 {
		dst = rec.Writes.append(dst)
	}
	if rec.Fuel != 0 {
		dst = binary.AppendUvarint(dst, rec.Fuel)
	}
	dst = binary.AppendUvarint(dst, uint64(len(rec.Entries)))
	next := uint64(0)
	for i := range rec.Entries {
		e := &rec.Entries[i]
		dst = appendEntry(dst, seq, next, e)
		next = e.Number + e.More + 1
	}
	return dst
}

func appendEntry(dst []byte, seq, next uint64, e *Entry) []byte {
	dst = binary.AppendUvarint(dst, e.Number-next)
	mode := byte(e.Mode)
	switch {
	case len(e.Parts) > 0:
		mode |= inParts
	case e.More > 0:
		mode = keepRun
	}
	dst = append(dst, mode)
	if e.More > 0 {
		dst = binary.AppendUvarint(dst, e.More)
	}
	if e.Mode != Full {
		dst = e.Path.append(dst, seq)
	}
	if e.Mode == Keep {
		return dst
	}
	dst = binary.AppendUvarint(dst, e.Size)
	dst = append(dst, e.Commitment[:]...)
	return appendPayload(dst, e.Payload, e.PartBytes, e.Parts)
}

func appendPayload(dst, payload []byte, partBytes uint64, parts []PartID) []byte {
	if len(parts) == 0 {
		return appendBytes(dst, payload)
	}
	dst = binary.AppendUvarint(dst, partBytes)
	dst = binary.AppendUvarint(dst, uint64(len(parts)))
	for i := range parts {
		dst = append(dst, parts[i][:]...)
	}
	return dst
}

// ParseRecord decodes the plaintext of the record at seq. Payloads alias b.
func ParseRecord(b []byte, seq uint64) (*Record, error) {
	rec := &Record{}
	if err := rec.parse(b, seq); err != nil {
		return nil, err
	}
	return rec, nil
}

// parse is ParseRecord that reuses the memory of rec: its slices, and equal strings.
func (rec *Record) parse(b []byte, seq uint64) error {
	r := reader{b: b}
	f := r.uvarint()
	if f&^flagsKnown != 0 || f&(flagCallerID|flagUUID) == flagCallerID|flagUUID || f&(flagParent|flagDangling) == flagParent|flagDangling ||
		f&(flagParent|flagWrites) == flagWrites || f&(flagParent|flagTook) == flagTook ||
		f&flagGhost == 0 && f&(flagHolds|flagAbridged) != 0 {
		r.fail("unknown flags %#x", f)
	}
	*rec = Record{Ghost: f&flagGhost != 0, Holds: f&flagHolds != 0, Abridged: f&flagAbridged != 0, Took: f&flagTook != 0, Time: r.time(), Step: r.svarint(),
		Status: r.status(rec.Status), Schema: r.uvarint(), ID: rec.ID, ParentID: rec.ParentID, Entries: rec.Entries}
	rec.ID = r.present(f&flagCallerID != 0, "id", rec.ID)
	if f&flagUUID != 0 {
		if copy(rec.UUID[:], r.take(16)); rec.UUID == [16]byte{} {
			r.fail("id is zero")
		}
	}
	if f&flagParent != 0 {
		rec.ParentDist = r.distance(seq)
		rec.ParentHash = r.hash()
	}
	rec.ParentID = r.present(f&flagDangling != 0, "parent id", rec.ParentID)
	if f&flagReplaced != 0 {
		rec.Replaced = r.distance(seq)
	}
	if f&flagWrites != 0 {
		rec.Writes = r.ledger()
	}
	if f&flagFuel != 0 {
		if rec.Fuel = r.uvarint(); rec.Fuel == 0 {
			r.fail("fuel is zero")
		}
	}
	return rec.parseEntries(&r, seq)
}

func (rec *Record) parseEntries(r *reader, seq uint64) error {
	n := r.count("entries", MaxChannels+1)
	if n == 0 || n > uint64(len(r.b))/minEntry {
		r.fail("%d entries in %d bytes", n, len(r.b))
		return r.err
	}
	if uint64(cap(rec.Entries)) < n {
		rec.Entries = make([]Entry, n)
	}
	rec.Entries = rec.Entries[:n]
	next, channels := uint64(0), n
	for i := range rec.Entries {
		e := &rec.Entries[i]
		r.entry(e, seq, next)
		if i > 0 && e.Number == next && e.Mode == Keep && rec.Entries[i-1].Mode == Keep && slices.Equal(e.Path, rec.Entries[i-1].Path) {
			r.fail("channel %d has the same path as the one before it", e.Number)
		}
		next = e.Number + e.More + 1
		if channels += e.More; channels > MaxChannels+1 {
			r.fail("too many channels: at most %d are allowed", MaxChannels)
		}
	}
	if rec.Entries[0].Number != 0 {
		r.fail("no attributes")
	}
	return r.done()
}

// CheckRecord checks the plaintext of a record before it is stored: it is an error if ParseRecord
// refuses it, or reads another record than rec. It usually allocates nothing.
func CheckRecord(b []byte, seq uint64, rec *Record) error {
	got := records.Get().(*Record)
	defer records.Put(got)
	got.Status, got.ID, got.ParentID = rec.Status, rec.ID, rec.ParentID
	if err := got.parse(b, seq); err != nil {
		return err
	}
	if !got.equal(rec) {
		return malformed("it decodes to a different record")
	}
	return nil
}

// records is the pool of records that CheckRecord parses into.
var records = sync.Pool{New: func() any { return &Record{} }}

func (rec *Record) equal(o *Record) bool {
	if len(rec.Entries) != len(o.Entries) {
		return false
	}
	for i := range rec.Entries {
		if !rec.Entries[i].equal(&o.Entries[i]) {
			return false
		}
	}
	return rec.Ghost == o.Ghost && rec.Holds == o.Holds && rec.Abridged == o.Abridged && rec.Took == o.Took && rec.Time == o.Time && rec.Step == o.Step && rec.Status == o.Status && rec.Schema == o.Schema &&
		rec.ID == o.ID && rec.UUID == o.UUID &&
		rec.ParentDist == o.ParentDist && rec.ParentID == o.ParentID && rec.ParentHash == o.ParentHash && rec.Replaced == o.Replaced &&
		rec.Writes == o.Writes && rec.Fuel == o.Fuel
}

func (e *Entry) equal(o *Entry) bool {
	return e.Number == o.Number && e.More == o.More && e.Mode == o.Mode && slices.Equal(e.Path, o.Path) && e.Size == o.Size && e.Commitment == o.Commitment &&
		bytes.Equal(e.Payload, o.Payload) && e.PartBytes == o.PartBytes && slices.Equal(e.Parts, o.Parts)
}

// present reads a string if on is set; it must not be empty.
func (r *reader) present(on bool, what, have string) string {
	if !on {
		return ""
	}
	s := r.strLike(what, have)
	if s == "" {
		r.fail("%s is empty", what)
	}
	return s
}

func (r *reader) nonEmpty(what string) string { return r.present(true, what, "") }

func (r *reader) distance(seq uint64) uint64 {
	d := r.uvarint()
	if d == 0 || d >= seq {
		r.fail("distance %d at seq %d", d, seq)
		return 0
	}
	return d
}

func (r *reader) status(have string) string {
	code := int(r.byte())
	if code >= len(statusCodes) {
		r.fail("unknown status %d", code)
		return ""
	}
	if code > 0 {
		return statusCodes[code]
	}
	s := r.strLike("status", have)
	if s == "" || slices.Contains(statusCodes[:], s) {
		r.fail("status has a code")
	}
	return s
}

// entry reads an entry into e, reusing its memory.
func (r *reader) entry(e *Entry, seq, next uint64) {
	*e = Entry{Path: e.Path[:0], Parts: e.Parts[:0]}
	if e.Number = next + r.count("channel number", MaxSeq); e.Number > MaxSeq {
		r.fail("channel number is %d, at most %d are allowed", e.Number, MaxSeq)
	}
	mode := r.byte()
	switch mode {
	case keepRun:
		e.Mode = Keep
		if e.More = r.count("channels that are kept", MaxChannels); e.More == 0 || e.Number+e.More > MaxSeq {
			r.fail("%d channels are kept from number %d on", e.More, e.Number)
		}
	case byte(Keep), byte(ByDelta), byte(Full), byte(ByDelta) | inParts, byte(Full) | inParts:
		e.Mode = Mode(mode &^ inParts)
	default:
		r.fail("unknown mode %d", mode)
	}
	if e.Mode != Full {
		if e.Path = r.path(e.Path, seq); len(e.Path) == 0 {
			r.fail("no path")
		}
	}
	if err := e.CheckPath(); err != nil {
		r.fail("path is too long: %v", err)
	}
	if e.Mode == Keep {
		return
	}
	e.Size = r.count("size of a channel", MaxChannel)
	e.Commitment = r.hash()
	e.Payload, e.PartBytes, e.Parts = r.payload(e.Parts, mode&inParts != 0)
}

// payload reads a payload, reusing ids for the ids of its parts.
func (r *reader) payload(ids []PartID, parts bool) (inline []byte, size uint64, _ []PartID) {
	if !parts {
		inline = r.bytes("payload", uint64(MaxInline-r.inline))
		r.inline += len(inline)
		return inline, 0, ids
	}
	size = r.count("payload", MaxChannel+MaxPart)
	n := r.count("parts", maxParts)
	if n == 0 || n*16 > uint64(len(r.b)) || size > n*MaxPart || size <= (n-1)*MaxPart {
		r.fail("%d parts for %d bytes", n, size)
		return nil, 0, nil
	}
	for range n {
		ids = append(ids, PartID(r.take(16)))
	}
	return nil, size, ids
}
