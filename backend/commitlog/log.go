// Package commitlog is the log in front of Badger: frames in preallocated segments, an anchor, and
// a scan that finds the whole frames after a crash. docs/format.md §20 has the format,
// docs/design.md the reasons.
//
// A Log is opened (Open, which changes nothing), looked at (Anchor, Scan, Read), and then begun at
// a position (Begin), from which on frames are appended:
//
//	pos, err := log.Prepare(frame, time) // an error here leaves the log as it was
//	err = log.Write(frame)               // an error here and from Sync stops it for good
//	err = log.Sync()
//	log.Acknowledge()
//
// One goroutine at a time may call Prepare, Write, Sync, Acknowledge, Reset and Close.
package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Options say how a log is kept.
type Options struct {
	Store   ID    // of the directory
	Segment int64 // bytes of a segment, a multiple of 512; the first ones are smaller

	// Room is asked before bytes are allocated for a segment; the Prepare that needs them returns
	// its error.
	Room func(bytes int64) error
	// Safe returns the n up to which groups are durable elsewhere, so that their segments can be
	// reused.
	Safe func() (n uint64, err error)
}

// Log is the log of a directory.
type Log struct {
	fs     FS
	opts   Options
	anchor anchor
	chain  *chain
	last   Position // the newest frame's
	failed error

	cur    *segment // frames are appended to it; nil before the first
	at     int64    // where in it
	begun  bool     // it has a header
	frames int64    // how many it has

	mu        sync.Mutex
	prepared  sync.Cond
	preparing bool
	spare     *segment   // prepared
	old       []*segment // those before cur, the oldest first
	number    uint64     // the greatest in use
}

// segment is a file of the log.
type segment struct {
	number uint64
	size   int64
	last   uint64 // n of its last frame
	file   File   // open while it is written to, or about to be
}

const (
	suffix     = ".seg"
	anchorName = "anchor"
)

func segmentName(number uint64) string { return fmt.Sprintf("%08d%s", number, suffix) }

func segmentNumber(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, ok && err == nil && number > 0 && segmentName(number) == name
}

// Create makes a log in an empty directory: an anchor at the position of a store without groups.
func Create(fs FS, store, incarnation ID) error {
	f, err := fs.Create(anchorName)
	if err != nil {
		return err
	}
	err = f.Preallocate(2*slotSize, true)
	if err == nil {
		slot := appendSlot(nil, store, Position{Incarnation: incarnation})
		_, err = f.WriteAt(append(slot, slot...), 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return fs.Sync()
}

// Open reads the anchor and the headers of a log, and changes nothing. Errors: ErrMissing,
// ErrNewer, ErrForeign, and those of the file system.
func Open(files FS, o Options) (*Log, error) {
	l := &Log{fs: files, opts: o}
	l.prepared.L = &l.mu
	names, err := files.List()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, name := range names {
		if number, ok := segmentNumber(name); ok {
			l.number = max(l.number, number)
			l.old = append(l.old, &segment{number: number})
		}
	}
	slices.SortFunc(l.old, func(a, b *segment) int { return int(int64(a.number - b.number)) })
	if len(l.old) == 0 && !slices.Contains(names, anchorName) {
		return nil, ErrMissing
	}
	if err := l.anchor.read(files, o.Store); err != nil {
		return nil, err
	}
	for _, s := range l.old {
		if _, err := l.header(s); err != nil && !errors.Is(err, ErrMalformed) {
			return nil, err
		}
	}
	return l, nil
}

// header reads the header of a segment. It is ErrMalformed for one that is damaged or was not
// begun.
func (l *Log) header(s *segment) (h header, err error) {
	f, err := l.fs.Open(segmentName(s.number))
	if err != nil {
		return h, err
	}
	defer f.Close()
	if s.size, err = f.Size(); err != nil {
		return h, err
	}
	b := make([]byte, min(s.size, headerSize))
	if _, err := f.ReadAt(b, 0); err != nil {
		return h, err
	}
	if h, err = parseHeader(b); err != nil {
		return h, fmt.Errorf("%s: %w", segmentName(s.number), err)
	}
	if h.store != l.opts.Store {
		return h, fmt.Errorf("%s: %w", segmentName(s.number), ErrForeign)
	}
	if h.number != s.number {
		return h, fmt.Errorf("%w: %s was not begun", ErrMalformed, segmentName(s.number))
	}
	return h, nil
}

// Anchor is the last group that is known to have been acknowledged, if the anchor is not damaged.
func (l *Log) Anchor() (p Position, ok bool) { return l.anchor.last, l.anchor.whole }

// Last is the position of the newest frame.
func (l *Log) Last() Position { return l.last }

// Bytes is the size of all segments.
func (l *Log) Bytes() (sum int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.old {
		sum += s.size
	}
	for _, s := range []*segment{l.cur, l.spare} {
		if s != nil {
			sum += s.size
		}
	}
	return sum
}

// Begin continues the log from a position. All groups up to it must be durable elsewhere: the
// segments are obsolete, and are removed.
func (l *Log) Begin(at Position) error {
	l.last, l.chain = at, newChain(l.opts.Store, at.Incarnation)
	if err := l.anchor.begin(l.fs, l.opts.Store, at); err != nil {
		return err
	}
	return l.clear()
}

// clear removes every segment in the directory, those of failed preparations too. The first one is
// made when there is something to write.
func (l *Log) clear() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.preparing {
		l.prepared.Wait()
	}
	for _, s := range []*segment{l.cur, l.spare} {
		if s != nil {
			s.file.Close()
		}
	}
	l.old, l.cur, l.spare = nil, nil, nil
	names, err := l.fs.List()
	if err != nil {
		return err
	}
	removed := false
	for _, name := range names {
		if _, ok := segmentNumber(name); !ok {
			continue
		}
		if err := gone(l.fs.Remove(name)); err != nil {
			return err
		}
		removed = true
	}
	if !removed {
		return nil
	}
	return l.fs.Sync()
}

// Prepare finds a place for a frame and seals it as the next one. After an error the log is as it
// was.
func (l *Log) Prepare(f *Frame, time int64) (Position, error) {
	if err := l.broken(); err != nil {
		return Position{}, err
	}
	if f.Len() > MaxFrame {
		return Position{}, fmt.Errorf("%w: a frame of %d bytes", ErrMalformed, f.Len())
	}
	need := blocks(f.Len())
	if l.cur == nil || l.at+need > l.cur.size {
		if err := l.advance(need); err != nil {
			return Position{}, err
		}
	}
	return f.seal(l.chain, l.last, time), nil
}

// advance begins the next segment.
func (l *Log) advance(need int64) error {
	next, err := l.next(headerSize + need)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cur != nil {
		l.cur.file.Forget() // all of it was synced, and it is read after a crash alone
		l.cur.file.Close()
		l.cur.file, l.cur.last = nil, l.last.N
		l.old = append(l.old, l.cur)
	}
	l.cur, l.at, l.begun, l.frames = next, headerSize, false, 0
	return nil
}

// Write writes a frame that was prepared.
func (l *Log) Write(f *Frame) error {
	if err := l.broken(); err != nil {
		return err
	}
	end := len(f.buf)
	f.pad(l.at, l.cur.size)
	from, at := f.buf[headerSize:], l.at
	if !l.begun {
		h := header{l.opts.Store, l.last.Incarnation, l.cur.number, l.cur.size, f.pos.N, l.last.Hash}
		h.append(f.buf[:0])
		from, at = f.buf, 0
	}
	_, err := l.cur.file.WriteAt(from, at)
	f.buf = f.buf[:end]
	l.at += blocks(f.Len())
	if err != nil {
		return l.fail(fmt.Errorf("writing %s: %w", segmentName(l.cur.number), err))
	}
	l.begun, l.last, l.cur.last = true, f.pos, f.pos.N
	l.frames++
	if l.at > l.cur.size/2 {
		l.prepareAhead()
	}
	return nil
}

// Sync makes all written frames durable.
func (l *Log) Sync() error {
	if err := l.broken(); err != nil {
		return err
	}
	if err := l.cur.file.Sync(); err != nil {
		return l.fail(fmt.Errorf("syncing %s: %w", segmentName(l.cur.number), err))
	}
	return nil
}

// Acknowledge has the anchor say that the newest frame was acknowledged. It does not wait for that.
func (l *Log) Acknowledge() { l.anchor.want(l.last) }

// Err is why the log stopped, nil while it works.
func (l *Log) Err() error { return l.broken() }

// fail stops the log.
func (l *Log) fail(err error) error {
	if l.failed == nil {
		l.failed = err
	}
	return l.failed
}

func (l *Log) broken() error {
	if l.failed == nil {
		if err := l.anchor.err(); err != nil {
			l.failed = err
		}
	}
	return l.failed
}

// Reset removes every segment and continues from a position. All groups up to it must be durable
// elsewhere.
func (l *Log) Reset(at Position) error {
	if err := l.broken(); err != nil {
		return err
	}
	if err := l.anchor.reset(at); err != nil {
		return l.fail(err)
	}
	if err := l.clear(); err != nil {
		return l.fail(err)
	}
	l.last, l.chain = at, newChain(l.opts.Store, at.Incarnation)
	return nil
}

// Close ends the log. After a failure it writes nothing more.
func (l *Log) Close() error {
	l.mu.Lock()
	for l.preparing {
		l.prepared.Wait()
	}
	l.mu.Unlock()
	err := l.anchor.close(l.failed == nil)
	for _, s := range []*segment{l.cur, l.spare} {
		if s != nil && s.file != nil {
			err = errors.Join(err, s.file.Close())
		}
	}
	return err
}

// Segment is the name of the file that frames are appended to, "" before the first.
func (l *Log) Segment() string {
	if l.cur == nil {
		return ""
	}
	return segmentName(l.cur.number)
}
