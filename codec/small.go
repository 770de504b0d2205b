package codec

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// The records of docs/format.md §7, §9, §12 and §13. Append and Parse are inverses.

// Stub replaces a range of removed checkpoints; its key has the seq of the last.
type Stub struct {
	Count     uint64
	FirstDist uint64 // seq of the stub − seq of the first
	Hash      [32]byte
	ID        string // of the last
}

func AppendStub(dst []byte, s *Stub) []byte {
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, s.Count), s.FirstDist)
	return appendString(append(dst, s.Hash[:]...), s.ID)
}

func ParseStub(b []byte, seq uint64) (*Stub, error) {
	r := reader{b: b}
	if seq == 0 || seq > MaxSeq {
		r.fail("stub at seq %d", seq)
		return nil, r.err
	}
	s := &Stub{r.uvarint(), r.count("distance", seq-1), r.hash(), r.nonEmpty("id")}
	if s.Count == 0 || s.Count > s.FirstDist+1 {
		r.fail("%d records in a range of %d", s.Count, s.FirstDist+1)
	}
	return finish(&r, s)
}

// AppendPart appends a part created in an hour since 1970.
func AppendPart(dst []byte, hour uint64, data []byte) []byte {
	return append(binary.AppendUvarint(dst, hour), data...)
}

// ParsePart returns the data of a part, which aliases b.
func ParsePart(b []byte) (hour uint64, data []byte, err error) {
	r := reader{b: b}
	hour = r.count("hour", maxHour)
	if len(r.b) > MaxPart {
		r.fail("part of %d bytes", len(r.b))
	}
	return hour, r.b, r.err
}

// Blob is the manifest of a blob.
type Blob struct {
	Hour  uint64 // of its creation, since 1970
	Size  uint64
	Parts []PartID
}

// MaxBlobParts bounds a blob to 64 GiB.
const MaxBlobParts = 1 << 18

func AppendBlob(dst []byte, m *Blob) []byte {
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, m.Hour), m.Size)
	dst = binary.AppendUvarint(dst, uint64(len(m.Parts)))
	for i := range m.Parts {
		dst = append(dst, m.Parts[i][:]...)
	}
	return dst
}

func ParseBlob(b []byte) (*Blob, error) {
	r := reader{b: b}
	m := &Blob{Hour: r.count("hour", maxHour), Size: r.uvarint()}
	n := r.count("parts", MaxBlobParts)
	if n*16 != uint64(len(r.b)) || m.Size > n*MaxPart || n > 0 && m.Size <= (n-1)*MaxPart {
		r.fail("%d parts for %d bytes", n, m.Size)
		return nil, r.err
	}
	m.Parts = make([]PartID, n)
	for i := range m.Parts {
		copy(m.Parts[i][:], r.take(16))
	}
	return finish(&r, m)
}

// IndexEntry is the value of an index entry.
type IndexEntry struct {
	Time int64 // Unix milliseconds
	Step int64
}

func AppendIndexEntry(dst []byte, e IndexEntry) []byte {
	return binary.AppendVarint(appendTime(dst, e.Time), e.Step)
}

func ParseIndexEntry(b []byte) (IndexEntry, error) {
	r := reader{b: b}
	e := IndexEntry{r.time(), r.svarint()}
	return finish(&r, e)
}

// StoreInfo is the record of a store.
type StoreInfo struct {
	ID      [16]byte
	Created int64 // Unix milliseconds
}

func AppendStoreInfo(dst []byte, s *StoreInfo) []byte {
	dst = append(append(dst, recordVersion), s.ID[:]...)
	return binary.AppendUvarint(dst, uint64(s.Created))
}

func ParseStoreInfo(b []byte) (*StoreInfo, error) {
	r := reader{b: b}
	r.version()
	s := &StoreInfo{}
	copy(s.ID[:], r.take(16))
	s.Created = r.millis("creation")
	return finish(&r, s)
}

// Retention is a tenant's retention policy.
type Retention struct {
	KeepLast     uint64
	OlderThan    uint64 // milliseconds
	KeepLabelled bool
}

func AppendRetention(dst []byte, p *Retention) []byte {
	dst = binary.AppendUvarint(append(dst, recordVersion), p.KeepLast)
	return append(binary.AppendUvarint(dst, p.OlderThan), boolByte(p.KeepLabelled))
}

func ParseRetention(b []byte) (*Retention, error) {
	r := reader{b: b}
	r.version()
	p := &Retention{KeepLast: r.uvarint(), OlderThan: r.count("age", MaxTime), KeepLabelled: r.bool()}
	return finish(&r, p)
}

// Thread is the record of a thread.
type Thread struct {
	ID         string
	Epoch      uint64
	Generation uint64
	Deleted    bool
	Created    int64 // Unix milliseconds
	TTL        int64 // milliseconds, 0: none
	Expires    int64 // Unix milliseconds, 0: never

	Kept uint64 // an older epoch that is kept, 0: none
	Used uint64 // an epoch greater than Epoch that was in use before; 0: none

	Active int64 // Unix milliseconds in its activity entry, 0: it has none

	Cuts    uint64 // deletions of namespaces since the thread began
	LastCut int64  // Unix milliseconds of the last of them
	Cutting bool   // it is unfinished
}

// MaxCuts bounds the deletions of namespaces in a thread: the number of a life, plus 1, takes 32
// bits of a generation.
const MaxCuts = 1<<32 - 2

const (
	flagDeleted = 1
	flagKept    = 2
	flagUsed    = 4
	flagActive  = 8
	flagCuts    = 16
	flagCutting = 32
)

func AppendThread(dst []byte, t *Thread) []byte {
	dst = appendString(append(dst, recordVersion), t.ID)
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, t.Epoch), t.Generation)
	flags := boolByte(t.Deleted)
	if t.Kept != 0 {
		flags |= flagKept
	}
	if t.Used != 0 {
		flags |= flagUsed
	}
	if t.Active != 0 {
		flags |= flagActive
	}
	if t.Cuts != 0 {
		flags |= flagCuts
	}
	if t.Cutting {
		flags |= flagCutting
	}
	dst = append(dst, flags)
	for _, v := range [...]int64{t.Created, t.TTL, t.Expires} {
		dst = binary.AppendUvarint(dst, uint64(v))
	}
	for _, v := range [...]uint64{t.Kept, t.Used, uint64(t.Active)} {
		if v != 0 {
			dst = binary.AppendUvarint(dst, v)
		}
	}
	if t.Cuts != 0 {
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, t.Cuts), uint64(t.LastCut))
	}
	return dst
}

func ParseThread(b []byte) (*Thread, error) {
	r := reader{b: b}
	r.version()
	t := &Thread{ID: r.nonEmpty("thread id"), Epoch: r.count("epoch", 1<<32-1), Generation: r.uvarint()}
	flags := r.byte()
	const all = flagDeleted | flagKept | flagUsed | flagActive | flagCuts | flagCutting
	if flags > all || flags&flagDeleted != 0 && flags&^(flagDeleted|flagUsed) != 0 || flags&(flagCuts|flagCutting) == flagCutting {
		r.fail("flags are %#x", flags)
	}
	t.Deleted = flags&flagDeleted != 0
	t.Created, t.TTL, t.Expires = r.millis("creation"), r.millis("time to live"), r.millis("expiry")
	if flags&flagKept != 0 {
		if t.Kept = r.count("kept epoch", 1<<32-1); t.Kept == 0 || t.Kept >= t.Epoch {
			r.fail("kept epoch %d of a thread in epoch %d", t.Kept, t.Epoch)
		}
	}
	if flags&flagUsed != 0 {
		if t.Used = r.count("used epoch", 1<<32-1); t.Used <= t.Epoch {
			r.fail("used epoch %d of a thread in epoch %d", t.Used, t.Epoch)
		}
	}
	if flags&flagActive != 0 {
		if t.Active = r.millis("activity"); t.Active == 0 {
			r.fail("active since 0")
		}
	}
	if flags&flagCuts != 0 {
		if t.Cuts = r.count("deletions of namespaces", MaxCuts); t.Cuts == 0 {
			r.fail("0 deletions of namespaces")
		}
		t.LastCut, t.Cutting = r.millis("deletion"), flags&flagCutting != 0
	}
	return finish(&r, t)
}

// IDEntry finds the checkpoint of a caller's id.
type IDEntry struct {
	Seq       uint64
	ID        string
	Submitted uint64 // fingerprint of the draft as submitted; 0: not known
}

func AppendIDEntry(dst []byte, e *IDEntry) []byte {
	version := byte(recordVersion)
	if e.Submitted != 0 {
		version = extendedVersion
	}
	dst = appendString(binary.AppendUvarint(append(dst, version), e.Seq), e.ID)
	if e.Submitted != 0 {
		dst = binary.BigEndian.AppendUint64(dst, e.Submitted)
	}
	return dst
}

func ParseIDEntry(b []byte) (*IDEntry, error) {
	r := reader{b: b}
	version := r.versions(recordVersion, extendedVersion)
	e := &IDEntry{Seq: r.seq(), ID: r.nonEmpty("id")}
	if version == extendedVersion {
		var mark [8]byte
		copy(mark[:], r.take(8))
		if e.Submitted = binary.BigEndian.Uint64(mark[:]); e.Submitted == 0 {
			r.fail("fingerprint is zero")
		}
	}
	return finish(&r, e)
}

// Branch is a named head.
type Branch struct {
	Name string
	Head uint64 // seq
}

func AppendBranch(dst []byte, h *Branch) []byte {
	return binary.AppendUvarint(appendString(append(dst, recordVersion), h.Name), h.Head)
}

func ParseBranch(b []byte) (*Branch, error) {
	r := reader{b: b}
	r.version()
	h := &Branch{r.nonEmpty("branch"), r.seq()}
	return finish(&r, h)
}

// Write is one result of a task.
type Write struct {
	Index         int64
	Channel, Type string
	Size          uint64 // bytes of the value; Payload or Parts hold its block
	Payload       []byte
	PartBytes     uint64
	Parts         []PartID
}

// Writes are the pending writes of one task.
type Writes struct {
	Checkpoint, Task, Path string
	Writes                 []Write // indexes increasing
}

// Equal reports whether w and o are the same writes.
func (w *Writes) Equal(o *Writes) bool {
	return w.Checkpoint == o.Checkpoint && w.Task == o.Task && w.Path == o.Path && slices.EqualFunc(w.Writes, o.Writes, func(a, b Write) bool {
		return a.Index == b.Index && a.Channel == b.Channel && a.Type == b.Type && a.Size == b.Size && bytes.Equal(a.Payload, b.Payload) &&
			a.PartBytes == b.PartBytes && slices.Equal(a.Parts, b.Parts)
	})
}

// MaxWrites bounds the writes of one task.
const MaxWrites = 4096

func AppendWrites(dst []byte, w *Writes) []byte {
	dst = append(dst, recordVersion)
	for _, s := range [...]string{w.Checkpoint, w.Task, w.Path} {
		dst = appendString(dst, s)
	}
	dst = binary.AppendUvarint(dst, uint64(len(w.Writes)))
	for i := range w.Writes {
		v := &w.Writes[i]
		dst = binary.AppendVarint(dst, v.Index)
		dst = appendString(appendString(dst, v.Channel), v.Type)
		dst = binary.AppendUvarint(dst, v.Size)
		dst = append(dst, boolByte(len(v.Parts) > 0))
		dst = appendPayload(dst, v.Payload, v.PartBytes, v.Parts)
	}
	return dst
}

// ParseWrites decodes b. Payloads alias it.
func ParseWrites(b []byte) (*Writes, error) {
	r := reader{b: b}
	r.version()
	w := &Writes{Checkpoint: r.nonEmpty("checkpoint id"), Task: r.str("task"), Path: r.longStr("task path")}
	for i := range r.count("writes", MaxWrites) {
		v := Write{Index: r.svarint(), Channel: r.str("channel"), Type: r.str("type"), Size: r.count("size", MaxChannel)}
		v.Payload, v.PartBytes, v.Parts = r.payload(nil, r.bool())
		if i > 0 && v.Index <= w.Writes[i-1].Index {
			r.fail("writes out of order")
		}
		if r.err != nil {
			return nil, r.err
		}
		w.Writes = append(w.Writes, v)
	}
	return finish(&r, w)
}

// Ledger counts and sums up the pending writes of a checkpoint.
type Ledger struct {
	Changes uint64   // how often a write was put
	Sum     [32]byte // over the current writes of all tasks
}

func (l *Ledger) append(dst []byte) []byte {
	return append(binary.AppendUvarint(dst, l.Changes), l.Sum[:]...)
}

func (r *reader) ledger() Ledger {
	l := Ledger{r.uvarint(), r.hash()}
	if l.Changes == 0 {
		r.fail("a ledger without changes")
	}
	return l
}

// WritesLedger is a ledger as stored.
type WritesLedger struct {
	Checkpoint string
	Ledger
}

func AppendWritesLedger(dst []byte, l *WritesLedger) []byte {
	return l.Ledger.append(appendString(append(dst, recordVersion), l.Checkpoint))
}

func ParseWritesLedger(b []byte) (*WritesLedger, error) {
	r := reader{b: b}
	r.version()
	l := &WritesLedger{r.nonEmpty("checkpoint id"), r.ledger()}
	return finish(&r, l)
}

// Namespace is the record of a namespace.
type Namespace struct {
	Name       string
	Life       uint64 // the thread's Cuts when it began
	CalledFrom string // id of the checkpoint that it hangs on; "": none
	Deleted    bool   // its records are being removed
}

const (
	flagLife   = 2
	flagCalled = 4
)

func AppendNamespace(dst []byte, n *Namespace) []byte {
	flags := boolByte(n.Deleted)
	if n.Life != 0 {
		flags |= flagLife
	}
	if n.CalledFrom != "" {
		flags |= flagCalled
	}
	if flags == 0 {
		return AppendName(dst, n.Name)
	}
	dst = append(appendString(append(dst, extendedVersion), n.Name), flags)
	if n.Life != 0 {
		dst = binary.AppendUvarint(dst, n.Life)
	}
	if n.CalledFrom != "" {
		dst = appendString(dst, n.CalledFrom)
	}
	return dst
}

func ParseNamespace(b []byte) (*Namespace, error) {
	r := reader{b: b}
	version := r.versions(recordVersion, extendedVersion)
	n := &Namespace{Name: r.longStr("namespace")}
	if n.Name == "" {
		r.fail("namespace is empty")
	}
	if version == extendedVersion {
		flags := r.byte()
		if flags == 0 || flags > flagDeleted|flagLife|flagCalled {
			r.fail("flags are %#x", flags)
		}
		n.Deleted = flags&flagDeleted != 0
		if flags&flagLife != 0 {
			if n.Life = r.count("life", MaxCuts); n.Life == 0 {
				r.fail("life 0")
			}
		}
		if flags&flagCalled != 0 {
			n.CalledFrom = r.nonEmpty("checkpoint id")
		}
	}
	return finish(&r, n)
}

// AppendName appends a name: the record of an activity entry.
func AppendName(dst []byte, name string) []byte {
	return appendString(append(dst, recordVersion), name)
}

// ParseName is the inverse of AppendName for the id of a thread.
func ParseName(b []byte) (string, error) {
	r := reader{b: b}
	r.version()
	s := r.nonEmpty("name")
	return finish(&r, s)
}

func (r *reader) bool() bool {
	b := r.byte()
	if b > 1 {
		r.fail("flag is %d", b)
	}
	return b == 1
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}
