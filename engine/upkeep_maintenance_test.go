package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// prune prunes by random options, and the model by the same.
func (w *world) prune() {
	ref, m := w.pick()
	if m == nil {
		return
	}
	o := upkeep.PruneOptions{KeepLabelled: w.r.IntN(2) == 0, Erase: w.r.IntN(6) == 0, AllNamespaces: w.r.IntN(3) == 0}
	switch w.r.IntN(4) {
	case 0:
		o.KeepLast = 1 + w.r.IntN(40)
	case 1:
		o.OlderThan = time.Duration(w.r.IntN(60)) * time.Second
		o.KeepLast = w.r.IntN(10)
	}
	if o.KeepLast == 0 && o.OlderThan == 0 || w.r.IntN(4) == 0 {
		p := m.line[w.r.IntN(len(m.line))]
		if p != m.line[len(m.line)-1] && p.labels[LabelPin] == "" && !slices.Contains(slices.Collect(maps.Values(m.branches)), p.id) {
			o.Remove = append(o.Remove, p.id)
		}
	}
	if o.KeepLast == 0 && o.OlderThan == 0 && o.Remove == nil {
		return
	}
	removed := 0
	for at, m := range w.lines {
		if at.Thread == ref.Thread && (at == ref || o.AllNamespaces) {
			removed += m.prune(&o, w.clock.now())
		}
	}
	dry := o
	dry.DryRun = true
	plan, err := w.f.Thread(ref).Upkeep().Prune(context.Background(), dry)
	w.fatal(err)
	rep, err := w.f.Thread(ref).Upkeep().Prune(context.Background(), o)
	w.fatal(err)
	if len(rep.Removed) != removed || len(plan.Removed) != removed || o.Erase && rep.Ghosts > 0 {
		w.t.Fatalf("prune %+v removed %d, dry %d, want %d; %d ghosts", o, len(rep.Removed), len(plan.Removed), removed, rep.Ghosts)
	}
}

func (m *modelLine) prune(o *upkeep.PruneOptions, now time.Time) int {
	n := len(m.line)
	policy := o.KeepLast > 0 || o.OlderThan > 0
	return m.remove(func(i int, p *modelPoint) bool {
		if slices.Contains(o.Remove, p.id) {
			return true
		}
		return policy && i < n-max(o.KeepLast, 1) && (o.OlderThan == 0 || p.time.Before(now.Add(-o.OlderThan))) && p.labels[LabelPin] == "" &&
			!(o.KeepLabelled && len(p.labels) > 0) && !slices.Contains(slices.Collect(maps.Values(m.branches)), p.id)
	})
}

func (m *modelLine) remove(goes func(i int, p *modelPoint) bool) (removed int) {
	var kept []*modelPoint
	for i, p := range m.line {
		if goes(i, p) {
			m.gone = append(m.gone, p.id)
			delete(m.writes, p.id)
			removed++
		} else {
			kept = append(kept, p)
		}
	}
	m.line = kept
	return removed
}

func (w *world) collect() {
	ctx := context.Background()
	if w.r.IntN(4) == 0 {
		policy := upkeep.RetentionPolicy{KeepLast: 30 + w.r.IntN(30), KeepLabelled: true}
		w.fatal(w.f.Upkeep().SetRetention(ctx, "acme", policy))
		for _, m := range w.lines {
			m.prune(&upkeep.PruneOptions{KeepLast: policy.KeepLast, KeepLabelled: true}, w.clock.now())
		}
	}
	rep, err := w.f.Upkeep().GC(ctx, "acme", upkeep.GCOptions{Grace: -1})
	w.fatal(err)
	w.fatal(w.f.Upkeep().SetRetention(ctx, "acme", upkeep.RetentionPolicy{}))
	if rep.Expired != 0 || rep.Leftovers != 0 || rep.IndexEntries != 0 {
		w.t.Fatalf("a store that was never killed had garbage: %+v", rep)
	}
}

func (w *world) copy() {
	ctx := context.Background()
	ref, m := w.pick()
	if m == nil {
		return
	}
	dst := testRef("copy" + strconv.Itoa(w.r.IntN(3)))
	exists := false
	for at := range w.lines {
		exists = exists || at.Thread == dst.Thread
	}
	err := w.f.Thread(ref).Copy(ctx, dst)
	if exists {
		if !errors.Is(err, ErrConflict) {
			w.t.Fatalf("copy to a thread that exists: %v", err)
		}
		if w.r.IntN(2) == 0 {
			w.drop(dst)
		}
		return
	}
	w.fatal(err)
	for at, m := range maps.Clone(w.lines) {
		if at.Thread == ref.Thread {
			at.Thread = dst.Thread
			w.lines[at] = &modelLine{line: slices.Clone(m.line), branches: maps.Clone(m.branches), writes: maps.Clone(m.writes), gone: slices.Clone(m.gone)}
		}
	}
}

func (w *world) delete() {
	if ref, m := w.pick(); m != nil {
		w.drop(ref)
	}
}

func (w *world) drop(ref Ref) {
	_, err := w.f.Thread(ref).Delete(context.Background())
	w.fatal(err)
	maps.DeleteFunc(w.lines, func(at Ref, _ *modelLine) bool { return at == ref || at.Thread == ref.Thread && ref.Namespace == "" })
}

func (w *world) deleteRun() {
	ctx := context.Background()
	_, m := w.pick()
	if m == nil {
		return
	}
	run := m.line[w.r.IntN(len(m.line))].run
	if run == "" {
		return
	}
	removed, left := 0, map[string]int{}
	heads := map[Ref]map[string]string{}
	for ref, m := range w.lines {
		heads[ref] = maps.Clone(m.branches)
		removed += m.remove(func(_ int, p *modelPoint) bool { return p.run == run })
		left[ref.Thread] += len(m.line)
	}
	n, _, err := w.f.User("acme", "alice").Upkeep().DeleteRun(ctx, run)
	w.fatal(err)
	if n != removed {
		w.t.Fatalf("deleting run %q removed %d, want %d", run, n, removed)
	}
	maps.DeleteFunc(w.lines, func(ref Ref, _ *modelLine) bool { return left[ref.Thread] == 0 })
	for ref, m := range w.lines {
		w.adoptBranches(ref, m)
	}
}

// adoptBranches takes over where branches end whose head is gone: how far back its ancestors are
// known is up to the store, but it must be one of the checkpoints that are left.
func (w *world) adoptBranches(ref Ref, m *modelLine) {
	got, err := w.f.Thread(ref).Branches(context.Background())
	w.fatal(err)
	now := map[string]string{}
	for _, b := range got {
		now[b.Name] = b.HeadID
		if m.find(b.HeadID) == nil {
			w.t.Fatalf("branch %s ends at %s, which is gone", b.Name, b.HeadID)
		}
	}
	for name, head := range m.branches {
		if m.find(head) != nil && now[name] != head {
			w.t.Fatalf("branch %s ends at %s, want %s", name, now[name], head)
		}
	}
	m.branches = now
}

// check compares all of the store with the model.
func (w *world) check() {
	w.t.Helper()
	ctx := context.Background()
	for ref, m := range w.lines {
		th := w.f.Thread(ref)
		for _, p := range m.line {
			cp, err := th.Load(ctx, At(p.id))
			if err != nil {
				w.t.Fatalf("%v: loading %s (seq %d): %v", ref, p.id, p.seq, err)
			}
			if cp.Seq != p.seq || cp.Hash != p.hash || cp.Parent != p.parent || cp.RunID != p.run || !cp.Time.Equal(p.time) || len(cp.Channels) != len(p.state) {
				w.t.Fatalf("%v: got %+v, want %+v", ref, cp, p)
			}
			if !slices.Equal(cp.Blobs, p.blobs) {
				w.t.Fatalf("%v: blobs of %s are %v, want %v", ref, p.id, cp.Blobs, p.blobs)
			}
			for _, ch := range cp.Channels {
				if !bytes.Equal(ch.Data, p.state[ch.Name]) {
					w.t.Fatalf("%v: channel %s of %s differs", ref, ch.Name, p.id)
				}
			}
		}
		for _, id := range m.gone[max(0, len(m.gone)-50):] {
			if cp, err := th.Load(ctx, At(id)); !errors.Is(err, ErrNotFound) {
				w.t.Fatalf("%v: %s is gone: got %+v, %v", ref, id, cp, err)
			}
		}
		w.checkWrites(th, m)
		cp, err := th.Load(ctx, Latest, LoadOptions{HeadersOnly: true})
		if n := len(m.line); n == 0 && !errors.Is(err, ErrNotFound) || n > 0 && (err != nil || cp.ID != m.line[n-1].id) {
			w.t.Fatalf("%v: latest of %d is %+v, %v", ref, n, cp, err)
		}
		seen := 0
		for _, err := range th.History(ctx, HistoryOptions{}) {
			w.fatal(err)
			seen++
		}
		if seen != len(m.line) {
			w.t.Fatalf("%v: history has %d, want %d", ref, seen, len(m.line))
		}
		w.adoptBranches(ref, m)
	}
	rep, err := w.f.Upkeep().Verify(ctx, upkeep.VerifyOptions{Deep: true})
	w.fatal(err)
	for _, p := range rep.Problems {
		w.t.Errorf("verify: %+v", p)
	}
	if w.t.Failed() {
		w.t.FailNow()
	}
}

func (w *world) checkWrites(th *Thread, m *modelLine) {
	w.t.Helper()
	for id, data := range m.writes {
		got, err := th.Writes(context.Background(), id)
		if err != nil || len(got) == 0 || string(got[0].Data) != data {
			w.t.Fatalf("%v: writes of %s are %+v, %v; want %s", th.ref, id, got, err, data)
		}
	}
	for _, id := range m.gone[max(0, len(m.gone)-50):] {
		if got, err := th.Writes(context.Background(), id); err != nil || len(got) > 0 {
			w.t.Fatalf("%v: writes of %s, which is gone: %+v, %v", th.ref, id, got, err)
		}
	}
}

// checkNoOrphans looks at every key of the backend: nothing is there that nothing leads to.
func (w *world) checkNoOrphans() {
	w.t.Helper()
	ctx := context.Background()
	rep, err := w.f.Upkeep().Verify(ctx, upkeep.VerifyOptions{})
	w.fatal(err)
	if rep.Orphans != 0 {
		w.t.Errorf("verify counts %d orphans", rep.Orphans)
	}
	u, err := w.f.User("acme", "alice").keys(ctx, false)
	w.fatal(err)
	epochs := map[crypto.Token]uint32{}
	w.fatal(u.eachThread(ctx, func(tok crypto.Token, rec *codec.Thread) error {
		epochs[tok] = uint32(rec.Epoch)
		return nil
	}))
	stored, named := map[codec.PartID]bool{}, map[codec.PartID]bool{}
	for key, value := range dump(w.t, w.f.be) {
		switch kind := key[space.PrefixLen-1]; {
		case kind == space.KindPart:
			stored[codec.PartID([]byte(key[space.PrefixLen:]))] = true
		case kind == space.KindBlob:
			m, err := unseal(u, space.Blobs, []byte(key), []byte(value))
			w.fatal(err)
			for _, id := range m.Parts {
				named[id] = true
			}
		case kind >= space.KindRecord:
			tok := crypto.Token([]byte(key[16:32]))
			if space.EpochOf([]byte(key)) != epochs[tok] {
				w.t.Errorf("%s is of epoch %d, the thread is at %d", space.Describe([]byte(key)), space.EpochOf([]byte(key)), epochs[tok])
			}
			th, err := u.stored(tok, epochs[tok])
			w.fatal(err)
			note := func(ids []codec.PartID) {
				for _, id := range ids {
					named[id] = true
				}
			}
			switch kind {
			case space.KindRecord:
				r, err := th.lineage("").openRecord([]byte(key), []byte(value))
				w.fatal(err)
				for i := 0; r.rec != nil && i < len(r.rec.Entries); i++ {
					note(r.rec.Entries[i].Parts)
				}
			case space.KindWrites:
				ws, ledger, err := openWrites(th, backend.Entry{Key: []byte(key), Value: []byte(value)})
				if ledger != nil {
					continue
				}
				w.fatal(err)
				for i := range ws.Writes {
					note(ws.Writes[i].Parts)
				}
			}
		}
	}
	if !maps.Equal(stored, named) {
		w.t.Errorf("%d parts are stored, %d are named", len(stored), len(named))
	}
}

// Whatever is done to threads, expected data exists byte for byte, and other data is not found.
// CKPTD_LONG is the number of operations of a long campaign.
func TestMaintenance(t *testing.T) {
	runsAlone(t)
	steps, seeds := 2500, 4
	if testing.Short() {
		steps, seeds = 1000, 1
	}
	if long, err := strconv.Atoi(os.Getenv("CKPTD_LONG")); err == nil {
		steps = long / seeds
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, seed)
			for i := range steps {
				w.step()
				if i%250 == 0 {
					w.check()
				}
			}
			w.check()
			_, err := w.f.Upkeep().GC(context.Background(), "acme", upkeep.GCOptions{Grace: -1})
			w.fatal(err)
			w.check()
			w.checkNoOrphans()
			for ref := range w.lines {
				checkBounds(t, w.f, ref)
			}
		})
	}
}
