package client

import (
	"context"
	"fmt"
	"io"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/wire"
)

// Watch yields an event for every checkpoint in scope that becomes durable after the cursor, and
// waits for more, until ctx ends (its error comes last). If the connection breaks, or three
// heartbeats are missed, it resumes after the last event, without missing or repeating any. It ends
// with ErrUnreachable after Options.Attempts failed attempts; the cursor of the last event resumes
// it then.
func (s *Store) Watch(ctx context.Context, scope engine.WatchScope, from engine.Cursor) iter.Seq2[engine.Event, error] {
	return func(yield func(engine.Event, error) bool) {
		w := &watch{s: s, scope: scope, cursor: from, began: !scope.Began, seen: seen{last: map[lineage]engine.Event{}}}
		err := s.retry(ctx, &ckptdv1.WatchRequest{}, func(ctx context.Context) (bool, error) { return w.attempt(ctx, yield) })
		if err != nil && err != errEnough {
			yield(engine.Event{}, fmt.Errorf("watching: %w", err))
		}
	}
}

type watch struct {
	s      *Store
	scope  engine.WatchScope
	cursor engine.Cursor
	began  bool // the caller knows, or need not
	seen   seen
}

// attempt passes on events until the connection breaks.
func (w *watch) attempt(ctx context.Context, yield func(engine.Event, error) bool) (progress bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	patience := 3 * w.s.o.Heartbeat
	silence := time.AfterFunc(patience, cancel)
	defer silence.Stop()
	req := &ckptdv1.WatchRequest{Tenant: w.scope.Tenant, User: w.scope.User, Thread: w.scope.Thread, Cursor: string(w.cursor),
		Heartbeat: durationpb.New(w.s.o.Heartbeat)}
	err = receive(ctx, w.s, w.s.threads.Watch, req, func(m *ckptdv1.WatchResponse) error {
		silence.Stop() // the caller may take as long as it wants
		progress = true
		if m.GetCursor() != "" {
			w.cursor = engine.Cursor(m.GetCursor())
		}
		if !w.pass(m, yield) {
			return errEnough
		}
		silence.Reset(patience)
		return nil
	})
	if err == nil { // a watch has no end
		err = &connError{io.ErrUnexpectedEOF, true}
	}
	return progress, err
}

// pass yields the event of a message, unless it is a heartbeat or was there before.
func (w *watch) pass(m *ckptdv1.WatchResponse, yield func(engine.Event, error) bool) bool {
	if m.GetEvent() == nil {
		if w.began {
			return true
		}
		w.began = true
		return yield(engine.Event{Cursor: w.cursor}, nil)
	}
	e := wire.UnpackEvent(m.GetEvent(), string(w.cursor))
	return !w.seen.first(e) || yield(e, nil)
}

// seen knows the newest event of every lineage that had one lately. A watch that is resumed may
// repeat events of the milliseconds before its cursor.
type seen struct {
	last map[lineage]engine.Event
	room int // size at which old ones are dropped
}

type lineage struct {
	ref        engine.Ref
	generation uint64
}

// repeatable is the maximum age, in milliseconds, of events that may still be repeated, with a
// generous margin.
const repeatable = 60_000

// first reports whether an event was not there before, and remembers it.
func (s *seen) first(e engine.Event) bool {
	of := lineage{e.Ref, e.Generation}
	if e.Seq <= s.last[of].Seq {
		return false
	}
	s.last[of] = engine.Event{Seq: e.Seq, Time: e.Time}
	if len(s.last) > s.room {
		for of, last := range s.last {
			if last.Time < e.Time-repeatable {
				delete(s.last, of)
			}
		}
		s.room = max(1024, 2*len(s.last))
	}
	return true
}
