package badger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ckptd/ckptd/backend"
)

// takeNames has every flush of Badger's fail: the names of its next tables are taken.
func takeNames(t *testing.T, dir string) {
	for id := range 40 {
		name := filepath.Join(dir, fmt.Sprintf("%06d.sst", id))
		if _, err := os.Lstat(name); err == nil {
			continue // a table
		}
		if err := os.MkdirAll(filepath.Join(name, "taken"), 0o700); err != nil {
			t.Error(err)
		}
	}
}

// giveNames takes that back.
func giveNames(t *testing.T, dir string) {
	t.Helper()
	taken, err := filepath.Glob(filepath.Join(dir, "*.sst", "taken"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range taken {
		if err := os.RemoveAll(filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
	}
}

// Badger cannot flush as it is closed. Close gives up and leaves the directory as a crash does,
// locked until Badger ends, which it does here once it can flush.
func TestCloseGivesUp(t *testing.T) {
	s := openSmall(t)
	want := oracle{}
	for i := range 20 {
		want.commit(t, s, fmt.Sprint("key-", i), "value")
	}
	takeNames(t, s.dir)
	err := s.Close()
	if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "without flushing") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v, want ErrUnavailable", err)
	}
	if _, err := Open(s.dir, least); !errors.Is(err, backend.ErrLocked) {
		t.Errorf("%v, want ErrLocked while Badger tries on", err)
	}
	dir := killed(t, s.dir)
	giveNames(t, dir)
	want.reopen(t, dir)
	giveNames(t, s.dir)
	awaitEnd(t, s.dir, want)
}

// Badger cannot flush as a compaction closes it. Compact gives up, and the store stops.
func TestCompactGivesUp(t *testing.T) {
	s := openSmall(t)
	want := oracle{}
	want.commit(t, s, "key", "value")
	takeNames(t, s.dir)
	if err := s.Compact(t.Context()); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
	if err := s.Commit(t.Context(), single("key", "later")); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
	err := s.Close()
	if !errors.Is(err, backend.ErrUnavailable) || strings.Contains(err.Error(), "%") {
		t.Errorf("%v, want ErrUnavailable", err)
	}
	giveNames(t, s.dir)
	awaitEnd(t, s.dir, want)
}

// awaitEnd waits until a Badger that was given up on has ended, and wants all there.
func awaitEnd(t *testing.T, dir string, want oracle) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		s, err := Open(dir, least)
		if err == nil {
			if diff := want.differs(s); diff != "" {
				t.Error(diff)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			return
		}
		if !errors.Is(err, backend.ErrLocked) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// Badger cannot flush the replayed groups. Open gives up, and a later Open finds everything.
func TestOpenGivesUp(t *testing.T) {
	base, _, want := crashed(t)
	once := false
	opened := func() {
		if !once {
			takeNames(t, base)
		}
		once = true
	}
	o := least
	o.Log = slog.New(onMessage{slog.DiscardHandler, "All ", opened}) // "tables opened", Badger's message then
	s, err := Open(base, o)
	if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "cannot write to Badger's tables") || strings.Contains(err.Error(), "\n") {
		t.Fatalf("%v, want ErrUnavailable", err)
	}
	if s != nil || !once {
		t.Errorf("%v, %v", s, once)
	}
	dir := killed(t, base)
	giveNames(t, dir)
	giveNames(t, base)
	want.reopen(t, dir)
	awaitEnd(t, base, want)
}

// A wait for Badger ends when Badger is done, or with failures that come meanwhile.
func TestAwait(t *testing.T) {
	for _, tt := range []struct {
		message string
		want    error
	}{
		{"error flushing memtable to disk: %v, retrying", backend.ErrUnavailable},
		{"error flushing memtable to disk: no space left on device, %v", backend.ErrNoSpace},
		{"[Compactor: %d] LOG Compact FAILED with error", backend.ErrUnavailable},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, say := failing(tt.message)
			for range 100 { // before anybody waits
				say()
			}
			done := make(chan error, 1)
			done <- nil
			if err, ended := f.await(done); err != nil || !ended {
				t.Errorf("%v, %v", err, ended)
			}
			stop := repeat(say)
			defer stop()
			if err, ended := f.await(done); !errors.Is(err, tt.want) || ended {
				t.Errorf("%v, %v, want %v", err, ended, tt.want)
			}
		})
	}
}

// Compactions that fail for some seconds, many times in each, do not end a wait in which Badger
// goes on.
func TestAwaitOutlastsFailedCompactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, say := failing("[Compactor: %d] LOG Compact FAILED with error")
		stop := repeat(say)
		defer stop()
		done := make(chan error, 1)
		time.AfterFunc(3*time.Second, func() { done <- nil })
		if err, ended := f.await(done); err != nil || !ended {
			t.Errorf("%v, %v", err, ended)
		}
	})
}

// failing is a message of Badger's, as a function that logs it.
func failing(message string) (f *flushes, say func()) {
	f = &flushes{failures: make(chan string, giveUpAfter)}
	l := logger{nil, f}
	if strings.HasPrefix(message, "[") {
		return f, func() { l.Warningf(message, 1) }
	}
	return f, func() { l.Errorf(message, 1) }
}

// repeat says it every millisecond until stop.
func repeat(say func()) (stop func()) {
	quit, ended := make(chan bool), make(chan bool)
	go func() {
		defer close(ended)
		for {
			select {
			case <-quit:
				return
			case <-time.After(time.Millisecond):
				say()
			}
		}
	}()
	return func() { close(quit); <-ended }
}

// The message of a failed compaction has its error, and not its plan, which has keys.
func TestFailedCompactionNamesNoKeys(t *testing.T) {
	var said string
	f := flushes{failures: make(chan string, giveUpAfter)}
	l := logger{slog.New(onText{slog.DiscardHandler, &said}), &f}
	l.Warningf("[Compactor: %d] LOG Compact FAILED with error: %+v: %+v", 1, errors.New("why"), struct{ left []byte }{[]byte("secret")})
	for _, text := range []string{said, <-f.failures} {
		if !strings.HasSuffix(text, "FAILED with error: why") {
			t.Errorf("%q", text)
		}
	}
}

// onText keeps the last message.
type onText struct {
	slog.Handler
	last *string
}

func (h onText) Enabled(context.Context, slog.Level) bool { return true }

func (h onText) Handle(_ context.Context, r slog.Record) error {
	*h.last = r.Message
	return nil
}
