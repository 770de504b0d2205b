package rival

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/ckptd/ckptd/bench/workload"
)

// folder returns a folder that the account of a server can access.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ckptd-rival-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

type place struct{ thread, step int }

// Every rival returns the saved states, the newest and older ones, for many concurrent writers, and
// again after closing and reopening.
func TestRivals(t *testing.T) {
	for _, r := range All() {
		for _, durable := range []bool{true, false} {
			if !durable && r.Default == "" {
				continue
			}
			name := r.Name
			if !durable {
				name += "/default"
			}
			t.Run(name, func(t *testing.T) {
				if r.Installed != nil {
					if version, err := r.Installed(); errors.Is(err, ErrNotInstalled) {
						t.Skip(err)
					} else if err != nil || version == "" {
						t.Fatalf("version %q, %v", version, err)
					}
				}
				testRival(t, r, durable)
			})
		}
	}
}

func testRival(t *testing.T, r Rival, durable bool) {
	const writers = 4
	ctx := t.Context()
	o := Options{Dir: folder(t), Durable: durable, Writers: writers}
	d := open(t, r, o)
	var mu sync.Mutex
	states, newest := map[place][]byte{}, map[int]int{}
	var wg sync.WaitGroup
	for i, name := range []string{"chat", "blackboard", "branchy", "multimodal"} {
		w, err := workload.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		player := w.Player(workload.Options{Seed: 1, Thread: i, Threads: writers})
		wg.Go(func() {
			for range 70 {
				s := player.Next()
				if err := d.Save(ctx, s); err != nil {
					t.Errorf("%s: saving step %d: %v", name, s.Number, err)
					return
				}
				mu.Lock()
				if s.Number%23 == 0 || s.Number == 69 {
					states[place{s.Thread, s.Number}] = bytes.Clone(s.State.Doc)
				}
				newest[s.Thread] = s.Number
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	compare(t, r, d, states, newest)
	if err := d.Settle(ctx); err != nil {
		t.Errorf("settling: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatalf("closing: %v", err)
	}
	d = open(t, r, o)
	compare(t, r, d, states, newest)
	if err := d.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
}

func open(t *testing.T, r Rival, o Options) Driver {
	t.Helper()
	d, err := r.Open(context.Background(), o)
	if err != nil {
		t.Fatalf("opening: %v", err)
	}
	return d
}

func compare(t *testing.T, r Rival, d Driver, states map[place][]byte, newest map[int]int) {
	t.Helper()
	for at, want := range states {
		got, err := d.Load(t.Context(), at.thread, at.step)
		if err != nil || !Same(r, got, want) {
			t.Errorf("thread %d, step %d: %d bytes for %d, %v", at.thread, at.step, len(got), len(want), err)
		}
	}
	for thread, step := range newest {
		got, err := d.Load(t.Context(), thread, -1)
		if err != nil || !Same(r, got, states[place{thread, step}]) {
			t.Errorf("thread %d, the newest: %d bytes, %v", thread, len(got), err)
		}
	}
	if _, err := d.Load(t.Context(), 0, 999); err == nil {
		t.Error("a step that was never saved is there")
	}
}

func TestSame(t *testing.T) {
	respells := Rival{Respells: true}
	for _, tt := range []struct {
		a, b  string
		r     Rival
		equal bool
	}{
		{`{"a":1}`, `{"a":1}`, Rival{}, true},
		{`{"a": 1}`, `{"a":1}`, Rival{}, false},
		{`{"b":2, "a": 1}`, `{"a":1,"b":2}`, respells, true},
		{`{"a":2}`, `{"a":1}`, respells, false},
		{`{"a":`, `{"a":1}`, respells, false},
	} {
		if Same(tt.r, []byte(tt.a), []byte(tt.b)) != tt.equal {
			t.Errorf("%s, %s: not %v", tt.a, tt.b, tt.equal)
		}
	}
}
