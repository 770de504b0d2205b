package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/backendtest"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
	"github.com/ckptd/ckptd/hook"
)

// lineRedactor looks only at lines that the parent does not have, if it uses that.
func lineRedactor(incremental bool, scanned *int) *testChain {
	return &testChain{ids: identity("lines"), run: func(_ context.Context, c *hook.Call) error {
		for i := range c.Items {
			it := &c.Items[i]
			known := map[string]bool{}
			if incremental {
				for line := range bytes.Lines(it.Prev) {
					known[string(line)] = true
				}
			}
			var out []byte
			for line := range bytes.Lines(it.Data) {
				if !known[string(line)] {
					*scanned += len(line)
					line = redacted("sk", line)
				}
				out = append(out, line...)
			}
			it.Data = out
		}
		return nil
	}}
}

// TestHooksComposeWithDeltas: hooks that process only changes store the same as hooks that process
// everything, and both store deltas.
func TestHooksComposeWithDeltas(t *testing.T) {
	var scanned [2]int
	var fixtures [2]*fixture
	for i := range fixtures {
		var h *testHooks
		fixtures[i], h = newHookFixture(t)
		h.set(hook.PreSave, lineRedactor(i == 1, &scanned[i]))
	}
	r := rand.New(rand.NewPCG(5, 6))
	ref := testRef("t")
	state := []string{}
	full := 0
	for step := range 120 {
		for range r.IntN(4) {
			line := fmt.Sprintf("%s sk-%x\n", words(r, 100), r.IntN(9))
			at := len(state)
			if r.IntN(5) == 0 {
				at = r.IntN(len(state) + 1)
			}
			state = append(state[:at:at], append([]string{line}, state[at:]...)...)
		}
		data := []byte(strings.Join(state, ""))
		for i, f := range fixtures {
			cp := mustSave(t, f, ref, Draft{Step: int64(step), Channels: []Change{{Name: "log", Data: data}}})
			if got := dataOf(t, f, ref, Latest)["log"]; got != string(redacted("sk", data)) {
				t.Fatalf("step %d, store %d: got %q", step, i, got)
			}
			if ch, _ := cp.Channel("log"); len(data) > 0 && !ch.Rewritten {
				t.Error("not told to be rewritten")
			}
			if cp.Cost.Full {
				full++
			}
		}
	}
	if full > 20 {
		t.Errorf("%d of 240 saves stored a full value", full)
	}
	// The caller's lines are not those that are stored, so those with secrets are looked at again;
	// a caller that loads has only new ones.
	scanned[1] = 0
	cp, err := fixtures[1].Thread(ref).Load(context.Background(), Latest)
	if err != nil {
		t.Fatal(err)
	}
	ch, _ := cp.Channel("log")
	mustSave(t, fixtures[1], ref, Draft{Keep: true, Channels: []Change{{Name: "log", Base: ch.Version, Prefix: len(ch.Data), Data: []byte("new sk-1\n")}}})
	if scanned[1] != len("new sk-1\n") {
		t.Errorf("%d bytes were looked at", scanned[1])
	}
}

// Every backend call of a save with hooks fails once; the store is clean afterwards, and the save
// can be repeated.
func TestFaultsAfterHooks(t *testing.T) {
	ctx := context.Background()
	for _, p := range faultPlans {
		t.Run(p.name, func(t *testing.T) {
			for k := 0; ; k++ {
				f, h := newHookFixture(t)
				fault := backendtest.NewFault(keepOpen{f.be})
				mustSave(t, f, testRef("t"), Draft{Channels: []Change{{Name: "a", Data: []byte("sk-0")}}})
				h.set(hook.PreSave, summarising())
				s, err := Open(ctx, fault.Backend(), f.opts)
				if err != nil {
					t.Fatal(err)
				}
				plan := p.plan
				plan.After = k
				fault.Arm(plan)
				d := Draft{ID: "b", Keep: true, Channels: []Change{{Name: "out", Data: bytes.Repeat([]byte("sk-1"), 100_000)}}}
				_, err = s.Thread(testRef("t")).Save(ctx, d)
				fired := fault.Fired() > 0
				fault.Disarm()
				if fired == (err == nil) {
					t.Fatalf("call %d: fired %v, error %v", k, fired, err)
				}
				cp, err := s.Thread(testRef("t")).Save(ctx, d)
				if err != nil || len(cp.Blobs) != 1 || cp.Seq != 2 {
					t.Fatalf("call %d: repeated: %+v, %v", k, cp, err)
				}
				mustBeClean(t, s, upkeep.VerifyOptions{Deep: true})
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if !fired {
					return
				}
			}
		})
	}
}

// The hash chain covers the recorded hooks and their fuel.
func TestVerifyCoversHooks(t *testing.T) {
	ctx := context.Background()
	f, h := newHookFixture(t)
	f.broken = true
	h.set(hook.PreSave, redacting("sk"))
	mustSave(t, f, testRef("t"), Draft{Channels: []Change{{Name: "a", Data: []byte("sk-1")}}})
	mustSave(t, f, testRef("t"), Draft{Keep: true})
	mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
	l, err := f.rlockThread(ctx, testRef("t"), false)
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.readRecord(ctx, 1)
	if err != nil || r.rec.Fuel == 0 {
		t.Fatalf("fuel %d, %v", r.rec.Fuel, err)
	}
	r.rec.Fuel++
	key := l.RecordKey(1)
	value, err := threadSealer(t, l).Seal(nil, space.KindRecord, key, codec.AppendRecord(nil, 1, r.rec))
	if err != nil {
		t.Fatal(err)
	}
	l.runlockThread()
	putRaw(t, f, key, value)
	rep, err := f.Upkeep().Verify(ctx, upkeep.VerifyOptions{})
	if err != nil || rep.Clean() || !strings.Contains(rep.Problems[0].Err.Error(), "the hash of its parent") {
		t.Errorf("problems %v, %v", rep.Problems, err)
	}
}

// BenchmarkSaveHooks is a save of 1 kB more on 100 kB, without hooks and with one that changes
// nothing.
func BenchmarkSaveHooks(b *testing.B) {
	for _, name := range []string{"none", "identity"} {
		b.Run(name, func(b *testing.B) {
			f, h := newHookFixture(b)
			f.broken = true
			if name == "identity" {
				h.set(hook.PreSave, &testQuiet{identity("quiet")})
			}
			ctx := context.Background()
			th := f.Thread(testRef("t"))
			data := words(rand.New(rand.NewPCG(1, 1)), 100<<10)
			cp, err := th.Save(ctx, Draft{Channels: []Change{{Name: "a", Data: data}}})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				ch := cp.Channels[0]
				d := Draft{Keep: true, Channels: []Change{{Name: "a", Base: ch.Version, Prefix: int(ch.Size) - 1<<10, Data: data[:1<<10]}}}
				if cp, err = th.Save(ctx, d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

type testQuiet struct{ ids []hook.Identity }

func (q *testQuiet) Identities() []hook.Identity           { return q.ids }
func (q *testQuiet) Run(context.Context, *hook.Call) error { return nil }

func putRaw(t *testing.T, f *fixture, key, value []byte) {
	t.Helper()
	if err := f.be.Commit(context.Background(), backend.Batch{Muts: []backend.Mut{{Key: key, Value: value, Version: space.Once}}}); err != nil {
		t.Fatal(err)
	}
}

// saveSecrets puts a secret wherever a hook sees one.
func saveSecrets(t *testing.T, s *Store) {
	t.Helper()
	ctx := context.Background()
	th := s.Thread(testRef("t"))
	big := strings.Repeat("sk-5ec2e7 ", 40_000)
	d := Draft{ID: "a", Meta: []byte(`"sk-5ec2e7"`), Labels: map[string]string{"l": "sk-5ec2e7"}, Channels: []Change{{Name: "a", Data: []byte("sk-5ec2e7")}, {Name: "big", Data: []byte(big)}}}
	_, err := th.Save(ctx, d)
	for i := 0; err == nil && i < 5; i++ {
		_, err = th.Save(ctx, Draft{Keep: true, Channels: []Change{{Name: "a", Data: fmt.Appendf(nil, "%d sk-5ec2e7 %d", i, i)}}})
	}
	if err == nil {
		_, err = th.PutWrites(ctx, "a", "t", "", Upsert, []Write{{Channel: "a", Data: []byte("sk-5ec2e7")}, {Index: 1, Channel: "a", Data: []byte(big)}}, 0)
	}
	if err == nil {
		_, err = th.SetLabels(ctx, At("a"), map[string]string{"m": "sk-5ec2e7"})
	}
	if err == nil {
		_, _, err = s.User("acme", "alice").PutBlob(ctx, strings.NewReader(big))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestNothingUnredactedIsStored looks into everything that is stored, decrypted.
func TestNothingUnredactedIsStored(t *testing.T) {
	for _, hooked := range []bool{true, false} {
		f, h := newHookFixture(t)
		if hooked {
			h.set(hook.PreSave, redacting("sk"))
		}
		saveSecrets(t, f.Store)
		if n := countPlain(t, f, "5ec2e7"); hooked && n > 0 || !hooked && n < 5 {
			t.Errorf("with hooks %v: %d values have the secret", hooked, n)
		}
	}
}

// Pseudonyms stay the same for a user, and are others for another one.
func TestKeysOfHooks(t *testing.T) {
	f, h := newHookFixture(t)
	c := redacting("sk")
	h.set(hook.PreSave, c)
	bob := testRef("t")
	bob.User = "bob"
	for _, ref := range []Ref{testRef("t"), testRef("u"), bob} {
		for range 2 {
			mustSave(t, f, ref, Draft{Channels: []Change{{Name: "a", Data: []byte("x")}}})
			f.reopen()
		}
	}
	alice, seeds := c.seen[0].PseudonymKey, map[[32]byte]bool{}
	for i := range c.seen {
		if same := c.seen[i].PseudonymKey == alice; same != (c.seen[i].Place.User == "alice") {
			t.Errorf("call %d for %s: the same key is %v", i, c.seen[i].Place.User, same)
		}
		if seeds[c.seen[i].Seed] {
			t.Errorf("call %d has the seed of another", i)
		}
		seeds[c.seen[i].Seed] = true
	}
}

// The same on Badger, with a restart between a save and its retry.
func TestHooksOnBadger(t *testing.T) {
	ctx := context.Background()
	dir := disk(t.TempDir())
	h := &testHooks{}
	h.set(hook.PreSave, redacting("sk"))
	for round := range 2 {
		s, err := dir.open(nil)
		if err != nil {
			t.Fatal(err)
		}
		s.hooks = h
		if round == 0 {
			saveSecrets(t, s)
		}
		h.set(hook.PreSave, refusing(hook.ErrRejected))
		if _, err := s.Thread(testRef("t")).Save(ctx, Draft{ID: "b", Channels: []Change{{Name: "a", Data: []byte("sk-bad")}}}); !errors.Is(err, ErrRejected) {
			t.Errorf("error %v, want ErrRejected", err)
		}
		for cp, err := range s.Thread(testRef("t")).History(ctx, HistoryOptions{Data: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if all := fmt.Sprintf("%s %s %v", cp.Channels[0].Data, cp.Meta, cp.Labels); strings.Contains(all, "sk-") || cp.ID == "b" {
				t.Errorf("stored is %.100s", all)
			}
		}
		mustBeClean(t, s, upkeep.VerifyOptions{Deep: true})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
