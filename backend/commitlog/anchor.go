package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/ckptd/ckptd/internal/panics"
)

// pace is the least time between two writes of the anchor: each competes with the syncs of commits.
const pace = 20 * time.Millisecond

// anchor is the file that says up to which group commits were acknowledged, and the goroutine that
// writes it.
type anchor struct {
	store ID
	file  File
	last  Position // that it says, or said when it was read
	whole bool     // it could be read
	both  bool     // both slots say it
	slot  int64    // the one to write next

	mu     sync.Mutex
	wanted Position
	failed error
	wake   chan struct{}
	quit   chan struct{}
	done   chan struct{}
}

// read reads the anchor. A damaged or missing one has no position.
func (a *anchor) read(files FS, store ID) error {
	a.store = store
	f, err := files.Open(anchorName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := readAll(f, nil)
	if err != nil {
		return err
	}
	slots := 0
	for slot := int64(0); slot < 2; slot++ {
		if int64(len(b)) < (slot+1)*slotSize {
			break
		}
		of, p, err := parseSlot(b[slot*slotSize:])
		if errors.Is(err, ErrMalformed) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", anchorName, err)
		}
		if of != store {
			return fmt.Errorf("%s: %w", anchorName, ErrForeign)
		}
		if slots++; slots == 2 {
			a.both = p == a.last
		}
		if !a.whole || p.N > a.last.N {
			a.last, a.whole, a.slot = p, true, 1-slot
		}
	}
	return nil
}

// begin makes the anchor say p, durably, and starts the goroutine that moves it on.
func (a *anchor) begin(files FS, store ID, p Position) (err error) {
	a.store = store
	if a.file, err = files.Open(anchorName); errors.Is(err, fs.ErrNotExist) {
		if err = Create(files, store, p.Incarnation); err == nil {
			a.file, err = files.Open(anchorName)
		}
	}
	if err != nil {
		return err
	}
	size, err := a.file.Size()
	if err == nil && size < 2*slotSize { // it was cut short
		err, a.whole, a.both = a.file.Preallocate(2*slotSize, true), false, false
	}
	if err == nil {
		err = a.say(p)
	}
	if err != nil {
		a.file.Close()
		a.file = nil // or close would write to it
		return err
	}
	a.wake = make(chan struct{}, 1)
	a.start()
	return nil
}

// say writes p to both slots, durably. The log has no frames then, so that a slot that is damaged
// later must not leave an older position: nothing else would tell that groups are missing.
func (a *anchor) say(p Position) error {
	for !a.both || p != a.last {
		if err := a.write(p); err != nil {
			return err
		}
	}
	a.wanted = p
	return nil
}

func (a *anchor) start() {
	a.quit, a.done = make(chan struct{}), make(chan struct{})
	go a.follow()
}

// write writes a position and syncs it, into the slots in turn.
func (a *anchor) write(p Position) error {
	if _, err := a.file.WriteAt(appendSlot(nil, a.store, p), a.slot*slotSize); err != nil {
		return fmt.Errorf("writing the anchor: %w", err)
	}
	if err := a.file.Sync(); err != nil {
		return fmt.Errorf("syncing the anchor: %w", err)
	}
	a.both = a.whole && p == a.last
	a.last, a.whole, a.slot = p, true, 1-a.slot
	return nil
}

// want has the anchor say p soon.
func (a *anchor) want(p Position) {
	a.mu.Lock()
	a.wanted = p
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default: // it is awake, or about to be
	}
}

func (a *anchor) err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

// follow writes the wanted position until quit.
func (a *anchor) follow() {
	defer close(a.done)
	defer panics.To(a.fail)
	for {
		select {
		case <-a.quit:
			return
		case <-a.wake:
		}
		if err := a.catchUp(); err != nil {
			a.fail(err)
			return
		}
		select {
		case <-a.quit:
			return
		case <-time.After(pace):
		}
	}
}

func (a *anchor) catchUp() error {
	a.mu.Lock()
	p := a.wanted
	a.mu.Unlock()
	if p == a.last {
		return nil
	}
	return a.write(p)
}

func (a *anchor) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = err
}

// stop ends the goroutine.
func (a *anchor) stop() {
	if a.quit != nil {
		close(a.quit)
		<-a.done
		a.quit = nil
	}
}

// reset writes p to the anchor, durably, and continues from there.
func (a *anchor) reset(p Position) error {
	a.stop()
	if err := a.say(p); err != nil {
		return err
	}
	a.start()
	return nil
}

// close ends the goroutine and, if the log is sound, writes the wanted position.
func (a *anchor) close(sound bool) (err error) {
	if a.file == nil {
		return nil
	}
	a.stop()
	if sound && a.err() == nil {
		err = a.catchUp()
	}
	return errors.Join(err, a.file.Close())
}
