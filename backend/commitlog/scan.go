package commitlog

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// FrameRef is a frame that was found whole.
type FrameRef struct {
	Pos     Position
	Before  [hashSize]byte // hash of the frame before
	segment *segment
	at      int64
	length  int // of the mutations
}

// Tail is the content of the segments after a position.
type Tail struct {
	// Frames are the whole ones of the incarnation, in order of n. There may be gaps.
	Frames []FrameRef
	// Doubt: in the place of a missing frame are bytes that may be its remains: damaged, cut off,
	// or never finished.
	Doubt bool
	// Damaged: there is damage, whether a frame is missing or not.
	Damaged bool
	// Notes describe the findings, for people.
	Notes []string
}

// Incarnation is that of the newest segment, for a log whose anchor is damaged.
func (l *Log) Incarnation() (id ID, ok bool) {
	for _, s := range slices.Backward(l.old) {
		if h, err := l.header(s); err == nil {
			return h.incarnation, true
		}
	}
	return id, false
}

// Scan finds the frames after a position. It looks for frames at every block that is not part of
// one, whatever the blocks before it contain.
func (l *Log) Scan(after Position) (*Tail, error) {
	t := &Tail{}
	s := scanner{chain: newChain(l.opts.Store, after.Incarnation), after: after, tail: t, last: after}
	for i, seg := range l.old {
		if l.settled(i, after) {
			continue
		}
		if err := s.segment(l, seg); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(t.Frames, func(a, b FrameRef) int { return cmp.Compare(a.Pos.N, b.Pos.N) })
	for _, n := range s.doubts {
		_, found := slices.BinarySearchFunc(t.Frames, n, func(f FrameRef, n uint64) int { return cmp.Compare(f.Pos.N, n) })
		t.Doubt = t.Doubt || !found
	}
	return t, nil
}

// settled says that a segment ends before or at a position, which the next one's header tells.
func (l *Log) settled(i int, after Position) bool {
	if i+1 == len(l.old) {
		return false
	}
	h, err := l.header(l.old[i+1])
	return err == nil && h.incarnation == after.Incarnation && h.first <= after.N+1
}

// scanner goes through segments in order.
type scanner struct {
	chain *chain
	after Position
	tail  *Tail
	last  Position // of the newest frame that was found
	buf   []byte

	doubts []uint64 // the frames in whose places something else stands
}

func (s *scanner) segment(l *Log, seg *segment) error {
	name := segmentName(seg.number)
	h, err := l.header(seg)
	if err != nil && !errors.Is(err, ErrMalformed) {
		return err
	}
	begun := err == nil
	f, err := l.fs.Open(name)
	if err != nil {
		return err
	}
	s.buf, err = readAll(f, s.buf)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if found := s.frames(name, seg); found && !begun {
		s.damaged("the header of %s is damaged", name)
	}
	if begun && h.size != int64(len(s.buf)) {
		s.damaged("%s has %d of %d bytes", name, len(s.buf), h.size)
		s.doubts = append(s.doubts, s.last.N+1)
	}
	return nil
}

// frames finds the frames of the segment in buf, and says whether there are any.
func (s *scanner) frames(name string, seg *segment) (found bool) {
	inside := true // the frame before ended here, or the segment begins here
	for at := headerSize; at < len(s.buf); {
		p, before, mutations, err := s.chain.parse(s.buf[at:])
		if err != nil || p.N <= s.after.N {
			if inside && s.mayBeNext(s.buf[at:]) {
				s.note("the frame at byte %d of %s is damaged or unfinished", at, name)
				s.doubts = append(s.doubts, s.last.N+1)
			}
			inside = false
			at += block
			if err == nil {
				at += int(blocks(len(mutations))) - block
				inside = true
			}
			continue
		}
		s.tail.Frames = append(s.tail.Frames, FrameRef{p, before, seg, int64(at), len(mutations)})
		s.last, found, inside = p, true, true
		at += int(blocks(len(mutations)))
	}
	return found
}

// mayBeNext says whether bytes that are not a whole frame look like the remains of the frame after
// the last one. An old frame has neither that number nor that hash.
func (s *scanner) mayBeNext(b []byte) bool {
	if len(b) < frameHead {
		return false
	}
	return binary.BigEndian.Uint64(b[8:]) == s.last.N+1 || s.last.N > 0 && bytes.Equal(b[24:56], s.last.Hash[:])
}

func (s *scanner) damaged(format string, args ...any) {
	s.tail.Damaged = true
	s.note(format, args...)
}

func (s *scanner) note(format string, args ...any) {
	s.tail.Notes = append(s.tail.Notes, fmt.Sprintf(format, args...))
}

// Reader reads frames that Scan found.
type Reader struct {
	log     *Log
	segment *segment
	file    File
	buf     []byte
	chain   *chain
}

// Reader begins to read.
func (l *Log) Reader() *Reader { return &Reader{log: l} }

// Mutations are those of a frame. They are valid until the next call.
func (r *Reader) Mutations(ref FrameRef) ([]byte, error) {
	if r.segment != ref.segment {
		r.Close()
		f, err := r.log.fs.Open(segmentName(ref.segment.number))
		if err != nil {
			return nil, err
		}
		r.segment, r.file = ref.segment, f
	}
	length := frameHead + ref.length
	r.buf = slices.Grow(r.buf[:0], length)[:length]
	if _, err := r.file.ReadAt(r.buf, ref.at); err != nil {
		return nil, err
	}
	if r.chain == nil || r.chain.incarnation != ref.Pos.Incarnation {
		r.chain = newChain(r.log.opts.Store, ref.Pos.Incarnation)
	}
	p, _, mutations, err := r.chain.parse(r.buf)
	if err == nil && p != ref.Pos {
		err = fmt.Errorf("%w: frame %d changed while it was read", ErrMalformed, ref.Pos.N)
	}
	return mutations, err
}

// Close ends reading.
func (r *Reader) Close() {
	if r.file != nil {
		r.file.Close()
		r.file, r.segment = nil, nil
	}
}

// Size is how many bytes the mutations of the frame take.
func (r FrameRef) Size() int64 { return int64(r.length) }
