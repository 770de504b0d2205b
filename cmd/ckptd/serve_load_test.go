//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ckptd/ckptd/client"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/wire"
)

const (
	loadThreads = 16
	loadState   = 256 << 10 / slower // bytes: a save of a splice of so much is dear to the daemon and cheap to its clients
	loadSplice  = 1 << 10
	// loadMemory bounds the daemon's memory under overload: 1,024 requests under way, each of which
	// holds such a state and what is made of it, beside the caches, as large again for the garbage
	// collector.
	loadMemory = 1 << 30
)

// load is a daemon with some threads to save to, and what became of the saves.
type load struct {
	*served
	base  [loadThreads]*engine.Checkpoint
	state []byte
	next  atomic.Int64

	mu      sync.Mutex
	acked   map[string]int // number of the save by its id
	refused map[string]bool
	unheard int // of those refused, which never reached the daemon
	unknown int // answers that got lost
	late    int // arrivals that the test could not make in time
	other   []error
}

func newLoad(t *testing.T, args ...string) *load {
	l := &load{served: newServed(t, args...), acked: map[string]int{}, refused: map[string]bool{}, state: make([]byte, loadState)}
	l.start()
	r := rand.New(rand.NewPCG(31, 32))
	for i := range l.state {
		l.state[i] = "0123456789abcdef"[r.IntN(16)]
	}
	c := l.client(client.Options{})
	for i := range l.base {
		cp, err := c.Thread(threadOf(i)).Save(t.Context(), engine.Draft{Channels: []engine.Change{{Name: "state", Data: l.state}}})
		must(t, err)
		l.base[i] = cp
	}
	return l
}

// draft is save number n: a fork of the first checkpoint of its thread, so that all of them can be
// made at once.
func (l *load) draft(n int) (engine.Ref, engine.Draft) {
	base := l.base[n%loadThreads]
	insert := bytes.Repeat(fmt.Appendf(nil, "%07d ", n), loadSplice/8)
	at := n % loadState
	return threadOf(n % loadThreads), engine.Draft{ID: fmt.Sprintf("save-%d", n), Parent: base.ID, Keep: true,
		Channels: []engine.Change{{Name: "state", Base: base.Channels[0].Version, Prefix: at, Suffix: loadState - at, Data: insert}}}
}

// save makes the next save and notes what becomes of it.
func (l *load) save(ctx context.Context, c *client.Store) {
	n := int(l.next.Add(1))
	ref, d := l.draft(n)
	_, err := c.Thread(ref).Save(ctx, d)
	l.mu.Lock()
	defer l.mu.Unlock()
	retry, overloaded := errors.AsType[*wire.RetryError](err)
	switch {
	case err == nil:
		l.acked[d.ID] = n
	case overloaded && errors.Is(err, client.ErrOverloaded) && retry.After > 0:
		l.refused[d.ID] = true
	case errors.Is(err, client.ErrUnreachable):
		l.refused[d.ID] = true
		l.unheard++
	case errors.Is(err, engine.ErrAmbiguous), errors.Is(err, context.DeadlineExceeded): // in the queue for --request-timeout
		l.unknown++
	default:
		l.other = append(l.other, err)
	}
}

// capacity is how many saves a second 64 clients make who wait for each answer.
func (l *load) capacity(c *client.Store, long time.Duration) float64 {
	var wg sync.WaitGroup
	began, first := time.Now(), l.next.Load()
	for range 64 {
		wg.Go(func() {
			for time.Since(began) < long {
				l.save(l.t.Context(), c)
			}
		})
	}
	wg.Wait()
	return float64(l.next.Load()-first) / time.Since(began).Seconds()
}

// offer lets so many saves a second arrive, whatever becomes of those before them, and returns when
// no more come. The function it returns waits for the answers.
func (l *load) offer(c *client.Store, rate float64, long time.Duration) (wait func()) {
	var wg sync.WaitGroup
	var under atomic.Int64
	most := arrivalsAtOnce()
	began := time.Now()
	for sent := 0; time.Since(began) < long; time.Sleep(time.Millisecond) {
		for due := int(rate * time.Since(began).Seconds()); sent < due; sent++ {
			if under.Load() >= most {
				l.mu.Lock()
				l.late++
				l.mu.Unlock()
				continue
			}
			under.Add(1)
			wg.Go(func() {
				defer under.Add(-1)
				l.save(l.t.Context(), c)
			})
		}
	}
	return wg.Wait
}

// arrivalsAtOnce bounds what the test has under way: each needs a file handle.
func arrivalsAtOnce() int64 {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil {
		return 500
	}
	return min(4000, int64(r.Cur)/2)
}

func loadTime() time.Duration {
	if os.Getenv("CKPTD_LONG") != "" {
		return 30 * time.Second
	}
	return 2 * time.Second
}

// TestServeOverload offers ten times as many saves as the daemon can make. Those it makes are
// there, those it refuses have changed nothing, its memory is bounded, and it is itself again at
// once when the load is over.
func TestServeOverload(t *testing.T) {
	l := newLoad(t, "--in-flight", fmt.Sprint(1024/slower))
	c := l.client(client.Options{Attempts: 1})
	l.capacity(c, 200*time.Millisecond) // to get warm
	capacity := l.capacity(c, time.Second)
	before := len(l.acked)
	long := loadTime()
	course := l.memoryCourse()
	wait := l.offer(c, 10*capacity, long)
	over := time.Now()
	fresh := l.client(client.Options{Attempts: 1})
	for {
		_, err := fresh.Thread(engine.Ref{Tenant: "acme", User: "user-1", Thread: "afterwards"}).Save(t.Context(), textDraft("x"))
		if err == nil {
			break
		}
		if time.Since(over) > 20*time.Second {
			t.Fatalf("no save succeeds after the load: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	recovery := time.Since(over)
	wait()
	now, most := l.memory()
	memory := course()
	t.Logf("capacity %.0f saves/s; offered %.0f/s for %v: %d acknowledged, %d refused (%d of them unheard), %d unknown, %d not sent in time; memory %d MiB, at its most %d MiB, second by second %d; recovered in %v",
		capacity, 10*capacity, long, len(l.acked)-before, len(l.refused), l.unheard, l.unknown, l.late, now>>20, most>>20, memory, recovery)
	if len(l.other) > 0 {
		t.Errorf("%d saves ended otherwise, one with %v", len(l.other), l.other[0])
	}
	if len(l.refused) == l.unheard {
		t.Error("nothing was refused: this was no overload")
	}
	if !raceEnabled && most > loadMemory {
		t.Errorf("the memory was %d MiB, at most %d are allowed", most>>20, int64(loadMemory)>>20)
	}
	if third := len(memory) / 3; third >= 3 && !raceEnabled && slices.Max(memory[2*third:]) > slices.Max(memory[:2*third])*5/4 {
		t.Errorf("the memory grew to the end: %d MiB", memory)
	}
	if recovery > 10*time.Second && !raceEnabled { // it takes milliseconds where nothing else runs
		t.Errorf("it took %v to recover", recovery)
	}
	l.settled(t, c)
	l.stop()
}

// memoryCourse looks at the memory every second. The function it returns ends that, and returns
// what was seen, in MiB.
func (l *load) memoryCourse() func() []int64 {
	var seen []int64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				now, _ := l.memory()
				seen = append(seen, now>>20)
			case <-stop:
				return
			}
		}
	}()
	return func() []int64 {
		close(stop)
		<-done
		return seen
	}
}

// settled compares what is stored with what clients were told.
func (l *load) settled(t *testing.T, c *client.Store) {
	t.Helper()
	stored := map[string]bool{}
	for i := range loadThreads {
		for cp, err := range c.Thread(threadOf(i)).History(t.Context(), engine.HistoryOptions{}) {
			must(t, err)
			stored[cp.ID] = true
		}
	}
	for id := range l.acked {
		if !stored[id] {
			t.Errorf("%s was acknowledged and is not there", id)
		}
	}
	for id := range l.refused {
		if stored[id] {
			t.Errorf("%s was refused and is there", id)
		}
	}
	sample := 0
	for id, n := range l.acked {
		if sample++; sample > 100 {
			break
		}
		ref, d := l.draft(n)
		cp, err := c.Thread(ref).Load(t.Context(), engine.At(id))
		must(t, err)
		ch := d.Channels[0]
		if want := slices.Concat(l.state[:ch.Prefix], ch.Data, l.state[ch.Prefix:]); !bytes.Equal(cp.Channels[0].Data, want) {
			t.Errorf("%s is not what was saved", id)
		}
	}
}
