package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/backendtest"
	"github.com/ckptd/ckptd/backend/mem"
	. "github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// writesAgree reads the pending writes of all checkpoints and verifies that nothing looks like
// tampering.
func writesAgree(t *testing.T, s *Store, ref Ref) {
	t.Helper()
	ctx := context.Background()
	for cp, err := range s.Thread(ref).History(ctx, HistoryOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Thread(ref).Writes(ctx, cp.ID); err != nil {
			t.Errorf("%s: %v", cp.ID, err)
		}
	}
	checkDeep(t, s)
}

// A prune interrupted by a crash after any batch leaves no writes that look like tampering; nor
// does a checkpoint saved again under the id of a removed one have any.
func TestPruneOfWritesIsCutShort(t *testing.T) {
	ctx := context.Background()
	ref := refOf("asks")
	for after, done := 0, false; !done; after++ {
		fault := backendtest.NewFault(mem.Open())
		b, o := keepsOpen{fault.Backend()}, withKeys(t, Options{})
		th := open(t, b, o).Thread(ref)
		for i := range 12 {
			id := fmt.Sprintf("ask-%02d", i)
			d := Draft{ID: id, Keep: true, Step: int64(i), Channels: state("ask %d", i)}
			d.Channels = append(d.Channels, Change{Name: fmt.Sprint("of ", i), Data: []byte("kept, so that ghosts are")})
			mustSave(t, th, d)
			tasks := 5
			if i == 6 {
				tasks = 3 * backend.MaxBatchKeys
			}
			for task := range tasks {
				approve(t, th, id, fmt.Sprint("task ", task), "yes")
			}
		}
		fault.Arm(backendtest.Plan{Ops: backendtest.OpCommit, After: after, Err: backend.ErrUnavailable, Keep: true})
		_, err := th.Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 2})
		done = fault.Fired() == 0
		fault.Disarm()
		if done != (err == nil) {
			t.Fatalf("after %d batches: %v", after, err)
		}
		s := open(t, b, o)
		writesAgree(t, s, ref)
		th = s.Thread(ref)
		for i := range 10 {
			id := fmt.Sprintf("ask-%02d", i)
			if _, err := th.Load(ctx, At(id)); err == nil {
				continue
			}
			mustSave(t, th, Draft{ID: id, Keep: true, Step: 100})
			if ws, err := th.Writes(ctx, id); len(ws) != 0 || err != nil {
				t.Errorf("%s saved anew has %d writes, %v", id, len(ws), err)
			}
			approve(t, th, id, "task 1", "no")
			mustSave(t, th, Draft{Keep: true, Step: 101})
		}
		writesAgree(t, open(t, b, o), ref)
		if t.Failed() {
			t.Fatalf("when the prune was cut short after %d batches", after)
		}
	}
}

// A read of pending writes ends, even if others put some all the time, between any two reads.
func TestWritesAreReadWhileTheyChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &interrupted{Backend: keepsOpen{mem.Open()}}
		th := openOn(t, b).Thread(refOf("asks"))
		mustSave(t, th, Draft{ID: "ask", Channels: state("may I?")})
		for task := range 5 {
			approve(t, th, "ask", fmt.Sprint("task ", task), "0")
		}
		ctx, stop := context.WithCancel(context.WithValue(t.Context(), interruptible{}, true))
		defer stop()
		put := 0
		var puts sync.WaitGroup
		b.left, b.do = 1, func() {
			b.left = 1
			if put++; put == 1000 {
				stop()
			}
			n := put
			puts.Go(func() { approve(t, th, "ask", fmt.Sprint("task ", n%5), fmt.Sprint(n)) })
			synctest.Wait() // until it is done, or waits for the reader
		}
		ws, err := th.Writes(ctx, "ask")
		if len(ws) != 5 || err != nil {
			t.Errorf("%d writes after %d more were put, %v", len(ws), put, err)
		}
		puts.Wait()
	})
}

// Removing the entry of a checkpoint's id cannot pass off its writes as those of an id without a
// checkpoint.
func TestWritesOfAHiddenCheckpoint(t *testing.T) {
	ctx := context.Background()
	b, o := keepsOpen{mem.Open()}, withKeys(t, Options{})
	th := open(t, b, o).Thread(refOf("asks"))
	mustSave(t, th, Draft{ID: "ask", Channels: state("may I?")})
	approve(t, th, "ask", "human", "yes")
	yes := steal(t, b, space.KindWrites)
	approve(t, th, "ask", "human", "no")
	yes.putBack(t, b, space.KindWrites, isTask)
	stolen(nil).putBack(t, b, 0x21, isAny)
	ws, err := open(t, b, o).Thread(refOf("asks")).Writes(ctx, "ask")
	if !errors.Is(err, ErrCorrupt) {
		t.Errorf("reads %v, %v", ws, err)
	}
}

// Writes none of which opens do not hide that those of the next checkpoint were put back.
func TestVerifyFindsWritesBehindDamagedOnes(t *testing.T) {
	b, o := keepsOpen{mem.Open()}, withKeys(t, Options{})
	s := open(t, b, o)
	// Which checkpoint's writes stand first on the disk is up to the keys, and is so in both
	// threads.
	for _, c := range []struct{ thread, damaged, back string }{{"a", "one", "two"}, {"b", "two", "one"}} {
		th := s.Thread(refOf(c.thread))
		before := steal(t, b, space.KindWrites)
		changed := func(key []byte) bool {
			return !slices.ContainsFunc(before, func(e backend.Entry) bool { return bytes.Equal(e.Key, key) })
		}
		mustSave(t, th, Draft{ID: c.damaged, Channels: state("may I?")})
		approve(t, th, c.damaged, "human", "no")
		broken := steal(t, b, space.KindWrites)
		for i := range broken {
			if changed(broken[i].Key) {
				broken[i].Value[len(broken[i].Value)-1] ^= 1
			}
		}
		broken.putBack(t, b, space.KindWrites, changed)
		before = broken
		mustSave(t, th, Draft{ID: c.back, Channels: state("may I?")})
		approve(t, th, c.back, "human", "no")
		no := steal(t, b, space.KindWrites)
		approve(t, th, c.back, "human", "yes")
		no.putBack(t, b, space.KindWrites, func(key []byte) bool { return isTask(key) && changed(key) })
	}
	report, err := open(t, b, o).Upkeep().Verify(context.Background(), upkeep.VerifyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, p := range report.Problems {
		if strings.Contains(p.Err.Error(), "do not match their ledger") {
			found++
		}
	}
	if found != 2 {
		t.Errorf("verifying finds %v", report.Problems)
	}
}

// shared is a backend that another process may write to.
type shared struct{ backend.Backend }

func (b shared) Caps() backend.Caps {
	c := b.Backend.Caps()
	c.Exclusive = false
	return c
}

// A save names the writes of its parent that another store on the same backend has put since the
// parent was saved here.
func TestSaveNamesTheWritesOfAnotherStore(t *testing.T) {
	b, o := keepsOpen{shared{mem.Open()}}, withKeys(t, Options{})
	th := open(t, b, o).Thread(refOf("asks"))
	cp := mustSave(t, th, Draft{Channels: state("may I?")})
	none := steal(t, b, space.KindWrites)
	approve(t, open(t, b, o).Thread(refOf("asks")), cp.ID, "human", "yes")
	mustSave(t, th, Draft{Keep: true, Step: 1})
	none.putBack(t, b, space.KindWrites, isAny)
	report, err := open(t, b, o).Upkeep().Verify(context.Background(), upkeep.VerifyOptions{})
	if err != nil || len(report.Problems) != 1 {
		t.Errorf("verifying finds %v, %v", report.Problems, err)
	}
}

// A checkpoint's record of its parent's writes stays valid if the parent is replaced, by other
// labels.
func TestWritesOfReplacedAreNotRolledBack(t *testing.T) {
	for _, back := range []bool{false, true} {
		b, o := keepsOpen{mem.Open()}, withKeys(t, Options{})
		th := open(t, b, o).Thread(refOf("asks"))
		mustSave(t, th, Draft{ID: "ask", Channels: state("may I?")})
		none := steal(t, b, space.KindWrites)
		approve(t, th, "ask", "human", "no")
		mustSave(t, th, Draft{ID: "next", Keep: true, Step: 1})
		if _, err := th.SetLabels(t.Context(), At("ask"), map[string]string{"seen": "1"}); err != nil {
			t.Fatal(err)
		}
		if back {
			none.putBack(t, b, space.KindWrites, isAny)
		}
		report, err := open(t, b, o).Upkeep().Verify(t.Context(), upkeep.VerifyOptions{})
		if err != nil || (len(report.Problems) == 1) != back {
			t.Errorf("put back %v: verifying finds %v, %v", back, report.Problems, err)
		}
	}
}
