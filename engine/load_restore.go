package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/internal/panics"
)

// restorer reads checkpoints of one lineage and remembers their records, since neighbours share
// most of them. It needs no lock but the thread's: the meaning of a record does not change.
type restorer struct {
	l          *storedLineage
	generation uint64    // of the lineage
	measures   *measures // that are known; nil: none
	records    map[uint64]*record
	parts      map[codec.PartID][]byte
	attrs      map[uint64]*codec.Attrs // by the record that holds them
	size       int64                   // bytes of records and attrs
	reserved   reservation             // for values that were restored
}

func (l *storedLineage) restorer() *restorer {
	return &restorer{l: l, records: map[uint64]*record{}, parts: map[codec.PartID][]byte{}, attrs: map[uint64]*codec.Attrs{}}
}

// restorer is the restorer of the current epoch. The caller holds l.th.mu, and the thread is
// loaded.
func (l *lineage) restorer() *restorer {
	rs := l.storedLineage.restorer()
	rs.generation, rs.measures = l.generation(), &l.measures
	return rs
}

// next returns the restorer for the next checkpoint of a walk: rs itself, without its parts, or a
// new one if rs remembers much. This bounds the memory of a walk to that much and one state,
// however long the history.
func (rs *restorer) next() *restorer {
	clear(rs.parts)
	rs.reserved.release()
	if len(rs.records) > restorerRecords || rs.size > restorerBytes {
		fresh := rs.l.restorer()
		fresh.generation, fresh.measures = rs.generation, rs.measures
		return fresh
	}
	return rs
}

// remember makes rs know r.
func (rs *restorer) remember(r *record) {
	if rs.records[r.seq] == nil {
		rs.size += r.size
	}
	rs.records[r.seq] = r
}

// read reads those of the records at seqs that rs does not have yet. It leaves out missing ones and
// stubs.
func (rs *restorer) read(ctx context.Context, seqs []uint64) error {
	seqs = slices.DeleteFunc(seqs, func(seq uint64) bool { return rs.records[seq] != nil })
	if err := rs.l.readRecords(ctx, rs.records, seqs); err != nil {
		return err
	}
	for _, seq := range seqs {
		if r := rs.records[seq]; r != nil {
			rs.size += r.size
		}
	}
	return nil
}

// link is a record on the path of a channel, with its entry for the channel, which is not a keep
// entry.
type link struct {
	r *record
	e *codec.Entry
}

// path selects the records to read for an entry.
type path func(*codec.Entry) codec.Path

// wanted selects the paths of the wanted channels.
func wanted(want func(number uint64) bool) path {
	return func(e *codec.Entry) codec.Path {
		for number := e.Number; number <= e.Number+e.More; number++ {
			if want(number) {
				return e.Path
			}
		}
		return nil
	}
}

// described selects the records that describe a checkpoint: those with its attributes and the sizes
// of kept channels.
func described(e *codec.Entry) codec.Path {
	switch {
	case e.Number == 0:
		return e.Path
	case e.Mode == codec.Keep:
		return codec.Path{{Last: e.Path[0].Last, Len: 1}}
	}
	return nil
}

// fetch reads the records on the paths of the entries of r, and others, in one batch.
func (rs *restorer) fetch(ctx context.Context, r *record, of path, others ...uint64) error {
	rs.remember(r)
	var seqs []uint64
	asked := map[uint64]bool{}
	ask := func(seq uint64) {
		if !asked[seq] && rs.records[seq] == nil {
			asked[seq] = true
			seqs = append(seqs, seq)
		}
	}
	for _, seq := range others {
		ask(seq)
	}
	for i := range r.rec.Entries {
		for seq := range of(&r.rec.Entries[i]).All {
			ask(seq)
		}
	}
	return rs.read(ctx, seqs)
}

// fetchAll is fetch plus the record of the parent, for its id.
func (rs *restorer) fetchAll(ctx context.Context, r *record, of path) error {
	if r.rec.ParentDist == 0 {
		return rs.fetch(ctx, r, of)
	}
	return rs.fetch(ctx, r, of, r.seq-r.rec.ParentDist)
}

// holder finds the record that holds the value of a channel of r, whose entry is e.
func (rs *restorer) holder(ctx context.Context, r *record, number uint64, e *codec.Entry) (link, error) {
	if e.Mode != codec.Keep {
		return link{r, e}, nil
	}
	return rs.link(ctx, r, number, e)
}

// link finds the base of the entry of a channel.
func (rs *restorer) link(ctx context.Context, r *record, number uint64, e *codec.Entry) (link, error) {
	seq := e.Path[0].Last
	if rs.records[seq] == nil {
		if err := rs.read(ctx, []uint64{seq}); err != nil {
			return link{}, err
		}
	}
	base := rs.records[seq]
	if base == nil {
		return link{}, corrupt(space.Describe(rs.l.RecordKey(r.seq)), fmt.Sprintf("depends on seq %d, which is missing", seq), errGone)
	}
	be := base.rec.Entry(number)
	if be == nil || be.Mode == codec.Keep {
		return link{}, corrupt(space.Describe(rs.l.RecordKey(r.seq)), fmt.Sprintf("depends on seq %d, which does not hold channel %d", seq, number), nil)
	}
	return link{base, be}, nil
}

// links lists the links of a channel of r, newest first, down to the full one.
func (rs *restorer) links(ctx context.Context, r *record, number uint64, e *codec.Entry) ([]link, error) {
	at, err := rs.holder(ctx, r, number, e)
	if err != nil {
		return nil, err
	}
	links := []link{at}
	for at.e.Mode != codec.Full {
		if len(links) == codec.MaxPath {
			return nil, corrupt(space.Describe(rs.l.RecordKey(r.seq)), "path is too long", nil)
		}
		if at, err = rs.link(ctx, at.r, number, at.e); err != nil {
			return nil, err
		}
		links = append(links, at)
	}
	return links, nil
}

// channels restores the wanted channels of r. It takes one batched read besides the record of r,
// and another one if payloads are in parts.
func (rs *restorer) channels(ctx context.Context, r *record, want func(number uint64) bool) ([]channelState, error) {
	if err := rs.fetch(ctx, r, wanted(want)); err != nil {
		return nil, err
	}
	return rs.restore(ctx, r, want)
}

// restore is channels after the records have been read.
func (rs *restorer) restore(ctx context.Context, r *record, want func(number uint64) bool) ([]channelState, error) {
	var chains [][]link
	var ids []codec.PartID
	for number, e := range r.rec.Channels {
		if !want(number) {
			continue
		}
		links, err := rs.links(ctx, r, number, e)
		if err != nil {
			return nil, err
		}
		for _, k := range links {
			ids = append(ids, k.e.Parts...)
		}
		chains = append(chains, links)
	}
	size, below := int64(0), int64(0)
	for _, links := range chains {
		if size += int64(links[0].e.Size); len(links) > 1 {
			below += int64(links[len(links)-1].e.Size) // its base, which may be far larger
		}
	}
	if size > smallValues {
		if err := rs.reserved.reserve(ctx, size); err != nil {
			return nil, err
		}
	}
	if below > smallValues {
		var bases reservation
		if err := bases.reserve(ctx, below); err != nil {
			return nil, err
		}
		defer bases.release()
	}
	if len(ids) > 0 {
		if err := rs.l.u.readParts(ctx, rs.parts, ids); err != nil {
			return nil, err
		}
	}
	out := make([]channelState, len(chains))
	for i, links := range chains {
		if err := rs.build(&out[i], links); err != nil {
			return nil, corrupt(space.Describe(rs.l.RecordKey(r.seq)), fmt.Sprintf("channel %d does not restore", links[0].e.Number), err)
		}
	}
	return out, nil
}

// build restores one channel from its links and checks its commitment.
func (rs *restorer) build(c *channelState, links []link) error {
	last := len(links) - 1
	full := links[last].e
	payload, err := rs.payload(full)
	if err != nil {
		return err
	}
	base, err := rs.l.s.z.AppendRaw(nil, payload, int(full.Size))
	if err != nil {
		return err
	}
	if uint64(len(base)) != full.Size {
		return fmt.Errorf("value has %d bytes, but the record says %d", len(base), full.Size)
	}
	deltas, err := rs.deltas(links)
	if err != nil {
		return err
	}
	c.number = full.Number
	c.longBase, c.longSince = links[last].r.seq, wholeOverlap(len(base))
	c.longParts = partsSize(full)
	c.parts = c.longParts
	c.setMeasured(int64(len(payload)), len(base))
	size, far := int64(len(payload)), last
	var kept []codec.Copy
	var gaps []codec.Edit
	for i := last - 1; i >= 0; i-- {
		from, e := int(links[i+1].e.Size), links[i].e
		kept, gaps = c.keeps(&deltas[i], from, kept, gaps)
		c.parts += partsSize(e)
		added := int64(len(e.Payload)) + int64(e.PartBytes)
		if size += added; far == i+1 && longBaseShare*added > size { // as in consolidate
			c.longBase, c.longSince, c.longParts, far = links[i].r.seq, wholeOverlap(int(e.Size)), c.parts, i
		}
		if size, ok := rs.measures.of(links[i].r.seq, c.number); ok {
			c.setMeasured(size, int(links[i].e.Size))
		}
	}
	c.value = codec.Compose(nil, deltas, base)
	c.chunks.Splice(c.value, 0, 0)
	c.commit = c.chunks.Commitment(&rs.l.u.CommitKey)
	if c.commit != links[0].e.Commitment {
		return fmt.Errorf("value differs from its commitment")
	}
	c.path = links[0].e.Path.Extend(links[0].r.seq)
	return nil
}

// keeps records which bytes a delta keeps of a value of size bytes. It returns its scratch.
func (c *channelState) keeps(d *codec.Delta, size int, kept []codec.Copy, gaps []codec.Edit) ([]codec.Copy, []codec.Edit) {
	kept, gaps = d.Kept(kept[:0], size), gaps[:0]
	for i := len(kept) - 1; i > 0; i-- {
		before, k := kept[i-1], kept[i]
		gap := codec.Edit{From: before.From + before.N, To: k.From}
		gaps = append(gaps, gap)
		c.spliced(size, gap, k.At-before.At-before.N)
		size += k.At - before.At - before.N - (gap.To - gap.From)
	}
	slices.Reverse(gaps)
	c.removed += d.Lost(gaps)
	return kept, gaps
}

// deltas decodes all links but the last, which is full.
func (rs *restorer) deltas(links []link) ([]codec.Delta, error) {
	n := len(links) - 1
	deltas, errs := make([]codec.Delta, n), make([]error, n)
	share(n, func(i int) {
		var payload []byte
		if payload, errs[i] = rs.payload(links[i].e); errs[i] == nil {
			deltas[i], errs[i] = rs.l.s.z.ParseDelta(payload, int(links[i].e.Size), int(links[i+1].e.Size), nil, nil)
		}
	})
	return deltas, errors.Join(errs...)
}

// share processes the records of a path, or other items of some microseconds each, on all
// processors if there are many. If do panics, so does share, in the caller's goroutine, where it
// can be recovered.
func share(n int, do func(i int)) {
	const worthSharing = 32
	workers := 1
	if n >= worthSharing {
		workers = runtime.GOMAXPROCS(0)
	}
	var next atomic.Int64 // items differ in size: a free worker takes the next
	var failed atomic.Pointer[error]
	work := func() {
		defer panics.To(func(err error) { failed.Store(&err) })
		for i := n - int(next.Add(1)); i >= 0; i = n - int(next.Add(1)) {
			do(i)
		}
	}
	var wg sync.WaitGroup
	for range workers - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	if err := failed.Load(); err != nil {
		panic(*err)
	}
}

func (rs *restorer) payload(e *codec.Entry) ([]byte, error) {
	if e.Parts == nil {
		return e.Payload, nil
	}
	return joinParts(rs.parts, e.Parts, e.PartBytes)
}

// meta restores the attributes of r.
func (rs *restorer) meta(ctx context.Context, r *record) (*codec.Attrs, error) {
	at, err := rs.holder(ctx, r, 0, &r.rec.Entries[0])
	if err != nil {
		return nil, err
	}
	if a := rs.attrs[at.r.seq]; a != nil {
		return a, nil
	}
	got, err := rs.channels(ctx, r, func(number uint64) bool { return number == 0 })
	if err != nil {
		return nil, err
	}
	return rs.parseMeta(at.r.seq, r, got[0].value)
}

func (rs *restorer) parseMeta(holder uint64, r *record, value []byte) (*codec.Attrs, error) {
	a, err := codec.ParseAttrs(value)
	if err == nil {
		err = sameNumbers(a, r.rec)
	}
	if err != nil {
		return nil, corrupt(space.Describe(rs.l.RecordKey(r.seq)), "attributes do not match the record", err)
	}
	rs.attrs[holder] = a
	rs.size += int64(len(value))
	return a, nil
}

// sameNumbers compares the channels in attributes with those in a record.
func sameNumbers(a *codec.Attrs, rec *codec.Record) error {
	if n := rec.Count() - 1; len(a.Channels) != n {
		return fmt.Errorf("%d channels in the attributes, %d in the record", len(a.Channels), n)
	}
	i := -1
	for number := range rec.Channels {
		if i >= 0 && a.Channels[i].Number != number {
			return fmt.Errorf("channel %d in the attributes, %d in the record", a.Channels[i].Number, number)
		}
		i++
	}
	return nil
}

// header returns r without its channels.
func (rs *restorer) header(ctx context.Context, r *record) (header, error) {
	rec := r.rec
	h := header{parent: rec.ParentID, dangling: rec.ParentID, parentHash: rec.ParentHash, time: rec.Time, step: rec.Step,
		status: rec.Status, schema: rec.Schema, origin: r.seq - rec.Replaced, own: rec.ID == "", ghost: rec.Ghost, took: rec.Took, fuel: rec.Fuel, writes: rec.Writes}
	if rec.ParentDist == 0 {
		return h, nil
	}
	h.parentSeq = r.seq - rec.ParentDist
	if p := rs.records[h.parentSeq]; p != nil {
		h.parent = rs.l.recordID(p)
		return h, nil
	}
	p, err := rs.l.readRecord(ctx, h.parentSeq)
	if err != nil {
		return h, err
	}
	switch {
	case p == nil:
		return h, corrupt(space.Describe(rs.l.RecordKey(r.seq)), fmt.Sprintf("parent seq %d is missing", h.parentSeq), nil)
	case p.rec != nil:
		rs.remember(p)
		h.parent = rs.l.recordID(p)
	default:
		h.parent = p.stub.ID
	}
	return h, nil
}

// all wants every channel.
func all(uint64) bool { return true }

// readRecord reads the record or stub at seq; nil if there is none.
func (l *storedLineage) readRecord(ctx context.Context, seq uint64) (*record, error) {
	key := l.RecordKey(seq)
	got, err := l.s.be.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("reading a checkpoint: %w", err)
	}
	if got[0].Version == "" {
		return nil, nil
	}
	return l.openRecord(key, got[0].Value)
}

// recordID is the id of a checkpoint.
func (l *storedLineage) recordID(r *record) string {
	switch {
	case r.rec.ID != "":
		return r.rec.ID
	case r.rec.UUID != [16]byte{}:
		return formatUUID(r.rec.UUID)
	}
	return formatUUID(l.makeID(r.seq, r.rec.Time))
}
