package migration

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/migrate"
)

// A journal that ends anywhere has the frames that are whole, and goes on behind them. A change
// before its end is damage.
func TestTornJournal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeSteps)
	const id = "20260101-000000"
	l, err := w.jobs.create(id, &begin{Version: journalVersion, Spec: acme})
	if err != nil {
		t.Fatal(err)
	}
	ends := []int64{l.size}
	for range 2 {
		if err := l.commit(&frame{Intents: []intent{{User: "ada", Thread: "t", Seqs: []uint64{1}}}}); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, l.size)
	}
	l.close()
	whole, err := os.ReadFile(w.jobs.path(id))
	if err != nil {
		t.Fatal(err)
	}
	frames := func(content []byte) (int, error) {
		if err := os.WriteFile(w.jobs.path(id), content, 0o600); err != nil {
			t.Fatal(err)
		}
		n := 0
		l, err := w.jobs.open(id, true, func(int64, *frame) error { n++; return nil })
		if err != nil {
			return 0, err
		}
		defer l.close()
		if err := l.commit(&frame{Outcomes: []outcome{}}); err != nil {
			t.Fatal(err)
		}
		return n, nil
	}
	for cut := ends[0]; cut <= ends[2]; cut++ {
		want := 1
		for want < 3 && cut >= ends[want] {
			want++
		}
		for _, zeros := range []int{0, 1, 100} {
			content := append(whole[:cut:cut], make([]byte, zeros)...)
			if n, err := frames(content); err != nil || n != want {
				t.Fatalf("cut at %d of %v, %d zeros: %d frames, %v; want %d", cut, ends, zeros, n, err, want)
			}
		}
	}
	for at := range ends[1] {
		spoilt := append([]byte(nil), whole...)
		spoilt[at] ^= 1
		if n, err := frames(spoilt); err == nil && n > 1 || err != nil && !errors.Is(err, engine.ErrCorrupt) {
			t.Fatalf("changed at %d: %d frames, %v", at, n, err)
		}
	}
}

func TestSets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeSteps)
	dir := filepath.Join(t.TempDir(), "m", "sets")
	if err := os.Mkdir(filepath.Dir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	var problems []error
	open := func() *Sets {
		s := NewSets(dir, new(migrate.Reader), func(err error) { problems = append(problems, err) })
		s.Open(w.store.Upkeep())
		return s
	}
	s := open()
	if s.For("acme", "support") != nil {
		t.Error("there is a set before one is installed")
	}
	two := fstest.MapFS{"support/0002_x.jq": {Data: []byte(".")}}
	wrong := map[string][32]byte{"support": {1}}
	if _, err := s.Install(t.Context(), "", two, wrong); !errors.Is(err, migrate.ErrInvalid) || s.For("acme", "support") != nil {
		t.Errorf("another digest: %v", err)
	}
	if _, err := s.Install(t.Context(), "", two, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Install(t.Context(), "acme", threeSteps, nil); err != nil {
		t.Fatal(err)
	}
	for range 2 { // as they are installed, and as they are read again
		for tenant, want := range map[string]uint64{"acme": 4, "other": 2} {
			if _, newest := s.For(tenant, "support").Versions(); newest != want {
				t.Errorf("tenant %s has a set up to %d, want %d", tenant, newest, want)
			}
		}
		s = open()
	}
	if err := s.Remove(t.Context(), "acme", "support"); err != nil {
		t.Fatal(err)
	}
	if _, newest := s.For("acme", "support").Versions(); newest != 2 {
		t.Error("without a set of its own a tenant has not that of all")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.set"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	content, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 1
	if err := os.WriteFile(files[0], content, 0o600); err != nil {
		t.Fatal(err)
	}
	s = open()
	if s.For("acme", "support") != nil || len(problems) != 1 || !errors.Is(problems[0], engine.ErrCorrupt) {
		t.Errorf("damaged: %v", problems)
	}
	if _, err := s.List(t.Context()); !errors.Is(err, engine.ErrCorrupt) {
		t.Errorf("listing damaged sets: %v", err)
	}
}
