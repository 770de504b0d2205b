package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/backendtest"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// scene is a world with a bit of everything in thread t0, the same for the same seed.
func scene(t *testing.T) (*world, *backendtest.Fault) {
	w := newWorld(t, 5)
	fault := backendtest.NewFault(w.f.be)
	w.f.be = fault.Backend()
	w.f.reopen()
	for range 60 {
		w.clock.ms += 1000
		w.save()
		if w.r.IntN(8) == 0 {
			w.replace()
		}
	}
	w.branch()
	for ref, m := range w.lines {
		id := m.line[len(m.line)/2].id
		putWrites(t, w.f, ref, id, "small", []byte("small"))
		putWrites(t, w.f, ref, id, "large", noiseBytes(100_000))
	}
	return w, fault
}

// Any commit that fails in between leaves a valid store with all remaining data, and repeating the
// operation completes it and leaves no leftovers.
func TestMaintenanceIsCutShort(t *testing.T) {
	runsAlone(t)
	ctx := context.Background()
	ref := testRef("t0")
	prune := upkeep.PruneOptions{KeepLast: 3, KeepLabelled: true, AllNamespaces: true}
	erase := prune
	erase.Erase = true
	ops := []struct {
		name string
		do   func(f *fixture) error
		goes func(w *world) // from the model
	}{
		{"prune", func(f *fixture) error { _, err := f.Thread(ref).Upkeep().Prune(ctx, prune); return err }, func(w *world) { w.pruneModel(ref, prune) }},
		{"erase", func(f *fixture) error { _, err := f.Thread(ref).Upkeep().Prune(ctx, erase); return err }, func(w *world) { w.pruneModel(ref, prune) }},
		{"delete run", func(f *fixture) error {
			_, _, err := f.User("acme", "alice").Upkeep().DeleteRun(ctx, "run1")
			return err
		}, func(w *world) {
			for _, m := range w.lines {
				m.remove(func(_ int, p *modelPoint) bool { return p.run == "run1" })
			}
		}},
		{"copy", func(f *fixture) error {
			if err := f.Thread(ref).Copy(ctx, testRef("copy")); !errors.Is(err, ErrConflict) || errors.Is(err, backend.ErrConflict) {
				return err
			}
			return nil // the lost acknowledgement
		}, func(w *world) {
			for at, m := range maps.Clone(w.lines) {
				if at.Thread == ref.Thread {
					at.Thread = "copy"
					w.lines[at] = &modelLine{line: slices.Clone(m.line), branches: maps.Clone(m.branches)}
				}
			}
		}},
		{"delete", func(f *fixture) error {
			if _, err := f.Thread(ref).Delete(ctx); !errors.Is(err, ErrNotFound) {
				return err
			}
			return nil
		}, func(w *world) {
			maps.DeleteFunc(w.lines, func(at Ref, _ *modelLine) bool { return at.Thread == ref.Thread })
		}},
	}
	for _, op := range ops {
		for _, fails := range []backendtest.Plan{
			{Ops: backendtest.OpCommit, Err: backend.ErrUnavailable, Keep: true},
			{Ops: backendtest.OpCommit, Err: backend.ErrAmbiguous, Apply: true},
			{Ops: backendtest.OpGet | backendtest.OpScan, Err: backend.ErrUnavailable},
		} {
			t.Run(fmt.Sprintf("%s/%d %v", op.name, fails.Ops, fails.Err), func(t *testing.T) {
				t.Parallel()
				stride := 1
				if fails.Ops != backendtest.OpCommit {
					stride = 151
				}
				if testing.Short() {
					stride *= 5
				}
				runs := 0
				for done := false; !done; fails.After += stride {
					w, fault := scene(t)
					fault.Arm(fails)
					err := op.do(w.f)
					fault.Disarm()
					if done = fault.Fired() == 0; !done && err == nil {
						t.Fatalf("call %d failed, and the operation did not say so", fails.After)
					}
					runs++
					w.f.reopen()
					before := maps.Clone(w.lines)
					for at, m := range before {
						before[at] = &modelLine{line: slices.Clone(m.line)}
					}
					op.goes(w)
					w.checkPartly(before)
					if err := op.do(w.f); err != nil && !done {
						t.Fatalf("again after call %d failed: %v", fails.After, err)
					}
					for at, m := range w.lines {
						w.adoptBranches(at, m)
					}
					w.check()
					_, err = w.f.Upkeep().GC(ctx, "acme", upkeep.GCOptions{Grace: -1})
					w.fatal(err)
					w.check()
					w.checkNoOrphans()
				}
				if runs < 2 {
					t.Error("nothing could fail")
				}
			})
		}
	}
}

func (w *world) pruneModel(ref Ref, o upkeep.PruneOptions) {
	for at, m := range w.lines {
		if at.Thread == ref.Thread {
			m.prune(&o, w.clock.now())
		}
	}
}

// checkPartly checks that the data in the model exists, and that earlier data exists or is gone.
func (w *world) checkPartly(before map[Ref]*modelLine) {
	w.t.Helper()
	ctx := context.Background()
	for ref, m := range before {
		for _, p := range m.line {
			cp, err := w.f.Thread(ref).Load(ctx, At(p.id))
			stays := w.lines[ref] != nil && w.lines[ref].find(p.id) != nil
			if (stays || !errors.Is(err, ErrNotFound)) && (err != nil || cp.Hash != p.hash || string(cp.Channels[0].Data) != string(p.state[cp.Channels[0].Name])) {
				w.t.Fatalf("%v: %s (seq %d), stays %v: %v", ref, p.id, p.seq, stays, err)
			}
		}
	}
	rep, err := w.f.Upkeep().Verify(ctx, upkeep.VerifyOptions{Deep: true})
	w.fatal(err)
	for _, p := range rep.Problems {
		w.t.Fatalf("verify: %+v", p)
	}
}

// Erased data is in no remaining record, including those hidden by earlier prunes.
func TestEraseLeavesNothing(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	ref := testRef("t")
	const marker = "the-secret-marker"
	big := strings.Repeat("filler ", 100)
	mustSave(t, f, ref, Draft{ID: "a", Channels: []Change{{Name: "m", Data: []byte(big)}}})
	mustSave(t, f, ref, Draft{ID: "b", Keep: true, Labels: map[string]string{"l": marker}, Meta: []byte(`"` + marker + `"`),
		Channels: []Change{{Name: "m", Data: []byte(big + marker)}, {Name: "large", Data: append(noiseBytes(300_000), marker...)}}})
	putWrites(t, f, ref, "b", "task", []byte(marker))
	large := append(noiseBytes(100_000), marker...)
	putWrites(t, f, ref, "b", "task two", large)
	mustSave(t, f, ref, Draft{ID: "c", Keep: true, Labels: map[string]string{}, Meta: []byte("{}"), Channels: []Change{{Name: "m", Data: []byte(big + "and on")}, {Name: "large", Remove: true}}})
	mustSave(t, f, ref, Draft{ID: "d", Keep: true, Channels: []Change{{Name: "m", Data: []byte(big + "and on and on")}}})
	sub := ref
	sub.Namespace = "sub"
	other := mustSave(t, f, sub, Draft{Channels: []Change{{Name: "m", Data: []byte("other")}}})
	putWrites(t, f, ref, "later", "task", []byte("kept"))

	if n := countPlain(t, f, marker); n < 3 {
		t.Fatalf("the marker is in %d places: the test looks for it in the wrong ones", n)
	}
	mustPrune(t, f, ref, upkeep.PruneOptions{Remove: []string{"b"}})
	if n := countPlain(t, f, marker); n == 0 {
		t.Fatal("the marker is gone already: the test wants a ghost")
	}
	mustSave(t, f, ref, Draft{ID: "x", Parent: "a"})
	putWrites(t, f, ref, "x", "task", []byte(marker))
	last := mustSave(t, f, ref, Draft{ID: "y", Parent: "d", Keep: true})
	rep := mustPrune(t, f, ref, upkeep.PruneOptions{Remove: []string{"x"}, Erase: true})
	if rep.Ghosts != 0 || rep.Compacted {
		t.Errorf("report is %+v", rep)
	}
	for range 2 {
		if n := countPlain(t, f, marker); n != 0 {
			t.Errorf("the marker is still in %d places", n)
		}
		got, err := f.Thread(ref).Load(ctx, Latest)
		if err != nil || got.Hash != last.Hash || got.Generation != last.Generation {
			t.Errorf("got %+v, %v", got, err)
		}
		if got, err := f.Thread(sub).Load(ctx, Latest); err != nil || got.Hash != other.Hash {
			t.Errorf("the other namespace: %+v, %v", got, err)
		}
		f.reopen()
	}
	if n := countPlain(t, f, "kept"); n != 1 {
		t.Errorf("pending writes that were to stay are in %d places", n)
	}
	_, err := f.Thread(ref).Save(ctx, Draft{Channels: []Change{{Name: "m", Base: last.Channels[0].Version, Data: []byte("x")}}})
	if err != nil {
		t.Errorf("a splice on the same bytes as before: %v", err)
	}
}

func noiseBytes(n int) []byte {
	b := make([]byte, n)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// countPlain counts the values of the user that hold text, decompressed and in parts too.
func countPlain(t *testing.T, f *fixture, text string) (n int) {
	t.Helper()
	ctx := context.Background()
	u, err := f.User("acme", "alice").keys(ctx, false)
	if err != nil {
		t.Fatal(err)
	}
	blocks := func(b []byte) string {
		if raw, err := f.z.AppendRaw(nil, b, 1<<20); err == nil {
			return string(raw)
		}
		return string(b) // an operation list, whose short literals are not compressed
	}
	for key, value := range dump(t, f.be) {
		k, v, found := []byte(key), []byte(value), ""
		switch kind := space.KindOf(k); kind {
		case space.KindPart:
			plain, err := partSealer(t, u).Open(nil, kind, k, v)
			if err != nil {
				t.Fatal(err)
			}
			found = string(plain) + blocks(plain[3:])
		case space.KindRecord:
			th, err := u.stored([16]byte(k[16:32]), space.EpochOf(k))
			if err != nil {
				t.Fatal(err)
			}
			r, err := th.lineage("").openRecord(k, v)
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; r.rec != nil && i < len(r.rec.Entries); i++ {
				e := &r.rec.Entries[i]
				if found += string(e.Payload); e.Payload != nil {
					found += blocks(e.Payload)
				}
			}
		case space.KindWrites:
			th, err := u.stored([16]byte(k[16:32]), space.EpochOf(k))
			if err != nil {
				t.Fatal(err)
			}
			w, ledger, err := openWrites(th, backend.Entry{Key: k, Value: v})
			if err != nil {
				t.Fatal(err)
			}
			if ledger != nil {
				continue
			}
			for _, v := range w.Writes {
				found += blocks(v.Payload)
			}
		}
		if strings.Contains(found, text) {
			n++
		}
	}
	return n
}
