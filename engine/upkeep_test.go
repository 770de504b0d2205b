package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/ckptd/ckptd/engine/upkeep"
)

// chores is a store on which all that removes or rewrites is done, in any order.
type chores struct {
	t     *testing.T
	f     *fixture
	r     *rand.Rand
	clock *testClock
	refs  []Ref
	ids   map[Ref][]string // of checkpoints that were there once
	heads []migratedHead
	blobs []BlobID
	log   []string
}

type migratedHead struct {
	ref      Ref
	old, now uint64
	hash     [32]byte
}

func newChores(t *testing.T, seed uint64) *chores {
	u := &chores{t: t, r: rand.New(rand.NewPCG(seed, 3)), clock: &testClock{ms: 1_700_000_000_000}, ids: map[Ref][]string{}}
	u.f = newFixture(t, Options{Migrations: only(supportSet(t)), Now: u.clock.now, CacheBytes: []int64{0, -1}[u.r.IntN(2)]})
	u.refs = []Ref{testRef("t0"), testRef("t1"), {Tenant: "acme", User: "alice", Thread: "t0", Namespace: "ns"}}
	return u
}

// id chooses one of the ids that a lineage has or had.
func (u *chores) id(ref Ref) string {
	if ids := u.ids[ref]; len(ids) > 0 {
		return ids[u.r.IntN(len(ids))]
	}
	return "none"
}

func (u *chores) branch() string { return fmt.Sprint("b", u.r.IntN(3)) }
func (u *chores) run() string    { return fmt.Sprint("r", u.r.IntN(6)) }

// step does one operation, and returns its name and outcome.
func (u *chores) step(i int) (what string, err error) {
	ctx := context.Background()
	u.clock.ms += int64(u.r.IntN(5000))
	ref := u.refs[u.r.IntN(len(u.refs))]
	th, alice := u.f.Thread(ref), u.f.User("acme", "alice")
	id := u.id(ref)
	switch n := u.r.IntN(100); {
	case n < 44:
		return u.save(ref, i)
	case n < 51:
		_, err = th.SetLabels(ctx, At(id), map[string]string{"l": fmt.Sprint(u.r.IntN(2)), LabelPin: []string{"", "", "1"}[u.r.IntN(3)]})
		return "label " + id, err
	case n < 59:
		o := upkeep.PruneOptions{Erase: u.r.IntN(2) == 0, AllNamespaces: u.r.IntN(2) == 0}
		if u.r.IntN(2) == 0 {
			o.KeepLast = 1 + u.r.IntN(6)
		} else {
			o.Remove = []string{id}
		}
		_, err = th.Upkeep().Prune(ctx, o)
		return fmt.Sprintf("prune %+v", o), err
	case n < 69:
		o := upkeep.HeadMigration{To: 1 + u.r.Uint64N(4), Down: true}
		if u.r.IntN(3) == 0 {
			o.Branch = u.branch()
		}
		got, err := th.Upkeep().MigrateHead(ctx, o)
		if err == nil && got.New != nil {
			u.heads = append(u.heads, migratedHead{ref, got.Old.Seq, got.New.Seq, got.New.Hash})
			u.ids[ref] = append(u.ids[ref], got.New.ID)
		}
		return fmt.Sprintf("migrate head %+v", o), err
	case n < 77:
		if len(u.heads) == 0 {
			return "nothing", nil
		}
		h := u.heads[len(u.heads)-1-u.r.IntN(min(len(u.heads), 4))] // of older ones there is little left
		return fmt.Sprintf("undo head %d of %d in %v", h.now, h.old, h.ref), u.f.Thread(h.ref).Upkeep().UndoHead(ctx, h.old, h.now, h.hash)
	case n < 81:
		_, err = th.Upkeep().MigrateHistory(ctx, 1+u.r.Uint64N(4), true)
		return "migrate history", err
	case n < 85:
		return "restore history", th.Upkeep().RestoreHistory(ctx)
	case n < 86:
		return "drop history", th.Upkeep().DropHistory(ctx)
	case n < 88:
		_, _, err = alice.Upkeep().DeleteRun(ctx, u.run())
		return "delete run", err
	case n < 91:
		_, err = alice.Upkeep().GC(ctx, upkeep.GCOptions{Grace: -1})
		return "gc", err
	case n < 93:
		dst := testRef(fmt.Sprint("copy", i))
		if err = th.Copy(ctx, dst); err == nil {
			u.refs = append(u.refs, dst)
			u.ids[dst] = append([]string(nil), u.ids[Ref{Tenant: ref.Tenant, User: ref.User, Thread: ref.Thread}]...)
		}
		return "copy", err
	case n < 96:
		_, err = th.Fork(ctx, At(id), u.branch())
		return "fork " + id, err
	case n < 98:
		w := []Write{{Index: u.r.Int64N(3), Channel: "c", Data: words(u.r, 50)}}
		_, err := th.PutWrites(ctx, id, "task", "", Upsert, w, 0)
		return "write", err
	}
	u.f.reopen()
	return "reopen", nil
}

func (u *chores) save(ref Ref, i int) (string, error) {
	text := words(rand.New(rand.NewPCG(u.r.Uint64N(3), 3)), 3000)
	d := Draft{Kind: "support", SchemaVersion: 1, Step: int64(i), RunID: u.run(), Channels: []Change{jsonChannel("state",
		fmt.Sprintf(`{"lang":"en","attempts":"%d","text":%q}`, i, text))}}
	if u.r.IntN(3) == 0 {
		if d.Parent = u.id(ref); d.Parent == "none" {
			d.Parent = ""
		}
	}
	if u.r.IntN(4) == 0 {
		d.Branch = u.branch()
	}
	if u.r.IntN(3) == 0 {
		d.Labels = map[string]string{"k": fmt.Sprint(u.r.IntN(3))}
	}
	switch u.r.IntN(10) {
	case 0, 1:
		d.ID = fmt.Sprint("id", u.r.IntN(12))
	case 2:
		d.ID = fmt.Sprintf("1f0a0000-0000-6%03x-8000-ffffffffffff", u.r.IntN(9))
	}
	switch u.r.IntN(8) {
	case 0:
		u.blobs = append(u.blobs, putBlob(u.t, u.f, words(u.r, 100)))
		d.Blobs = u.blobs[len(u.blobs)-1:]
	case 1:
		if len(u.blobs) > 0 {
			d.Blobs = []BlobID{u.blobs[u.r.IntN(len(u.blobs))]}
		}
	case 2:
		d.Keep = true
	}
	cp, err := u.f.Thread(ref).Save(context.Background(), d)
	what := fmt.Sprintf("save on %q, branch %q, id %q", d.Parent, d.Branch, d.ID)
	if err == nil {
		u.ids[ref] = append(u.ids[ref], cp.ID)
		what += fmt.Sprintf(": seq %d on %d", cp.Seq, cp.ParentSeq)
	}
	return what, err
}

// All operations that rewrite, one after the other at random, with a deep verification after each:
// nothing with dependents is removed. CKPTD_LONG is the number of operations of a campaign.
func TestUpkeep(t *testing.T) {
	runsAlone(t)
	const operations = 120
	rounds := uint64(4)
	if testing.Short() {
		rounds = 2
	}
	first := uint64(1)
	if long, err := strconv.Atoi(os.Getenv("CKPTD_LONG")); err == nil {
		rounds, first = uint64(long)/operations, uint64(time.Now().UnixNano())
	}
	for seed := first; seed < first+rounds && !t.Failed(); seed++ {
		u := newChores(t, seed)
		for i := range operations {
			what, err := u.step(i)
			u.log = append(u.log, fmt.Sprintf("%d: %s: %v", i, what, err))
			if errors.Is(err, ErrCorrupt) {
				t.Error(err)
			}
			mustBeClean(t, u.f.Store, upkeep.VerifyOptions{Deep: true})
			if t.Failed() {
				for _, line := range u.log {
					t.Log(line)
				}
				t.Fatalf("seed %d", seed)
			}
		}
	}
}
