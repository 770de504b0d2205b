package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/mem"
	. "github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// stolen are the values of some kinds of records as they were once.
type stolen []backend.Entry

const kindOfKey = 36 // place of the kind in a key

// steal takes all values of a kind from the disk.
func steal(t *testing.T, b backend.Backend, kind byte) (out stolen) {
	t.Helper()
	for start := []byte(nil); ; {
		page, next, err := b.Scan(context.Background(), backend.Range{Start: start, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			if len(e.Key) > kindOfKey && e.Key[kindOfKey] == kind {
				out = append(out, backend.Entry{Key: bytes.Clone(e.Key), Value: bytes.Clone(e.Value), Version: e.Version})
			}
		}
		if next == nil {
			return out
		}
		start = next
	}
}

// putBack resets the values of a kind, those that choose names.
func (was stolen) putBack(t *testing.T, b backend.Backend, kind byte, choose func(key []byte) bool) {
	t.Helper()
	var muts []backend.Mut
	for _, e := range steal(t, b, kind) {
		if choose(e.Key) {
			muts = append(muts, backend.Mut{Key: e.Key, Delete: true})
		}
	}
	if len(muts) > 0 {
		if err := b.Commit(context.Background(), backend.Batch{ID: [16]byte{1, byte(len(muts))}, Muts: muts}); err != nil {
			t.Fatal(err)
		}
	}
	muts = nil
	for _, e := range was {
		if choose(e.Key) {
			muts = append(muts, backend.Mut{Key: e.Key, Value: e.Value, Version: e.Version})
		}
	}
	if len(muts) > 0 {
		if err := b.Commit(context.Background(), backend.Batch{ID: [16]byte{2, byte(len(muts))}, Muts: muts}); err != nil {
			t.Fatal(err)
		}
	}
}

func isLedger(key []byte) bool { return bytes.HasSuffix(key, make([]byte, 16)) }
func isTask(key []byte) bool   { return !isLedger(key) }
func isAny([]byte) bool        { return true }

// approve puts the writes of an approval.
func approve(t *testing.T, th *Thread, checkpoint, task, value string) {
	t.Helper()
	_, err := th.PutWrites(context.Background(), checkpoint, task, "", Upsert, []Write{{Channel: "approved", Data: []byte(value)}}, 0)
	if err != nil {
		t.Fatal(err)
	}
}

// TestWritesAreNotRolledBack puts pending writes of the disk back as they were once, removes them,
// or adds removed ones again. Reading them and verifying finds it; once another checkpoint was
// saved on theirs, verifying also finds it when all of them go back together with their ledger.
func TestWritesAreNotRolledBack(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		name    string
		choose  func([]byte) bool
		to      int  // 0: nothing was there yet, 1: the first answer
		child   bool // a checkpoint was saved on it
		reading bool // finds it
		verify  bool
	}{
		{"a write goes back", isTask, 1, false, true, true},
		{"a write is removed", isTask, 0, false, true, true},
		{"the ledger goes back", isLedger, 1, false, true, true},
		{"the ledger is removed", isLedger, 0, false, true, true},
		{"both go back after a save", isAny, 1, true, false, true},
		{"both are removed after a save", isAny, 0, true, false, true},
		{"nothing is touched", func([]byte) bool { return false }, 0, true, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := keepsOpen{mem.Open()}
			o := withKeys(t, Options{})
			th := open(t, b, o).Thread(refOf("asks"))
			cp := mustSave(t, th, Draft{ID: "ask", Channels: []Change{{Name: "a", Data: []byte("may I?")}}})
			before := []stolen{steal(t, b, space.KindWrites)}
			approve(t, th, cp.ID, "human", "no")
			before = append(before, steal(t, b, space.KindWrites))
			approve(t, th, cp.ID, "human", "yes")
			if c.child {
				mustSave(t, th, Draft{Keep: true, Step: 1})
			}
			before[c.to].putBack(t, b, space.KindWrites, c.choose)

			s := open(t, b, o)
			ws, err := s.Thread(refOf("asks")).Writes(ctx, cp.ID)
			if found := errors.Is(err, ErrCorrupt); found != c.reading || err != nil && !found {
				t.Errorf("reading gives %v, %v", ws, err)
			}
			report, err := s.Upkeep().Verify(ctx, upkeep.VerifyOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if found := len(report.Problems) > 0; found != c.verify {
				t.Errorf("verifying finds %v", report.Problems)
			}
		})
	}
}

// TestSaveNamesTheWritesOfItsParent shows that a save records its parent's acknowledged writes,
// wherever the parent's state comes from: the save before, a load, or the disk.
func TestSaveNamesTheWritesOfItsParent(t *testing.T) {
	ctx := context.Background()
	for _, how := range []string{"the same store", "a load before", "another store"} {
		t.Run(how, func(t *testing.T) {
			b := keepsOpen{mem.Open()}
			o := withKeys(t, Options{})
			s := open(t, b, o)
			th := s.Thread(refOf("asks"))
			cp := mustSave(t, th, Draft{Channels: []Change{{Name: "a", Data: []byte("may I?")}}})
			none := steal(t, b, space.KindWrites)
			approve(t, th, cp.ID, "human", "yes")
			if how != "the same store" {
				s = open(t, b, o)
				th = s.Thread(refOf("asks"))
			}
			if how == "a load before" {
				if _, err := th.Load(ctx, Latest, LoadOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			mustSave(t, th, Draft{Keep: true, Step: 1})
			none.putBack(t, b, space.KindWrites, isAny)
			report, err := open(t, b, o).Upkeep().Verify(ctx, upkeep.VerifyOptions{})
			if err != nil || len(report.Problems) != 1 || !strings.Contains(report.Problems[0].Err.Error(), "pending writes of its parent") {
				t.Errorf("verifying finds %v, %v", report, err)
			}
		})
	}
}

// TestWritesOfManyTasks puts writes of many tasks at once, during saves, and reads them all the
// time.
func TestWritesOfManyTasks(t *testing.T) {
	ctx := context.Background()
	b := keepsOpen{mem.Open()}
	o := withKeys(t, Options{})
	s := open(t, b, o)
	th := s.Thread(refOf("many"))
	cp := mustSave(t, th, Draft{ID: "ask", Channels: []Change{{Name: "a", Data: []byte("x")}}})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := th.Writes(ctx, cp.ID); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var puts sync.WaitGroup
	const tasks, rounds = 12, 20
	for task := range tasks {
		puts.Go(func() {
			r := rand.New(rand.NewPCG(uint64(task), 3))
			for i := range rounds {
				data := bytes.Repeat([]byte{byte(i)}, r.IntN(100))
				if _, err := th.PutWrites(ctx, cp.ID, fmt.Sprint("task-", task%(tasks-2)), "", Upsert, []Write{{Index: int64(r.IntN(3)), Channel: "c", Data: data}}, 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	puts.Go(func() {
		for i := range rounds {
			if _, err := th.Save(ctx, Draft{Keep: true, Step: int64(i), Parent: cp.ID}); err != nil {
				t.Error(err)
			}
		}
	})
	puts.Wait()
	close(stop)
	wg.Wait()
	report, err := open(t, b, o).Upkeep().Verify(ctx, upkeep.VerifyOptions{Deep: true})
	if err != nil || len(report.Problems) != 0 {
		t.Errorf("verifying finds %v, %v", report.Problems, err)
	}
}
