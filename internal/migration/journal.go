package migration

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
	"github.com/ckptd/ckptd/internal/durable"
)

// A journal is a file of frames: the length of a sealed envelope in 4 bytes, big endian, and the
// envelope, whose name has the number of the frame. docs/format.md §19 has the file. A torn frame
// at its end was never acted on.

// frame is an entry of a journal. One of its members is set.
type frame struct {
	Begin    *begin    `json:"begin,omitempty"`   // the first frame
	Intents  []intent  `json:"intents,omitempty"` // is about to migrate these
	Outcomes []outcome `json:"outcomes,omitzero"` // did, and all of the last intents are done with
	Undone   []int     `json:"undone,omitempty"`  // the frames of outcomes that were undone
	Count    int       `json:"count,omitempty"`   // with Undone: the number of heads
	Left     []kept    `json:"left,omitempty"`    // with Undone: states that could not be undone
	State    *change   `json:"state,omitempty"`
}

// begin describes a job.
type begin struct {
	Version int               `json:"version"`
	Spec    Spec              `json:"spec"`
	Digests map[string][]byte `json:"digests"` // of the sets, by kind
	To      map[string]uint64 `json:"to"`      // version, by kind
	Created time.Time         `json:"created"`
}

const journalVersion = 1

// intent is a lineage whose heads are to be migrated.
type intent struct {
	User      string   `json:"user"`
	Thread    string   `json:"thread"`
	Namespace string   `json:"namespace,omitempty"`
	To        uint64   `json:"to,omitempty"`   // version of a history
	Seqs      []uint64 `json:"seqs,omitempty"` // of the heads as they were seen, the oldest first; none for a whole history
}

// outcome is a head, or a history, that was migrated.
type outcome struct {
	User      string `json:"user"`
	Thread    string `json:"thread"`
	Namespace string `json:"namespace,omitempty"`
	Old       uint64 `json:"old,omitempty"` // seqs; none for a whole history
	New       uint64 `json:"new,omitempty"`
	Hash      []byte `json:"hash,omitempty"` // of the new one
	Failed    bool   `json:"failed,omitempty"`
}

// kept is a migrated head that could not be taken back.
type kept struct {
	User      string `json:"user"`
	Thread    string `json:"thread"`
	Namespace string `json:"namespace,omitempty"`
	New       uint64 `json:"new,omitempty"`
	Reason    string `json:"reason"`
}

// change is a change of a job's state.
type change struct {
	State State     `json:"state"`
	Time  time.Time `json:"time"`
}

// journal is an open journal.
type journal struct {
	store upkeep.Store
	id    string
	file  *os.File
	n     uint64 // frames
	size  int64  // bytes that hold them
}

// maxFrame bounds a frame in bytes.
const maxFrame = 64 << 20

func (j *Jobs) path(id string) string { return filepath.Join(j.dir, id+".job") }

// create begins a journal, durably.
func (j *Jobs) create(id string, b *begin) (*journal, error) {
	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(j.path(id), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	l := &journal{store: j.store.Upkeep(), id: id, file: f}
	if err = l.append(&frame{Begin: b}); err == nil {
		err = l.file.Sync()
	}
	if err == nil {
		err = errors.Join(durable.SyncDir(j.dir), durable.SyncDir(filepath.Dir(j.dir)))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return l, nil
}

// open opens a journal and calls see for all of its frames. With repair a torn end is removed, and
// frames can be appended.
func (j *Jobs) open(id string, repair bool, see func(at int64, f *frame) error) (*journal, error) {
	file, err := durable.Open(j.path(id), os.O_RDWR)
	if err != nil {
		return nil, err
	}
	l := &journal{store: j.store.Upkeep(), id: id, file: file}
	if err = l.scan(see); err == nil && repair {
		if err = file.Truncate(l.size); err == nil {
			err = file.Sync()
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return l, nil
}

func (l *journal) name(n uint64) string { return fmt.Sprintf("migrations/jobs/%s/%d", l.id, n) }

// append writes a frame at the end. It is durable with the next Sync.
func (l *journal) append(f *frame) error {
	plain, err := json.Marshal(f)
	if err != nil {
		return err
	}
	framed, err := l.store.SealSidecar(make([]byte, 4, 4+len(plain)+64), l.name(l.n), plain)
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint32(framed, uint32(len(framed)-4))
	if _, err := l.file.WriteAt(framed, l.size); err != nil {
		return err
	}
	l.size += int64(len(framed))
	l.n++
	return nil
}

// commit appends a frame, durably.
func (l *journal) commit(f *frame) error {
	err := l.append(f)
	if err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("writing the journal of job %s: %w", l.id, err)
	}
	return nil
}

// at returns the frame with a number, at a position.
func (l *journal) at(n int, place int64) (*frame, error) {
	in := io.NewSectionReader(l.file, place, 1<<62-place)
	var length [4]byte
	if _, err := io.ReadFull(in, length[:]); err != nil {
		return nil, err
	}
	sealed := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(in, sealed); err != nil {
		return nil, err
	}
	plain, err := l.store.OpenSidecar(l.name(uint64(n)), sealed)
	if err != nil {
		return nil, err
	}
	f := &frame{}
	return f, json.Unmarshal(plain, f)
}

// scan reads the frames from the beginning, up to the end or to a torn frame.
func (l *journal) scan(see func(at int64, f *frame) error) error {
	in := io.NewSectionReader(l.file, 0, 1<<62)
	var sealed []byte
	for {
		var length [4]byte
		if _, err := io.ReadFull(in, length[:]); isEnd(err) {
			return nil
		} else if err != nil {
			return err
		}
		n := binary.BigEndian.Uint32(length[:])
		if n > maxFrame {
			return l.damaged("a frame is too long", nil)
		}
		if cap(sealed) < int(n) {
			sealed = make([]byte, n)
		}
		sealed = sealed[:n]
		if _, err := io.ReadFull(in, sealed); isEnd(err) && n > 0 {
			return nil // torn
		} else if err != nil && n > 0 {
			return err
		}
		plain, err := l.store.OpenSidecar(l.name(l.n), sealed)
		if err != nil {
			if torn, readErr := onlyZeros(in); readErr != nil || torn && l.n > 0 {
				return readErr // the last frame: not all of its pages came to the disk
			}
			return l.damaged("a frame does not open", err)
		}
		f := &frame{}
		d := json.NewDecoder(bytes.NewReader(plain))
		d.DisallowUnknownFields()
		if err := d.Decode(f); err != nil {
			return l.damaged("a frame has the wrong content", err)
		}
		if err := see(l.size, f); err != nil {
			return err
		}
		l.n++
		l.size += 4 + int64(n)
	}
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// onlyZeros reports whether r has nothing but zeros up to its end.
func onlyZeros(r io.Reader) (bool, error) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if len(bytes.Trim(buf[:n], "\x00")) > 0 {
			return false, nil
		}
		if errors.Is(err, io.EOF) {
			return true, nil
		} else if err != nil {
			return false, err
		}
	}
}

func (l *journal) damaged(reason string, err error) error {
	return &engine.CorruptError{Record: fmt.Sprintf("journal of migration job %s, frame %d", l.id, l.n), Reason: reason, Err: err}
}

func (l *journal) close() error { return l.file.Close() }
