package space

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
)

func newUser(t *testing.T, name string) *User {
	t.Helper()
	root, err := crypto.GenerateRootKey()
	if err != nil {
		t.Fatal(err)
	}
	ring, err := crypto.OpenKeyring(t.Context(), root, crypto.NewMemKeystore(), true)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := ring.User(t.Context(), "acme", name, true)
	if err != nil {
		t.Fatal(err)
	}
	u, err := NewStore(ring).User("acme", keys)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func newLineage(t *testing.T, u *User, thread string, epoch uint32, namespace string) Lineage {
	t.Helper()
	th, err := u.Thread(u.ThreadToken(thread), epoch)
	if err != nil {
		t.Fatal(err)
	}
	return th.Namespace(namespace)
}

func in(r backend.Range, key []byte) bool {
	return bytes.Compare(r.Start, key) <= 0 && bytes.Compare(key, r.End) < 0
}

// TestRanges: of all keys of two users, two threads, two epochs and two namespaces, a range holds
// those that it says, and no other.
func TestRanges(t *testing.T) {
	type place struct {
		user, thread, epoch, namespace int // -1: it is of none
		kind                           string
	}
	keys := map[place][]byte{}
	ranges := map[string]struct {
		r     backend.Range
		holds func(place) bool
	}{}
	add := func(name string, r backend.Range, holds func(place) bool) {
		ranges[name] = struct {
			r     backend.Range
			holds func(place) bool
		}{r, holds}
	}
	root := newUser(t, "alice")
	bob, err := root.ring.User(t.Context(), "acme", "bob", true)
	if err != nil {
		t.Fatal(err)
	}
	other, err := root.Store.User("acme", bob)
	if err != nil {
		t.Fatal(err)
	}
	for i, u := range []*User{root, other} {
		of := func(kind string) func(place) bool {
			return func(p place) bool { return p.user == i && p.kind == kind }
		}
		keys[place{i, -1, -1, -1, "part"}] = u.PartKey([16]byte{1})
		keys[place{i, -1, -1, -1, "blob"}] = u.BlobKey([32]byte{1})
		add(fmt.Sprint("all of user ", i), u.All(), func(p place) bool { return p.user == i && p.kind != "index" })
		add(fmt.Sprint("threads of user ", i), u.InThreads(), func(p place) bool { return p.user == i && p.epoch >= 0 && p.kind != "index" })
		add(fmt.Sprint("parts of user ", i), u.Parts(), of("part"))
		add(fmt.Sprint("blobs of user ", i), u.Blobs(), of("blob"))
		add(fmt.Sprint("records of threads of user ", i), u.Threads(), of("thread"))
		add(fmt.Sprint("activity of user ", i), u.Activity(), of("activity"))
		add(fmt.Sprint("a term of user ", i), u.TermOf("label", "x"), of("index"))
		for j := range 2 {
			tok := u.ThreadToken(fmt.Sprint("thread", j))
			keys[place{i, j, -1, -1, "thread"}] = u.ThreadKey(tok)
			keys[place{i, j, -1, -1, "activity"}] = u.ActivityKey(int64(1000+j), tok)
			add(fmt.Sprint("epochs of thread ", i, j), u.Epochs(tok), func(p place) bool {
				return p.user == i && p.thread == j && p.epoch >= 0 && p.kind != "index"
			})
			for e := range 2 {
				for n := range 2 {
					l := newLineage(t, u, fmt.Sprint("thread", j), uint32(e+1), strings.Repeat("n", n))
					at := func(kind string) place { return place{i, j, e, n, kind} }
					keys[at("record")], keys[at("branch")] = l.RecordKey(7), l.BranchKey("main")
					keys[at("id")], keys[at("own id")] = l.IDKey("00000000-0000-0000-0000-000000000001"), l.OwnIDKey("x")
					keys[at("writes")], keys[at("ledger")] = l.WritesKey("c", "t"), l.LedgerKey("c")
					keys[at("index")] = l.IndexKey("label", "x", 7)
					only := func(kinds ...string) func(place) bool {
						return func(p place) bool {
							for _, kind := range kinds {
								if p == at(kind) {
									return true
								}
							}
							return false
						}
					}
					name := fmt.Sprint(" of lineage ", i, j, e, n)
					add("records"+name, l.Records(), only("record"))
					add("record 7"+name, l.RecordsFrom(7, 8), only("record"))
					add("records before 7"+name, l.RecordsFrom(1, 7), only())
					add("ids"+name, l.IDs(), only("id", "own id"))
					add("chosen ids"+name, l.ChosenIDs(), only("id"))
					add("branches"+name, l.Branches(), only("branch"))
					add("writes"+name, l.Writes(), only("writes", "ledger"))
					add("writes of c"+name, l.WritesOf("c"), only("writes", "ledger"))
					add("writes of d"+name, l.WritesOf("d"), only())
					add("epoch"+name, l.All(), func(p place) bool { return p.user == i && p.thread == j && p.epoch == e && p.kind != "index" })
				}
			}
		}
	}
	add("the tenant", root.OfTenant("acme"), func(p place) bool { return p.kind == "index" })
	add("a term", root.Store.TermOf("acme", "label", "x"), func(p place) bool { return p.kind == "index" })
	seen := map[string]place{}
	for p, key := range keys {
		if q, twice := seen[string(key)]; twice {
			t.Errorf("%+v and %+v have one key", p, q)
		}
		seen[string(key)] = p
		for name, r := range ranges {
			if got, want := in(r.r, key), r.holds(p); got != want {
				t.Errorf("%s: the key of %+v is in it: %v, want %v", name, p, got, want)
			}
		}
	}
}

// TestKeysSayWhatTheyAre: a key parses into the parts it was made from, and other keys are refused.
func TestKeysSayWhatTheyAre(t *testing.T) {
	u := newUser(t, "alice")
	l := newLineage(t, u, "t", 9, "n")
	record := l.RecordKey(77)
	if !IsRecord(record) || SeqOf(record) != 77 || EpochOf(record) != 9 || ThreadOf(record) != l.Tok || KindOf(record) != KindRecord {
		t.Errorf("a record's key says something else: %x", record)
	}
	if ns, ok := NamespaceOf(record); !ok || ns != l.NS {
		t.Errorf("its namespace is %x, %v", ns, ok)
	}
	x, ok := ParseIndex(l.IndexKey("status", "failed", 77))
	if want := (Indexed{u.Term("acme", "status", "failed"), u.Tok, l.Tok, 9, l.NS, 77}); !ok || x != want {
		t.Errorf("an index entry's key says %+v, want %+v", x, want)
	}
	if !bytes.Equal(x.RecordKey(), record) {
		t.Errorf("an index entry leads to %x, not %x", x.RecordKey(), record)
	}
	if since, tok, ok := ActiveThread(u.ActivityKey(1<<40, l.Tok)); !ok || since != 1<<40 || tok != l.Tok {
		t.Errorf("an activity entry's key says %d, %x, %v", since, tok, ok)
	}
	if tok, ok := ListedThread(u.ThreadKey(l.Tok)); !ok || tok != l.Tok {
		t.Errorf("a thread record's key says %x, %v", tok, ok)
	}
	if id, ok := PartOf(u.PartKey([16]byte{5})); !ok || id != [16]byte{5} {
		t.Errorf("a part's key says %x, %v", id, ok)
	}
	if id, ok := BlobOf(u.BlobKey([32]byte{5})); !ok || id != [32]byte{5} {
		t.Errorf("a blob's key says %x, %v", id, ok)
	}
	if to := newLineage(t, u, "u", 3, ""); !bytes.Equal(to.Moved(l.WritesKey("c", "t")), to.WritesKey("c", "t")) {
		t.Error("pending writes move to another key than they would be put at")
	}
	for _, key := range [][]byte{nil, record[:10], record[:len(record)-1]} {
		_, index := ParseIndex(key)
		_, _, active := ActiveThread(key)
		_, listed := ListedThread(key)
		_, part := PartOf(key)
		_, blob := BlobOf(key)
		if IsRecord(key) || index || active || listed || part || blob {
			t.Errorf("%x is taken for a key of a kind", key)
		}
		if Describe(key) == "" {
			t.Errorf("%x has no description", key)
		}
	}
}

// TestPlaceSaysNoNames: errors name kinds and tokens, and no name that a user chose.
func TestPlaceSaysNoNames(t *testing.T) {
	u := newUser(t, "alice")
	l := newLineage(t, u, "secret-thread", 1, "secret-space")
	for kind, key := range map[string][]byte{
		"checkpoint seq 3": l.RecordKey(3), "branch": l.BranchKey("secret-branch"), "id entry": l.IDKey("secret-id"),
		"pending writes": l.WritesKey("secret-id", "secret-task"), "index entry": l.IndexKey("label", "secret", 3), "namespace": l.NamespaceKey(l.NS),
		"thread record": u.ThreadKey(l.Tok), "activity entry": u.ActivityKey(5, l.Tok), "part": u.PartKey([16]byte{}), "blob": u.BlobKey([32]byte{}),
		"store record": InfoKey(), "retention policy": u.RetentionKey("acme"),
	} {
		if got := Describe(key); !strings.HasPrefix(got, kind) || strings.Contains(got, "secret") {
			t.Errorf("the key of a %s is called %q", kind, got)
		}
	}
}

// TestOpen: a value opens at its own key, as its own kind, with its owner's keys, and in no other
// way.
func TestOpen(t *testing.T) {
	u := newUser(t, "alice")
	l, other := newLineage(t, u, "t", 1, ""), newLineage(t, u, "u", 1, "")
	key := l.BranchKey("main")
	mut, err := Branches.Put(&l, key, &codec.Branch{Name: "main", Head: 5}, Once)
	if err != nil || mut.Version != Once || !bytes.Equal(mut.Key, key) {
		t.Fatalf("%+v, %v", mut, err)
	}
	if b, err := Branches.Open(&l, key, mut.Value); err != nil || *b != (codec.Branch{Name: "main", Head: 5}) || !Branches.Is(mut.Value) {
		t.Errorf("it opens as %+v, %v", b, err)
	}
	var open *OpenError
	for name, try := range map[string]func() error{
		"at another key":   func() error { _, err := Branches.Open(&l, l.BranchKey("x"), mut.Value); return err },
		"as another kind":  func() error { _, err := IDs.Open(&l, key, mut.Value); return err },
		"of another owner": func() error { _, err := Branches.Open(&other, key, mut.Value); return err },
		"cut short":        func() error { _, err := Branches.Open(&l, key, mut.Value[:len(mut.Value)-1]); return err },
		"of nothing":       func() error { _, err := Branches.Open(&l, key, nil); return err },
	} {
		if err := try(); !errors.As(err, &open) || open.Parsed || !strings.Contains(err.Error(), "branch") {
			t.Errorf("%s: %v", name, err)
		}
	}
	garbage, err := l.sealer(thread).Seal(nil, KindBranch, key, []byte{99})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Branches.Open(&l, key, garbage); !errors.As(err, &open) || !open.Parsed {
		t.Errorf("what does not parse: %v", err)
	}
	if _, err := Branches.Put(&l, key, &codec.Branch{}, Once); err == nil || !strings.Contains(err.Error(), "before commit") {
		t.Errorf("what no reader takes: %v", err)
	}
}
