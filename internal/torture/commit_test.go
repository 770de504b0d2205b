package torture

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/ckptd/ckptd/backend"
)

// batch announces a batch of a child, before it is committed.
type batch struct {
	Writer int
	Effect map[string]uint64
}

// commit opens the backend and commits to it with several writers, whatever happens: where there is
// no space they try again and again.
func (j *job) commit() error {
	b, err := j.Place.openBackend()
	if err != nil {
		return fmt.Errorf("opening: %w", err)
	}
	if err := tell(line{Ready: true}); err != nil {
		return err
	}
	m := newBatches()
	m.count = uint64(j.Cycle) << 32
	var wg sync.WaitGroup
	for w := range j.Writers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(j.Seed, uint64(w)))
			for n := 0; j.Ops == 0 || n < j.Ops; n++ {
				if !commitOne(b, m, rnd, w) {
					tryOn(b)
					return
				}
			}
		})
	}
	wg.Wait()
	if j.Close {
		err := b.Close()
		if err != nil {
			tell(line{Stopped: "closing: " + err.Error()})
		}
		return nil
	}
	tell(line{Ready: true})
	bufio.NewReader(os.Stdin).ReadString('\n')
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	return self.Kill() // by itself: a kill from outside would be of who traces it
}

// tryOn tries whether a store continues after a commit with an unknown outcome.
func tryOn(b backend.Backend) {
	for range 5 {
		if b.Commit(context.Background(), backend.Batch{Muts: []backend.Mut{{Key: []byte("late"), Version: "v"}}}) == nil {
			tell(line{WentOn: true})
		}
	}
}

// commitOne commits a batch, and reports whether the store may take another one.
func commitOne(b backend.Backend, m *batches, rnd *rand.Rand, w int) bool {
	made := m.begin(rnd, w)
	tell(line{Batch: &batch{w, m.under(w)}})
	err := b.Commit(context.Background(), made)
	switch {
	case err == nil:
		m.ack(w)
		tell(line{Done: &batch{Writer: w}})
	case errors.Is(err, backend.ErrNoSpace):
		m.drop(w)
		l := line{NoSpace: &batch{Writer: w}}
		if _, err := b.Get(context.Background(), []byte(keyOf(w, 0))); err != nil {
			l.Stopped = "reading where there is no space: " + err.Error()
		}
		tell(l)
		time.Sleep(5 * time.Millisecond)
	case !errors.Is(err, backend.ErrAmbiguous): // nothing was applied, and the next one may be
		m.drop(w)
		tell(line{Refused: &batch{Writer: w}})
	default:
		tell(line{Broken: err.Error(), Batch: &batch{Writer: w}})
		return false
	}
	return true
}

// under is the effect of the batch that is under way.
func (m *batches) under(w int) map[string]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.begun[w]
}

// take has the model take in a line of a child.
func (m *batches) take(l line) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case l.Done != nil:
		apply(m.acked, m.begun[l.Done.Writer])
		delete(m.begun, l.Done.Writer)
	case l.NoSpace != nil:
		delete(m.begun, l.NoSpace.Writer)
	case l.Refused != nil:
		delete(m.begun, l.Refused.Writer)
	case l.Batch != nil && l.Broken == "":
		m.begun[l.Batch.Writer] = l.Batch.Effect
	}
}
