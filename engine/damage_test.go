package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/mem"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// damageWorld is a store with a record of every kind, and the results of every read of it.
type damageWorld struct {
	t       *testing.T
	f       *fixture
	entries []backend.Entry
	reads   map[string]func(ctx context.Context, s *Store) (string, error)
	want    map[string]string
}

func newDamageWorld(t *testing.T) *damageWorld {
	t.Helper()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w := &damageWorld{t: t, f: newFixture(t, Options{Now: func() time.Time { return now }}), want: map[string]string{}}
	r := rand.New(rand.NewPCG(31, 32))
	th, u := w.f.Thread(testRef("t")), w.f.User("acme", "alice")
	blob, _, err := u.PutBlob(t.Context(), blobReader(1, 1000))
	if err != nil {
		t.Fatal(err)
	}
	state := words(r, 800)
	var cps []*Checkpoint
	for i := range 6 {
		state = append(state, words(r, 60)...)
		d := Draft{Step: int64(i), Branch: "main", Channels: []Change{{Name: "log", Data: state}, {Name: "big", Data: noise(rand.New(rand.NewPCG(1, 1)), 2<<10)}}}
		if i%2 == 1 {
			d.ID, d.Labels, d.Blobs = fmt.Sprint("c", i), map[string]string{"env": "prod"}, []BlobID{blob}
		}
		cps = append(cps, mustSave(t, w.f, testRef("t"), d))
	}
	cps = append(cps, mustSave(t, w.f, testRef("t"), Draft{ID: "c3", Keep: true, Step: 9}))
	if _, err := th.PutWrites(t.Context(), "c5", "task", "", Upsert, []Write{{Channel: "log", Data: words(r, 300)}}, 0); err != nil {
		t.Fatal(err)
	}
	sub := testRef("t")
	sub.Namespace = "sub"
	inSub := mustSave(t, w.f, sub, Draft{Channels: []Change{{Name: "log", Data: words(r, 100)}}})
	if err := w.f.Upkeep().SetRetention(t.Context(), "acme", upkeep.RetentionPolicy{KeepLast: 100}); err != nil {
		t.Fatal(err)
	}
	w.entries = allEntries(t, w.f.be)
	w.addReads(cps, sub, inSub, blob)
	for name, read := range w.reads {
		if w.want[name], err = read(t.Context(), w.f.Store); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return w
}

func (w *damageWorld) addReads(cps []*Checkpoint, sub Ref, inSub *Checkpoint, blob BlobID) {
	w.reads = map[string]func(ctx context.Context, s *Store) (string, error){}
	load := func(ref Ref, which Which, o ...LoadOptions) func(ctx context.Context, s *Store) (string, error) {
		return func(ctx context.Context, s *Store) (string, error) {
			cp, err := s.Thread(ref).Load(ctx, which, o...)
			if err != nil {
				return "", err
			}
			return describe(cp), nil
		}
	}
	for _, cp := range cps {
		w.reads["at "+cp.ID] = load(testRef("t"), At(cp.ID))
	}
	w.reads["headers"] = load(testRef("t"), At(cps[4].ID), LoadOptions{HeadersOnly: true})
	w.reads["a channel"] = load(testRef("t"), At(cps[4].ID), LoadOptions{Channels: []string{"log"}})
	w.reads["latest"] = load(testRef("t"), Latest)
	w.reads["branch"] = load(testRef("t"), HeadOf("main"))
	w.reads["namespace"] = load(sub, At(inSub.ID))
	w.reads["namespaces"] = func(ctx context.Context, s *Store) (string, error) {
		names, err := s.Thread(testRef("t")).Namespaces(ctx)
		return fmt.Sprint(names), err
	}
	w.reads["branches"] = func(ctx context.Context, s *Store) (string, error) {
		branches, err := s.Thread(testRef("t")).Branches(ctx)
		return fmt.Sprint(branches), err
	}
	w.reads["history"] = func(ctx context.Context, s *Store) (all string, err error) {
		for cp, err := range s.Thread(testRef("t")).History(ctx, HistoryOptions{Data: true}) {
			if err != nil {
				return "", err
			}
			all += describe(cp) + "\n"
		}
		return all, nil
	}
	w.reads["query"] = func(ctx context.Context, s *Store) (all string, err error) {
		for cp, err := range s.User("acme", "alice").Query(ctx, Query{Filter: Filter{Labels: map[string]string{"env": "prod"}, Since: time.UnixMilli(1)}}) {
			if err != nil {
				return "", err
			}
			all += describe(cp) + "\n"
		}
		return all, nil
	}
	w.reads["threads"] = func(ctx context.Context, s *Store) (all string, err error) {
		for info, err := range s.User("acme", "alice").Threads(ctx, ThreadOptions{Count: true}) {
			if err != nil {
				return "", err
			}
			all += fmt.Sprintf("%+v\n", info)
		}
		return all, nil
	}
	w.reads["writes"] = func(ctx context.Context, s *Store) (string, error) {
		ws, err := s.Thread(testRef("t")).Writes(ctx, "c5")
		return fmt.Sprintf("%+v", ws), err
	}
	w.reads["blob"] = func(ctx context.Context, s *Store) (string, error) {
		var b limitless
		_, err := s.User("acme", "alice").GetBlob(ctx, blob, &b)
		if err != nil {
			return "", err
		}
		return string(b), nil
	}
	w.reads["verify"] = func(ctx context.Context, s *Store) (string, error) {
		rep, err := s.Upkeep().Verify(ctx, upkeep.VerifyOptions{})
		if err == nil && !rep.Clean() {
			err = rep.Problems[0].Err
		}
		return "", err
	}
	w.reads["retention"] = func(ctx context.Context, s *Store) (string, error) {
		p, err := s.Upkeep().Retention(ctx, "acme")
		return fmt.Sprintf("%+v", p), err
	}
}

// limitless takes all that is written to it.
type limitless []byte

func (b *limitless) Write(p []byte) (int, error) { *b = append(*b, p...); return len(p), nil }

const changed = " is something else"

// typed reports whether an error reports damaged data.
func typed(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNewerFormat) || errors.Is(err, crypto.ErrWrongKey)
}

// readAll reads everything from the entries. Every read returns the right result or an error;
// refused counts the errors, absent those for missing things.
func (w *damageWorld) readAll(t *testing.T, what string, entries []backend.Entry) (refused int, absent []string) {
	t.Helper()
	be := mem.Open()
	copyEntries(t, be, entries)
	o := w.f.opts
	o.Create = false
	s, err := Open(t.Context(), be, o)
	if err != nil {
		if !typed(err) {
			t.Errorf("%s: opening: %v", what, err)
		}
		return 1, nil
	}
	defer s.Close()
	for name, read := range w.reads {
		got, err := read(t.Context(), s)
		switch {
		case err == nil && got != w.want[name]:
			absent = append(absent, name+changed)
		case err == nil:
		case typed(err):
			refused++
		case errors.Is(err, ErrNotFound):
			absent = append(absent, name)
		default:
			t.Errorf("%s: %s: %v", what, name, err)
		}
	}
	slices.Sort(absent)
	return refused, absent
}

// damages are the ways to damage a value, given one of another key.
func damages(nth int, value, other []byte) map[string][]byte {
	all := map[string][]byte{"empty": {}, "plaintext": []byte(`{"plain":"text"}`), "another's": other, "longer": append(slices.Clone(value), 0)}
	for _, n := range []int{1, 3, 4, 8, 20, len(value) / 2, len(value) - 1} {
		all[fmt.Sprint("first ", n)] = value[:n]
	}
	flip := func(bit int) {
		flipped := slices.Clone(value)
		flipped[bit/8] ^= 1 << (bit % 8)
		all[fmt.Sprint("bit ", bit)] = flipped
	}
	for bit := nth % 3; bit < 8*9; bit += 3 { // of the header and the beginning of the nonce; each bit in some value
		flip(bit)
	}
	for i := range 16 {
		flip(8*len(value) - 1 - i*len(value)/2)
	}
	return all
}

// However a stored value is damaged, reads return the saved data or report damage.
func TestDamagedValues(t *testing.T) {
	runsAlone(t)
	w := newDamageWorld(t)
	kinds := map[byte]bool{}
	for i, e := range w.entries {
		kind := space.KindOf(e.Key)
		kinds[kind] = true
		others := w.entries[(i+1)%len(w.entries)]
		for _, o := range w.entries { // of the same kind, if there is another
			if space.KindOf(o.Key) == kind && string(o.Key) != string(e.Key) {
				others = o
			}
		}
		for how, value := range damages(i, e.Value, others.Value) {
			entries := slices.Clone(w.entries)
			entries[i].Value = value
			what := fmt.Sprintf("%s, %s", space.Describe(e.Key), how)
			refused, wrong := w.readAll(t, what, entries)
			if len(wrong) > 0 {
				t.Errorf("%s: %q", what, wrong)
			}
			if refused == 0 {
				t.Errorf("%s: nobody noticed", what)
			}
		}
	}
	for _, kind := range []byte{space.KindStore, space.KindRetention, space.KindIndex, space.KindThread, space.KindPart, space.KindBlob, space.KindActivity, space.KindRecord, space.KindID, space.KindBranch, space.KindWrites, space.KindNamespace} {
		if !kinds[kind] {
			t.Errorf("nothing of kind %#x is in the store", kind)
		}
	}
}

// A missing value is noticed by reads that depend on it or name it, and by Verify if anything else
// refers to it.
func TestMissingValues(t *testing.T) {
	w := newDamageWorld(t)
	for i, e := range w.entries {
		what, kind := space.Describe(e.Key), space.KindOf(e.Key)
		refused, absent := w.readAll(t, what, slices.Delete(slices.Clone(w.entries), i, i+1))
		notFound := slices.ContainsFunc(absent, func(s string) bool { return !strings.HasSuffix(s, changed) })
		told := true
		switch kind {
		case space.KindStore, space.KindPart, space.KindRecord:
			if told = kind != space.KindRecord || string(e.Key[space.PrefixLen:space.PrefixLen+16]) == string(space.None[:]); told && notFound {
				t.Errorf("without %s there is no such thing as %q", what, absent)
			}
		case space.KindRetention, space.KindBranch, space.KindWrites, space.KindIndex: // one of the index entries is that of a ghost
			told = false
		}
		if told && refused == 0 {
			t.Errorf("without %s: nobody noticed, but %q", what, absent)
		}
	}
}
