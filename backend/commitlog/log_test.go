package commitlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ckptd/ckptd/backend/commitlog"
	"github.com/ckptd/ckptd/backend/commitlog/faultfs"
)

var (
	store = commitlog.ID{1, 2, 3}
	life  = commitlog.ID{7, 7, 7}
)

const smallSegment = 4 << 10

// session is an open log, with its expected content.
type session struct {
	t      *testing.T
	fs     *faultfs.FS
	log    *commitlog.Log
	safe   atomic.Uint64
	groups [][]commitlog.Mutation // of all openings, by n − 1
	start  uint64                 // the groups up to it are safe
	found  *commitlog.Tail
}

func options(s *session) commitlog.Options {
	return commitlog.Options{Store: store, Segment: smallSegment, Safe: func() (uint64, error) { return s.safe.Load(), nil }}
}

func create(t *testing.T) *session {
	t.Helper()
	files := faultfs.New()
	if err := commitlog.Create(files, store, life); err != nil {
		t.Fatal(err)
	}
	return open(t, files, commitlog.Position{Incarnation: life}, nil)
}

// open opens a log behind a position that everything up to is safe, checks the groups behind it,
// and goes on.
func open(t *testing.T, files *faultfs.FS, at commitlog.Position, groups [][]commitlog.Mutation) *session {
	t.Helper()
	s := &session{t: t, fs: files, start: at.N, groups: slices.Clone(groups)}
	s.safe.Store(at.N)
	var err error
	if s.log, err = commitlog.Open(files, options(s)); err != nil {
		t.Fatal(err)
	}
	if s.found, err = s.log.Scan(at); err != nil {
		t.Fatal(err)
	}
	last := at
	for _, ref := range s.found.Frames {
		if ref.Pos.N != last.N+1 || ref.Before != last.Hash {
			t.Fatalf("frame %d behind %d", ref.Pos.N, last.N)
		}
		last = ref.Pos
	}
	s.check()
	if err := s.log.Begin(last); err != nil {
		t.Fatal(err)
	}
	s.start = last.N // all of it is in tables by now
	s.safe.Store(last.N)
	t.Cleanup(func() { s.log.Close() })
	return s
}

// check compares the found frames with those written, as far as the test knows them.
func (s *session) check() {
	s.t.Helper()
	r := s.log.Reader()
	defer r.Close()
	for _, ref := range s.found.Frames[:min(len(s.found.Frames), len(s.groups)-int(s.start))] {
		b, err := r.Mutations(ref)
		if err != nil {
			s.t.Fatal(err)
		}
		if got := parse(s.t, b); !slices.EqualFunc(got, s.groups[ref.Pos.N-1], equal) {
			s.t.Fatalf("group %d is another one", ref.Pos.N)
		}
	}
}

func parse(t *testing.T, b []byte) (muts []commitlog.Mutation) {
	t.Helper()
	if err := commitlog.ParseMutations(b, func(m commitlog.Mutation) error {
		m.Key, m.Value = bytes.Clone(m.Key), bytes.Clone(m.Value)
		muts = append(muts, m)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return muts
}

func equal(a, b commitlog.Mutation) bool {
	return a.User == b.User && bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value)
}

// commit appends a group, syncs and acknowledges it.
func (s *session) commit(group []commitlog.Mutation) error {
	if err := s.write(group); err != nil {
		return err
	}
	if err := s.log.Sync(); err != nil {
		return err
	}
	s.log.Acknowledge()
	s.groups = append(s.groups, group)
	return nil
}

func (s *session) write(group []commitlog.Mutation) error {
	var f commitlog.Frame
	for _, m := range group {
		if m.User == 0 {
			copy(f.Delete(len(m.Key)), m.Key)
			continue
		}
		k, v := f.Put(m.User, len(m.Key), len(m.Value))
		copy(k, m.Key)
		copy(v, m.Value)
	}
	if _, err := s.log.Prepare(&f, int64(len(s.groups))); err != nil {
		return err
	}
	return s.log.Write(&f)
}

func random(rnd *rand.Rand, size int) (group []commitlog.Mutation) {
	for size > 0 {
		m := commitlog.Mutation{User: byte(rnd.IntN(9)), Key: noise(rnd, 1+rnd.IntN(70))}
		if m.User > 0 {
			m.Value = noise(rnd, rnd.IntN(min(size, 1000)+1))
		}
		size -= len(m.Key) + len(m.Value)
		group = append(group, m)
	}
	return group
}

func noise(rnd *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// All written frames are found, over openings that are killed, segments that are used again, and
// frames larger than those.
func TestEverythingIsFound(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		s := create(t)
		positions := []commitlog.Position{{Incarnation: life}}
		for range 5 {
			for range rnd.IntN(40) {
				size := 1 + rnd.IntN(900)
				if rnd.IntN(8) == 0 {
					size = 3 * smallSegment
				}
				must(t, s.commit(random(rnd, size)))
				positions = append(positions, s.log.Last())
				if rnd.IntN(10) == 0 {
					s.start += uint64(rnd.IntN(len(s.groups) - int(s.start) + 1))
					s.safe.Store(s.start)
				}
			}
			s = open(t, s.fs.Killed(), positions[s.safe.Load()], s.groups)
			if n := int(s.log.Last().N); n != len(s.groups) {
				t.Fatalf("seed %d: %d of %d groups are there", seed, n, len(s.groups))
			}
		}
		if s.found.Doubt || s.found.Damaged || len(s.found.Notes) > 0 {
			t.Errorf("seed %d: found damage where there is none: %v", seed, s.found.Notes)
		}
	}
}

// Segments whose groups are safe are used again, so the log stays small; those that are not stay.
func TestSegmentsAreUsedAgain(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	s := create(t)
	for range 200 {
		must(t, s.commit(random(rnd, 700)))
		s.safe.Store(s.log.Last().N - 1)
	}
	if got := s.log.Bytes(); got > 5*smallSegment {
		t.Errorf("%d bytes of segments for groups that are safe", got)
	}
	s.safe.Store(0)
	before := s.log.Bytes()
	for range 40 {
		must(t, s.commit(random(rnd, 700)))
	}
	if got := s.log.Bytes() - before; got < 8*smallSegment {
		t.Errorf("%d bytes more for 40 groups that are not safe", got)
	}
}

// After a power loss every acknowledged frame is there, whatever happened to the pages that were
// not synced; and also after a second one, in the middle of the opening that follows.
func TestPowerLoss(t *testing.T) {
	images := 300
	if testing.Short() {
		images = 50
	}
	for seed := range uint64(images) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		s := create(t)
		positions := []commitlog.Position{{Incarnation: life}}
		for range 1 + rnd.IntN(30) {
			must(t, s.commit(random(rnd, 1+rnd.IntN(2000))))
			positions = append(positions, s.log.Last())
			if rnd.IntN(5) == 0 {
				s.start += uint64(rnd.IntN(len(s.groups) - int(s.start) + 1))
				s.safe.Store(s.start)
			}
		}
		torn := random(rnd, 1+rnd.IntN(6000))
		must(t, s.write(torn)) // and not synced
		acked := len(s.groups)
		all := append(slices.Clone(s.groups), torn)
		for range 3 {
			s = open(t, s.fs.PowerLoss(rnd), positions[s.start], all)
			if n := int(s.log.Last().N); n < acked {
				t.Fatalf("seed %d: %d of %d acknowledged groups are there", seed, n, acked)
			} else if n == acked {
				all = all[:n]
			}
			positions = append(positions[:acked+1], s.log.Last())[:s.log.Last().N+1]
			s.groups = slices.Clone(all)
			must(t, s.commit(random(rnd, 1+rnd.IntN(2000))))
			positions = append(positions, s.log.Last())
			torn = random(rnd, 1+rnd.IntN(2000))
			must(t, s.write(torn))
			acked, all = len(s.groups), append(slices.Clone(s.groups), torn)
		}
	}
}

// After a write or a sync that failed there is no other; a segment that cannot be prepared stops
// nothing.
func TestFailures(t *testing.T) {
	failed := errors.New("failed")
	for _, op := range []string{"write", "sync", "create", "preallocate", "rename", "sync names"} {
		for nth := range 12 {
			rnd := rand.New(rand.NewPCG(uint64(nth), 5))
			s := create(t)
			must(t, s.commit(random(rnd, 300)))
			positions := []commitlog.Position{{Incarnation: life}, s.log.Last()}
			left, fatal := nth, atomic.Bool{}
			s.fs.FailWith(func(o, name string) error {
				if o != op || left < 0 {
					return nil
				}
				if left--; left >= 0 {
					return nil
				}
				fatal.Store(op == "write" || op == "sync")
				return failed
			})
			refused := 0
			for range 60 {
				s.safe.Store(s.log.Last().N - 1)
				err := s.commit(random(rnd, 900))
				if err == nil {
					positions = append(positions, s.log.Last())
				}
				if err != nil {
					refused++
				} else if fatal.Load() && refused > 0 {
					t.Fatalf("%s %d: a commit after one that failed", op, nth)
				}
			}
			s.log.Close()
			if left < 0 && fatal.Load() != (refused > 1) {
				t.Errorf("%s %d: %d commits were refused", op, nth, refused)
			}
			s.fs.FailWith(nil)
			again := open(t, s.fs.Killed(), positions[s.safe.Load()], s.groups)
			if n := int(again.log.Last().N); n < len(s.groups) {
				t.Errorf("%s %d: %d of %d acknowledged groups are there", op, nth, n, len(s.groups))
			}
		}
	}
}

// After Reset no byte of a mutation is left, and the log goes on.
func TestReset(t *testing.T) {
	rnd := rand.New(rand.NewPCG(6, 6))
	s := create(t)
	secret := []byte("a value that is to be erased")
	for i := range 50 {
		must(t, s.commit([]commitlog.Mutation{{User: 1, Key: fmt.Append(nil, i), Value: secret}}))
		s.safe.Store(s.log.Last().N / 2)
	}
	at := s.log.Last()
	must(t, s.log.Reset(at))
	names, _ := s.fs.List()
	for _, name := range names {
		if bytes.Contains(s.fs.Bytes(name), secret) {
			t.Errorf("%s still holds it", name)
		}
	}
	if p, ok := s.log.Anchor(); !ok || p != at {
		t.Errorf("the anchor is at %d", p.N)
	}
	must(t, s.commit(random(rnd, 100)))
	if next := s.log.Last(); next.N != at.N+1 {
		t.Errorf("the next group is %d behind %d", next.N, at.N)
	}
	again := open(t, s.fs.Killed(), at, s.groups)
	if again.log.Last() != s.log.Last() {
		t.Errorf("found %d, want %d", again.log.Last().N, s.log.Last().N)
	}
}

// Without segments both slots of the anchor name the last group: one that is damaged leaves no
// older position, which nothing else would contradict.
func TestAnchorWithoutSegments(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 8))
	for _, end := range []string{"reset", "begin"} {
		s := create(t)
		for range 5 {
			must(t, s.commit(random(rnd, 100)))
		}
		at := s.log.Last()
		if end == "reset" {
			must(t, s.log.Reset(at))
		} else {
			open(t, s.fs, commitlog.Position{Incarnation: life}, s.groups)
		}
		for slot := range 2 {
			files := s.fs.Killed()
			files.Bytes("anchor")[slot*4096+20] ^= 1
			l, err := commitlog.Open(files, options(&session{}))
			must(t, err)
			if p, ok := l.Anchor(); !ok || p != at {
				t.Errorf("%s: slot %d is damaged, and the anchor is at %d, want %d", end, slot, p.N, at.N)
			}
		}
	}
}

// A log that could not be begun is closed without another error, and writes nothing then.
func TestCloseAfterBeginFailed(t *testing.T) {
	s := create(t)
	must(t, s.commit(random(rand.New(rand.NewPCG(9, 9)), 100)))
	at := s.log.Last()
	files := commitlog.Dir(t.TempDir())
	must(t, s.fs.Killed().Save(string(files)))
	l, err := commitlog.Open(failingSync{files}, options(&session{}))
	must(t, err)
	if err := l.Begin(at); !errors.Is(err, syscall.EIO) {
		t.Fatalf("%v, want EIO", err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
}

// failingSync is a directory whose files cannot be synced.
type failingSync struct{ commitlog.FS }

func (f failingSync) Open(name string) (commitlog.File, error) {
	file, err := f.FS.Open(name)
	return unsynced{file}, err
}

type unsynced struct{ commitlog.File }

func (unsynced) Sync() error { return syscall.EIO }

// Segments that could not be prepared for another use keep what is in them, and a reset removes
// them, too.
func TestResetAfterFailures(t *testing.T) {
	for _, op := range []string{"rename", "sync names"} {
		t.Run(op, func(t *testing.T) {
			s := create(t)
			failed := 0
			s.fs.FailWith(func(o, _ string) error {
				if o == op && s.log.Last().N > 30 && failed < 3 {
					failed++
					return syscall.EIO
				}
				return nil
			})
			for i := range 80 {
				if err := s.commit([]commitlog.Mutation{{User: 1, Key: fmt.Append(nil, i), Value: make([]byte, 900)}}); err == nil {
					s.safe.Store(s.log.Last().N - 1)
				}
			}
			must(t, s.log.Reset(s.log.Last()))
			if names, err := s.fs.List(); err != nil || !slices.Equal(names, []string{"anchor"}) || failed == 0 {
				t.Errorf("after %d failures %q are left, %v", failed, names, err)
			}
		})
	}
}

// A loss that is accepted begins another incarnation, behind a smaller n; nothing of the first one
// counts.
func TestResetToAnotherIncarnation(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	s := create(t)
	must(t, s.commit(random(rnd, 100)))
	at := s.log.Last()
	must(t, s.commit(random(rnd, 100)))
	at.Incarnation = commitlog.ID{8}
	must(t, s.log.Reset(at))
	for slot, b := range [][]byte{s.fs.Bytes("anchor")[:4096], s.fs.Bytes("anchor")[4096:]} {
		if !bytes.Contains(b, at.Incarnation[:]) {
			t.Errorf("slot %d of the anchor is of the first incarnation", slot)
		}
	}
	s.groups = s.groups[:1]
	must(t, s.commit(random(rnd, 100)))
	again := open(t, s.fs.Killed(), at, s.groups)
	if again.log.Last().N != 2 {
		t.Errorf("%d groups", again.log.Last().N)
	}
}

// A log of another store, and files that are not a log, are refused with different errors.
func TestOpenRefuses(t *testing.T) {
	s := create(t)
	must(t, s.commit([]commitlog.Mutation{{User: 1, Key: []byte("k")}}))
	s.log.Close()
	o := options(s)
	if _, err := commitlog.Open(faultfs.New(), o); !errors.Is(err, commitlog.ErrMissing) {
		t.Errorf("nothing there: %v", err)
	}
	o.Store = commitlog.ID{9}
	if _, err := commitlog.Open(s.fs, o); !errors.Is(err, commitlog.ErrForeign) {
		t.Errorf("another store: %v", err)
	}
	names, _ := s.fs.List()
	for _, name := range names {
		files := s.fs.Killed()
		if !commitlog.AgeForTest(files.Bytes(name), 2) {
			continue
		}
		if _, err := commitlog.Open(files, options(s)); !errors.Is(err, commitlog.ErrNewer) || !strings.Contains(err.Error(), name) {
			t.Errorf("a newer %s: %v", name, err)
		}
	}
}
