//go:build unix

package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ckptd/ckptd/client"
	"github.com/ckptd/ckptd/engine"
)

// crashCycles is how often the crash test kills; CKPTD_CRASH_CYCLES sets it, for campaigns.
func crashCycles(t *testing.T) int {
	v := os.Getenv("CKPTD_CRASH_CYCLES")
	if v == "" {
		return 3
	}
	n, err := strconv.Atoi(v)
	must(t, err)
	return n
}

const crashClients = 64

// step is a save of a client, and what it was told of it.
type step struct {
	draft engine.Draft
	sum   [sha256.Size]byte // of the state
	seq   uint64
	hash  [32]byte
}

// saver is a client with a thread of its own, which it saves to step by step. It chooses the ids,
// so it can repeat what it has heard nothing of.
type saver struct {
	thread *client.Thread
	name   string
	r      *rand.Rand
	eager  bool // takes a save for acknowledged when it is sent: the negative control

	mu    sync.Mutex
	acked []step

	state []byte
	base  engine.Version
}

// save makes the next step: mostly a splice, now and then the whole state.
func (s *saver) save(ctx context.Context) error {
	n := len(s.acked)
	d := engine.Draft{ID: fmt.Sprintf("%s-step-%d", s.name, n), Step: int64(n)}
	var next []byte
	if n == 0 || s.r.IntN(10) == 0 {
		next = fmt.Appendf(nil, "%s begins anew at %d with %d. ", s.name, n, s.r.Uint64())
		d.Channels = []engine.Change{{Name: "state", Data: next}}
	} else {
		at := s.r.IntN(len(s.state) + 1)
		insert := fmt.Appendf(nil, "step %d says %x. ", n, s.r.Uint64())
		next = slices.Concat(s.state[:at], insert, s.state[at:])
		d.Keep, d.Channels = true, []engine.Change{{Name: "state", Base: s.base, Prefix: at, Suffix: len(s.state) - at, Data: insert}}
	}
	if n > 0 {
		d.Parent = s.acked[n-1].draft.ID
	}
	now := step{draft: d, sum: sha256.Sum256(next)}
	if s.eager {
		s.add(now)
	}
	cp, err := s.thread.Save(ctx, d)
	if err != nil {
		return err
	}
	now.seq, now.hash = cp.Seq, cp.Hash
	s.state, s.base = next, cp.Channels[0].Version
	if !s.eager {
		s.add(now)
	}
	return nil
}

func (s *saver) add(now step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked = append(s.acked, now)
}

// known returns the steps that were acknowledged up to now.
func (s *saver) known() []step {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.acked)
}

// missing loads steps through a client and says what is wrong with them.
func (s *saver) missing(ctx context.Context, steps []step) (problems []string) {
	for _, st := range steps {
		cp, err := s.thread.Load(ctx, engine.At(st.draft.ID))
		switch {
		case err != nil:
			problems = append(problems, fmt.Sprintf("%s: %v", st.draft.ID, err))
		case sha256.Sum256(cp.Channels[0].Data) != st.sum:
			problems = append(problems, fmt.Sprintf("%s: the state is not what was saved", st.draft.ID))
		case !s.eager && (cp.Seq != st.seq || cp.Hash != st.hash):
			problems = append(problems, fmt.Sprintf("%s: seq %d and hash %x, acknowledged %d and %x", st.draft.ID, cp.Seq, cp.Hash[:4], st.seq, st.hash[:4]))
		}
	}
	return problems
}

// crash is a daemon that is killed under its clients.
type crash struct {
	*served
	checker *client.Store
	savers  []*saver
	calm    sync.RWMutex // is held for reading by who saves
}

func newCrash(t *testing.T, eager bool) *crash {
	c := &crash{served: newServed(t)}
	c.start()
	c.checker = c.client(client.Options{})
	for i := range crashClients {
		o := client.Options{Attempts: 1000, MaxBackoff: 50 * time.Millisecond}
		if eager {
			o.Attempts = 1 // it will not even know
		}
		c.savers = append(c.savers, &saver{thread: c.client(o).Thread(threadOf(i)), name: fmt.Sprint("client-", i), r: rand.New(rand.NewPCG(uint64(i), 9)), eager: eager})
	}
	return c
}

// saving lets the clients save until stop is closed, and returns what waits for them.
func (c *crash) saving(t *testing.T, stop <-chan struct{}) (wait func()) {
	var wg sync.WaitGroup
	for _, s := range c.savers {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c.calm.RLock()
				err := s.save(t.Context())
				c.calm.RUnlock()
				if err != nil {
					if !s.eager {
						t.Errorf("%s: %v", s.name, err)
					}
					return
				}
			}
		})
	}
	return wg.Wait
}

// TestServeCrash kills the daemon again and again under clients that save. Whatever was
// acknowledged is there after each restart, byte for byte, and a repeated save answers as the first
// did. In the end there is nothing else.
func TestServeCrash(t *testing.T) {
	t.Parallel()
	c := newCrash(t, false)
	stop := make(chan struct{})
	wait := c.saving(t, stop)
	r := rand.New(rand.NewPCG(21, 22))
	cycles := crashCycles(t)
	for cycle := range cycles {
		time.Sleep(50*time.Millisecond + time.Duration(r.IntN(150_000))*time.Microsecond)
		c.kill()
		c.start()
		c.calm.Lock() // when those that were under way have come to their end
		c.check(t, fmt.Sprint("cycle ", cycle), r)
		c.calm.Unlock()
		if t.Failed() {
			break
		}
	}
	close(stop)
	wait()
	c.nothingElse(t)
	if !t.Failed() {
		c.stop()
		if out := c.run("verify", "--deep"); !strings.Contains(out, "no problems") {
			t.Errorf("verify --deep says %s", out)
		}
	}
}

// check looks at the newest saves of each client, and repeats one of them.
func (c *crash) check(t *testing.T, when string, r *rand.Rand) {
	t.Helper()
	for i, s := range c.savers {
		steps := s.known()
		newest := steps[max(0, len(steps)-5):]
		for _, p := range s.missing(t.Context(), newest) {
			t.Errorf("%s: %s", when, p)
		}
		if len(newest) == 0 {
			continue
		}
		again := newest[r.IntN(len(newest))]
		cp, err := c.checker.Thread(threadOf(i)).Save(t.Context(), again.draft)
		if err != nil || cp.Seq != again.seq || cp.Hash != again.hash {
			t.Errorf("%s: %s again: %v, %+v", when, again.draft.ID, err, cp)
		}
	}
}

// nothingElse checks that each thread has what was acknowledged, all of it, once and in order.
func (c *crash) nothingElse(t *testing.T) {
	t.Helper()
	total := 0
	for i, s := range c.savers {
		acked := s.known()
		total += len(acked)
		n := len(acked)
		for cp, err := range c.checker.Thread(threadOf(i)).History(t.Context(), engine.HistoryOptions{Data: true}) {
			must(t, err)
			if n--; n < 0 || cp.ID != acked[n].draft.ID || cp.Seq != acked[n].seq || cp.Hash != acked[n].hash || sha256.Sum256(cp.Channels[0].Data) != acked[n].sum {
				t.Errorf("%s: %s with seq %d is not what was acknowledged", s.name, cp.ID, cp.Seq)
				break
			}
		}
		if n > 0 {
			t.Errorf("%s: %d of %d are missing", s.name, n, len(acked))
		}
	}
	t.Logf("%d saves acknowledged", total)
}

// TestServeCrashFindsEarlyAcknowledgements is the negative control: clients that take a save for
// acknowledged when it is sent are found to miss some after a kill.
func TestServeCrashFindsEarlyAcknowledgements(t *testing.T) {
	t.Parallel()
	for range 5 {
		c := newCrash(t, true)
		wait := c.saving(t, nil)
		time.Sleep(100 * time.Millisecond)
		c.kill()
		wait()
		c.start()
		missing := 0
		for i, s := range c.savers {
			s.thread = c.checker.Thread(threadOf(i))
			steps := s.known()
			missing += len(s.missing(t.Context(), steps[max(0, len(steps)-3):]))
		}
		c.kill()
		if missing > 0 {
			t.Logf("%d saves are missing", missing)
			return
		}
	}
	t.Error("no save is missing although they were taken for acknowledged too early")
}
