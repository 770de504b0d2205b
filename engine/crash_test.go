package engine

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/badger"
	"github.com/ckptd/ckptd/backend/mem"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// childEnv names the work of this binary, instead of running tests, when a test starts it again.
const childEnv = "ENGINE_TEST_CHILD"

func TestMain(m *testing.M) {
	switch child := os.Getenv(childEnv); child {
	case "":
		os.Exit(m.Run())
	case "save", "save eagerly":
		err := saveUntilKilled(os.Args[1], os.Args[2], child == "save eagerly")
		fmt.Fprintln(os.Stderr, err)
	case "save hot":
		fmt.Fprintln(os.Stderr, saveHotUntilKilled(os.Args[1], os.Args[2]))
	}
	os.Exit(1)
}

// disk is a store in a directory: data, keystore, and key file.
type disk string

func (d disk) path(name string) string { return filepath.Join(string(d), name) }

// open opens the store, and creates it the first time.
func (d disk) open(around func(backend.Backend) (backend.Backend, error)) (*Store, error) {
	root, err := crypto.ReadKeyFile(d.path("key"))
	if errors.Is(err, crypto.ErrKeyFileMissing) {
		if root, err = crypto.GenerateRootKey(); err == nil {
			err = crypto.WriteKeyFile(d.path("key"), root)
		}
	}
	if err != nil {
		return nil, err
	}
	keys, err := crypto.OpenFileKeystore(d.path("keys"), true)
	if err != nil {
		return nil, err
	}
	b, err := badger.Open(d.path("data"), badger.Options{MemTableSize: 8 << 20})
	if err != nil {
		return nil, err
	}
	be := backend.Backend(b)
	if around != nil {
		if be, err = around(be); err != nil {
			return nil, err
		}
	}
	return Open(context.Background(), be, Options{Root: root, Keystore: keys, Create: true, CacheBytes: 1 << 20})
}

const (
	crashWriters = 16
	crashThreads = 64
)

// known is a checkpoint that was acknowledged, with its channels.
type known struct {
	id     string
	state  map[string][]byte
	splice Version // of the channel "log"
}

// crasher saves from many goroutines and reports each acknowledged checkpoint on a line of standard
// output.
type crasher struct {
	s     *Store
	cycle string
	mu    sync.Mutex
	heads [crashThreads]*known // newest that this process knows of
}

func crashRef(thread int) Ref { return testRef(fmt.Sprintf("thread-%02d", thread)) }

func saveUntilKilled(dir, cycle string, eagerly bool) error {
	var around func(backend.Backend) (backend.Backend, error)
	if eagerly {
		around = newEager
	}
	s, err := disk(dir).open(around)
	if err != nil {
		return err
	}
	c := &crasher{s: s, cycle: cycle}
	failed := make(chan error)
	for w := range crashWriters {
		go func() {
			r := rand.New(rand.NewPCG(uint64(w), sha256Seed(cycle)))
			for n := 0; ; n++ {
				if err := c.step(r, fmt.Sprintf("id-%s-%d-%d", cycle, w, n)); err != nil {
					failed <- err
				}
				time.Sleep(time.Duration(r.IntN(8000)) * time.Microsecond)
			}
		}()
	}
	return <-failed
}

func sha256Seed(s string) uint64 {
	sum := sha256.Sum256([]byte(s))
	return uint64(sum[0])<<8 | uint64(sum[1])
}

// step saves one checkpoint on a thread that other writers save to as well.
func (c *crasher) step(r *rand.Rand, id string) error {
	ctx := context.Background()
	i := r.IntN(crashThreads)
	th := c.s.Thread(crashRef(i))
	base, err := c.head(ctx, i)
	if err != nil {
		return err
	}
	d, state := Draft{Step: int64(r.IntN(100))}, map[string][]byte{}
	if base == nil {
		d.Root = true
		state["log"], state["notes"] = words(r, 200+r.IntN(3000)), words(r, 50)
		d.Channels = changesOf(state)
	} else {
		d.Parent = base.id
		c.continueFrom(r, base, &d, state)
	}
	if r.IntN(3) == 0 {
		d.ID = id
	}
	cp, err := th.Save(ctx, d)
	if err != nil {
		return err
	}
	log, _ := cp.Channel("log")
	next := &known{cp.ID, state, log.Version}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.IntN(8) > 0 { // else the next save forks
		c.heads[i] = next
	}
	_, err = fmt.Printf("%d %s %x\n", i, cp.ID, stateSum(state)) // one write to the pipe
	return err
}

// continueFrom drafts a child of base: a splice, the whole state, some channels, or one with many
// bytes.
func (c *crasher) continueFrom(r *rand.Rand, base *known, d *Draft, state map[string][]byte) {
	maps.Copy(state, base.state)
	log := base.state["log"]
	switch r.IntN(6) {
	case 0:
		state["log"] = mutate(r, log)
		d.Channels = changesOf(state)
	case 1:
		state["notes"] = words(r, r.IntN(500))
		d.Keep, d.Channels = true, []Change{{Name: "notes", Data: state["notes"]}}
	case 2:
		state["file"] = noise(r, 1+r.IntN(100<<10))
		d.Keep, d.Channels = true, []Change{{Name: "file", Data: state["file"]}}
		d.Labels = map[string]string{"kind": "file"}
	default:
		at := r.IntN(len(log) + 1)
		insert := words(r, r.IntN(600))
		state["log"] = slices.Concat(log[:at], insert, log[at:])
		d.Keep, d.Channels = true, []Change{{Name: "log", Base: base.splice, Prefix: at, Suffix: len(log) - at, Data: insert}}
		d.Branch = fmt.Sprint("branch ", r.IntN(3))
	}
}

// head is the checkpoint of a thread to continue from; nil if there is none.
func (c *crasher) head(ctx context.Context, i int) (*known, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heads[i] != nil {
		return c.heads[i], nil
	}
	cp, err := c.s.Thread(crashRef(i)).Load(ctx, Latest)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	k := &known{id: cp.ID, state: stateOf(cp)}
	log, _ := cp.Channel("log")
	k.splice = log.Version
	c.heads[i] = k
	return k, nil
}

func stateOf(cp *Checkpoint) map[string][]byte {
	state := map[string][]byte{}
	for _, ch := range cp.Channels {
		state[ch.Name] = ch.Data
	}
	return state
}

func changesOf(state map[string][]byte) (cs []Change) {
	for _, name := range slices.Sorted(maps.Keys(state)) {
		cs = append(cs, Change{Name: name, Data: state[name]})
	}
	return cs
}

func stateSum(state map[string][]byte) []byte {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(state)) {
		fmt.Fprintf(h, "%s %d ", name, len(state[name]))
		h.Write(state[name])
	}
	return h.Sum(nil)
}

// eager acknowledges commits when they are in memory, and makes them on disk a while later: the
// negative control of the crash test.
type eager struct {
	backend.Backend // in memory
	disk            backend.Backend
	mu              sync.Mutex
}

func newEager(disk backend.Backend) (backend.Backend, error) {
	e := &eager{Backend: mem.Open(), disk: disk}
	for r := (backend.Range{}); ; {
		page, next, err := disk.Scan(context.Background(), r)
		if err != nil {
			return nil, err
		}
		for _, m := range page {
			b := backend.Batch{Muts: []backend.Mut{{Key: m.Key, Value: m.Value, Version: m.Version}}}
			if err := e.Backend.Commit(context.Background(), b); err != nil {
				return nil, err
			}
		}
		if r.Start = next; next == nil {
			return e, nil
		}
	}
}

func (e *eager) Commit(ctx context.Context, b backend.Batch) error {
	late := backend.Batch{ID: b.ID}
	for _, m := range b.Muts {
		late.Muts = append(late.Muts, backend.Mut{Key: bytes.Clone(m.Key), Value: bytes.Clone(m.Value), Version: m.Version, Delete: m.Delete})
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.Backend.Commit(ctx, b); err != nil {
		return err
	}
	time.AfterFunc(50*time.Millisecond, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if err := e.disk.Commit(context.Background(), late); err != nil {
			panic(err)
		}
	})
	return nil
}

// ack is a line of the child.
type ack struct {
	thread  int
	id, sum string
}

// crash runs a child, kills it some time after its first acknowledgement, and returns the saves it
// acknowledged.
func crash(t *testing.T, mode string, dir disk, cycle int, after time.Duration) (acked []ack) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, string(dir), fmt.Sprint(cycle))
	cmd.Env = append(os.Environ(), childEnv+"="+mode)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			break // a line cut off by the kill was not acknowledged to anyone
		}
		var a ack
		if err == nil {
			_, err = fmt.Sscan(line, &a.thread, &a.id, &a.sum)
		}
		if err != nil {
			t.Fatalf("line %q of the child: %v", line, err)
		}
		if acked = append(acked, a); len(acked) == 1 {
			time.AfterFunc(after, func() { cmd.Process.Kill() })
		}
	}
	cmd.Wait()
	if stderr.Len() > 0 {
		t.Fatalf("the child failed: %s", stderr.String())
	}
	if len(acked) == 0 {
		t.Fatalf("cycle %d: nothing was acknowledged", cycle)
	}
	return acked
}

// lost loads an acknowledged save and returns its fault, if any.
func lost(s *Store, acked []ack) (problems []string) {
	for _, a := range acked {
		cp, err := s.Thread(crashRef(a.thread)).Load(context.Background(), At(a.id))
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s of thread %d: %v", a.id, a.thread, err))
		} else if sum := fmt.Sprintf("%x", stateSum(stateOf(cp))); sum != a.sum {
			problems = append(problems, fmt.Sprintf("%s of thread %d differs from its save", a.id, a.thread))
		}
	}
	return problems
}

// crashCycles is how often the crash test kills; CKPTD_CRASH_CYCLES sets it, for campaigns.
func crashCycles(t *testing.T) int {
	if v := os.Getenv("CKPTD_CRASH_CYCLES"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatalf("CKPTD_CRASH_CYCLES: %v", err)
		}
		return n
	}
	if testing.Short() || raceEnabled {
		return 4
	}
	return 50
}

// TestCrash kills a saving process again and again. Every checkpoint that it acknowledged exists,
// byte for byte, and the store is sound and continues.
func TestCrash(t *testing.T) {
	dir := disk(t.TempDir())
	r := rand.New(rand.NewPCG(11, 12))
	var acked []ack
	cycles := crashCycles(t)
	for cycle := range cycles {
		now := crash(t, "save", dir, cycle, time.Duration(r.IntN(120_000))*time.Microsecond)
		s, err := dir.open(nil)
		if err != nil {
			t.Fatalf("cycle %d: opening again: %v", cycle, err)
		}
		older := acked
		if cycle < cycles-1 { // all of them in the end, else those that were on disk before now and then
			older = slices.Clone(acked)
			r.Shuffle(len(older), func(i, j int) { older[i], older[j] = older[j], older[i] })
			older = older[:min(len(older), 50)]
		}
		for _, p := range lost(s, append(slices.Clone(now), older...)) {
			t.Errorf("cycle %d: %s", cycle, p)
		}
		acked = append(acked, now...)
		for range 4 {
			i := r.IntN(crashThreads)
			state := map[string][]byte{"log": words(r, 500)}
			cp, err := s.Thread(crashRef(i)).Save(t.Context(), Draft{Channels: changesOf(state)})
			if err != nil {
				t.Fatalf("cycle %d: saving on: %v", cycle, err)
			}
			acked = append(acked, ack{i, cp.ID, fmt.Sprintf("%x", stateSum(state))})
		}
		mustBeClean(t, s, upkeep.VerifyOptions{Deep: cycle%5 == 4 || cycle == cycles-1})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("%d cycles, %d checkpoints acknowledged", cycles, len(acked))
}

// TestCrashFindsEarlyAcknowledgements is the negative control: with a driver that acknowledges too
// early, the check finds losses.
func TestCrashFindsEarlyAcknowledgements(t *testing.T) {
	dir := disk(t.TempDir())
	for cycle := range 3 {
		acked := crash(t, "save eagerly", dir, cycle, 100*time.Millisecond)
		s, err := dir.open(nil)
		if errors.Is(err, ErrCorrupt) { // even the store record was lost
			t.Logf("cycle %d: all of %d lost: %v", cycle, len(acked), err)
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		problems := lost(s, acked)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if len(problems) > 0 {
			t.Logf("cycle %d: %d of %d lost", cycle, len(problems), len(acked))
			return
		}
	}
	t.Error("no checkpoint was lost although they were acknowledged too early")
}
