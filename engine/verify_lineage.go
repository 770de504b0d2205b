package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// lineageCheck verifies one lineage, oldest record first, so that the bases of a record have been
// seen before it.
type lineageCheck struct {
	u       *verifiedUser
	l       *storedLineage
	rs      *restorer
	rows    map[uint64]*checked
	gaps    []gap // seqs without a record that no stub has covered so far
	next    uint64
	found   []upkeep.Problem
	counts  upkeep.VerifyReport
	hashBuf []byte
	claims  map[uint64]ledgerClaim // by place in line
	heldAt  map[string]uint64      // ancestors, by the start of the keys of their writes
	numbers []uint64               // of the channels of a record, scratch
	commits [][32]byte
	tree    crypto.ChannelTree
}

// checked is the memory of a record or a stub.
type checked struct {
	broken bool // it cannot be read
	stub   bool
	ghost  bool
	holds  bool      // an ancestor
	origin uint64    // its place in line
	hash   *[32]byte // nil: not known
	time   int64
	id     string // if the id has an entry
	seen   bool   // the entry of the id was found
	status string
	attrs  *codec.Attrs // without Meta and Channels; nil if they cannot be read
	bare   []term       // terms that no index entry leads to
	held   []heldValue
}

// heldValue is a channel whose value a record holds, with all its bases present.
type heldValue struct {
	number, size uint64
	commit       [32]byte
}

type gap struct{ from, to uint64 }

// lineage verifies a lineage. If it finds problems, which may come from concurrent saves, it
// confirms them with the thread locked.
func (u *verifiedUser) lineage(ctx context.Context, ref Ref) error {
	var c *lineageCheck
	check := func(l *lineage) error {
		c = &lineageCheck{u: u, l: &l.storedLineage}
		return c.run(ctx)
	}
	err := u.s.withLineage(ctx, ref, check)
	if err == nil && len(c.found) > 0 {
		u.recheck()
		err = u.s.withExclusive(ctx, ref, check)
	}
	if err != nil && c != nil {
		c.found = nil // not confirmed
	}
	return u.count(c, err)
}

// count adds the findings of a check to the report.
func (u *verifiedUser) count(c *lineageCheck, err error) error {
	if c == nil {
		return err
	}
	r := u.v.report
	r.Lineages++
	r.Checkpoints += c.counts.Checkpoints
	r.Ghosts += c.counts.Ghosts
	r.Stubs += c.counts.Stubs
	r.Writes += c.counts.Writes
	for _, p := range c.found {
		u.v.list(p)
	}
	return err
}

func (c *lineageCheck) run(ctx context.Context) error {
	c.rs, c.rows, c.next = c.l.restorer(), map[uint64]*checked{}, 1
	r := c.l.Records()
	r.Limit, r.Bytes = historyPage, recordPage
	if err := c.l.s.scan(ctx, r, func(e backend.Entry) error { return c.record(ctx, e) }); err != nil {
		return err
	}
	for _, g := range c.gaps {
		c.damaged(c.l.RecordKey(g.to), fmt.Sprintf("seqs %d to %d are missing, and no stub covers them", g.from, g.to))
	}
	for _, check := range []func(context.Context) error{c.ids, c.branches, c.writes} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	return nil
}

// note lists an error that reports damage, and returns any other.
func (c *lineageCheck) note(err error) error {
	v := verifier{report: &upkeep.VerifyReport{}}
	if err := v.problem(c.l.ref, err); err != nil {
		return err
	}
	c.found = append(c.found, v.report.Problems...)
	return nil
}

func (c *lineageCheck) damaged(key []byte, reason string) {
	c.found = append(c.found, problemIn(c.l.ref, &CorruptError{Record: space.Describe(key), Reason: reason}))
}

func (c *lineageCheck) record(ctx context.Context, e backend.Entry) error {
	if !space.IsRecord(e.Key) {
		c.damaged(e.Key, "key has the wrong length")
		return nil
	}
	seq := space.SeqOf(e.Key)
	if seq > c.next {
		c.gaps = append(c.gaps, gap{c.next, seq - 1})
	}
	c.next = seq + 1
	row := &checked{broken: true}
	c.rows[seq] = row
	r, err := c.l.openRecord(e.Key, e.Value)
	if err != nil {
		return c.note(err)
	}
	row.broken = false
	if r.stub != nil {
		c.stub(row, r)
		return nil
	}
	row.ghost, row.time, row.status = r.rec.Ghost, r.rec.Time, r.rec.Status
	row.holds = r.rec.Holds
	row.origin = seq - r.rec.Replaced
	if row.ghost {
		c.counts.Ghosts++
	} else {
		c.counts.Checkpoints++
		c.noteID(row, r)
	}
	c.parent(r)
	if err := c.noteClaim(ctx, r); err != nil {
		return err
	}
	if err := c.entries(ctx, row, r, e.Key); err != nil {
		return err
	}
	if err := c.attrs(ctx, row, r); err != nil {
		return err
	}
	if err := c.terms(ctx, row, r, e.Key); err != nil {
		return err
	}
	if c.u.v.o.Deep && !row.ghost {
		return c.restore(ctx, row, r, e.Key)
	}
	return nil
}

func (c *lineageCheck) stub(row *checked, r *record) {
	c.counts.Stubs++
	row.stub, row.hash = true, &r.stub.Hash
	first := r.seq - r.stub.FirstDist
	c.gaps = slices.DeleteFunc(c.gaps, func(g gap) bool { return g.from >= first })
}

// noteID notes an id that must have an entry: one chosen by a caller, or one made by the engine
// whose checkpoint was replaced.
func (c *lineageCheck) noteID(row *checked, r *record) {
	if r.rec.ID != "" || r.rec.Replaced != 0 {
		row.id = c.l.recordID(r)
	}
}

// parent compares a record with its parent and with the record that it replaced.
func (c *lineageCheck) parent(r *record) {
	key := c.l.RecordKey(r.seq)
	if r.rec.Replaced != 0 {
		if old := c.rows[r.seq-r.rec.Replaced]; old != nil && !old.broken && !old.stub && !old.ghost {
			c.damaged(key, fmt.Sprintf("replaces seq %d, which is still a checkpoint", r.seq-r.rec.Replaced))
		}
	}
	if r.rec.ParentDist == 0 {
		return
	}
	seq := r.seq - r.rec.ParentDist
	switch p := c.rows[seq]; {
	case p == nil:
		c.damaged(key, fmt.Sprintf("its parent, seq %d, is missing", seq))
	case p.hash != nil && *p.hash != r.rec.ParentHash:
		c.damaged(key, fmt.Sprintf("does not match the hash of its parent, seq %d", seq))
	case !p.stub && !p.broken && p.time > r.rec.Time:
		c.damaged(key, fmt.Sprintf("is older than its parent, seq %d", seq))
	}
}

// entries checks the bases of a record's channels, and computes the record's hash. Bases that only
// a ghost would need may be missing.
func (c *lineageCheck) entries(ctx context.Context, row *checked, r *record, key []byte) error {
	c.numbers, c.commits = c.numbers[:0], c.commits[:0]
	whole := true
	for number, e := range r.rec.Channels {
		commit, reason := c.entry(row, number, e)
		if reason == "" && len(e.Parts) > 0 {
			var err error
			if reason, err = c.u.checkParts(ctx, e.Parts, e.PartBytes); err != nil {
				return err
			}
		}
		if reason != "" {
			whole = false
			if !row.ghost {
				c.damaged(key, fmt.Sprintf("channel %d %s", number, reason))
			}
		}
		c.numbers, c.commits = append(c.numbers, number), append(c.commits, commit)
	}
	if whole && !r.rec.Abridged {
		h := header{dangling: r.rec.ParentID, parentHash: r.rec.ParentHash, time: r.rec.Time, step: r.rec.Step,
			status: r.rec.Status, schema: r.rec.Schema, fuel: r.rec.Fuel, writes: r.rec.Writes}
		var sum [32]byte
		c.tree.Reset()
		root := c.tree.Root(len(c.numbers), func(i int) (uint64, *[32]byte) { return c.numbers[i], &c.commits[i] })
		c.hashBuf, sum = hashOf(c.hashBuf, c.l.recordID(r), r.seq, &h, root)
		row.hash = &sum
	}
	return nil
}

// entry returns the commitment to a channel's value, or why there is none.
func (c *lineageCheck) entry(row *checked, number uint64, e *codec.Entry) (commit [32]byte, reason string) {
	if e.Mode == codec.Full {
		row.held = append(row.held, heldValue{e.Number, e.Size, e.Commitment})
		return e.Commitment, ""
	}
	seq := e.Path[0].Last
	base := c.rows[seq]
	switch {
	case base == nil || base.stub:
		return commit, fmt.Sprintf("depends on seq %d, which is missing", seq)
	case base.broken:
		return commit, fmt.Sprintf("depends on seq %d, which is damaged", seq)
	}
	i, ok := slices.BinarySearchFunc(base.held, number, func(h heldValue, number uint64) int { return cmp.Compare(h.number, number) })
	if !ok {
		return commit, fmt.Sprintf("depends on seq %d, which does not hold it", seq)
	}
	if e.Mode == codec.Keep {
		return base.held[i].commit, ""
	}
	row.held = append(row.held, heldValue{e.Number, e.Size, e.Commitment})
	return e.Commitment, ""
}

// attrs reads the attributes of a record, and checks the blobs that they name.
func (c *lineageCheck) attrs(ctx context.Context, row *checked, r *record) error {
	c.rs = c.rs.next()
	c.rs.remember(r)
	meta, err := c.rs.meta(ctx, r)
	if err != nil {
		if row.hash == nil && errors.Is(err, ErrCorrupt) {
			return nil // reported, or a ghost's
		}
		return c.note(err)
	}
	if e := &r.rec.Entries[0]; e.Mode == codec.Keep && c.rows[e.Path[0].Last].attrs != nil {
		row.attrs = c.rows[e.Path[0].Last].attrs
	} else {
		row.attrs = &codec.Attrs{RunID: meta.RunID, Labels: meta.Labels}
	}
	if row.ghost {
		return nil
	}
	for _, id := range meta.Blobs {
		err := c.u.blob(ctx, BlobID(id))
		if errors.Is(err, ErrCorrupt) {
			err = corrupt(space.Describe(c.l.RecordKey(r.seq)), "names a blob that is damaged or missing", err)
		}
		if err := c.note(err); err != nil {
			return err
		}
	}
	return nil
}

// terms checks the index entries for the terms of a record that its parent does not have, or has
// without an entry.
func (c *lineageCheck) terms(ctx context.Context, row *checked, r *record, key []byte) error {
	if row.attrs == nil {
		return nil
	}
	want := terms(row.attrs, row.status)
	if p := c.rows[r.seq-r.rec.ParentDist]; r.rec.ParentDist != 0 && (p == nil || !p.stub) {
		if p == nil || p.attrs == nil {
			return nil // the parent's terms are not known
		}
		had := terms(p.attrs, p.status)
		want = slices.DeleteFunc(want, func(t term) bool { return slices.Contains(had, t) && !slices.Contains(p.bare, t) })
	}
	if len(want) == 0 {
		return nil
	}
	keys := make([][]byte, len(want))
	for i, t := range want {
		keys[i] = c.l.indexKey(t, r.seq)
	}
	got, err := c.l.s.be.Get(ctx, keys...)
	if err != nil {
		return err
	}
	for i, t := range want {
		switch {
		case got[i].Version != "":
		case row.ghost: // checkpoints that inherit it need an entry of their own
			row.bare = append(row.bare, t)
		default:
			c.damaged(key, fmt.Sprintf("its index entry for a %s is missing", t.field))
		}
	}
	return nil
}

// restore restores the whole checkpoint.
func (c *lineageCheck) restore(ctx context.Context, row *checked, r *record, key []byte) error {
	t, err := c.rs.state(ctx, r)
	if err != nil {
		return c.note(err)
	}
	if row.hash != nil && t.hash != *row.hash {
		c.damaged(key, "restores to a different hash")
	}
	return nil
}

// ids compares the id entries with the records.
func (c *lineageCheck) ids(ctx context.Context) error {
	err := c.l.s.scan(ctx, c.l.IDs(), func(e backend.Entry) error {
		entry, err := c.l.openIDEntry(e)
		if err != nil {
			return c.note(err)
		}
		if k := string(e.Key); k != string(c.l.IDKey(entry.ID)) && k != string(c.l.OwnIDKey(entry.ID)) {
			c.damaged(e.Key, "is for another id")
			return nil
		}
		row := c.rows[entry.Seq]
		if row != nil && row.broken {
			return nil // reported
		}
		if row == nil || row.id != entry.ID {
			c.damaged(e.Key, fmt.Sprintf("refers to seq %d, which is not the checkpoint with this id", entry.Seq))
			return nil
		}
		row.seen = true
		return nil
	})
	if err != nil {
		return err
	}
	for seq := uint64(1); seq < c.next; seq++ {
		if row := c.rows[seq]; row != nil && row.id != "" && !row.seen {
			c.damaged(c.l.RecordKey(seq), "its id entry is missing")
		}
	}
	return nil
}

// branches checks the heads of the branches.
func (c *lineageCheck) branches(ctx context.Context) error {
	return c.l.s.scan(ctx, c.l.Branches(), func(e backend.Entry) error {
		b, err := c.l.openBranch(e)
		if err != nil {
			return c.note(err)
		}
		if string(e.Key) != string(c.l.BranchKey(b.Name)) {
			c.damaged(e.Key, "is for another branch")
			return nil
		}
		row := c.rows[b.Head]
		if row != nil && row.ghost {
			_, err := c.l.headAt(ctx, b.Head)
			return c.note(err)
		}
		if row == nil || row.stub {
			c.damaged(e.Key, fmt.Sprintf("ends at seq %d, which is not a checkpoint", b.Head))
		}
		return nil
	})
}
