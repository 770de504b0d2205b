package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/mem"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// fixture is a store that can be closed and opened again on the same data.
type fixture struct {
	t    testing.TB
	be   backend.Backend
	opts Options
	*Store

	broken bool // the test damages the store, so it need not verify in the end
}

// keepOpen ignores Close, so that the data of a mem backend outlives the store on it.
type keepOpen struct{ backend.Backend }

func (keepOpen) Close() error { return nil }

// runsAlone skips a long test where the race detector looks on: in one goroutine there is nothing
// for it to see, and it takes ten times as long. make test runs this package without it as well.
func runsAlone(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("it runs alone: run without -race")
	}
}

func newFixture(t testing.TB, o Options) *fixture {
	t.Helper()
	root, err := crypto.GenerateRootKey()
	if err != nil {
		t.Fatal(err)
	}
	o.Root, o.Keystore, o.Create = root, crypto.NewMemKeystore(), true
	f := &fixture{t: t, be: mem.Open(), opts: o}
	f.reopen()
	t.Cleanup(func() {
		if !f.broken && !t.Failed() {
			f.reopen()
			mustBeClean(t, f.Store, upkeep.VerifyOptions{})
		}
		f.Store.Close()
		f.be.Close()
	})
	return f
}

func (f *fixture) reopen() {
	f.t.Helper()
	if f.Store != nil {
		if err := f.Store.Close(); err != nil {
			f.t.Fatal(err)
		}
	}
	s, err := Open(context.Background(), keepOpen{f.be}, f.opts)
	if err != nil {
		f.t.Fatal(err)
	}
	f.Store = s
}

func testRef(thread string) Ref { return Ref{Tenant: "acme", User: "alice", Thread: thread} }

func jsonChannel(name, data string) Change {
	return Change{Name: name, Type: "json", Data: []byte(data)}
}

func TestSaveLoad(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t1"))
	first, err := th.Save(ctx, Draft{Step: 1, Labels: map[string]string{"env": "prod"}, Meta: []byte(`{"a":1}`), Channels: []Change{jsonChannel("messages", `["hello"]`), {Name: "scratch", Data: []byte("x")}}})
	if err != nil {
		t.Fatal(err)
	}
	v := first.Channels[0].Version
	second, err := th.Save(ctx, Draft{Step: 2, Keep: true, Channels: []Change{{Name: "messages", Base: v, Prefix: 8, Suffix: 1, Data: []byte(`,"world"`)}}})
	if err != nil {
		t.Fatal(err)
	}
	if second.Parent != first.ID || second.Seq != 2 || second.ParentSeq != 1 {
		t.Errorf("second is %+v", second)
	}
	for range 2 {
		th = f.Thread(testRef("t1"))
		for _, w := range []Which{Latest, At(second.ID), AtSeq(2)} {
			got, err := th.Load(ctx, w)
			if err != nil {
				t.Fatal(err)
			}
			if m, _ := got.Channel("messages"); string(m.Data) != `["hello","world"]` || m.Type != "json" {
				t.Errorf("messages is %s %q", m.Type, m.Data)
			}
			if m, _ := got.Channel("scratch"); string(m.Data) != "x" {
				t.Errorf("scratch is %q", m.Data)
			}
			if got.Labels["env"] != "prod" || string(got.Meta) != `{"a":1}` || got.Hash != second.Hash || got.Parent != first.ID {
				t.Errorf("got %+v, want %+v", got, second)
			}
		}
		got, err := th.Load(ctx, At(first.ID))
		if err != nil {
			t.Fatal(err)
		}
		if m, _ := got.Channel("messages"); string(m.Data) != `["hello"]` || got.Hash != first.Hash {
			t.Errorf("first is %q", m.Data)
		}
		var seqs []uint64
		for cp, err := range th.History(ctx, HistoryOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, cp.Seq)
			if m, _ := cp.Channel("messages"); m.Size == 0 || m.Data != nil {
				t.Errorf("headers only has %+v", m)
			}
		}
		if len(seqs) != 2 || seqs[0] != 2 {
			t.Errorf("history is %v", seqs)
		}
		f.reopen()
	}
}

// A keystore that was restored from before a user existed must not make that user new keys over old
// data.
func TestOldKeystoreIsNoticed(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	f.broken = true
	if _, err := f.Thread(testRef("t")).Save(ctx, Draft{Channels: []Change{{Name: "a", Data: []byte("x")}}}); err != nil {
		t.Fatal(err)
	}
	var users []string
	for name, err := range f.opts.Keystore.List(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		if name != "store" {
			users = append(users, name)
		}
	}
	if len(users) != 1 {
		t.Fatalf("keystore has entries %q besides the store's, want one", users)
	}
	if err := f.opts.Keystore.Delete(ctx, users[0]); err != nil {
		t.Fatal(err)
	}
	f.reopen()
	if _, err := f.Thread(testRef("t")).Save(ctx, Draft{Channels: []Change{{Name: "a", Data: []byte("y")}}}); !errors.Is(err, ErrKeyMissing) {
		t.Errorf("saving: %v, want ErrKeyMissing", err)
	}
	if _, err := f.opts.Keystore.Get(ctx, users[0]); !errors.Is(err, crypto.ErrNotFound) {
		t.Errorf("keystore entry: %v, want none to be made", err)
	}
}
