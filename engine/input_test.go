package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/mem"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// namedFields set one name of a call that saves, by the kind of name.
var namedFields = map[string]struct {
	emptyAllowed bool
	save         func(s *Store, name string) error
	most         int // bytes, if not codec.MaxName
}{
	"tenant":    {false, savingTo(func(r *Ref, name string) { r.Tenant = name }), 0},
	"user":      {false, savingTo(func(r *Ref, name string) { r.User = name }), 0},
	"thread":    {false, savingTo(func(r *Ref, name string) { r.Thread = name }), 0},
	"namespace": {true, savingTo(func(r *Ref, name string) { r.Namespace = name }), codec.MaxLongName},
	"id":        {true, savingDraft(func(d *Draft, name string) { d.ID = name }), 0},
	"parent":    {true, savingDraft(func(d *Draft, name string) { d.Parent, d.AllowDangling = name, true }), 0},
	"branch":    {true, savingDraft(func(d *Draft, name string) { d.Branch = name }), 0},
	"status":    {true, savingDraft(func(d *Draft, name string) { d.Status = name }), 0},
	"run":       {true, savingDraft(func(d *Draft, name string) { d.RunID = name }), 0},
	"label":     {false, savingDraft(func(d *Draft, name string) { d.Labels = map[string]string{name: "v"} }), 0},
	"value":     {true, savingDraft(func(d *Draft, name string) { d.Labels = map[string]string{"k": name} }), 0},
	"channel":   {false, savingDraft(func(d *Draft, name string) { d.Channels = []Change{{Name: name}} }), 0},
	"type":      {true, savingDraft(func(d *Draft, name string) { d.Channels = []Change{{Name: "x", Type: name}} }), 0},
	"task": {false, func(s *Store, name string) error {
		_, err := s.Thread(testRef("t")).PutWrites(context.Background(), "cp", name, "", Upsert, []Write{{Channel: "x"}}, 0)
		return err
	}, 0},
	"task path": {true, func(s *Store, name string) error {
		_, err := s.Thread(testRef("t")).PutWrites(context.Background(), "cp", "task", name, Upsert, []Write{{Channel: "x"}}, 0)
		return err
	}, codec.MaxLongName},
}

func savingTo(set func(r *Ref, name string)) func(*Store, string) error {
	return func(s *Store, name string) error {
		ref := testRef("t")
		set(&ref, name)
		_, err := s.Thread(ref).Save(context.Background(), Draft{})
		return err
	}
}

func savingDraft(set func(d *Draft, name string)) func(*Store, string) error {
	return func(s *Store, name string) error {
		var d Draft
		set(&d, name)
		_, err := s.Thread(testRef("t")).Save(context.Background(), d)
		return err
	}
}

// Names that are empty where they must not be, too long, or not UTF-8 are refused, whatever they
// are of, and nothing is written. The longest allowed ones are kept as they are.
func TestNames(t *testing.T) {
	for what, field := range namedFields {
		t.Run(what, func(t *testing.T) {
			f := newFixture(t, Options{})
			before := allEntries(t, f.be)
			most := cmp.Or(field.most, codec.MaxName)
			bad := []string{strings.Repeat("x", most+1), "broken \xff UTF-8", strings.Repeat("é", most/2) + "x"}
			if !field.emptyAllowed {
				bad = append(bad, "")
			}
			for _, name := range bad {
				if err := field.save(f.Store, name); !errors.Is(err, ErrInvalid) {
					t.Errorf("%q: %v", name, err)
				}
			}
			if !sameEntries(allEntries(t, f.be), before) {
				t.Error("something was written")
			}
			good := []string{strings.Repeat("x", most), "a/b\x00c", "😀", " ", "'; --", "..", "%s"}
			if field.emptyAllowed {
				good = append(good, "")
			}
			for _, name := range good {
				if err := field.save(f.Store, name); err != nil {
					t.Errorf("%q: %v", name, err)
				}
			}
			mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
		})
	}
}

// An invalid draft is refused with an error that names the reason, and nothing is written.
func TestBadDrafts(t *testing.T) {
	const limit = 100_000
	ctx := context.Background()
	f := newFixture(t, Options{MaxChannel: limit})
	th := f.Thread(testRef("t"))
	base := mustSave(t, f, testRef("t"), Draft{ID: "base", Channels: []Change{{Name: "x", Data: []byte("0123456789")}, {Name: "y", Data: []byte("y")}}})
	x, _ := base.Channel("x")
	many := func(n int) (cs []Change) {
		for i := range n {
			cs = append(cs, Change{Name: fmt.Sprint("c", i)})
		}
		return cs
	}
	labels := map[string]string{}
	for i := range codec.MaxLabels + 1 {
		labels[fmt.Sprint(i)] = ""
	}
	splice := func(c Change) Draft { c.Name = "x"; return Draft{Keep: true, Channels: []Change{c}} }
	for name, tc := range map[string]struct {
		d    Draft
		want error
		says string
	}{
		"channel over the limit":   {Draft{Channels: []Change{{Name: "x", Data: make([]byte, limit+1)}}}, ErrTooLarge, "100000"},
		"splice over the limit":    {splice(Change{Base: x.Version, Prefix: 10, Data: make([]byte, limit-9)}), ErrTooLarge, "100000"},
		"splice that wraps around": {splice(Change{Base: x.Version, Prefix: math.MaxInt, Suffix: math.MaxInt, Data: make([]byte, 2)}), ErrInvalid, "x"},
		"metadata over the limit":  {Draft{Meta: make([]byte, codec.MaxMeta+1)}, ErrTooLarge, fmt.Sprint(codec.MaxMeta)},
		"metadata, not JSON":       {Draft{Meta: []byte(`{"a":`)}, ErrInvalid, "metadata"},
		"metadata, two values":     {Draft{Meta: []byte(`{} {}`)}, ErrInvalid, "metadata"},
		"too many labels":          {Draft{Labels: labels}, ErrInvalid, "256"},
		"too many blobs":           {Draft{Blobs: make([]BlobID, codec.MaxBlobs+1)}, ErrInvalid, "256"},
		"too many channels":        {Draft{Channels: many(codec.MaxChannels + 1)}, ErrInvalid, "4096"},
		"too many channels kept":   {Draft{Keep: true, Channels: many(codec.MaxChannels)}, ErrInvalid, "4096"},
		"channel twice":            {Draft{Channels: []Change{{Name: "x"}, {Name: "z"}, {Name: "x"}}}, ErrInvalid, `"x"`},
		"blob that is not there":   {Draft{Blobs: []BlobID{{1}}}, ErrNotFound, BlobID{1}.String()},
		"unknown parent":           {Draft{Parent: "nobody"}, ErrUnknownParent, "nobody"},
		"unknown parent, a UUID":   {Draft{Parent: "0199b7a0-0000-7000-8000-000000000001"}, ErrUnknownParent, "0199b7a0"},
		"root with a parent":       {Draft{Root: true, Parent: "base"}, ErrInvalid, "Root"},
		"remove without keep":      {Draft{Channels: []Change{{Name: "x", Remove: true}}}, ErrInvalid, "Remove"},
		"old base":                 {splice(Change{Base: x.Version + 1}), ErrNeedFull, `"x"`},
		"base of another channel":  {Draft{Keep: true, Channels: []Change{{Name: "new", Base: x.Version}}}, ErrNeedFull, `"new"`},
		"base without parent":      {Draft{Root: true, Channels: []Change{{Name: "x", Base: x.Version}}}, ErrNeedFull, `"x"`},
		"prefix without base":      {splice(Change{Prefix: 1}), ErrInvalid, "base"},
		"suffix without base":      {splice(Change{Suffix: 1}), ErrInvalid, "base"},
		"negative prefix":          {splice(Change{Base: x.Version, Prefix: -1}), ErrInvalid, "negative"},
		"negative suffix":          {splice(Change{Base: x.Version, Suffix: -1}), ErrInvalid, "negative"},
		"prefix out of range":      {splice(Change{Base: x.Version, Prefix: 11}), ErrInvalid, "10 bytes"},
		"suffix out of range":      {splice(Change{Base: x.Version, Suffix: 11}), ErrInvalid, "10 bytes"},
		"overlapping":              {splice(Change{Base: x.Version, Prefix: 6, Suffix: 5}), ErrInvalid, "10 bytes"},
		"wrong generation":         {Draft{Generation: 7}, ErrGeneration, "7"},
		"wrong head":               {Draft{Expect: ExpectHead(0)}, ErrConflict, "base"},
	} {
		t.Run(name, func(t *testing.T) {
			before := allEntries(t, f.be)
			_, err := th.Save(ctx, tc.d)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error is %v, want %v that says %s", err, tc.want, tc.says)
			}
			if !sameEntries(allEntries(t, f.be), before) {
				t.Error("something was written")
			}
			if cp, err := th.Load(ctx, Latest); err != nil || cp.ID != "base" || string(cp.Channels[0].Data) != "0123456789" {
				t.Errorf("afterwards the head is %+v, %v", cp, err)
			}
		})
	}
	var need *NeedFullError
	if _, err := th.Save(ctx, Draft{Keep: true, Channels: []Change{{Name: "y", Base: 99}, {Name: "x", Base: x.Version}, {Name: "z", Base: 1}}}); !errors.As(err, &need) ||
		!slices.Equal(need.Channels, []string{"y", "z"}) {
		t.Errorf("splices of several channels: %v", err)
	}
	if _, err := th.Save(ctx, Draft{Keep: true, Channels: []Change{{Name: "x", Data: make([]byte, limit)}}}); err != nil {
		t.Errorf("a channel of the limit: %v", err)
	}
}

// The key, the keystore and the data must belong together. If they do not, that is said and nothing
// is changed.
func TestWrongKeys(t *testing.T) {
	ctx := context.Background()
	f, other := newFixture(t, Options{}), newFixture(t, Options{})
	mustSave(t, f, testRef("t"), Draft{})
	root, err := crypto.GenerateRootKey()
	if err != nil {
		t.Fatal(err)
	}
	sibling := crypto.NewMemKeystore() // of another store with the same root key
	if k, err := crypto.OpenKeyring(ctx, f.opts.Root, sibling, true); err != nil {
		t.Fatal(err)
	} else {
		k.Close()
	}
	orphaned := mem.Open() // data without its store record
	for _, e := range allEntries(t, f.be) {
		if space.KindOf(e.Key) != space.KindStore {
			copyEntries(t, orphaned, []backend.Entry{e})
		}
	}
	for name, tc := range map[string]struct {
		be   backend.Backend
		root crypto.RootKey
		keys crypto.Keystore
		want error
	}{
		"another root key":            {f.be, root, f.opts.Keystore, crypto.ErrWrongKey},
		"another root key, new data":  {mem.Open(), root, f.opts.Keystore, crypto.ErrWrongKey},
		"no root key":                 {f.be, crypto.RootKey{}, f.opts.Keystore, crypto.ErrWrongKey},
		"keystore of another store":   {f.be, f.opts.Root, other.opts.Keystore, crypto.ErrWrongKey},
		"keystore of a sibling":       {f.be, f.opts.Root, sibling, crypto.ErrWrongKey},
		"key and keystore of another": {f.be, other.opts.Root, other.opts.Keystore, crypto.ErrWrongKey},
		"empty keystore":              {f.be, f.opts.Root, crypto.NewMemKeystore(), crypto.ErrNoStore},
		"no keystore":                 {f.be, f.opts.Root, nil, ErrInvalid},
		"no store record":             {orphaned, f.opts.Root, f.opts.Keystore, ErrCorrupt},
		"no store record and no keys": {orphaned, f.opts.Root, crypto.NewMemKeystore(), ErrCorrupt},
	} {
		for _, create := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", create ", create), func(t *testing.T) {
				data, keys := allEntries(t, tc.be), keyEntries(t, tc.keys)
				s, err := Open(ctx, keepOpen{tc.be}, Options{Root: tc.root, Keystore: tc.keys, Create: create})
				if s != nil || !errors.Is(err, tc.want) && !(!create && errors.Is(err, crypto.ErrNoStore)) {
					t.Errorf("opened as %v, %v, want %v", s, err, tc.want)
				}
				if !sameEntries(allEntries(t, tc.be), data) || !maps.Equal(keyEntries(t, tc.keys), keys) {
					t.Error("something was written")
				}
			})
		}
	}
	f.reopen()
	if _, err := f.Thread(testRef("t")).Load(ctx, Latest); err != nil {
		t.Errorf("with the right key: %v", err)
	}
	if _, err := Open(ctx, mem.Open(), Options{Root: root, Keystore: crypto.NewMemKeystore()}); !errors.Is(err, ErrNotFound) && !errors.Is(err, crypto.ErrNoStore) {
		t.Errorf("opening nothing without Create: %v", err)
	}
}

func keyEntries(t testing.TB, keys crypto.Keystore) map[string]string {
	t.Helper()
	all := map[string]string{}
	if keys == nil {
		return all
	}
	for name, err := range keys.List(context.Background(), "") {
		if err != nil {
			t.Fatal(err)
		}
		entry, err := keys.Get(context.Background(), name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(entry)
	}
	return all
}

// storeCalls are all operations of a store.
func storeCalls(s *Store) map[string]func(ctx context.Context) error {
	th, u := s.Thread(testRef("t")), s.User("acme", "alice")
	calls := map[string]func(ctx context.Context) error{
		"Save":         func(ctx context.Context) error { _, err := th.Save(ctx, Draft{Keep: true}); return err },
		"Load":         func(ctx context.Context) error { _, err := th.Load(ctx, Latest); return err },
		"Load at":      func(ctx context.Context) error { _, err := th.Load(ctx, At("first")); return err },
		"History":      func(ctx context.Context) error { return firstError(th.History(ctx, HistoryOptions{})) },
		"Tree":         func(ctx context.Context) error { _, err := th.Tree(ctx); return err },
		"Fork":         func(ctx context.Context) error { _, err := th.Fork(ctx, Latest, "b"); return err },
		"Branches":     func(ctx context.Context) error { _, err := th.Branches(ctx); return err },
		"SetBranch":    func(ctx context.Context) error { return th.SetBranch(ctx, "b", Latest) },
		"DeleteBranch": func(ctx context.Context) error { return th.DeleteBranch(ctx, "main") },
		"Diff":         func(ctx context.Context) error { _, err := th.Diff(ctx, At("first"), Latest); return err },
		"PutWrites": func(ctx context.Context) error {
			_, err := th.PutWrites(ctx, "first", "task", "", Upsert, []Write{{Channel: "x", Data: []byte("y")}}, 0)
			return err
		},
		"Writes": func(ctx context.Context) error { _, err := th.Writes(ctx, "first"); return err },
		"SetLabels": func(ctx context.Context) error {
			_, err := th.SetLabels(ctx, Latest, map[string]string{"a": "b"})
			return err
		},
		"Namespaces": func(ctx context.Context) error { _, err := th.Namespaces(ctx); return err },
		"Copy":       func(ctx context.Context) error { return th.Copy(ctx, testRef("copy")) },
		"Prune": func(ctx context.Context) error {
			_, err := th.Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 1})
			return err
		},
		"Erase": func(ctx context.Context) error {
			_, err := th.Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 1, Erase: true})
			return err
		},
		"Delete":      func(ctx context.Context) error { _, err := th.Delete(ctx); return err },
		"Threads":     func(ctx context.Context) error { return firstError(u.Threads(ctx, ThreadOptions{})) },
		"Latest":      func(ctx context.Context) error { _, err := u.Latest(ctx); return err },
		"Query":       func(ctx context.Context) error { return firstError(u.Query(ctx, Query{})) },
		"QueryTenant": func(ctx context.Context) error { return firstError(s.QueryTenant(ctx, "acme", Query{})) },
		"DeleteRun":   func(ctx context.Context) error { _, _, err := u.Upkeep().DeleteRun(ctx, "run"); return err },
		"PutBlob":     func(ctx context.Context) error { _, _, err := u.PutBlob(ctx, strings.NewReader("blob")); return err },
		"GetBlob":     func(ctx context.Context) error { _, err := u.GetBlob(ctx, BlobID{1}, io.Discard); return err },
		"StatBlob":    func(ctx context.Context) error { _, err := u.StatBlob(ctx, BlobID{1}); return err },
		"User.GC":     func(ctx context.Context) error { _, err := u.Upkeep().GC(ctx, upkeep.GCOptions{}); return err },
		"GC":          func(ctx context.Context) error { _, err := s.Upkeep().GC(ctx, "acme", upkeep.GCOptions{}); return err },
		"Retention":   func(ctx context.Context) error { _, err := s.Upkeep().Retention(ctx, "acme"); return err },
		"SetRetention": func(ctx context.Context) error {
			return s.Upkeep().SetRetention(ctx, "acme", upkeep.RetentionPolicy{KeepLast: 3})
		},
		"Verify": func(ctx context.Context) error { _, err := s.Upkeep().Verify(ctx, upkeep.VerifyOptions{}); return err },
		"Stats":  func(ctx context.Context) error { _, err := s.Upkeep().Stats(ctx, "acme", "alice"); return err },
	}
	return calls
}

func firstError[T any](seq iter.Seq2[T, error]) error {
	for _, err := range seq {
		if err != nil {
			return err
		}
	}
	return nil
}

func newCallFixture(t *testing.T) *fixture {
	f := newFixture(t, Options{})
	mustSave(t, f, testRef("t"), Draft{ID: "first", Branch: "main", RunID: "run", Channels: []Change{{Name: "x", Data: []byte("1")}}})
	mustSave(t, f, testRef("t"), Draft{ID: "second", RunID: "run", Channels: []Change{{Name: "x", Data: []byte("2")}}})
	return f
}

// Every operation of a closed store says that it is closed.
func TestClosedStore(t *testing.T) {
	f := newCallFixture(t)
	f.broken = true // it is closed in the end
	calls := storeCalls(f.Store)
	if err := f.Store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Store.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
	for name, call := range calls {
		if err := call(context.Background()); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An operation whose context has ended does nothing and says so, whether it has to read anything or
// not.
func TestEndedContext(t *testing.T) {
	for _, warm := range []bool{false, true} {
		f := newCallFixture(t)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if !warm {
			f.reopen()
		} else if _, err := f.Thread(testRef("t")).Load(context.Background(), Latest); err != nil {
			t.Fatal(err)
		}
		before := allEntries(t, f.be)
		for name, call := range storeCalls(f.Store) {
			if err := call(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("%s, warm %v: %v", name, warm, err)
			}
			if !sameEntries(allEntries(t, f.be), before) {
				t.Fatalf("%s, warm %v: wrote something", name, warm)
			}
		}
	}
}
