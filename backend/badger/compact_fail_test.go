package badger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend"
)

// until is a context that ends when something has happened.
type until struct {
	context.Context
	happened func() bool
}

func (u until) Err() error {
	if u.happened() {
		return context.Canceled
	}
	return nil
}

// A compaction writes keys again, into a third memory file, and is given up. What is committed
// after it is durable.
func TestCommitsAfterACompactionGivenUp(t *testing.T) {
	s := openSmall(t)
	overwriteWithReader(t, s, 700, 30<<10)
	again := false // Badger was opened again, and began with the first file
	third := until{t.Context(), func() bool {
		n := newestMemory(t, s.dir)
		again = again || n < 3
		return again && n >= 3
	}}
	if err := s.Compact(third); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		logs, err := filepath.Glob(filepath.Join(s.dir, "*"+memorySuffix))
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%q are not flushed, %v", logs, err)
		}
		if len(logs) == 1 {
			break
		}
	}
	write(t, s, "a", "1")
	newest := newestMemory(t, s.dir) // after the commit: Badger may have begun a file with it
	if n := s.flushes.newest; n != newest {
		t.Errorf("memory file %d is taken for that of the commit, which is in %d", n, newest)
	}
	if need := s.commits.space.unflushed; need < 2*leastMemTable {
		t.Errorf("%d bytes are said to be in memory, after the writes of the compaction", need)
	}
}

func newestMemory(t *testing.T, dir string) (newest int) {
	t.Helper()
	if err := eachMemory(dir, func(number int) { newest = max(newest, number) }); err != nil {
		t.Fatal(err)
	}
	return newest
}

// overwriteWithReader leaves two versions of keys in the last level, of which the older one is of
// no use any more.
func overwriteWithReader(t *testing.T, s *Store, keys, size int) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	overwrite := func() {
		value := make([]byte, size)
		for i := range keys {
			for at := range value {
				value[at] = byte(rnd.Uint32())
			}
			write(t, s, fmt.Sprintf("key-%04d", i), string(value))
		}
	}
	overwrite()
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	reader := s.db.NewTransaction(false)
	overwrite()
	flushWithReader(t, s)
	reader.Discard()
}

// onMessage is a handler of logs that looks for a message.
type onMessage struct {
	slog.Handler
	begins string
	do     func()
}

func (h onMessage) Enabled(context.Context, slog.Level) bool { return true }

func (h onMessage) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, h.begins) {
		h.do()
	}
	return nil
}

// A compaction closes Badger and cannot open it again, and its caller gives up meanwhile. Every
// call after that says so.
func TestCompactionFailsWhileItIsGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	closing := func() {
		if err := os.WriteFile(filepath.Join(dir, "no number"+memorySuffix), nil, 0o600); err != nil {
			t.Error(err)
		}
		cancel()
	}
	log := slog.New(onMessage{slog.DiscardHandler, "Lifetime L0 stalled", closing}) // Badger's message when it is closed
	s, err := Open(dir, Options{MemTableSize: leastMemTable, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	write(t, s, "a", "1")
	if err := s.Compact(ctx); err == nil || ctx.Err() == nil || s.db != nil {
		t.Fatalf("Badger was to be closed: %v", err)
	}
	calls := map[string]func() error{
		"commit":  func() error { return s.Commit(t.Context(), single("b", "1")) },
		"get":     func() error { _, err := s.Get(t.Context(), []byte("a")); return err },
		"scan":    func() error { _, _, err := s.Scan(t.Context(), backend.Range{}); return err },
		"compact": func() error { return s.Compact(t.Context()) },
		"size":    func() error { _, err := s.DiskBytes(t.Context()); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "must be reopened") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
}
