package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// A list whose connections all break somewhere else has each checkpoint once, in order.
func TestListGoesOn(t *testing.T) { overBoth(t, Options{Attempts: 50}, checkListGoesOn) }

func checkListGoesOn(t *testing.T, w *world) {
	ids := w.fill("t", 20)
	slices.Reverse(ids)
	w.out.Store(0)
	if got, err := collect(w.Thread(place("t")).History(t.Context(), engine.HistoryOptions{Data: true})); err != nil || !slices.Equal(got, ids) {
		t.Fatalf("%v, %v", got, err)
	}
	all := w.out.Load()
	for cut := int64(1); cut < all; cut += 61 {
		w.faults(func(n int64) fault { return fault{cut: cut + 100*n} })
		got, err := collect(w.Thread(place("t")).History(t.Context(), engine.HistoryOptions{Data: true}))
		if err != nil || !slices.Equal(got, ids) {
			t.Errorf("cut at %d: %v, %v", cut, got, err)
		}
		w.faults(func(n int64) fault { return fault{cut: cut + 100*n} })
		if got, err := collect(w.Thread(place("t")).History(t.Context(), engine.HistoryOptions{Limit: 8})); err != nil || !slices.Equal(got, ids[:8]) {
			t.Errorf("8 of them, cut at %d: %v, %v", cut, got, err)
		}
	}
	// One that gets nowhere ends.
	w.faults(func(n int64) fault { return fault{cut: 1} })
	if got, err := collect(w.Thread(place("t")).History(t.Context(), engine.HistoryOptions{})); !errors.Is(err, ErrUnreachable) || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	w.faults(nil)
	if _, err := collect(w.Thread(place("none")).History(t.Context(), engine.HistoryOptions{})); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("a thread that is not there: %v", err)
	}
}

func collect(seq func(func(*engine.Checkpoint, error) bool)) (ids []string, err error) {
	for cp, err := range seq {
		if err != nil {
			return ids, err
		}
		ids = append(ids, cp.ID)
	}
	return ids, nil
}

func TestThreads(t *testing.T) {
	w := newWorld(t, Options{Attempts: 20})
	for i := range 10 {
		w.fill(fmt.Sprint("t", i), 1)
	}
	list := func(o engine.ThreadOptions) (names []string) {
		for info, err := range w.User("acme", "alice").Threads(t.Context(), o) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, info.Ref.Thread)
		}
		return names
	}
	w.faults(func(n int64) fault { return fault{cut: 400 * n} })
	if got := list(engine.ThreadOptions{}); len(got) != 10 || got[9] != "t9" {
		t.Errorf("%v", got)
	}
	if got := list(engine.ThreadOptions{After: "t6"}); !slices.Equal(got, []string{"t7", "t8", "t9"}) {
		t.Errorf("%v", got)
	}
	for info := range w.User("acme", "alice").Threads(t.Context(), engine.ThreadOptions{}) { // a consumer may leave
		if info.Ref.Thread != "t0" {
			t.Errorf("%v", info)
		}
		break
	}
}

// A watch whose connections break again and again has each event once, in the order of each
// lineage.
func TestWatchGoesOn(t *testing.T) { overBoth(t, Options{Attempts: 50}, checkWatchGoesOn) }

func checkWatchGoesOn(t *testing.T, w *world) {
	const lineages, each = 12, 25
	w.faults(func(n int64) fault { return fault{cut: 200 + 97*n%900} })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	last := map[string]uint64{}
	total, began := 0, make(chan bool)
	go func() {
		<-began
		for i := range each {
			for l := range lineages {
				d := engine.Draft{Step: int64(i), Channels: []engine.Change{{Name: "n", Data: []byte("x")}}}
				if _, err := w.engine.Thread(place(fmt.Sprint("t", l))).Save(ctx, d); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	for e, err := range w.Watch(ctx, engine.WatchScope{Tenant: "acme", Began: true}, "") {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq == 0 {
			close(began)
			continue
		}
		if e.Seq != last[e.Ref.Thread]+1 {
			t.Errorf("seq %d of %s after %d", e.Seq, e.Ref.Thread, last[e.Ref.Thread])
		}
		last[e.Ref.Thread] = e.Seq
		if total++; total == lineages*each {
			break
		}
	}
	if total != lineages*each || w.calls.Load() < 10 {
		t.Errorf("%d events over %d connections", total, w.calls.Load())
	}
}

// A server may repeat the last events before a cursor.
func TestWatchDropsRepeats(t *testing.T) {
	s := seen{last: map[lineage]engine.Event{}}
	e := engine.Event{Ref: place("t"), Generation: 1, Seq: 2}
	older, newer, reborn := e, e, e
	older.Seq, newer.Seq = 1, 3
	reborn.Generation, reborn.Seq = 2, 1
	for i, tt := range []struct {
		e    engine.Event
		want bool
	}{{e, true}, {e, false}, {older, false}, {newer, true}, {e, false}, {reborn, true}} {
		if got := s.first(tt.e); got != tt.want {
			t.Errorf("%d: %v", i, got)
		}
	}
	for i := range 100_000 {
		s.first(engine.Event{Ref: place(fmt.Sprint(i)), Seq: 1, Time: int64(i) * 100})
	}
	if len(s.last) > 4*repeatable/100 {
		t.Errorf("%d lineages are remembered", len(s.last))
	}
}

// A watch that hears nothing tries another connection.
func TestWatchHearsNothing(t *testing.T) { overBoth(t, Options{}, checkWatchHearsNothing) }

func checkWatchHearsNothing(t *testing.T, w *world) {
	w.o.Heartbeat = 10 * time.Millisecond
	w.faults(func(n int64) fault { return fault{silence: n <= 2} })
	for e, err := range w.Watch(t.Context(), engine.WatchScope{Tenant: "acme", Began: true}, "") {
		if err != nil || e.Cursor == "" {
			t.Errorf("%+v, %v", e, err)
		}
		break
	}
	if w.calls.Load() != 3 {
		t.Errorf("%d calls", w.calls.Load())
	}
}

func TestWatchEnds(t *testing.T) {
	w := newWorld(t, Options{Attempts: 3})
	w.faults(func(n int64) fault { return fault{err: ErrDenied} })
	for _, err := range w.Watch(t.Context(), engine.WatchScope{Tenant: "acme"}, "") {
		if !errors.Is(err, ErrDenied) || w.calls.Load() != 1 {
			t.Errorf("%v after %d calls", err, w.calls.Load())
		}
	}
	w.faults(func(n int64) fault { return fault{drop: true} })
	for _, err := range w.Watch(t.Context(), engine.WatchScope{Tenant: "acme"}, "x") {
		if !errors.Is(err, ErrUnreachable) || w.calls.Load() != 3 {
			t.Errorf("%v after %d calls", err, w.calls.Load())
		}
	}
	w.faults(nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for e, err := range w.Watch(ctx, engine.WatchScope{Tenant: "acme", Began: true}, "") {
		if e.Cursor != "" {
			cancel()
		} else if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
}

// An error may come behind a report, and a report is not the end.
func TestReports(t *testing.T) {
	w := newWorld(t, Options{Attempts: 10})
	stage := ""
	gc, err := w.GC(t.Context(), "acme", upkeep.GCOptions{Progress: func(p upkeep.GCProgress) { stage = p.Stage }})
	if gc == nil || gc.Users != 7 || !errors.Is(err, engine.ErrKeyMissing) || stage != "parts" {
		t.Errorf("%+v, %v, %q", gc, err, stage)
	}
	w.out.Store(0)
	if _, err := w.Verify(t.Context(), upkeep.VerifyOptions{}); err != nil {
		t.Fatal(err)
	}
	all := w.out.Load()
	for cut := int64(1); cut < all; cut++ {
		w.faults(func(n int64) fault {
			if n == 1 {
				return fault{cut: cut}
			}
			return fault{}
		})
		if report, err := w.Verify(t.Context(), upkeep.VerifyOptions{}); err != nil || report.Users != 7 || w.calls.Load() != 2 {
			t.Errorf("cut at %d: %+v, %v, %d calls", cut, report, err, w.calls.Load())
		}
		w.faults(func(n int64) fault { return fault{cut: cut} })
		if _, err := w.GC(t.Context(), "acme", upkeep.GCOptions{}); !errors.Is(err, engine.ErrAmbiguous) || w.calls.Load() != 1 {
			t.Errorf("cut at %d: %v, %d calls", cut, err, w.calls.Load())
		}
	}
}

func TestBlobs(t *testing.T) { overBoth(t, Options{Attempts: 20}, checkBlobs) }

func checkBlobs(t *testing.T, w *world) {
	ctx := t.Context()
	u := w.User("acme", "alice")
	content := random(1 << 20)
	if err := w.engine.User("acme", "alice").Upkeep().Create(ctx); err != nil {
		t.Fatal(err)
	}
	w.faults(func(n int64) fault { return fault{drop: n == 1} })
	id, size, err := u.PutBlob(ctx, bytes.NewReader(content))
	if err != nil || size != 1<<20 || w.calls.Load() != 2 {
		t.Fatalf("%v, %d bytes, %d calls", err, size, w.calls.Load())
	}
	w.faults(func(n int64) fault { return fault{cut: 300_000 * n} })
	var got bytes.Buffer
	if n, err := u.GetBlob(ctx, id, &got); err != nil || n != 1<<20 || !bytes.Equal(got.Bytes(), content) || w.calls.Load() < 3 {
		t.Errorf("%v, %d bytes, %d calls", err, n, w.calls.Load())
	}
	// What cannot be read again is not sent again.
	w.faults(func(n int64) fault { return fault{drop: n == 1} })
	if _, _, err := u.PutBlob(ctx, io.MultiReader(bytes.NewReader(content))); !errors.Is(err, engine.ErrAmbiguous) || w.calls.Load() != 1 {
		t.Errorf("%v after %d calls", err, w.calls.Load())
	}
	w.faults(nil)
	broken := errors.New("broken")
	if _, _, err := u.PutBlob(ctx, io.MultiReader(bytes.NewReader(content[:1000]), errReader{broken})); !errors.Is(err, broken) {
		t.Errorf("a reader that fails: %v", err)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }
