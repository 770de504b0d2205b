package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/ckptd/ckptd/crypto"
)

// A save that is repeated because its answer was lost gets the same answer again. Comparing
// contents would not do: its parent may have been removed or replaced, labels set, the history
// migrated, or the hooks changed. So the save is recognized by the fingerprint of the draft that
// the caller submitted, which is stored in the entry of its id.

// fingerprint identifies a draft as submitted (docs/format.md §11); 0 for one without an id. whole
// returns the commitment to a whole value of the draft. buf is scratch.
func fingerprint(buf []byte, key *[32]byte, d *Draft, whole func(*Change) [32]byte) ([]byte, uint64) {
	if d.ID == "" {
		return buf, 0
	}
	w := fieldList(append(append(buf[:0], "ckptd/submitted/2"...), key[:]...))
	w.number(uint64(d.Step))
	w.text(d.status())
	w.number(d.SchemaVersion)
	if d.Keep && d.NoRun {
		w.number(noRun)
	} else {
		w.text(d.RunID)
	}
	w.text(d.Branch)
	w.text(d.Kind)
	w.flag(d.Root)
	w.text(d.Parent)
	w.flag(d.Keep)
	w.flag(d.Labels != nil)
	w.number(uint64(len(d.Labels)))
	if len(d.Labels) > 0 {
		for _, k := range sorted(d.Labels) {
			w.text(k)
			w.text(d.Labels[k])
		}
	}
	w.flag(d.Meta != nil)
	w.bytes(d.Meta)
	w.flag(d.Blobs != nil)
	blobs := d.Blobs
	if len(blobs) > 1 {
		blobs = slices.Clone(blobs)
		slices.SortFunc(blobs, func(a, b BlobID) int { return bytes.Compare(a[:], b[:]) })
		blobs = slices.Compact(blobs)
	}
	w.number(uint64(len(blobs)))
	for i := range blobs {
		w = append(w, blobs[i][:]...)
	}
	w.changes(d.Channels, whole)
	if len(d.Delta) > 0 {
		names := slices.Sorted(slices.Values(d.Delta))
		names = slices.Compact(names)
		w.number(uint64(len(names)))
		for _, name := range names {
			w.text(name)
		}
	}
	sum := sha256.Sum256(w)
	return w, max(1, binary.BigEndian.Uint64(sum[:]))
}

// fingerprint is that of the draft that the caller gave to this save, whose outcome is t.
func (w *saving) fingerprint(given *Draft, t *checkpointState) (mark uint64) {
	p := w.hooked
	switch {
	case w.transfer != nil:
		return 0 // no save of a caller's makes a migrated head
	case p != nil && p.onlyLabels:
		return w.savedFingerprint // the rest of the checkpoint is the same
	case p != nil:
		return p.fingerprint
	}
	w.plain, mark = fingerprint(w.plain, &w.u.CommitKey, given, func(c *Change) [32]byte { return t.commitOf(c.Name) })
	return mark
}

// isRepeat reports whether d, or the draft that hooks made it from, is the one that the checkpoint
// with its id was saved from.
func (w *saving) isRepeat(d *Draft) bool {
	switch p := w.hooked; {
	case w.transfer != nil || p != nil && p.onlyLabels:
		return false
	case p != nil:
		return p.fingerprint == w.savedFingerprint
	}
	return w.u.fingerprint(d) == w.savedFingerprint
}

// commitOf is the commitment of a channel of t.
func (t *checkpointState) commitOf(name string) [32]byte {
	if i := t.channelIndex(name); i >= 0 {
		return t.chans[i].commit
	}
	return noHash
}

// fingerprint is that of a draft as it came from a caller.
func (u *user) fingerprint(d *Draft) uint64 {
	_, mark := fingerprint(nil, &u.CommitKey, d, func(c *Change) [32]byte { return crypto.Commit(&u.CommitKey, c.Data) })
	return mark
}

// noRun replaces the run id in the fingerprint of a draft that keeps all but the parent's run.
const noRun = math.MaxUint64

// noPrefix replaces the prefix of a splice in the fingerprint if there is a list of splices.
const noPrefix = math.MaxUint64

// noHash stands for a missing commitment: none is zero.
var noHash [32]byte

// fieldList encodes a list of fields such that different lists have different bytes.
type fieldList []byte

func (w *fieldList) number(n uint64) { *w = binary.BigEndian.AppendUint64(*w, n) }

func (w *fieldList) text(s string) {
	w.number(uint64(len(s)))
	*w = append(*w, s...)
}

func (w *fieldList) bytes(p []byte) {
	w.number(uint64(len(p)))
	*w = append(*w, p...)
}

func (w *fieldList) flag(on bool) {
	b := byte(0)
	if on {
		b = 1
	}
	*w = append(*w, b)
}

// changes lists changes in order of name.
func (w *fieldList) changes(changes []Change, whole func(*Change) [32]byte) {
	byName := func(a, b Change) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(changes, byName) {
		changes = slices.Clone(changes)
		slices.SortFunc(changes, byName)
	}
	w.number(uint64(len(changes)))
	for i := range changes {
		c := &changes[i]
		w.text(c.Name)
		w.text(c.Type)
		w.flag(c.Remove)
		w.number(uint64(c.Base))
		switch {
		case c.Remove:
		case c.Base == 0:
			sum := whole(c)
			*w = append(*w, sum[:]...)
		case c.Splices != nil:
			w.number(noPrefix)
			w.number(uint64(len(c.Splices)))
			for i := range c.Splices {
				w.number(uint64(c.Splices[i].From))
				w.number(uint64(c.Splices[i].To))
				w.bytes(c.Splices[i].Data)
			}
		default:
			w.number(uint64(c.Prefix))
			w.number(uint64(c.Suffix))
			w.bytes(c.Data)
		}
	}
}
