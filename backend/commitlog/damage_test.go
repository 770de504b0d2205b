package commitlog_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/ckptd/ckptd/backend/commitlog"
	"github.com/ckptd/ckptd/backend/commitlog/faultfs"
)

// A bit that is flipped anywhere costs one frame at most, and never without a sign: a later frame,
// a doubt, or the anchor.
func TestEveryFlippedBit(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 8))
	s := create(t)
	for range 3 { // of which two segments are full
		for range 4 {
			must(t, s.commit(random(rnd, 500)))
		}
		s.safe.Store(s.log.Last().N - 6)
	}
	at := commitlog.Position{Incarnation: life}
	whole := s.fs.Killed()
	l, err := commitlog.Open(whole, options(s))
	must(t, err)
	tail, err := l.Scan(at)
	must(t, err)
	want := len(tail.Frames)
	if want < 6 || tail.Doubt || len(tail.Notes) > 0 {
		t.Fatalf("%d frames, %v", want, tail.Notes)
	}
	names, _ := whole.List()
	flips := 0
	for _, name := range names {
		b := whole.Bytes(name)
		for i := range b {
			if name == "anchor" && i%4096 > 200 {
				continue
			}
			bit := byte(1) << rnd.IntN(8)
			b[i] ^= bit
			checkFlipped(t, whole, name, i, tail.Frames)
			b[i] ^= bit
			flips++
		}
	}
	t.Logf("%d flips in %d files", flips, len(names))
}

func checkFlipped(t *testing.T, files *faultfs.FS, name string, i int, want []commitlog.FrameRef) {
	t.Helper()
	l, err := commitlog.Open(files, options(&session{}))
	if err != nil {
		t.Fatalf("byte %d of %s: %v", i, name, err)
	}
	got, err := l.Scan(commitlog.Position{Incarnation: life})
	if err != nil {
		t.Fatalf("byte %d of %s: %v", i, name, err)
	}
	missing, last := 0, want[len(want)-1].Pos.N
	for _, w := range want {
		if len(got.Frames) > 0 && got.Frames[0].Pos == w.Pos {
			got.Frames = got.Frames[1:]
			continue
		}
		if missing++; w.Pos.N == last && !got.Doubt {
			t.Errorf("byte %d of %s: the last frame is missing without a doubt", i, name)
		}
	}
	if missing > 1 || len(got.Frames) > 0 {
		t.Errorf("byte %d of %s: %d frames are missing, %d are too many", i, name, missing, len(got.Frames))
	}
	if _, ok := l.Anchor(); !ok {
		t.Errorf("byte %d of %s: no anchor is left", i, name)
	}
}

// A segment that was cut short loses the frames in the part cut off, and Scan reports it.
func TestCutShort(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 9))
	s := create(t)
	for range 3 {
		must(t, s.commit(random(rnd, 500)))
	}
	names, _ := s.fs.List()
	for size := 0; size < smallSegment; size += 100 {
		files := s.fs.Killed()
		files.Cut(names[0], size)
		l, err := commitlog.Open(files, options(s))
		must(t, err)
		tail, err := l.Scan(commitlog.Position{Incarnation: life})
		must(t, err)
		if len(tail.Frames) < 3 && !tail.Doubt && size >= 512 {
			t.Errorf("cut to %d: %d frames and no doubt", size, len(tail.Frames))
		}
	}
}

// No file, however it is made, makes reading it panic, or gives a mutation that encodes to other
// bytes.
func FuzzSegment(f *testing.F) {
	rnd := rand.New(rand.NewPCG(10, 10))
	files := faultfs.New()
	if err := commitlog.Create(files, store, life); err != nil {
		f.Fatal(err)
	}
	l, err := commitlog.Open(files, options(&session{}))
	if err != nil {
		f.Fatal(err)
	}
	if err := l.Begin(commitlog.Position{Incarnation: life}); err != nil {
		f.Fatal(err)
	}
	s := &session{fs: files, log: l}
	for range 3 {
		if err := s.commit(random(rnd, 300)); err != nil {
			f.Fatal(err)
		}
	}
	l.Close()
	names, _ := files.List()
	f.Add(bytes.Clone(files.Bytes(names[0])))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		files := faultfs.New()
		for name, content := range map[string][]byte{names[0]: b, "anchor": b} {
			file, err := files.Create(name)
			must(t, err)
			_, err = file.WriteAt(content, 0)
			must(t, err)
		}
		l, err := commitlog.Open(files, options(&session{}))
		if err != nil {
			if !errors.Is(err, commitlog.ErrNewer) && !errors.Is(err, commitlog.ErrForeign) {
				t.Fatal(err)
			}
			return
		}
		tail, err := l.Scan(commitlog.Position{Incarnation: life})
		must(t, err)
		r := l.Reader()
		defer r.Close()
		for _, ref := range tail.Frames {
			_, err := r.Mutations(ref)
			must(t, err)
		}
	})
}

func FuzzMutations(f *testing.F) {
	f.Add([]byte{1, 2, 'k', 'e', 3, 'v', 'a', 'l', 0, 1, 'k'})
	f.Add([]byte{1, 0x80, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var again commitlog.Frame
		again.Reset(len(b), 0)
		if commitlog.ParseMutations(b, func(m commitlog.Mutation) error {
			if m.User == 0 {
				copy(again.Delete(len(m.Key)), m.Key)
				return nil
			}
			k, v := again.Put(m.User, len(m.Key), len(m.Value))
			copy(k, m.Key)
			copy(v, m.Value)
			return nil
		}) == nil && again.Len() != len(b) {
			t.Errorf("%d bytes encode to %d", len(b), again.Len())
		}
	})
}
