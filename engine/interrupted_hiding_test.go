package engine

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/engine/upkeep"
)

// interruptHiding prunes a thread whose checkpoint "0" has many writes, until the prune has copied
// some of them and fails.
func interruptHiding(t *testing.T, f *fixture, commits int) (writes []string, err error) {
	t.Helper()
	th := f.Thread(testRef("t"))
	for i, base := range []string{"base", "", ""} {
		save(t, th, logDraft(fmt.Sprint(i), base))
	}
	for task := range 100 {
		data := fmt.Sprintf("w%02d %s", task, words(rand.New(rand.NewPCG(uint64(task), 1)), 1_000))
		if _, err := th.PutWrites(t.Context(), "0", fmt.Sprintf("task%02d", task), "", Upsert, []Write{wr(0, "log", data)}, 0); err != nil {
			t.Fatal(err)
		}
		writes = append(writes, data)
	}
	real := f.Store.be
	f.Store.be = &failAfter{real, commits}
	_, err = th.Upkeep().Prune(t.Context(), upkeep.PruneOptions{KeepLast: 1})
	f.Store.be = real
	f.reopen()
	mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
	return writes, err
}

func heldKeys(t *testing.T, f *fixture, ref Ref, id string) (n int) {
	t.Helper()
	l, err := f.Store.rlockThread(t.Context(), ref, false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.runlockThread()
	page, _, err := f.be.Scan(t.Context(), l.Writes())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range page {
		if !bytes.HasPrefix(e.Key, l.WritesPrefix(id)) {
			n++
		}
	}
	return n
}

// The copies that an interrupted prune made of writes are neither erased data that survives nor mixed
// with later writes.
func TestErasingAfterAnInterruptedPrune(t *testing.T) {
	for commits := 0; ; commits++ {
		f := newFixture(t, Options{})
		ref := testRef("t")
		writes, err := interruptHiding(t, f, commits)
		if err == nil {
			if commits < 3 {
				t.Errorf("%d commits", commits)
			}
			return
		}
		th := f.Thread(ref)
		cp, lerr := th.Load(t.Context(), At("0"), LoadOptions{HeadersOnly: true})
		if lerr == nil && cp != nil {
			writes[3] = "changed"
			if _, err := th.PutWrites(t.Context(), "0", "task03", "", Upsert, []Write{wr(0, "log", "changed")}, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := th.Copy(t.Context(), testRef("c")); err != nil {
			t.Fatal(err)
		}
		all := "base|" + strings.Join(writes, ",")
		wantHistory(t, f.Thread(testRef("c")), At("2"), all)
		mustPrune(t, f, testRef("c"), upkeep.PruneOptions{KeepLast: 1})
		wantHistory(t, f.Thread(testRef("c")), At("2"), all)
		mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1, Erase: true})
		wantHistory(t, th, At("2"), all)
		mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
		save(t, th, logDraft("4", "a value"))
		for _, ref := range []Ref{ref, testRef("c")} {
			save(t, f.Thread(ref), logDraft("5", "a value"))
			mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1, Erase: true})
			if n := heldKeys(t, f, ref, "none"); n != 0 {
				t.Errorf("after %d commits %d writes are left in %s", commits, n, ref.Thread)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// After an interrupted prune, each way to remove the checkpoint takes the copies of its writes, too.
func TestNoCopiesOfWritesAreLeft(t *testing.T) {
	remove := map[string]func(t *testing.T, f *fixture, ref Ref){
		"value, erase": func(t *testing.T, f *fixture, ref Ref) {
			save(t, f.Thread(ref), logDraft("3", "a value"))
			mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1, Erase: true})
		},
		"value, prune": func(t *testing.T, f *fixture, ref Ref) {
			save(t, f.Thread(ref), logDraft("3", "a value"))
			mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1})
		},
		"value, prune, erase": func(t *testing.T, f *fixture, ref Ref) {
			save(t, f.Thread(ref), logDraft("3", "a value"))
			mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1})
			mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1, Erase: true})
		},
	}
	for name, fn := range remove {
		for commits := 0; ; commits++ {
			f := newFixture(t, Options{})
			_, err := interruptHiding(t, f, commits)
			fn(t, f, testRef("t"))
			if n := heldKeys(t, f, testRef("t"), "none"); n != 0 {
				t.Errorf("%s: after %d commits %d writes are left", name, commits, n)
			}
			if err == nil || t.Failed() {
				break
			}
		}
	}
}

// After an interrupted prune the freed id can be used, without the writes of the hidden checkpoint.
func TestFreedIDAfterAnInterruptedPrune(t *testing.T) {
	for commits := 0; ; commits++ {
		f := newFixture(t, Options{})
		ref := testRef("t")
		_, err := interruptHiding(t, f, commits)
		th := f.Thread(ref)
		if _, lerr := th.Load(t.Context(), At("0"), LoadOptions{HeadersOnly: true}); errors.Is(lerr, ErrNotFound) {
			mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1})
			save(t, th, logDraft("0", "again"))
			ws, werr := th.Writes(t.Context(), "0")
			if werr != nil || len(ws) != 0 {
				t.Errorf("after %d commits: %d writes, %v", commits, len(ws), werr)
			}
			mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
		}
		if err == nil || t.Failed() {
			return
		}
	}
}
