package engine

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// idLine is the position of a list by id in one lineage. The ids of a lineage are of three sorts:
// UUIDs that callers chose have entries in their order; those that the engine made are in records
// and grow with the seq; all others have entries in no order.
type idLine struct {
	ref        Ref
	generation uint64

	chosen, named, made idSource
	seq                 uint64      // of made: the records to read are below; 0: find the first
	head                uint64      // of the lineage, when named was read
	below               string      // ids still to come are smaller
	room                reservation // for the ids that were read ahead

	rs      *restorer   // nil: none
	epoch   uint32      // of the records in rs
	records reservation // for the records in rs
}

// idSource has the ids of one sort.
type idSource struct {
	ids   []foundID // the next ones, greatest first
	below string    // the ids after these are smaller
	ended bool      // there are none after these
	page  int       // how many entries were read or, of those in no order, kept
}

type foundID struct {
	id  string
	seq uint64
}

const (
	anyID    = "\xff" // greater than any id, which is UTF-8
	idPage   = 64     // how many entries or records are read at a time, at most
	firstIDs = 16     // how many ids in no order are kept at first
	moreIDs  = 16     // and how many times as many each time they are read again
	idBytes  = 64     // memory of an id, besides its text
)

// begin finds the first ids.
func (c *idLine) begin(ctx context.Context, l *lineage, o *ListByIDOptions) error {
	c.below = anyID
	if o.Before != "" {
		c.below = o.Before
		if o.After != nil && l.ref.Compare(*o.After) > 0 {
			c.below += "\x00" // that id, too
		}
	}
	for _, s := range c.sources() {
		s.below = c.below
	}
	if o.ID != "" {
		return c.only(ctx, l, o.ID)
	}
	if err := c.readChosen(ctx, l); err != nil {
		return err
	}
	if err := c.readNamed(ctx, l); err != nil {
		return err
	}
	if _, exact := c.next(); exact || c.done() {
		return nil
	}
	return c.readMade(ctx, l)
}

// only makes an id the only one, if it exists.
func (c *idLine) only(ctx context.Context, l *lineage, id string) error {
	c.end()
	if id >= c.below {
		return nil
	}
	now, err := l.durableNow(ctx)
	if err != nil {
		return err
	}
	e, _, err := l.findEntry(ctx, now.head, id)
	if err == nil {
		c.named.ids = []foundID{{id, e.Seq}}
	}
	return ignoring(ErrNotFound, err)
}

func (c *idLine) sources() [3]*idSource { return [...]*idSource{&c.chosen, &c.named, &c.made} }

// end makes the line have no more ids.
func (c *idLine) end() {
	for _, s := range c.sources() {
		s.ids, s.ended = nil, true
	}
}

// done reports whether there are no more ids.
func (c *idLine) done() bool {
	for _, s := range c.sources() {
		if len(s.ids) > 0 || !s.ended {
			return false
		}
	}
	return true
}

// next is the next id or, if more ids must be read to know it, a text that is greater than any that
// follows.
func (c *idLine) next() (id string, exact bool) {
	for _, s := range c.sources() {
		switch {
		case len(s.ids) > 0 && s.ids[0].id >= id:
			id, exact = s.ids[0].id, true
		case len(s.ids) == 0 && !s.ended && s.below > id:
			id, exact = s.below, false
		}
	}
	return id, exact
}

// before reports whether the next checkpoint of c comes before that of o.
func (c *idLine) before(o *idLine) bool {
	x, exact := c.next()
	y, other := o.next()
	switch {
	case x != y:
		return x > y
	case exact != other:
		return exact
	}
	return c.ref.Compare(o.ref) < 0
}

// take removes the next id and returns the seq that it was found at.
func (c *idLine) take(id string) (seq uint64) {
	c.below = id
	for _, s := range c.sources() {
		for len(s.ids) > 0 && s.ids[0].id >= id { // an id that was replaced meanwhile can be in two
			seq = max(seq, s.ids[0].seq)
			s.ids = s.ids[1:]
		}
	}
	return seq
}

// readIDs reads more ids of the sort that hides the next one.
func (c *idLine) readIDs(ctx context.Context, l *lineage) error {
	bound, _ := c.next()
	for _, s := range c.sources() {
		if len(s.ids) > 0 || s.ended || s.below != bound {
			continue
		}
		switch s {
		case &c.chosen:
			return c.readChosen(ctx, l)
		case &c.named:
			return c.readNamed(ctx, l)
		}
		return c.readMade(ctx, l)
	}
	return nil
}

// more takes over ids of a sort, and whether these are the last. It pays for them.
func (c *idLine) more(ctx context.Context, s *idSource, ids []foundID, last bool) error {
	s.ids, s.ended = ids, last
	if len(ids) > 0 {
		s.below = ids[len(ids)-1].id
	}
	held := int64(0)
	for _, s := range c.sources() {
		for _, f := range s.ids {
			held += int64(idBytes + len(f.id))
		}
	}
	c.room.release()
	return c.room.reserve(ctx, held)
}

// readChosen reads the next UUIDs that callers chose.
func (c *idLine) readChosen(ctx context.Context, l *lineage) error {
	s := &c.chosen
	r := l.ChosenIDsBelow(s.below)
	s.page = min(max(4*s.page, 1), idPage)
	r.Reverse, r.Limit = true, s.page
	page, next, err := l.s.be.Scan(ctx, r)
	if err != nil {
		return fmt.Errorf("reading ids: %w", err)
	}
	ids := make([]foundID, 0, len(page))
	for _, entry := range page {
		f, err := l.foundID(entry)
		if err != nil {
			return err
		}
		if f.id < c.below {
			ids = append(ids, f)
		}
	}
	return c.more(ctx, s, ids, next == nil)
}

func (l *storedLineage) foundID(entry backend.Entry) (f foundID, err error) {
	e, err := l.openIDEntry(entry)
	if err != nil {
		return f, err
	}
	if !bytes.Equal(l.IDKey(e.ID), entry.Key) && !bytes.Equal(l.OwnIDKey(e.ID), entry.Key) {
		return f, corrupt(space.Describe(entry.Key), "is for another id", nil)
	}
	return foundID{e.ID, e.Seq}, nil
}

// readNamed reads the entries of all ids in no order, and keeps the next ones.
func (c *idLine) readNamed(ctx context.Context, l *lineage) error {
	now, err := l.durableNow(ctx)
	if err != nil {
		return err
	}
	c.head = now.head
	s := &c.named
	s.page = max(moreIDs*s.page, firstIDs)
	var ids []foundID
	var room reservation
	defer room.release()
	cut := false
	keep := func() {
		slices.SortFunc(ids, func(a, b foundID) int { return strings.Compare(b.id, a.id) })
		if len(ids) > s.page {
			ids, cut = ids[:s.page], true
		}
	}
	r := l.NamedIDs()
	r.Limit = idPage
	most := 0
	err = l.s.scan(ctx, r, func(entry backend.Entry) error {
		f, err := l.foundID(entry)
		if err != nil || f.id >= s.below {
			return err
		}
		if ids = append(ids, f); len(ids) > most {
			most = len(ids)
			if err := room.reserve(ctx, int64(2*idBytes+len(f.id))); err != nil {
				return err
			}
		}
		if len(ids) == 2*s.page {
			keep()
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading ids: %w", err)
	}
	keep()
	return c.more(ctx, s, slices.Clone(ids), !cut)
}

// readMade reads the records with the next ids that the engine made.
func (c *idLine) readMade(ctx context.Context, l *lineage) error {
	s := &c.made
	now, err := l.durableNow(ctx)
	if err != nil {
		return err
	}
	if now.head != c.head { // ids that the engine made may have got entries since, and lost their records
		c.named = idSource{below: min(c.below, s.below), page: c.named.page} // greater ones are new
		if err := c.readNamed(ctx, l); err != nil {
			return err
		}
	}
	if c.seq == 0 {
		seq, err := l.lastMade(ctx, s.below)
		if err != nil || seq == 0 {
			s.ended = true
			return err
		}
		c.seq = seq + 1
	}
	r := l.RecordsFrom(1, c.seq)
	s.page = min(max(4*s.page, 1), idPage)
	r.Reverse, r.Limit, r.Bytes = true, s.page, recordPage
	line := gapCheck{l: &l.storedLineage, from: 1, to: c.seq, reverse: true}
	entries, next, err := l.s.be.Scan(ctx, r)
	if err != nil {
		return fmt.Errorf("reading checkpoints: %w", err)
	}
	var ids []foundID
	bound := s.below
	for _, e := range entries {
		r, err := l.openRecord(e.Key, e.Value)
		if err == nil {
			err = line.see(ctx, r)
		}
		if err != nil {
			return err
		}
		if c.seq = r.seq; r.rec == nil {
			continue
		}
		bound = min(bound, madeBound(r))
		id, err := l.madeID(ctx, r)
		if err != nil {
			return err
		}
		if id != "" && id < c.below {
			ids = append(ids, foundID{id, r.seq})
		}
	}
	if next == nil {
		if err := line.end(ctx); err != nil {
			return err
		}
	}
	if err := c.more(ctx, s, ids, next == nil); err != nil {
		return err
	}
	s.below = bound
	return nil
}

// madeID is the id of the checkpoint that was saved at r, if the engine made it and it still
// exists; else "".
func (l *storedLineage) madeID(ctx context.Context, r *record) (string, error) {
	if r.rec.ID != "" || r.rec.Replaced != 0 {
		return "", nil
	}
	if r.rec.Ghost { // removed, or replaced since the named ids were read
		now, err := l.current(ctx, r)
		if now == nil || err != nil {
			return "", err
		}
	}
	return l.recordID(r), nil
}

// madeBound is a text that is greater than the ids that the engine made for the checkpoint of a
// record and for those before it: these ids grow with the time and the seq.
func madeBound(r *record) string {
	return formatUUID(idOf(r.seq, r.rec.Time, 1<<idTagBits-1)) + "\x00"
}

// lastMade finds the newest seq that can have an id made by the engine below a text; 0 if there is
// none.
func (l *storedLineage) lastMade(ctx context.Context, below string) (uint64, error) {
	r := l.RecordsFrom(1, endSeq)
	r.Reverse, r.Limit = true, 1
	page, _, err := l.s.be.Scan(ctx, r)
	if err != nil || len(page) == 0 {
		return 0, err
	}
	newest, err := l.openRecord(page[0].Key, page[0].Value)
	if err != nil {
		return 0, err
	}
	if newest.rec != nil && madeBound(newest) <= below || below == anyID {
		return newest.seq, nil
	}
	first, to := newest.seq, newest.seq // the first one known to have a greater bound
	for from := uint64(1); from < to; {
		mid := from + (to-from)/2
		r, err := l.recordFrom(ctx, mid)
		switch {
		case err != nil:
			return 0, err
		case r == nil || r.seq >= to:
			to = mid
		case madeBound(r) > below:
			first, to = r.seq, mid
		default:
			from = r.seq + 1
		}
	}
	return first, nil
}

// recordFrom reads the first record from seq on, no stub; nil if there is none.
func (l *storedLineage) recordFrom(ctx context.Context, seq uint64) (*record, error) {
	for {
		r, err := l.firstFrom(ctx, seq)
		if err != nil || r == nil || r.rec != nil {
			return r, err
		}
		seq = r.seq + 1
	}
}

// restorerOf returns the restorer for the next checkpoint of the line.
func (c *idLine) restorerOf(l *lineage) *restorer {
	if c.rs != nil && (c.rs.l != &l.storedLineage || c.epoch != l.th.Epoch) { // no lock was held since
		c.forget()
	}
	if c.rs == nil {
		c.rs, c.epoch = l.restorer(), l.th.Epoch
	}
	if rs := c.rs.next(); rs != c.rs {
		c.records.release()
		c.rs = rs
	}
	return c.rs
}

// payForRecords pays for the records that the restorer remembers.
func (c *idLine) payForRecords(ctx context.Context) error {
	if c.rs == nil {
		return nil
	}
	return c.records.reserve(ctx, c.rs.size-c.records.bytes)
}

// forget drops the restorer.
func (c *idLine) forget() {
	c.rs = nil
	c.records.release()
}
