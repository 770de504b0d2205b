package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// HistoryOptions select checkpoints of a lineage. The zero value selects all, newest first, headers
// only.
type HistoryOptions struct {
	Before string // only checkpoints saved before the one with this id, or with ByID those with smaller ids
	Limit  int    // at most this many; 0: no limit

	// ByID orders by id, bytewise, the greatest first, as in ListByID; Before then is any text. It
	// cannot be combined with From or Branch.
	ByID bool

	// From, if set, selects that checkpoint and its ancestors; Branch the head's.
	From   string
	Branch string

	Filter

	// Data reads the channels too: those of Channels, or all if that is nil.
	Data     bool
	Channels []string
	// Export is that of LoadOptions.
	Export bool
}

// Filter is a condition on checkpoints. Zero fields are no condition.
type Filter struct {
	Labels           map[string]string
	Status           string
	RunID            string
	MinStep, MaxStep *int64
	Since, Until     time.Time // Since <= Time < Until
}

func (f *Filter) matches(cp *Checkpoint) bool {
	switch {
	case f.Status != "" && cp.Status != f.Status, f.RunID != "" && cp.RunID != f.RunID,
		f.MinStep != nil && cp.Step < *f.MinStep, f.MaxStep != nil && cp.Step > *f.MaxStep,
		!f.Since.IsZero() && cp.Time.Before(f.Since), !f.Until.IsZero() && !cp.Time.Before(f.Until):
		return false
	}
	for k, v := range f.Labels {
		if have, ok := cp.Labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// historyPage is the number of records read at a time. No lock is held while the caller handles
// them.
const historyPage = 64

// historyBytes bounds the data of checkpoints read ahead of the caller, except for one.
const historyBytes = 4 << 20

// History yields checkpoints of the lineage, newest first; a replaced checkpoint appears in its old
// place, with its new content. Each page shows the durable state at the time it is read. If the
// thread is deleted in the meantime, History ends with ErrGeneration. After an error it ends.
func (t *Thread) History(ctx context.Context, o HistoryOptions) iter.Seq2[*Checkpoint, error] {
	return func(yield func(*Checkpoint, error) bool) {
		if o.ByID {
			if err := t.historyByID(ctx, &o, yield); err != nil && err != errStop {
				yield(nil, fmt.Errorf("reading history: %w", err))
			}
			return
		}
		h := history{t: t, o: &o, left: o.Limit, most: historyPage}
		for h.seq != 1 {
			page, err := h.page(ctx)
			if err != nil {
				yield(nil, fmt.Errorf("reading history: %w", err))
				return
			}
			for _, cp := range page {
				if err := t.s.applyLoadHooks(ctx, cp, o.Export); err != nil {
					yield(nil, fmt.Errorf("reading history: %w", err))
					return
				}
				if !yield(cp, nil) {
					return
				}
			}
			if len(page) == 0 && h.seq == 1 || o.Limit > 0 && h.left == 0 {
				return
			}
		}
	}
}

// history is the position of an iteration.
type history struct {
	t          *Thread
	o          *HistoryOptions
	seq        uint64 // all records below it are still to be read; 0 at the start, 1 at the end
	ancestor   uint64 // the next ancestor to visit, if only ancestors are wanted
	ancestors  bool
	generation uint64
	left       int
	rs         *restorer
	epoch      uint32      // of the records in rs
	most       int         // records of a page
	reserved   reservation // for the data of a page

	// A replacement is shown at its origin, the first record with its id, or else at the first of
	// its own records. It may be replaced again, and its first record be removed, between any two
	// pages. So deferred has the seqs of records that were passed, by the origin where their
	// checkpoint is to be shown, and shown has the origins without a record that were shown.
	// Replacements since the start are above top, the greatest seq seen.
	deferred map[uint64]uint64
	shown    map[uint64]bool
	top      uint64
}

// page reads on until it has some checkpoints, or reaches the end.
func (h *history) page(ctx context.Context) ([]*Checkpoint, error) {
	l, err := h.t.s.rlockThread(ctx, h.t.ref, false)
	if err != nil {
		return nil, err
	}
	defer l.runlockThread()
	if h.seq == 0 {
		if err := h.begin(ctx, l); err != nil {
			return nil, err
		}
	}
	if _, there := l.th.record(); !there || l.generation() != h.generation {
		return nil, ErrGeneration
	}
	if h.rs == nil || h.rs.l != &l.storedLineage || h.epoch != l.th.Epoch { // no lock was held since the last page
		h.rs, h.epoch = l.restorer(), l.th.Epoch
	}
	h.reserved.release()
	var out []*Checkpoint
	r := l.RecordsFrom(1, h.seq)
	h.most = min(max(2*h.most, 1), historyPage)
	r.Reverse, r.Limit, r.Bytes = true, h.most, recordPage
	line, size := gapCheck{l: &l.storedLineage, from: 1, to: h.seq, reverse: true}, 0
	entries, next, err := l.s.be.Scan(ctx, r)
	if err == nil {
		err = h.lookAbove(ctx, &l.storedLineage)
	}
	if err != nil {
		return nil, err
	}
	for i, e := range entries {
		cps, err := h.due(ctx, &l.storedLineage, space.SeqOf(e.Key))
		if err != nil {
			return nil, err
		}
		cp, err := h.see(ctx, &line, e)
		if err != nil {
			return nil, err
		}
		if h.seq = space.SeqOf(e.Key); cp != nil {
			cps = append(cps, cp)
		}
		for _, cp := range cps {
			if err := h.reserved.reserve(ctx, cp.bytesOfData()); err != nil {
				return nil, err
			}
			out = append(out, cp)
			if h.left--; h.left == 0 {
				return out, nil
			}
			for j := range cp.Channels {
				size += len(cp.Channels[j].Data)
			}
		}
		if size > historyBytes && i < len(entries)-1 {
			h.most = (i + 1) / 2
			return out, nil
		}
	}
	if next == nil {
		last, err := h.end(ctx, &line)
		return append(out, last...), err
	}
	return out, nil
}

// begin finds the start of the iteration.
func (h *history) begin(ctx context.Context, l *lineage) error {
	now, err := l.durableNow(ctx)
	if err != nil {
		return err
	}
	h.generation = l.generation()
	h.seq, h.top = endSeq, now.head
	switch {
	case h.o.From != "":
		h.ancestors = true
		h.ancestor, err = l.findSeq(ctx, now, At(h.o.From))
	case h.o.Branch != "":
		h.ancestors = true
		h.ancestor, err = l.findSeq(ctx, now, HeadOf(h.o.Branch))
	}
	if err != nil {
		return err
	}
	if h.ancestors {
		h.seq = h.ancestor + 1
	}
	if h.o.Before != "" {
		at, err := l.findID(ctx, now.head, h.o.Before)
		after := uint64(0)
		if errors.Is(err, ErrNotFound) {
			at, err = l.before(ctx, now.head, h.o.Before)
			after = 1
		}
		if err == nil {
			at, err = l.originOf(ctx, at)
		}
		if err != nil {
			return err
		}
		h.seq = min(h.seq, at+after)
	}
	return nil
}

func (l *lineage) findSeq(ctx context.Context, at heads, w Which) (uint64, error) {
	r, err := l.findAt(ctx, at, w)
	if err != nil {
		return 0, err
	}
	return r.seq, nil
}

// see returns the checkpoint of a record if it is to be shown.
func (h *history) see(ctx context.Context, line *gapCheck, e backend.Entry) (*Checkpoint, error) {
	l := line.l
	r, err := l.openRecord(e.Key, e.Value)
	if err == nil && !h.ancestors { // a walk over ancestors checks only these for gaps
		err = line.see(ctx, r)
	}
	if err != nil || r.rec == nil {
		return nil, err
	}
	h.rs = h.rs.next()
	h.rs.remember(r)
	if h.ancestors {
		if h.ancestor > r.seq { // Before is below the start: catch up
			if err := h.catchUp(ctx, l, r.seq); err != nil {
				return nil, err
			}
		}
		if r.seq != h.ancestor {
			return nil, nil
		}
		h.ancestor = 0
		if r.rec.ParentDist != 0 {
			h.ancestor = r.seq - r.rec.ParentDist
		}
	}
	if h.ancestors {
		r, err = l.current(ctx, r)
	} else {
		r, err = h.shownAt(ctx, l, r)
	}
	if r == nil {
		return nil, err
	}
	return h.checkpoint(ctx, r)
}

// shownAt returns the checkpoint to show at r; nil if there is none, or if it is shown elsewhere.
func (h *history) shownAt(ctx context.Context, l *storedLineage, r *record) (*record, error) {
	place := r.origin()
	if place == r.seq {
		delete(h.deferred, place)
		return l.current(ctx, r)
	}
	first, err := l.readRecord(ctx, place)
	if err != nil {
		return nil, err
	}
	if first != nil && first.rec != nil {
		h.deferTo(place, r.seq)
		return nil, nil
	}
	if h.shown[place] {
		return nil, nil
	}
	if r, err = l.current(ctx, r); r != nil {
		if h.shown == nil {
			h.shown = map[uint64]bool{}
		}
		h.shown[place] = true
	}
	return r, err
}

// lookAbove notes replacements since the start, after a page was read: the record at their origin
// may be missing from it.
func (h *history) lookAbove(ctx context.Context, l *storedLineage) error {
	if h.ancestors {
		return nil // records with dependents are not removed
	}
	return l.s.scan(ctx, l.RecordsFrom(h.top+1, endSeq), func(e backend.Entry) error {
		r, err := l.openRecord(e.Key, e.Value)
		if err != nil {
			return err
		}
		if h.top = r.seq; r.rec != nil && r.origin() < h.seq {
			h.deferTo(r.origin(), r.seq)
		}
		return nil
	})
}

// deferTo notes the newest record to be shown at an origin.
func (h *history) deferTo(place, seq uint64) {
	if h.deferred == nil {
		h.deferred = map[uint64]uint64{}
	}
	h.deferred[place] = max(h.deferred[place], seq)
}

// due returns the deferred checkpoints whose origin has been passed without a record.
func (h *history) due(ctx context.Context, l *storedLineage, seq uint64) (cps []*Checkpoint, err error) {
	if len(h.deferred) == 0 {
		return nil, nil
	}
	for _, place := range slices.Backward(slices.Sorted(maps.Keys(h.deferred))) {
		if place <= seq {
			break
		}
		r, err := h.newestDeferred(ctx, l, place)
		if err != nil {
			return nil, err
		}
		if delete(h.deferred, place); r == nil || h.shown[place] {
			continue
		}
		cp, err := h.checkpoint(ctx, r)
		if err != nil {
			return nil, err
		}
		if cp != nil {
			cps = append(cps, cp)
		}
	}
	return cps, nil
}

// newestDeferred is the checkpoint that was deferred to an origin; nil if it is gone.
func (h *history) newestDeferred(ctx context.Context, l *storedLineage, place uint64) (*record, error) {
	for {
		seq := h.deferred[place]
		r, err := l.readRecord(ctx, seq)
		if err != nil {
			return nil, err
		}
		if r != nil && r.rec != nil {
			return l.current(ctx, r)
		}
		// It was pruned, or replaced and removed, since the page was read.
		if err := h.lookAbove(ctx, l); err != nil {
			return nil, err
		}
		if h.deferred[place] == seq {
			return nil, nil
		}
	}
}

// end comes after the last record.
func (h *history) end(ctx context.Context, line *gapCheck) (cps []*Checkpoint, err error) {
	defer func() { h.seq = 1 }()
	if h.ancestors {
		return nil, h.catchUp(ctx, line.l, 0)
	}
	if err := line.end(ctx); err != nil {
		return nil, err
	}
	return h.due(ctx, line.l, 0)
}

// checkpoint reads the checkpoint of r; nil if it does not match.
func (h *history) checkpoint(ctx context.Context, r *record) (*Checkpoint, error) {
	cp, err := h.rs.checkpoint(ctx, r, nil)
	if err != nil || !h.o.matches(cp) {
		return nil, err
	}
	if h.o.Data {
		lo := LoadOptions{Channels: h.o.Channels}
		return h.rs.checkpoint(ctx, r, lo.want)
	}
	return cp, nil
}

// catchUp follows the ancestors down to seq or below.
func (h *history) catchUp(ctx context.Context, l *storedLineage, seq uint64) error {
	for h.ancestor > seq {
		r, err := l.readRecord(ctx, h.ancestor)
		if err != nil {
			return err
		}
		if r == nil {
			return l.lostSeq(ctx, h.ancestor)
		}
		if r.rec == nil || r.rec.ParentDist == 0 {
			h.ancestor = 0
			return nil
		}
		h.ancestor = r.seq - r.rec.ParentDist
	}
	return nil
}
