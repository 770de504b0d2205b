package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// mustBeClean fails the test if an undamaged store has problems.
func mustBeClean(t testing.TB, s *Store, o upkeep.VerifyOptions) *upkeep.VerifyReport {
	t.Helper()
	rep, err := s.Upkeep().Verify(context.Background(), o)
	if err != nil {
		t.Fatalf("verify: %v", err)
	}
	for i, p := range rep.Problems {
		if i == 10 {
			t.Errorf("and %d more problems", len(rep.Problems)-i)
			break
		}
		t.Errorf("verify: %+v", p)
	}
	return rep
}

// breaker is a store with something of every kind in it, to be damaged through the backend.
type breaker struct {
	*fixture
	t *testing.T
}

func newBreaker(t *testing.T) *breaker {
	b := &breaker{newFixture(t, Options{}), t}
	b.broken = true
	r := rand.New(rand.NewPCG(3, 3))
	ref := testRef("main")
	state := words(r, 3000)
	for step := range int64(6) {
		state = append(state, words(r, 200)...)
		d := Draft{Step: step, Channels: []Change{{Name: "messages", Data: state}, {Name: "plan", Data: []byte("plan")}}}
		if step >= 3 {
			d.Labels, d.RunID = map[string]string{"env": "prod"}, "run-1"
		}
		if step == 5 {
			d.Status = StatusFailed
		}
		mustSave(t, b.fixture, ref, d)
	}
	mustSave(t, b.fixture, ref, Draft{ID: "mine", Branch: "b1", Keep: true})
	mustSave(t, b.fixture, ref, Draft{ID: "mine", Keep: true, Step: 9})
	mustSave(t, b.fixture, ref, Draft{Branch: "b1", Keep: true, Channels: []Change{{Name: "big", Data: incompressible(r, 400<<10)}}})
	ref.Namespace = "sub"
	mustSave(t, b.fixture, ref, Draft{ID: "0199b7a0-0000-7000-8000-000000000001"})
	blob, _, err := b.User("acme", "alice").PutBlob(context.Background(), bytes.NewReader(incompressible(r, 300<<10)))
	if err != nil {
		t.Fatal(err)
	}
	mustSave(t, b.fixture, ref, Draft{Blobs: []BlobID{blob}})
	for i, data := range [][]byte{[]byte("small"), incompressible(r, 100<<10)} {
		_, err := b.Thread(ref).PutWrites(context.Background(), "mine", fmt.Sprint("task", i), "", Upsert, []Write{{Channel: "c", Type: "bytes", Data: data}}, 0)
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Upkeep().SetRetention(context.Background(), "acme", upkeep.RetentionPolicy{KeepLast: 9}); err != nil {
		t.Fatal(err)
	}
	pruned := testRef("pruned")
	for i := range 6 {
		mustSave(t, b.fixture, pruned, Draft{Channels: []Change{{Name: "m", Data: incompressible(r, 100+i)}}})
	}
	if _, err := b.Thread(pruned).Upkeep().Prune(context.Background(), upkeep.PruneOptions{KeepLast: 3}); err != nil {
		t.Fatal(err)
	}
	mustSave(t, b.fixture, testRef("other"), Draft{Labels: map[string]string{"env": "prod"}, Channels: []Change{{Name: "messages", Data: []byte("x")}}})
	mustSave(t, b.fixture, Ref{Tenant: "globex", User: "bob", Thread: "main"}, Draft{Status: StatusSucceeded})
	rep := mustBeClean(t, b.Store, upkeep.VerifyOptions{Deep: true})
	if rep.Users != 2 || rep.Threads != 4 || rep.Lineages != 5 || rep.Checkpoints != 15 || rep.Stubs != 1 || rep.Blobs != 1 || rep.Writes != 2 || rep.Parts < 5 || rep.IndexEntries != 5 || rep.Orphans != 0 {
		t.Fatalf("report of a clean store: %+v", rep)
	}
	return b
}

func incompressible(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// entries are all keys and values of the store.
func (b *breaker) entries() []backend.Entry {
	b.t.Helper()
	var all []backend.Entry
	err := b.Store.scan(context.Background(), backend.Range{}, func(e backend.Entry) error {
		all = append(all, e)
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

// of are the entries of a kind.
func (b *breaker) of(kind byte) []backend.Entry {
	return slices.DeleteFunc(b.entries(), func(e backend.Entry) bool { return space.KindOf(e.Key) != kind })
}

func (b *breaker) put(muts ...backend.Mut) {
	b.t.Helper()
	for i := range muts {
		if muts[i].Version == "" {
			muts[i].Version = space.Once
		}
	}
	if err := b.Store.commit(context.Background(), muts, nil); err != nil {
		b.t.Fatal(err)
	}
}

// damaged runs change, which damages the store, looks for a problem that says so, and undoes the
// damage.
func (b *breaker) damaged(name, want string, change func()) {
	b.t.Helper()
	b.t.Run(name, func(t *testing.T) {
		t.Helper()
		before := b.entries()
		change()
		b.reopen() // nothing in memory may hide the damage
		rep, err := b.Upkeep().Verify(context.Background(), upkeep.VerifyOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if rep.Clean() {
			t.Fatal("not noticed")
		}
		var said []string
		for _, p := range rep.Problems {
			said = append(said, p.Err.Error())
		}
		if !strings.Contains(strings.Join(said, "\n"), want) {
			t.Errorf("no problem says %q:\n%s", want, strings.Join(said, "\n"))
		}
		for _, e := range b.entries() {
			b.put(backend.Mut{Key: e.Key, Delete: true})
		}
		for _, e := range before {
			b.put(backend.Mut{Key: e.Key, Value: e.Value, Version: e.Version})
		}
		b.reopen()
		if rep, err := b.Upkeep().Verify(context.Background(), upkeep.VerifyOptions{}); err != nil || !rep.Clean() {
			t.Fatalf("the damage was not undone: %+v, %v", rep, err)
		}
	})
}

// One bit of any value, wherever it is, does not go unnoticed; nor does a value in the place of
// another.
func TestVerifyNoticesBitFlipsAndSwaps(t *testing.T) {
	ctx := context.Background()
	b := newBreaker(t)
	all := b.entries()
	kinds := map[byte]int{}
	check := func(what string, e backend.Entry) {
		t.Helper()
		b.reopen()
		rep, err := b.Upkeep().Verify(ctx, upkeep.VerifyOptions{})
		if err != nil {
			t.Fatalf("%s of %s: %v", what, space.Describe(e.Key), err)
		}
		if rep.Clean() {
			t.Errorf("%s of %s is not noticed", what, space.Describe(e.Key))
		}
	}
	for i, e := range all {
		kind := space.KindOf(e.Key)
		if kind == space.KindStore {
			continue // looked at when the store is opened
		}
		kinds[kind]++
		if kinds[kind] > 12 {
			continue
		}
		bad := bytes.Clone(e.Value)
		at := (len(bad) * (i%7 + 1)) / 8
		bad[at] ^= 1 << (i % 8)
		b.put(backend.Mut{Key: e.Key, Value: bad, Version: e.Version})
		check(fmt.Sprintf("a flipped bit in byte %d of %d", at, len(bad)), e)
		other := slices.IndexFunc(all, func(o backend.Entry) bool {
			return space.KindOf(o.Key) == kind && !bytes.Equal(o.Key, e.Key)
		})
		if other >= 0 {
			b.put(backend.Mut{Key: e.Key, Value: all[other].Value, Version: e.Version})
			check("another value", e)
		}
		b.put(backend.Mut{Key: e.Key, Value: e.Value, Version: e.Version})
	}
	for _, kind := range []byte{space.KindRetention, space.KindIndex, space.KindThread, space.KindPart, space.KindBlob, space.KindActivity, space.KindRecord, space.KindID, space.KindBranch, space.KindWrites, space.KindNamespace} {
		if kinds[kind] == 0 {
			t.Errorf("there is nothing of kind %#x", kind)
		}
	}
}

func TestVerifyNoticesWhatIsMissing(t *testing.T) {
	b := newBreaker(t)
	for _, kind := range []struct {
		kind byte
		want string
	}{{space.KindIndex, "index entry for a"}, {space.KindThread, "thread record is missing"}, {space.KindPart, "is missing"}, {space.KindActivity, "missing, but its thread names it"}, {space.KindBlob, "names a blob that is damaged or missing"},
		{space.KindID, "id entry is missing"}, {space.KindNamespace, "missing, but it has checkpoints"}} {
		for i, e := range b.of(kind.kind) {
			b.damaged(fmt.Sprintf("kind %x, %d", kind.kind, i), kind.want, func() { b.put(backend.Mut{Key: e.Key, Delete: true}) })
		}
	}
	l := b.lineage(testRef("main"))
	for seq := uint64(1); seq < 9; seq++ {
		b.damaged(fmt.Sprintf("checkpoint %d", seq), "no stub covers them", func() { b.put(backend.Mut{Key: l.RecordKey(seq), Delete: true}) })
	}
	p := b.lineage(testRef("pruned"))
	b.damaged("stub", "no stub covers them", func() { b.put(backend.Mut{Key: p.RecordKey(3), Delete: true}) })
	b.damaged("newest checkpoint", "ends at seq 9, which is not a checkpoint", func() { b.put(backend.Mut{Key: l.RecordKey(9), Delete: true}) })
}

// lineage returns the lineage as an operation sees it.
func (b *breaker) lineage(ref Ref) *lineage {
	b.t.Helper()
	l, err := b.rlockThread(context.Background(), ref, false)
	if err != nil {
		b.t.Fatal(err)
	}
	l.runlockThread()
	return l
}

// seal makes a value that opens, whatever is in it.
func (b *breaker) seal(l *lineage, key []byte, typ byte, plain []byte) backend.Mut {
	b.t.Helper()
	value, err := threadSealer(b.t, l).Seal(nil, typ, key, plain)
	if err != nil {
		b.t.Fatal(err)
	}
	return backend.Mut{Key: key, Value: value}
}

// Values that open and parse but do not match the rest are reported too.
func TestVerifyNoticesWhatDoesNotFit(t *testing.T) {
	ctx := context.Background()
	b := newBreaker(t)
	main := func() *lineage { return b.lineage(testRef("main")) }
	record := func(l *lineage, seq uint64) *codec.Record {
		r, err := l.readRecord(ctx, seq)
		if err != nil {
			t.Fatal(err)
		}
		return r.rec
	}
	change := func(seq uint64, fn func(*codec.Record)) func() {
		return func() {
			l := main()
			rec := record(l, seq)
			fn(rec)
			b.put(b.seal(l, l.RecordKey(seq), space.KindRecord, codec.AppendRecord(nil, seq, rec)))
		}
	}
	b.damaged("step", "hash of its parent, seq 4", change(4, func(r *codec.Record) { r.Step++ }))
	b.damaged("time", "is older than its parent", change(9, func(r *codec.Record) { r.Time = 1 }))
	b.damaged("parent", "hash of its parent", change(4, func(r *codec.Record) { r.ParentDist = 2 }))
	b.damaged("parent hash", "hash of its parent", change(4, func(r *codec.Record) { r.ParentHash[0]++ }))
	b.damaged("id", "id entry is missing", change(4, func(r *codec.Record) { r.ID = "other" }))
	b.damaged("commitment", "hash of its parent", change(4, func(r *codec.Record) { r.Entries[1].Commitment[0]++ }))
	b.damaged("ghost", "replaces seq 7, which is still a checkpoint", change(7, func(r *codec.Record) { r.Ghost = false }))
	b.damaged("keep of a value not held", "does not hold it", change(5, func(r *codec.Record) {
		r.Entries[2].Path = codec.Path{{Last: 2, Len: 2}} // the plan, which 2 only keeps
	}))
	b.damaged("parts", "names parts of", change(9, func(r *codec.Record) { r.Entries[len(r.Entries)-1].PartBytes++ }))
	b.damaged("attributes", "attributes do not match the record", change(9, func(r *codec.Record) { r.Entries = r.Entries[:2] }))

	sub := func() *lineage {
		return b.lineage(Ref{Tenant: "acme", User: "alice", Thread: "main", Namespace: "sub"})
	}
	stub := func(s codec.Stub) func() {
		return func() {
			l := main()
			for seq := uint64(2); seq < 4; seq++ {
				b.put(backend.Mut{Key: l.RecordKey(seq), Delete: true})
			}
			b.put(b.seal(l, l.RecordKey(3), space.TypeStub, codec.AppendStub(nil, &s)))
		}
	}
	hash := record(main(), 4).ParentHash
	b.damaged("stub of too little", "seqs 2 to 2 are missing", stub(codec.Stub{Count: 1, Hash: hash, ID: "x"}))
	b.damaged("stub of another", "hash of its parent, seq 3", stub(codec.Stub{Count: 2, FirstDist: 1, ID: "x"}))
	b.damaged("stub below a delta", "depends on seq 3, which is missing", stub(codec.Stub{Count: 2, FirstDist: 1, Hash: hash, ID: "x"}))

	b.damaged("branch", "ends at seq 70, which is not a checkpoint", func() {
		l := main()
		b.put(b.seal(l, l.BranchKey("b1"), space.KindBranch, codec.AppendBranch(nil, &codec.Branch{Name: "b1", Head: 70})))
	})
	b.damaged("branch name", "is for another branch", func() {
		l := main()
		b.put(b.seal(l, l.BranchKey("b2"), space.KindBranch, codec.AppendBranch(nil, &codec.Branch{Name: "b3", Head: 9})))
	})
	b.damaged("id of no checkpoint", "not the checkpoint with this id", func() {
		l := main()
		b.put(b.seal(l, l.IDKey("new"), space.KindID, codec.AppendIDEntry(nil, &codec.IDEntry{Seq: 4, ID: "new"})))
	})
	b.damaged("id of a ghost", "not the checkpoint with this id", func() {
		l := main()
		b.put(b.seal(l, l.IDKey("mine"), space.KindID, codec.AppendIDEntry(nil, &codec.IDEntry{Seq: 7, ID: "mine"})))
	})
	b.damaged("id under another key", "is for another id", func() {
		l := sub()
		b.put(b.seal(l, l.IDKey("new"), space.KindID, codec.AppendIDEntry(nil, &codec.IDEntry{Seq: 1, ID: "newer"})))
	})
	b.damaged("namespace", "is for another namespace", func() {
		l := sub()
		b.put(b.seal(l, l.th.NamespaceKey(l.NS), space.KindNamespace, codec.AppendName(nil, "bus")))
	})
	b.damaged("index entry", "without its term", func() {
		l := main()
		rec := record(l, 2)
		m, err := l.indexMut(labelTerm("env", "prod"), 2, codec.IndexEntry{Time: rec.Time, Step: rec.Step})
		if err != nil {
			t.Fatal(err)
		}
		b.put(m)
	})
	b.damaged("activity entry", "is not the one its thread names", func() {
		muts, err := main().th.moveActivity(nil, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		b.put(muts[0])
	})
	b.damaged("thread record", "is for another thread", func() {
		l := main()
		rec := l.th.rec
		rec.ID = "other"
		muts, _, err := l.th.recordMuts(rec.Active, &rec, l.th.version)
		if err != nil {
			t.Fatal(err)
		}
		b.put(muts[0])
	})
	b.damaged("writes", "write 2 does not restore", func() {
		l := main()
		w := codec.Writes{Checkpoint: "mine", Task: "t1", Writes: []codec.Write{{Index: 2, Channel: "c", Type: "json", Size: 9, Payload: []byte{6, 'a', 'b', 'c'}}}}
		b.put(b.seal(l, l.WritesKey("mine", "t1"), space.KindWrites, codec.AppendWrites(nil, &w)))
	})
	b.damaged("part", "has a different digest", func() {
		l := main()
		e := b.of(space.KindPart)[0]
		value, err := partSealer(t, l.u).Seal(nil, space.KindPart, e.Key, codec.AppendPart(nil, 1, []byte("something else")))
		if err != nil {
			t.Fatal(err)
		}
		b.put(backend.Mut{Key: e.Key, Value: value})
	})
}

// A value that opens, parses and is at the right key, but does not match its commitment, is found
// by a deep verification.
func TestVerifyDeep(t *testing.T) {
	ctx := context.Background()
	b := newBreaker(t)
	l := b.lineage(testRef("main"))
	r, err := l.readRecord(ctx, 3)
	if err != nil {
		t.Fatal(err)
	}
	e := &r.rec.Entries[1]
	if e.Mode != codec.ByDelta {
		t.Fatalf("the channel has mode %d", e.Mode)
	}
	e.Payload = bytes.Clone(e.Payload)
	e.Payload[len(e.Payload)-5] ^= 1
	b.put(b.seal(l, l.RecordKey(3), space.KindRecord, codec.AppendRecord(nil, 3, r.rec)))
	b.reopen()
	mustBeClean(t, b.Store, upkeep.VerifyOptions{})
	rep, err := b.Upkeep().Verify(ctx, upkeep.VerifyOptions{Deep: true})
	if err != nil {
		t.Fatal(err)
	}
	// Seqs 3 to 8 depend on it, and 7 is a ghost.
	if len(rep.Problems) < 5 || !strings.Contains(rep.Problems[0].Err.Error(), "seq 3 of thread") || !strings.Contains(rep.Problems[0].Err.Error(), "does not restore") {
		t.Errorf("problems %v", rep.Problems)
	}
}

// Leftovers of a crash are counted and are not problems.
func TestVerifyCountsOrphans(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	mustSave(t, f, testRef("t"), Draft{Labels: map[string]string{"a": "b"}})
	l, err := f.rlockThread(ctx, testRef("t"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.runlockThread()
	_, parts, err := l.u.newParts(ctx, []byte("nobody names this"))
	if err != nil {
		t.Fatal(err)
	}
	early, err := l.indexMut(term{fieldRun, "never saved"}, 2, codec.IndexEntry{Time: 5, Step: 1})
	if err != nil {
		t.Fatal(err)
	}
	late, err := l.indexMut(term{fieldRun, "another save took the seq"}, 1, codec.IndexEntry{Time: 5, Step: 1})
	if err != nil {
		t.Fatal(err)
	}
	old := l.th.in(7).lineage("").RecordKey(0)
	muts := append(parts, early, late, backend.Mut{Key: old, Value: []byte("x"), Version: space.Once})
	if err := f.commitAll(ctx, muts); err != nil {
		t.Fatal(err)
	}
	if rep := mustBeClean(t, f.Store, upkeep.VerifyOptions{}); rep.Orphans != 4 || rep.Parts != 1 || rep.IndexEntries != 3 {
		t.Errorf("report %+v", rep)
	}
}

func TestVerifyScope(t *testing.T) {
	ctx := context.Background()
	b := newBreaker(t)
	l := b.lineage(testRef("other"))
	e := b.of(space.KindRecord)
	i := slices.IndexFunc(e, func(e backend.Entry) bool { return bytes.Equal(e.Key, l.RecordKey(1)) })
	e[i].Value[30] ^= 1
	b.put(backend.Mut{Key: e[i].Key, Value: e[i].Value})
	b.reopen()
	for _, c := range []struct {
		o       upkeep.VerifyOptions
		threads int
		clean   bool
	}{{upkeep.VerifyOptions{}, 4, false}, {upkeep.VerifyOptions{Tenant: "acme"}, 3, false}, {upkeep.VerifyOptions{Tenant: "globex"}, 1, true},
		{upkeep.VerifyOptions{Tenant: "acme", User: "alice"}, 3, false}, {upkeep.VerifyOptions{Tenant: "acme", User: "alice", Thread: "main"}, 1, true},
		{upkeep.VerifyOptions{Tenant: "acme", User: "alice", Thread: "other"}, 1, false}} {
		var done []int
		c.o.Progress = func(n, total int) {
			if done = append(done, n); total != c.threads {
				t.Errorf("%+v: total is %d", c.o, total)
			}
		}
		rep, err := b.Upkeep().Verify(ctx, c.o)
		if err != nil {
			t.Fatal(err)
		}
		if rep.Threads != c.threads || rep.Clean() != c.clean || len(done) != c.threads {
			t.Errorf("%+v: %d threads, progress %v, problems %v", c.o, rep.Threads, done, rep.Problems)
		}
		for _, p := range rep.Problems {
			var c *CorruptError
			if (Ref{Tenant: p.Tenant, User: p.User, Thread: p.Thread, Namespace: p.Namespace}) != testRef("other") || !errors.As(p.Err, &c) {
				t.Errorf("problem %+v", p)
			}
		}
	}
	for _, o := range []upkeep.VerifyOptions{{User: "alice"}, {Tenant: "acme", Thread: "main"}} {
		if _, err := b.Upkeep().Verify(ctx, o); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, o := range []upkeep.VerifyOptions{{Tenant: "acme", User: "nobody"}, {Tenant: "acme", User: "alice", Thread: "nothing"}} {
		if _, err := b.Upkeep().Verify(ctx, o); !errors.Is(err, ErrNotFound) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := b.Upkeep().Verify(cancelled, upkeep.VerifyOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// Changes by a save between two reads of a verify are not problems.
func TestVerifyLooksAgain(t *testing.T) {
	f := newFixture(t, Options{})
	be := &intruder{Backend: f.be, kind: space.KindID}
	f.be = be
	f.reopen()
	mustSave(t, f, testRef("t"), Draft{ID: "x"})
	saved := false
	be.do = func() {
		mustSave(t, f, testRef("t"), Draft{ID: "x", Step: 1})
		saved = true
	}
	if rep := mustBeClean(t, f.Store, upkeep.VerifyOptions{}); !saved || rep.Ghosts != 1 || rep.Lineages != 1 {
		t.Errorf("saved: %v, report %+v", saved, rep)
	}
}

// A part that nothing names yet is looked at too, since the next save of its bytes would name it.
func TestVerifyUnnamedPart(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	f.broken = true
	mustSave(t, f, testRef("t"), Draft{})
	u, err := f.User("acme", "alice").keys(ctx, false)
	if err != nil {
		t.Fatal(err)
	}
	_, parts, err := u.newParts(ctx, []byte("nobody names this"))
	if err != nil {
		t.Fatal(err)
	}
	parts[0].Value[30] ^= 1
	if err := f.commitAll(ctx, parts); err != nil {
		t.Fatal(err)
	}
	if rep, err := f.Upkeep().Verify(ctx, upkeep.VerifyOptions{}); err != nil || len(rep.Problems) != 1 || rep.Orphans != 1 {
		t.Errorf("report %+v, %v", rep, err)
	}
}

// A verify during saves, replacements and deletions reports no false problems.
func TestVerifyBesideSaves(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	stop := make(chan struct{})
	failed := make(chan error, 4)
	for w := range 4 {
		go func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			ref := testRef(fmt.Sprint("t", w/2))
			for i := 0; ; i++ {
				select {
				case <-stop:
					failed <- nil
					return
				default:
				}
				d := Draft{Step: int64(i), Branch: fmt.Sprint("b", w%2), Labels: map[string]string{"k": fmt.Sprint(i % 3)}, Channels: []Change{{Name: "m", Data: words(r, 900)}}}
				if i%5 == 4 {
					d.ID = fmt.Sprint("id", r.IntN(3))
				}
				_, err := f.Thread(ref).Save(ctx, d)
				if err == nil && i%60 == 59 {
					_, err = f.Thread(ref).Delete(ctx)
				}
				if err != nil && !errors.Is(err, ErrNotFound) {
					failed <- err
					return
				}
			}
		}()
	}
	for range 15 {
		mustBeClean(t, f.Store, upkeep.VerifyOptions{})
	}
	close(stop)
	for range 4 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
}
