package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/backend/mem"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
	"github.com/ckptd/ckptd/internal/access"
	"github.com/ckptd/ckptd/internal/audit"
	"github.com/ckptd/ckptd/internal/server"
)

// served is a store, and a client of the daemon's own server on it.
func served(t testing.TB, o Options) (*engine.Store, *Store) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := crypto.GenerateRootKey()
	must(err)
	st, err := engine.Open(context.Background(), mem.Open(), engine.Options{Root: root, Keystore: crypto.NewMemKeystore(), Create: true})
	must(err)
	dir, err := os.MkdirTemp("", "ckptd")
	must(err)
	tokens, err := access.OpenTokens(filepath.Join(dir, "tokens"), st.Upkeep())
	must(err)
	who, err := access.New(st.Upkeep(), access.Options{Tokens: tokens, OwnerIsAdmin: true})
	must(err)
	log, err := audit.Open(filepath.Join(dir, "audit"))
	must(err)
	srv, err := server.New(server.Options{Store: st, Access: who, Tokens: tokens, Audit: log, Version: "test"})
	must(err)
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	must(err)
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l, false) }()
	c, err := Dial("unix:"+socket, o)
	must(err)
	t.Cleanup(func() {
		c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(srv.Shutdown(ctx), <-ended, log.Close(), st.Close(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return st, c
}

// same compares what the client gives with what the engine gives, errors by what they match.
func same[T any](t *testing.T, what string, remote T, err error, local T, wantErr error) {
	t.Helper()
	if wantErr != nil {
		for _, is := range []error{engine.ErrNotFound, engine.ErrConflict, engine.ErrInvalid, engine.ErrGeneration, engine.ErrUnknownParent, engine.ErrNeedFull} {
			if errors.Is(wantErr, is) != errors.Is(err, is) {
				t.Errorf("%s: client %v, engine %v", what, err, wantErr)
			}
		}
	} else if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if diff := cmp.Diff(local, remote); diff != "" {
		t.Errorf("%s (-engine +client):\n%s", what, diff)
	}
}

func all[T any](seq iter.Seq2[T, error]) (items []T, err error) {
	for item, err := range seq {
		if err != nil {
			return items, err
		}
		items = append(items, item)
	}
	return items, nil
}

// Every method that reads gives what the engine's gives.
func TestReadsAgainstTheServer(t *testing.T) {
	ctx := t.Context()
	st, c := served(t, Options{})
	for _, user := range []string{"alice", "bob"} {
		for i := range 3 {
			th := st.Thread(engine.Ref{Tenant: "acme", User: user, Thread: fmt.Sprint("t", i)})
			for step := range 150 {
				status := []string{"", "failed", "waiting"}[step%3]
				_, err := th.Save(ctx, engine.Draft{Step: int64(step), Status: status, RunID: fmt.Sprint("r", step%2), Labels: map[string]string{"n": fmt.Sprint(step % 10)}, Meta: []byte(`{"a":[1]}`),
					Channels: []engine.Change{{Name: "m", Type: "json", Data: fmt.Appendf(nil, `{"step":%d}`, step)}}})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	ref := engine.Ref{Tenant: "acme", User: "alice", Thread: "t1"}
	lt, rt, lu, ru := st.Thread(ref), c.Thread(ref), st.User("acme", "alice"), c.User("acme", "alice")
	if _, err := lt.Fork(ctx, engine.AtSeq(7), "side"); err != nil {
		t.Fatal(err)
	}
	if _, err := lt.Save(ctx, engine.Draft{Branch: "side"}); err != nil {
		t.Fatal(err)
	}
	seventh, err := lt.Load(ctx, engine.AtSeq(7))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []engine.Which{engine.Latest, engine.LatestByID(), engine.At(seventh.ID), engine.At("none"), engine.AtSeq(9), engine.AtSeq(999),
		engine.Before(seventh.ID), engine.LatestOfRun("r1"), engine.HeadOf("side"), engine.HeadOf("none")} {
		remote, err := rt.Load(ctx, w)
		local, wantErr := lt.Load(ctx, w)
		same(t, fmt.Sprintf("load %+v", w), remote, err, local, wantErr)
	}
	five, nine := int64(5), int64(9)
	for i, o := range []engine.HistoryOptions{{}, {Limit: 3}, {Limit: 100}, {Data: true, Limit: 5}, {Data: true, Channels: []string{"none"}}, {Before: seventh.ID},
		{From: seventh.ID}, {Branch: "side"}, {Branch: "none"}, {Filter: engine.Filter{Status: "failed", MinStep: &five}}, {Filter: engine.Filter{Labels: map[string]string{"n": "3"}, MaxStep: &nine}},
		{Filter: engine.Filter{Since: seventh.Time, RunID: "r0"}, Limit: 70}, {Filter: engine.Filter{Until: seventh.Time}}} {
		remote, err := all(rt.History(ctx, o))
		local, wantErr := all(lt.History(ctx, o))
		same(t, fmt.Sprint("history ", i), remote, err, local, wantErr)
	}
	for i, q := range []engine.Query{{}, {Limit: 7}, {Filter: engine.Filter{Status: "failed"}, Limit: 90}, {Filter: engine.Filter{Labels: map[string]string{"n": "4"}}}, {Filter: engine.Filter{Status: "none"}}} {
		remote, err := all(ru.Query(ctx, q))
		local, wantErr := all(lu.Query(ctx, q))
		same(t, fmt.Sprint("query ", i), remote, err, local, wantErr)
		remote, err = all(c.QueryTenant(ctx, "acme", q))
		local, wantErr = all(st.QueryTenant(ctx, "acme", q))
		same(t, fmt.Sprint("query of the tenant ", i), remote, err, local, wantErr)
	}
	for _, o := range []engine.ThreadOptions{{}, {Prefix: "t1"}, {After: "t0", Count: true}, {Prefix: "none"}, {ByActivity: true}, {ByActivity: true, Prefix: "t1", Status: "running"}, {Status: "failed"}} {
		remote, err := all(ru.Threads(ctx, o))
		local, wantErr := all(lu.Threads(ctx, o))
		same(t, fmt.Sprintf("threads %+v", o), remote, err, local, wantErr)
	}
	rd, err := rt.Diff(ctx, engine.AtSeq(7), engine.HeadOf("side"))
	ld, wantErr := lt.Diff(ctx, engine.AtSeq(7), engine.HeadOf("side"))
	same(t, "diff", rd, err, ld, wantErr)
	rb, err := rt.Branches(ctx)
	lb, wantErr := lt.Branches(ctx)
	same(t, "branches", rb, err, lb, wantErr)
	rn, err := ru.Latest(ctx)
	ln, wantErr := lu.Latest(ctx)
	same(t, "newest", rn, err, ln, wantErr)
	rs, err := c.Stats(ctx, "acme", "alice")
	ls, wantErr := st.Upkeep().Stats(ctx, "acme", "alice")
	same(t, "stats", rs, err, ls, wantErr)
	calls := 0
	rv, err := c.Verify(ctx, upkeep.VerifyOptions{Tenant: "acme", Deep: true, Progress: func(int, int) { calls++ }})
	lv, wantErr := st.Upkeep().Verify(ctx, upkeep.VerifyOptions{Tenant: "acme", Deep: true})
	same(t, "verify", rv, err, lv, wantErr)
	rnames, err := all(c.Users(ctx, "acme"))
	slices.Sort(rnames)
	same(t, "users", rnames, err, []string{"alice", "bob"}, nil)
	rnames, err = all(c.Tenants(ctx))
	same(t, "tenants", rnames, err, []string{"acme"}, nil)
	rtree, err := rt.Tree(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ltree, err := lt.Tree(ctx)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "tree", treeText(rtree), nil, treeText(ltree), nil)
	events := 0
	for e, err := range c.Watch(ctx, engine.WatchScope{Tenant: "acme"}, engine.CursorAt(time.Unix(0, 0))) {
		if err != nil || e.Cursor == "" {
			t.Fatal(e, err)
		}
		if events++; events == 901 {
			break
		}
	}
}

func treeText(tree *engine.Tree) (lines []string) {
	for _, n := range tree.Nodes {
		parent := uint64(0)
		if n.Parent != nil {
			parent = n.Parent.Seq
		}
		lines = append(lines, fmt.Sprintf("%s %d on %d, %d children, %v", n.ID, n.Seq, parent, len(n.Children), n.Branches))
	}
	return append(lines, fmt.Sprint(len(tree.Roots), len(tree.Heads), tree.Branches))
}

// What is changed through the client is changed.
func TestChangesThroughTheServer(t *testing.T) {
	ctx := t.Context()
	st, c := served(t, Options{})
	ref := engine.Ref{Tenant: "acme", User: "alice", Thread: "t"}
	lt, rt, ru := st.Thread(ref), c.Thread(ref), c.User("acme", "alice")
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for i := range 6 {
		_, err := rt.Save(ctx, engine.Draft{Step: int64(i), RunID: "r", Channels: []engine.Change{{Name: "a", Data: []byte("x")}}})
		check("save", err)
	}
	cp, err := rt.SetLabels(ctx, engine.AtSeq(2), map[string]string{"k": "v"})
	check("label", err)
	if cp.Labels["k"] != "v" {
		t.Errorf("labels %v", cp.Labels)
	}
	_, err = rt.Fork(ctx, engine.AtSeq(3), "b")
	check("fork", err)
	_, err = rt.Fork(ctx, engine.AtSeq(3), "b")
	if exists, ok := errors.AsType[*engine.BranchExistsError](err); !ok || exists.Name != "b" || !errors.Is(err, engine.ErrConflict) {
		t.Errorf("a branch that is there: %v", err)
	}
	check("set a branch", rt.SetBranch(ctx, "b", engine.AtSeq(4)))
	check("set another", rt.SetBranch(ctx, "c", engine.AtSeq(4)))
	check("delete a branch", rt.DeleteBranch(ctx, "c"))
	bs, err := lt.Branches(ctx)
	if check("branches", err); len(bs) != 1 || bs[0].HeadSeq != 4 {
		t.Errorf("branches %v", bs)
	}
	ws := []engine.Write{{Index: -1, Channel: "a", Type: "json", Data: []byte("1")}, {Index: 2, Channel: "b", Data: []byte{}}}
	generation, err := rt.PutWrites(ctx, cp.ID, "task", "path", engine.Upsert, ws, 0)
	if check("writes", err); generation != 1 {
		t.Errorf("the writes are of generation %d", generation)
	}
	_, err = rt.PutWrites(ctx, cp.ID, "task", "path", engine.Ignore, []engine.Write{{Index: 2, Channel: "z"}}, 1)
	check("writes again", err)
	withHead := engine.LoadOptions{Head: true}
	rl, err := rt.Load(ctx, engine.AtSeq(1), withHead)
	ll, wantErr := lt.Load(ctx, engine.AtSeq(1), withHead)
	same(t, "load with the head", rl, err, ll, wantErr)
	if rl.Head == nil || rl.Head.Seq == 1 {
		t.Errorf("the head is %+v", rl.Head)
	}
	rw, err := rt.Writes(ctx, cp.ID)
	lw, wantErr := lt.Writes(ctx, cp.ID)
	same(t, "writes", rw, err, lw, wantErr)
	if len(rw) != 2 || rw[1].Channel != "b" {
		t.Errorf("writes %+v", rw)
	}
	sub := ref
	sub.Namespace = "sub"
	_, err = c.Thread(sub).Save(ctx, engine.Draft{})
	check("save to a namespace", err)
	names, err := rt.Namespaces(ctx)
	same(t, "namespaces", names, err, []string{"", "sub"}, nil)
	check("copy", rt.Copy(ctx, engine.Ref{Tenant: "acme", User: "alice", Thread: "twin"}))
	if err := rt.Copy(ctx, engine.Ref{Tenant: "acme", User: "bob", Thread: "twin"}); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("a copy to another user: %v", err)
	}
	report, err := rt.Prune(ctx, upkeep.PruneOptions{KeepLast: 2, KeepLabelled: true})
	if check("prune", err); len(report.Removed) != 2 {
		t.Errorf("prune %+v", report)
	}
	policy := upkeep.RetentionPolicy{KeepLast: 1, OlderThan: time.Hour, KeepLabelled: true}
	check("set retention", c.SetRetention(ctx, "acme", policy))
	got, err := c.Retention(ctx, "acme")
	same(t, "retention", got, err, policy, nil)
	stages := 0
	gc, err := c.GC(ctx, "acme", upkeep.GCOptions{Grace: -1, Progress: func(upkeep.GCProgress) { stages++ }})
	if check("gc", err); gc.Users != 1 || gc.Threads != 2 {
		t.Errorf("gc %+v", gc)
	}
	_, err = ru.GC(ctx, upkeep.GCOptions{DryRun: true})
	check("gc of a user", err)
	generation, err = c.Thread(sub).Delete(ctx)
	if check("delete a namespace", err); generation != 1<<32+2 {
		t.Errorf("generation %#x", generation)
	}
	if _, err := c.Thread(sub).Save(ctx, engine.Draft{Generation: 1<<32 + 1}); !errors.Is(err, engine.ErrGeneration) {
		t.Errorf("a late save to a namespace: %v", err)
	}
	_, err = c.Thread(sub).Save(ctx, engine.Draft{Generation: generation})
	check("save to a new life of the namespace", err)
	_, err = rt.Load(ctx, engine.Latest)
	check("the thread of a deleted namespace", err)
	dl := c.Thread(engine.Ref{Tenant: ref.Tenant, User: ref.User, Thread: "delta"})
	ds := st.Thread(dl.Ref())
	_, err = dl.Save(ctx, engine.Draft{ID: "d1", RunID: "r", Channels: []engine.Change{{Name: "log", Data: []byte("base")}}})
	check("save a base", err)
	_, err = dl.PutWrites(ctx, "d1", "task", "", engine.Upsert, []engine.Write{{Channel: "log", Data: []byte("one")}}, 0)
	check("writes to a delta channel", err)
	saved, err := dl.Save(ctx, engine.Draft{ID: "d2", Delta: []string{"log"}})
	if check("save a delta channel", err); !slices.Equal(saved.Delta, []string{"log"}) {
		t.Errorf("delta channels %v", saved.Delta)
	}
	_, err = dl.Prune(ctx, upkeep.PruneOptions{KeepLast: 1})
	check("prune a delta channel", err)
	histories := engine.LoadOptions{History: []string{"log", "none"}}
	rl, err = dl.Load(ctx, engine.Latest, histories)
	ll, wantErr = ds.Load(ctx, engine.Latest, histories)
	same(t, "histories", rl, err, ll, wantErr)
	if h := rl.Histories; len(h) != 2 || h[0].BaseID != "d1" || len(h[0].Writes) != 1 || h[1].Base != nil {
		t.Errorf("histories %+v", h)
	}
	n, lost, err := ru.DeleteRun(ctx, "r")
	if check("delete a run", err); n == 0 {
		t.Error("a run of no checkpoints")
	}
	if len(lost) != 1 || lost[0].Thread != "delta" || lost[0].ID != "d2" {
		t.Errorf("lost histories %+v", lost)
	}
	generation, err = rt.Delete(ctx)
	if check("delete", err); generation != 2 {
		t.Errorf("generation %d", generation)
	}
	if _, err := rt.Save(ctx, engine.Draft{Generation: 1}); !errors.Is(err, engine.ErrGeneration) {
		t.Errorf("a late save: %v", err)
	}
	check("create a user", c.User("acme", "carol").Create(ctx))

	content := random(600_000)
	id, size, err := ru.PutBlob(ctx, bytes.NewReader(content))
	check("put a blob", err)
	info, err := ru.StatBlob(ctx, id)
	if check("stat a blob", err); info.Size != size || info.ID != id || info.Created.IsZero() {
		t.Errorf("blob %+v", info)
	}
	var out bytes.Buffer
	_, err = ru.GetBlob(ctx, id, &out)
	if check("get a blob", err); !bytes.Equal(out.Bytes(), content) {
		t.Errorf("a blob of %d bytes", out.Len())
	}
	if _, err := ru.GetBlob(ctx, engine.BlobID{}, &out); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("a blob that is not there: %v", err)
	}
}

// Tokens are made, used and revoked.
func TestTokens(t *testing.T) {
	ctx := t.Context()
	_, c := served(t, Options{})
	grant := Grant{Role: "reader", Tenant: "acme", User: "alice", ThreadPrefix: "t", Expires: time.Now().Add(time.Hour).UTC().Truncate(time.Second)}
	tok, secret, err := c.CreateToken(ctx, "for a test", grant)
	if err != nil || tok.ID == "" || secret == "" || tok.Note != "for a test" {
		t.Fatalf("%+v, %v", tok, err)
	}
	list, err := c.Tokens(ctx)
	same(t, "tokens", list, err, []Token{tok}, nil)
	reader, err := Dial(c.Addr(), Options{Token: secret})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	who, grants, err := reader.WhoAmI(ctx)
	same(t, "grants", grants, err, []Grant{grant}, nil)
	if who != "token:"+tok.ID {
		t.Errorf("the caller is %s", who)
	}
	if _, err := c.Thread(place("t")).Save(ctx, draft); err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Thread(place("t")).Load(ctx, engine.Latest); err != nil {
		t.Error(err)
	}
	if _, err := reader.Thread(place("t")).Save(ctx, draft); !errors.Is(err, ErrDenied) {
		t.Errorf("a reader saves: %v", err)
	}
	if _, err := reader.Thread(place("other")).Load(ctx, engine.Latest); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("a reader reads what is not for it: %v", err)
	}
	revoked, err := c.RevokeToken(ctx, tok.ID, false)
	same(t, "revoked", revoked, err, []string{tok.ID}, nil)
	if _, err := reader.Thread(place("t")).Load(ctx, engine.Latest); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("a token that was revoked: %v", err)
	}
	status, err := c.Status(ctx)
	if err != nil || status.GetVersion() != "test" {
		t.Errorf("%v, %v", status, err)
	}
	entries, err := all(c.ReadAudit(ctx, time.Time{}))
	if err != nil || len(entries) < 4 || entries[0].Number != 1 || entries[0].Time.IsZero() {
		t.Errorf("%+v, %v", entries, err)
	}
}
