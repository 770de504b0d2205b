package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
)

// ErrBroken is the error for a log that was tampered with.
var ErrBroken = errors.New("the audit log is broken")

// BrokenError is the position at which a log is broken. It matches ErrBroken.
type BrokenError struct {
	File   int    // index of the file
	Line   int    // in the file, from 1
	Number uint64 // that this line must have, 0 if that is not known
	Reason string
}

func (e *BrokenError) Error() string {
	if e.Number == 0 {
		return fmt.Sprintf("%v at line %d of the file: %s", ErrBroken, e.Line, e.Reason)
	}
	return fmt.Sprintf("%v at line %d of the file, where number %d belongs: %s", ErrBroken, e.Line, e.Number, e.Reason)
}

func (e *BrokenError) Is(target error) bool { return target == ErrBroken }

// Report is the result of Verify up to the end, or to the first bad line.
type Report struct {
	First, Last uint64 // numbers of lines, 0 if there are none
	Hash        string // of the last line
	Lines       int
	Notices     int // notices that a crash cut off the end of the line before
}

// Verify reads the files of a log, the oldest first, and checks that each line is unchanged and
// follows on the one before. It does not require the files before the first one: Report.First is
// the first number. expect, if not "", is the hash of a line that must be among them, which detects
// a loss of the newest lines. Problems are a *BrokenError.
func Verify(expect string, files ...io.Reader) (Report, error) {
	var r Report
	var prev line
	found := expect == ""
	for i, f := range files {
		at := 0
		for l, err := range lines(f) {
			at++
			broken := &BrokenError{File: i, Line: at, Number: prev.Number + 1}
			if r.Lines == 0 {
				broken.Number = 0
			}
			switch {
			case errors.Is(err, errLine):
				broken.Reason = "it " + err.Error()
				return r, broken
			case err != nil:
				return r, fmt.Errorf("reading the audit log: %w", err)
			case r.Lines == 0 && l.Number == 1 && l.prev != [sha256.Size]byte{}:
				broken.Reason = "the first of all follows on another"
				return r, broken
			case r.Lines > 0 && l.Number != prev.Number+1:
				broken.Reason = fmt.Sprintf("this one has number %d: lines were taken out, put in or moved", l.Number)
				return r, broken
			case r.Lines > 0 && l.prev != prev.hash:
				broken.Reason = "it does not follow on the line before it"
				return r, broken
			}
			if r.Lines == 0 {
				r.First = l.Number
			}
			if l.Kind == Notice && l.Code == codeTorn {
				r.Notices++
			}
			r.Lines++
			r.Last, r.Hash, prev = l.Number, fmt.Sprintf("%x", l.hash), l
			found = found || r.Hash == expect
		}
	}
	if !found {
		return r, fmt.Errorf("%w: no line has the expected hash: the last lines were cut off, or the log was rewritten", ErrBroken)
	}
	return r, nil
}

// Read yields the entries of a file. It checks each line by itself, and no chain. After an error it
// ends.
func Read(r io.Reader) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		at := 0
		for l, err := range lines(r) {
			at++
			if errors.Is(err, errLine) {
				err = &BrokenError{Line: at, Reason: "it " + err.Error()}
			}
			if !yield(l.Entry, err) {
				return
			}
		}
	}
}

// Entries yields the current entries of the log file. It ends after an error.
func (l *Log) Entries() iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		f, size, err := l.snapshot()
		if err != nil {
			yield(Entry{}, fmt.Errorf("reading the audit log: %w", err))
			return
		}
		defer f.Close()
		for e, err := range Read(io.LimitReader(f, size)) {
			if !yield(e, err) {
				return
			}
		}
	}
}

// snapshot opens the file for reading, and returns its length up to the end of a line.
func (l *Log) snapshot() (*os.File, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, err := os.Open(l.path)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// lines yields the lines of a file up to the first error: errLine for one that is none.
func lines(r io.Reader) iter.Seq2[line, error] {
	return func(yield func(line, error) bool) {
		in := bufio.NewReaderSize(r, maxLine)
		for {
			b, err := in.ReadSlice('\n')
			switch {
			case err == io.EOF && len(b) == 0:
				return
			case err == bufio.ErrBufferFull || err == io.EOF:
				err = errLine
			case err == nil:
				var l line
				if l, err = decode(b); err == nil {
					if !yield(l, nil) {
						return
					}
					continue
				}
			}
			yield(line{}, err)
			return
		}
	}
}

// maxTail is how far from the end of a file the last good line is looked for.
const maxTail = 1 << 20

var errForeign = errors.New("it does not end like an audit log: find out why, and move it away")

// lastLine finds the last good line of a file and where it ends: 0 if the file has only a torn
// first line.
func lastLine(f io.ReaderAt, size int64) (last line, end int64, err error) {
	from := max(0, size-maxTail)
	tail := make([]byte, size-from)
	if _, err := f.ReadAt(tail, from); err != nil && err != io.EOF {
		return last, 0, err
	}
	for rest := tail; ; {
		at := bytes.LastIndexByte(rest, '\n')
		if at < 0 {
			break
		}
		begin := bytes.LastIndexByte(rest[:at], '\n') + 1
		if l, err := decode(rest[begin : at+1]); err == nil {
			return l, from + int64(at) + 1, nil
		}
		rest = rest[:at]
	}
	if from > 0 || bytes.IndexByte(tail, '\n') >= 0 {
		return last, 0, errForeign
	}
	return last, 0, nil
}
