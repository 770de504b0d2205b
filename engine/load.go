package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
)

// Load returns a checkpoint, with all its channels unless a LoadOptions says otherwise. It never
// returns a checkpoint that is not durable. A missing checkpoint is ErrNotFound; one that does not
// restore byte for byte is ErrCorrupt.
func (t *Thread) Load(ctx context.Context, w Which, opts ...LoadOptions) (*Checkpoint, error) {
	var o LoadOptions
	if len(opts) > 0 {
		o = opts[0]
	}
	if err := o.checkHistories(); err != nil {
		return nil, fmt.Errorf("loading: %w", err)
	}
	l, err := t.s.rlockThread(ctx, t.ref, false)
	if err != nil {
		return nil, fmt.Errorf("loading: %w", err)
	}
	want := o.want
	z := loadMigration{u: l.u, o: &o}
	if o.Schema != 0 {
		want = z.want
	}
	g := loading{w: w, o: &o, want: want}
	err = g.readAndUnlock(ctx, l)
	if err == errOvertaken {
		err = t.s.withExclusive(ctx, t.ref, func(l *lineage) error { return g.read(ctx, l) })
	}
	cp := g.cp
	if err == nil && o.History != nil {
		cp.Histories, err = t.histories(ctx, &o, g.found, g.lost)
	}
	if err == nil && o.Schema != 0 {
		err = z.finish(ctx, cp)
	}
	if err == nil {
		err = t.s.applyLoadHooks(ctx, cp, o.Export)
	}
	if err != nil {
		return nil, fmt.Errorf("loading: %w", err)
	}
	return cp, nil
}

// want chooses the channels of a checkpoint to read; nil is none.
func (o *LoadOptions) want(*Checkpoint) func(name string) bool {
	switch {
	case o.HeadersOnly:
		return nil
	case o.Channels != nil:
		return func(name string) bool { return slices.Contains(o.Channels, name) }
	}
	return func(string) bool { return true }
}

// wanting chooses the channels of a checkpoint to read, once the rest of the checkpoint is known;
// nil is none.
type wanting func(cp *Checkpoint) func(name string) bool

// loading is a load and its outcome, before hooks and migrations.
type loading struct {
	w     Which
	o     *LoadOptions
	want  wanting
	cp    *Checkpoint
	found []*ancestor
	lost  []string
}

// readAndUnlock reads and then unlocks the thread, also if read panics.
func (g *loading) readAndUnlock(ctx context.Context, l *lineage) error {
	defer l.runlockThread()
	return g.read(ctx, l)
}

func (g *loading) read(ctx context.Context, l *lineage) (err error) {
	if g.o.Head {
		g.cp, err = l.loadWithHead(ctx, g.w, g.o, g.want)
	} else {
		g.cp, err = l.load(ctx, g.w, g.o, g.want)
	}
	if err == nil && len(g.o.History) > 0 {
		g.found, g.lost, err = l.ancestors(ctx, g.cp.Seq, g.o.History)
	}
	return err
}

// loadWithHead is load that also names the head of the lineage.
func (l *lineage) loadWithHead(ctx context.Context, w Which, o *LoadOptions, want wanting) (*Checkpoint, error) {
	at, err := l.durableNow(ctx)
	if err != nil {
		return nil, err
	}
	cp, err := l.load(ctx, w, o, want)
	if err != nil {
		return nil, err
	}
	cp.Head = &Head{cp.Seq, cp.ID}
	if w.by == ByNewest || cp.Seq == at.latest {
		return cp, nil
	}
	if cp.Head.Seq, cp.Head.ID = at.latest, l.cachedID(at.latest); cp.Head.ID == "" {
		r, err := l.findAt(ctx, at, Latest)
		if err != nil {
			return nil, err
		}
		cp.Head = &Head{r.seq, l.recordID(r)}
	}
	return cp, nil
}

// cachedID is the id of the checkpoint at seq if its state is in memory and the lineage is not
// locked, else "".
func (l *lineage) cachedID(seq uint64) string {
	if !l.mu.tryLock() {
		return ""
	}
	defer l.mu.unlock()
	if t := l.states[seq]; t != nil && t.seq == seq && l.openEpoch == l.th.Epoch {
		return t.id
	}
	return ""
}

func (l *lineage) load(ctx context.Context, w Which, o *LoadOptions, want wanting) (*Checkpoint, error) {
	if w.by == ByNewest {
		if cp, err := l.newestCached(ctx, want); cp != nil || err != nil {
			return cp, err
		}
	}
	r, err := l.find(ctx, w)
	if err != nil {
		return nil, err
	}
	if cp, err := l.cached(ctx, r.seq, want); cp != nil || err != nil {
		return cp, err
	}
	l.s.cache.misses.Add(1)
	rs := l.restorer()
	if o.HeadersOnly || o.Channels != nil {
		return rs.checkpoint(ctx, r, want)
	}
	t, err := rs.state(ctx, r)
	if err != nil {
		return nil, err
	}
	cp := t.checkpoint(want)
	l.adopt(t)
	return cp, nil
}

// newestCached returns the newest checkpoint if its state is in memory. It waits for one that is
// not durable yet. Nil without an error means that the caller has to read the durable one.
func (l *lineage) newestCached(ctx context.Context, want wanting) (*Checkpoint, error) {
	if err := l.mu.lock(ctx); err != nil {
		return nil, err
	}
	t := l.states[l.latest]
	if t == nil || l.latest == 0 || !l.opened || l.openEpoch != l.th.Epoch {
		l.mu.unlock()
		return nil, nil
	}
	if err := t.reserve(ctx, want); err != nil {
		l.mu.unlock()
		return nil, err
	}
	cp, p := t.checkpoint(want), l.pendingAt(l.latest)
	l.s.cache.used(t)
	var pending *pendingError
	if p != nil {
		pending = l.dependsOn(p)
	}
	l.mu.unlock()
	if pending != nil {
		if err := pending.wait(ctx); err != nil {
			return nil, err
		}
		if p.err != nil {
			return nil, nil
		}
	} else if _, there := l.th.record(); !there {
		return nil, ErrNotFound
	}
	l.s.cache.hits.Add(1)
	return cp, nil
}

// cached returns the durable checkpoint at seq if its state is in memory and the lineage is not
// locked.
func (l *lineage) cached(ctx context.Context, seq uint64, want wanting) (*Checkpoint, error) {
	if !l.mu.tryLock() {
		return nil, nil
	}
	defer l.mu.unlock()
	t := l.states[seq]
	if t == nil || l.openEpoch != l.th.Epoch {
		return nil, nil
	}
	if err := t.reserve(ctx, want); err != nil {
		return nil, err
	}
	l.s.cache.used(t)
	l.s.cache.hits.Add(1)
	return t.checkpoint(want), nil
}

// adopt caches a restored state if it is still the newest, so that the next save reads nothing.
func (l *lineage) adopt(t *checkpointState) {
	if !l.mu.tryLock() {
		return // the holder of the lock reads it too, or has made a newer one
	}
	defer l.mu.unlock()
	if l.opened && l.openEpoch == l.th.Epoch && l.latest == t.seq && l.states[t.seq] == nil {
		l.remember(t)
		l.s.cache.used(t)
	}
}

// checkpoint builds the Checkpoint of r, with the values of the channels that want names; a nil
// want names none.
func (rs *restorer) checkpoint(ctx context.Context, r *record, want wanting) (*Checkpoint, error) {
	if err := rs.fetchAll(ctx, r, described); err != nil {
		return nil, err
	}
	meta, err := rs.meta(ctx, r)
	if err != nil {
		return nil, err
	}
	h, err := rs.header(ctx, r)
	if err != nil {
		return nil, err
	}
	cp := newCheckpoint(rs.l.ref, rs.generation, r.seq, rs.l.recordID(r), &h, meta)
	cp.Cost.Stored = r.size
	commits := make([]*[32]byte, 0, 1+len(meta.Channels))
	for number, e := range r.rec.Channels {
		at, err := rs.holder(ctx, r, number, e)
		if err != nil {
			return nil, err
		}
		commits = append(commits, &at.e.Commitment)
		if number == 0 {
			continue
		}
		info := &meta.Channels[len(commits)-2]
		ch := Channel{Name: info.Name, Type: info.Type, Size: int64(at.e.Size)}
		ch.describe(&at.e.Commitment, info)
		cp.Channels = append(cp.Channels, ch)
		cp.Cost.State += int64(at.e.Size)
		depth := 1 + int(at.e.Path.Len())
		cp.Cost.Depth, cp.Cost.Full = max(cp.Cost.Depth, depth), cp.Cost.Full || e.Mode == codec.Full
	}
	var tree crypto.ChannelTree
	_, cp.Hash = hashOf(nil, cp.ID, r.seq, &h, tree.Root(len(commits), func(i int) (uint64, *[32]byte) {
		if i == 0 {
			return 0, commits[0]
		}
		return meta.Channels[i-1].Number, commits[i]
	}))
	if want != nil {
		if err := rs.fill(ctx, cp, r, meta, want(cp)); err != nil {
			return nil, err
		}
	}
	sortChannels(cp.Channels)
	return cp, nil
}

// fill restores the data of wanted channels, which cp lists in the order of meta.
func (rs *restorer) fill(ctx context.Context, cp *Checkpoint, r *record, meta *codec.Attrs, want func(name string) bool) error {
	if want == nil {
		return nil
	}
	wanted := map[uint64]bool{}
	for i := range meta.Channels {
		wanted[meta.Channels[i].Number] = want(meta.Channels[i].Name)
	}
	got, err := rs.channels(ctx, r, func(number uint64) bool { return wanted[number] })
	if err != nil {
		return err
	}
	for i := range cp.Channels {
		if wanted[meta.Channels[i].Number] {
			ch := &cp.Channels[i]
			ch.Data, ch.Rewritten = append([]byte{}, got[0].value...), false
			ch.describe(&got[0].commit, &meta.Channels[i])
			got = got[1:]
		}
	}
	return nil
}
