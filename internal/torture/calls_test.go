package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/backendtest"
	"github.com/ckptd/ckptd/backend/mem"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
	"github.com/ckptd/ckptd/migrate"
)

// subject is the object of the operations: a thread of the kind agent, its user, and a store around
// them.
type subject struct {
	*engine.Store
	th   *engine.Thread
	user *engine.User
	w    *callsWorld
}

// callsWorld is the content of a store before each operation.
type callsWorld struct {
	entries  map[string]backend.Entry
	opts     engine.Options
	contents map[string]thread
	ids      []string // of the subject's checkpoints
	blob     engine.BlobID
	undo     *upkeep.HeadMigrated[*engine.Checkpoint]
	state    []byte
}

// subjectName is the thread that operations change, secondName one whose history can still be
// migrated, and thirdName one whose can be restored.
const subjectName, secondName, thirdName = "thread-00", "second-0", "third-0"

func one[T any](seq iter.Seq2[T, error]) error {
	for _, err := range seq {
		if err != nil {
			return err
		}
	}
	return nil
}

func second[T any](_ T, err error) error { return err }

// calls are the operations of the engine, by the method: each of those that take a context is here
// (TestEveryOperationIsTortured).
var calls = map[string]func(ctx context.Context, s *subject) error{
	"Store.GC": func(ctx context.Context, s *subject) error {
		return second(s.Upkeep().GC(ctx, tenant, upkeep.GCOptions{Grace: -1}))
	},
	"Store.QueryTenant": func(ctx context.Context, s *subject) error { return one(s.QueryTenant(ctx, tenant, engine.Query{})) },
	"Store.Retention":   func(ctx context.Context, s *subject) error { return second(s.Upkeep().Retention(ctx, tenant)) },
	"Store.SetRetention": func(ctx context.Context, s *subject) error {
		return s.Upkeep().SetRetention(ctx, tenant, upkeep.RetentionPolicy{KeepLast: 1000})
	},
	"Store.Stats":   func(ctx context.Context, s *subject) error { return second(s.Upkeep().Stats(ctx, tenant, "user-0")) },
	"Store.Tenants": func(ctx context.Context, s *subject) error { return one(s.Upkeep().Tenants(ctx)) },
	"Store.Users":   func(ctx context.Context, s *subject) error { return one(s.Upkeep().Users(ctx, tenant)) },
	"Store.Verify": func(ctx context.Context, s *subject) error {
		return second(s.Upkeep().Verify(ctx, upkeep.VerifyOptions{Deep: true}))
	},
	"Thread.Branches":     func(ctx context.Context, s *subject) error { return second(s.th.Branches(ctx)) },
	"Thread.Copy":         func(ctx context.Context, s *subject) error { return s.th.Copy(ctx, refOf("thread-copy-0")) },
	"Thread.Delete":       func(ctx context.Context, s *subject) error { return second(s.th.Delete(ctx)) },
	"Thread.DeleteBranch": func(ctx context.Context, s *subject) error { return s.th.DeleteBranch(ctx, "main") },
	"Thread.Diff": func(ctx context.Context, s *subject) error {
		return second(s.th.Diff(ctx, engine.At(s.w.ids[0]), engine.Latest))
	},
	"Thread.DropHistory": func(ctx context.Context, s *subject) error { return s.th.Upkeep().DropHistory(ctx) },
	"Thread.Fork": func(ctx context.Context, s *subject) error {
		return second(s.th.Fork(ctx, engine.At(s.w.ids[1]), "side"))
	},
	"Thread.History": func(ctx context.Context, s *subject) error {
		return one(s.th.History(ctx, engine.HistoryOptions{Data: true}))
	},
	"Thread.KeepsHistory": func(ctx context.Context, s *subject) error { return second(s.th.Upkeep().KeepsHistory(ctx)) },
	"Thread.Load histories": func(ctx context.Context, s *subject) error {
		return second(s.th.Load(ctx, engine.Latest, engine.LoadOptions{History: []string{"log"}}))
	},
	"Thread.Load": func(ctx context.Context, s *subject) error { return second(s.th.Load(ctx, engine.At(s.w.ids[2]))) },
	"Thread.MigrateHead": func(ctx context.Context, s *subject) error {
		return second(s.th.Upkeep().MigrateHead(ctx, upkeep.HeadMigration{To: 3}))
	},
	"Thread.MigrateHistory": func(ctx context.Context, s *subject) error {
		return second(s.Thread(refOf(secondName)).Upkeep().MigrateHistory(ctx, 3, false))
	},
	"Thread.Namespaces": func(ctx context.Context, s *subject) error { return second(s.th.Namespaces(ctx)) },
	"Thread.Prune": func(ctx context.Context, s *subject) error {
		return second(s.th.Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 2}))
	},
	"Thread.Prune erasing": func(ctx context.Context, s *subject) error {
		return second(s.th.Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 2, Erase: true}))
	},
	"Thread.PutWrites": func(ctx context.Context, s *subject) error {
		_, err := s.th.PutWrites(ctx, s.w.ids[0], "task", "", engine.Upsert, []engine.Write{{Channel: "log", Data: s.w.state}}, 0)
		return err
	},
	"Thread.RestoreHistory": func(ctx context.Context, s *subject) error {
		return s.Thread(refOf(thirdName)).Upkeep().RestoreHistory(ctx)
	},
	"Thread.Save": func(ctx context.Context, s *subject) error {
		return second(s.th.Save(ctx, engine.Draft{ID: "new", Branch: "main", SchemaVersion: 2, Channels: []engine.Change{{Name: "log", Data: s.w.state}}}))
	},
	"Thread.Save replacing": func(ctx context.Context, s *subject) error {
		return second(s.th.Save(ctx, engine.Draft{ID: s.w.ids[1], SchemaVersion: 2, Channels: []engine.Change{{Name: "log", Data: s.w.state}}}))
	},
	"Thread.SetBranch": func(ctx context.Context, s *subject) error {
		return s.th.SetBranch(ctx, "main", engine.At(s.w.ids[0]))
	},
	"Thread.SetLabels": func(ctx context.Context, s *subject) error {
		return second(s.th.SetLabels(ctx, engine.At(s.w.ids[0]), map[string]string{"a": "b"}))
	},
	"Thread.Tree": func(ctx context.Context, s *subject) error { return second(s.th.Tree(ctx)) },
	"Thread.UndoHead": func(ctx context.Context, s *subject) error {
		return s.th.Upkeep().UndoHead(ctx, s.w.undo.Old.Seq, s.w.undo.New.Seq, s.w.undo.New.Hash)
	},
	"Thread.Writes": func(ctx context.Context, s *subject) error { return second(s.th.Writes(ctx, s.w.ids[3])) },
	"User.Create":   func(ctx context.Context, s *subject) error { return s.User(tenant, "brand new").Upkeep().Create(ctx) },
	"User.DeleteRun": func(ctx context.Context, s *subject) error {
		_, _, err := s.user.Upkeep().DeleteRun(ctx, "run")
		return err
	},
	"User.GC": func(ctx context.Context, s *subject) error {
		return second(s.user.Upkeep().GC(ctx, upkeep.GCOptions{Grace: -1}))
	},
	"User.GetBlob": func(ctx context.Context, s *subject) error { return second(s.user.GetBlob(ctx, s.w.blob, io.Discard)) },
	"User.Latest":  func(ctx context.Context, s *subject) error { return second(s.user.Latest(ctx)) },
	"User.ListByID": func(ctx context.Context, s *subject) error {
		return one(s.user.ListByID(ctx, engine.ListByIDOptions{Data: true, Writes: true}))
	},
	"User.PutBlob": func(ctx context.Context, s *subject) error {
		_, _, err := s.user.PutBlob(ctx, bytes.NewReader(bytes.Repeat(s.w.state, 400)))
		return err
	},
	"User.Query":    func(ctx context.Context, s *subject) error { return one(s.user.Query(ctx, engine.Query{})) },
	"User.StatBlob": func(ctx context.Context, s *subject) error { return second(s.user.StatBlob(ctx, s.w.blob)) },
	"User.Threads": func(ctx context.Context, s *subject) error {
		return one(s.user.Threads(ctx, engine.ThreadOptions{Count: true}))
	},
}

// untouched are operations that make no call of the backend, or do not end.
var untouched = []string{"Store.DiskBytes", "Store.Watch"}

// TestEveryOperationIsTortured makes sure that a new operation of the engine comes into the table.
func TestEveryOperationIsTortured(t *testing.T) {
	takesContext := reflect.TypeFor[context.Context]()
	seen := 0
	for of, types := range map[string][2]reflect.Type{
		"Store":  {reflect.TypeFor[*engine.Store](), reflect.TypeFor[upkeep.Store]()},
		"Thread": {reflect.TypeFor[*engine.Thread](), reflect.TypeFor[upkeep.Thread[*engine.Checkpoint]]()},
		"User":   {reflect.TypeFor[*engine.User](), reflect.TypeFor[upkeep.User]()},
	} {
		for receiver, typ := range []reflect.Type{1: types[0], 0: types[1]} { // methods of an interface have none
			for m := range typ.Methods() {
				name := of + "." + m.Name
				if m.Type.NumIn() <= receiver || m.Type.In(receiver) != takesContext || slices.Contains(untouched, name) {
					continue
				}
				if seen++; calls[name] == nil {
					t.Errorf("%s is not among the calls that are tortured", name)
				}
			}
		}
	}
	if seen < 30 {
		t.Errorf("only %d operations were found", seen)
	}
}

// callPlans are how a call of the backend fails.
var callPlans = []backendtest.Plan{
	{Ops: backendtest.OpAny, Err: errFault},
	{Ops: backendtest.OpAny, Err: errFault, Keep: true},
	{Ops: backendtest.OpCommit, Err: errDoubt},
	{Ops: backendtest.OpCommit, Err: errDoubt, Apply: true},
}

var (
	errFault = fmt.Errorf("the torture says so: %w", backend.ErrUnavailable)
	errDoubt = fmt.Errorf("the torture says so: %w", backend.ErrAmbiguous)
)

// callsRound has the k-th call of the backend fail in every operation, in each way, for every k
// until none does. The error surfaces, the store verifies clean when it is opened again, and other
// threads are as they were.
func callsRound(r *round) {
	w := newCallsWorld(r)
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		for i, plan := range callPlans {
			for k := 0; ; k++ {
				plan.After = k
				if !failCall(r, w, name, plan) || r.Failed() {
					break
				}
				r.did()
			}
			if r.Failed() {
				r.Logf("%s, plan %d", name, i)
				return
			}
		}
	}
}

func newCallsWorld(r *round) *callsWorld {
	ctx := context.Background()
	root, err := crypto.GenerateRootKey()
	r.must(err)
	set, err := migrate.NewSet(ctx, migrate.Spec{Kind: "agent", Steps: []migrate.Step{number(1, 2), number(2, 3)}})
	r.must(err)
	w := &callsWorld{state: text(r.rnd, 2000), opts: engine.Options{Root: root, Keystore: crypto.NewMemKeystore(), Create: true,
		Migrations: func(_, kind string) *migrate.Set { return map[string]*migrate.Set{"agent": set}[kind] }}}
	data := mem.Open()
	s, err := engine.Open(ctx, data, w.opts)
	r.must(err)
	t := &team{s: s, tell: func(line) error { return nil }, rare: true}
	for i := 1; i < 3; i++ {
		for other := t.writer(r.seed, 10*i, nil); other.n < 8; {
			r.must(other.step(ctx))
		}
	}
	for i := 1; i < 3; i++ { // of the subject's user
		_, err := s.Thread(engine.Ref{Tenant: tenant, User: "user-0", Thread: fmt.Sprintf("more-%d0", i)}).Save(ctx,
			engine.Draft{Channels: []engine.Change{{Name: "file", Data: noise(r.rnd, 70<<10)}}})
		r.must(err)
	}
	w.populate(r, s)
	w.entries = must(entries(ctx, data))(r)
	w.contents = must(contents(ctx, s))(r)
	return w
}

// populate makes the subject: a line of checkpoints with a branch, pending writes, a blob, a
// migrated head, and a history kept.
func (w *callsWorld) populate(r *round, s *engine.Store) {
	ctx := context.Background()
	th, user := s.Thread(refOf(subjectName)), s.User(tenant, "user-0")
	blob, _, err := user.PutBlob(ctx, bytes.NewReader(noise(r.rnd, 300<<10)))
	r.must(err)
	w.blob = blob
	state := []byte(`{"v":1}`)
	for i := range 8 {
		id := fmt.Sprint("subject-", i)
		d := engine.Draft{ID: id, Kind: "agent", SchemaVersion: 1, Branch: "main", RunID: "run", Channels: []engine.Change{
			{Name: "doc", Data: state}, {Name: "log", Data: text(r.rnd, 200*(i+1))}, {Name: "file", Data: noise(r.rnd, 30<<10)}}}
		if i == 3 {
			d.Blobs = []engine.BlobID{blob}
		}
		_, err := th.Save(ctx, d)
		r.must(err)
		w.ids = append(w.ids, id)
	}
	for _, name := range []string{secondName, thirdName} {
		for i := range 3 {
			_, err := s.Thread(refOf(name)).Save(ctx, engine.Draft{ID: fmt.Sprint(name, "-", i), Kind: "agent", SchemaVersion: 1,
				Channels: []engine.Change{{Name: "doc", Data: state}, {Name: "log", Data: text(r.rnd, 200*(i+1))}}})
			r.must(err)
		}
	}
	_, err = s.Thread(refOf(thirdName)).Upkeep().MigrateHistory(ctx, 2, false)
	r.must(err)
	_, err = th.Upkeep().MigrateHistory(ctx, 2, false)
	r.must(err)
	w.undo, err = th.Upkeep().MigrateHead(ctx, upkeep.HeadMigration{To: 3})
	r.must(err)
	_, err = th.PutWrites(ctx, w.ids[3], "task", "", engine.Upsert, []engine.Write{{Channel: "log", Data: []byte("early")}}, 0)
	r.must(err)
}

func must[T any](v T, err error) func(r *round) T {
	return func(r *round) T {
		r.must(err)
		return v
	}
}

func number(from, to uint64) migrate.Step {
	return migrate.Go(from, to, "number the version", func(doc map[string]any) (map[string]any, error) { return doc, nil })
}

// keepOpen is a backend that outlives its store.
type keepOpen struct{ *mem.Store }

func (keepOpen) Close() error { return nil }

// failCall reports whether a call failed.
func failCall(r *round, w *callsWorld, name string, plan backendtest.Plan) bool {
	ctx := context.Background()
	data := mem.Open()
	for _, e := range w.entries {
		r.must(data.Commit(ctx, backend.Batch{Muts: []backend.Mut{{Key: e.Key, Value: e.Value, Version: e.Version}}}))
	}
	fault := backendtest.NewFault(keepOpen{data})
	opts := w.opts
	opts.Create = false
	s, err := engine.Open(ctx, fault.Backend(), opts)
	r.must(err)
	fault.Arm(plan)
	err = calls[name](ctx, &subject{s, s.Thread(refOf(subjectName)), s.User(tenant, "user-0"), w})
	fired := fault.Fired() > 0
	fault.Disarm()
	s.Close()
	switch {
	case !fired && err != nil:
		r.problem("%s: failed by itself: %v", name, err)
	case fired && err == nil:
		r.problem("%s, call %d: the error was swallowed", name, plan.After)
	case fired && !errors.Is(err, plan.Err):
		r.problem("%s, call %d: another error surfaced: %v", name, plan.After, err)
	}
	same := func(a, b backend.Entry) bool { return a.Version == b.Version && bytes.Equal(a.Value, b.Value) }
	if maps.EqualFunc(must(entries(ctx, data))(r), w.entries, same) {
		return fired
	}
	again, err := engine.Open(ctx, keepOpen{data}, opts)
	r.must(err)
	defer again.Close()
	problems, err := verify(ctx, again, true)
	r.must(err)
	if len(problems) > 0 {
		r.problem("%s, call %d: not clean: %s", name, plan.After, strings.Join(problems, "; "))
	}
	now := must(contents(ctx, again))(r)
	for other, was := range w.contents {
		if other != subjectName && !now[other].equal(was) {
			r.problem("%s, call %d: %s is another one", name, plan.After, other)
		}
	}
	return fired
}
