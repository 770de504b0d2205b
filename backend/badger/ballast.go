package badger

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ckptd/ckptd/internal/durable"
)

const (
	ballastName = "ballast"
	ballastNew  = "ballast.new" // the same, while it is made

	ballastShare = 4 // of a memory table, that the ballast has beyond the margin for other writers
)

// ballast is a file that takes room, and is removed when there is none left, so that what makes
// room can be written.
type ballast struct {
	dir  string
	size int64

	mu     sync.Mutex // held while the file is made, so that nobody counts its room as free meanwhile
	here   int64      // bytes of the file
	tried  time.Time  // when it was made last, or could not be
	making bool
	closed bool
	done   sync.WaitGroup
}

const ballastPace = time.Second // between attempts to make it

// init finds the ballast that is there. A larger one is counted as it is. One that is not complete
// only takes room.
func (b *ballast) init(dir string, size int64) {
	b.dir, b.size = dir, size
	os.Remove(b.path(ballastNew))
	if info, err := os.Lstat(b.path(ballastName)); err == nil && info.Mode().IsRegular() {
		b.here = allocated(info)
	}
}

func (b *ballast) path(name string) string { return filepath.Join(b.dir, name) }

// held is how many bytes release would free.
func (b *ballast) held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.here
}

// missing is how many bytes are kept free for the ballast, which is not there or too small.
func (b *ballast) missing() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, b.size-b.here)
}

// release removes the ballast.
func (b *ballast) release() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.here = 0
	if err := os.Remove(b.path(ballastName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return dirError(err)
	}
	return dirError(durable.SyncDir(b.dir))
}

// restore makes the ballast again in the background, if it is not there or too small. There must be
// room for it.
func (b *ballast) restore() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.here >= b.size || b.making || b.closed || time.Since(b.tried) < ballastPace {
		return
	}
	b.making = true
	b.done.Go(b.make)
}

// make makes the file. If that fails the next commit after a while tries again.
func (b *ballast) make() {
	var err error
	defer guard("making the ballast", &err)()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.making, b.tried = false, time.Now()
	if b.here >= b.size {
		return
	}
	if b.here > 0 {
		err = b.extend()
	} else if err = b.write(); err != nil {
		os.Remove(b.path(ballastNew))
	}
	if err == nil {
		b.here = b.size
	}
}

// extend takes what is missing of a file that is too small, as where Options.MinFree was less.
func (b *ballast) extend() error {
	f, err := os.OpenFile(b.path(ballastName), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(preallocate(f, b.size), f.Close())
}

// write makes the file whole under another name first, so that one that is there has its size.
func (b *ballast) write() error {
	f, err := os.OpenFile(b.path(ballastNew), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = preallocate(f, b.size)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(b.path(ballastNew), b.path(ballastName))
}

// close waits until nothing is made any more.
func (b *ballast) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.done.Wait()
}

// zeroFill takes the blocks of a file by writing zeros.
func zeroFill(f *os.File, size int64) error {
	chunk := make([]byte, min(size, 1<<20))
	for at := int64(0); at < size; at += int64(len(chunk)) {
		if _, err := f.WriteAt(chunk[:min(size-at, int64(len(chunk)))], at); err != nil {
			return err
		}
	}
	return f.Sync()
}
