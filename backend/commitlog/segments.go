package commitlog

import (
	"errors"
	"fmt"

	"github.com/ckptd/ckptd/internal/panics"
)

// next takes a segment that has room for need bytes, header included: the prepared one or, for a
// frame larger than that, one of its own. It waits for a segment that is being prepared; if that
// failed it tries again.
func (l *Log) next(need int64) (*segment, error) {
	l.mu.Lock()
	for l.preparing {
		l.prepared.Wait()
	}
	s := l.spare
	l.spare = nil
	if s != nil && need > s.size { // the one to make comes before it, so its number is too small
		s.file.Close()
		l.old = append(l.old, s)
		s = nil
	}
	l.mu.Unlock()
	if s != nil {
		return s, nil
	}
	return l.make(max(need, l.size()), need < largeFrames)
}

// prepareAhead prepares the next segment in the background, if it is not prepared yet.
func (l *Log) prepareAhead() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.preparing || l.spare != nil {
		return
	}
	l.preparing = true
	go l.prepare(l.at < largeFrames*l.frames)
}

// largeFrames is the size from which on the sync of a frame takes so long that it may change
// metadata too. Then the first writing of a segment is that of its frames.
const largeFrames = 16 << 10

func (l *Log) prepare(written bool) {
	defer panics.To(func(error) {})
	var s *segment
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.spare, l.preparing = s, false
		l.prepared.Broadcast()
	}()
	s, _ = l.make(l.size(), written) // after an error next tries again, and returns it
}

// size is the size for the next segment: half of the log, so that a log that is little used stays
// small.
func (l *Log) size() int64 {
	return max(min(l.Bytes()/2/block*block, l.opts.Segment), min(firstSegment, l.opts.Segment))
}

const firstSegment = 1 << 20

// make prepares a segment: an old one if one can be reused, or else a new file.
func (l *Log) make(size int64, written bool) (*segment, error) {
	old, err := l.reusable(size)
	l.mu.Lock()
	l.number++
	s := &segment{number: l.number, size: size}
	l.mu.Unlock()
	switch {
	case err != nil:
	case old != nil:
		s.file, err = l.reuse(old, s)
	default:
		s.file, err = l.allocate(s, written)
	}
	if err != nil {
		return nil, fmt.Errorf("preparing %s: %w", segmentName(s.number), err)
	}
	return s, nil
}

// reusable takes the oldest segment off the list whose groups are safe and that is not too small,
// if there is one. It removes those that are too small.
func (l *Log) reusable(size int64) (found *segment, err error) {
	l.mu.Lock()
	some := len(l.old) > 0
	l.mu.Unlock()
	if !some {
		return nil, nil
	}
	safe, err := l.opts.Safe()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.old) > 0 && l.old[0].last <= safe && found == nil {
		s := l.old[0]
		if s.size >= size {
			found = s
		} else if err := gone(l.fs.Remove(segmentName(s.number))); err != nil {
			return nil, err
		}
		l.old = l.old[1:]
	}
	return found, nil
}

// reuse gives an old segment the name of a new one. Its content stays until it is written over.
func (l *Log) reuse(old, s *segment) (File, error) {
	s.size = old.size
	if err := l.fs.Rename(segmentName(old.number), segmentName(s.number)); err != nil {
		return nil, err
	}
	if err := l.fs.Sync(); err != nil {
		return nil, err
	}
	return l.fs.Open(segmentName(s.number))
}

// allocate makes a new file.
func (l *Log) allocate(s *segment, written bool) (File, error) {
	if l.opts.Room != nil {
		if err := l.opts.Room(s.size); err != nil {
			return nil, err
		}
	}
	f, err := l.fs.Create(segmentName(s.number))
	if err != nil {
		return nil, err
	}
	if err = f.Preallocate(s.size, written); err == nil {
		err = l.fs.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), l.fs.Remove(segmentName(s.number)))
	}
	f.Forget()
	return f, nil
}
