package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/commitlog/faultfs"
)

// logCalls are those of the log to its files that can fail.
var logCalls = []string{"write", "sync", "create", "preallocate", "rename", "remove", "sync names"}

// failRound has the n-th call of a kind fail, for every n until none does, and then takes the
// power. After a write or a sync that failed nothing is acknowledged; whatever failed, nothing that
// was is lost. A store that stopped leaves Badger open, as it must, which costs this process 24 MB
// for good: so a campaign has only a few of these rounds.
func failRound(r *round) {
	for _, op := range logCalls {
		for n := 1; failOnce(r, op, n); n++ {
		}
	}
}

// failOnce reports whether the n-th call came, in the second life of a store.
func failOnce(r *round, op string, n int) bool {
	dir, files := place(filepath.Join(r.dir, "store")), faultfs.New()
	r.must(os.RemoveAll(string(dir)))
	r.must(os.MkdirAll(dir.data(), 0o700))
	b, err := openOver(dir, files)
	r.must(err)
	want := newBatches()
	r.must(want.run(b, r.seed, 2, 20))
	r.must(b.Close())
	errFailed := []error{syscall.EIO, syscall.ENOSPC}[n%2]
	calls, failed := 0, atomic.Pointer[string]{}
	files.FailWith(func(o, name string) error {
		if o != op {
			return nil
		}
		if calls++; calls != n {
			return nil
		}
		failed.Store(&name)
		return errFailed
	})
	if b, err = openOver(dir, files); err != nil {
		if failed.Load() == nil {
			r.problem("opening: %v", err)
		}
		files.FailWith(nil)
		b, err = openOver(dir, files)
		r.must(err)
	}
	rnd, stopped, after := rand.New(rand.NewPCG(r.seed, uint64(n))), false, 0
	for i := range 40 {
		if i == 20 && op != "write" && op != "sync" { // it removes segments and starts over
			if err := b.Compact(context.Background()); err != nil && failed.Load() == nil {
				r.problem("compacting: %v", err)
			}
		}
		if stopped { // the outcome of the batch that was begun is unknown
			if b.Commit(context.Background(), backend.Batch{Muts: []backend.Mut{{Key: []byte("late"), Version: "v"}}}) == nil {
				r.problem("%s %d failed: a commit was acknowledged after one of which nobody knows", op, n)
			}
			continue
		}
		was := failed.Load() != nil
		err := b.Commit(context.Background(), want.begin(rnd, 0))
		switch {
		case err == nil:
			if want.ack(0); was {
				after++
			}
		case errors.Is(err, backend.ErrAmbiguous):
			stopped = true
		default:
			want.drop(0)
		}
	}
	name := failed.Load()
	fatal := name != nil && (op == "write" || op == "sync") && filepath.Ext(*name) == ".seg"
	if fatal && after > 0 { // a failure next to the commits stops them a little later
		r.problem("the %s of %s failed, the %d-th: %d commits were acknowledged after it", op, *name, n, after)
	}
	files.FailWith(nil)
	im := take(r, dir, files, place(filepath.Join(r.dir, "image")), want, fmt.Sprintf("after the %d-th %s failed", n, op))
	b.Close()
	im.judge(r)
	if name != nil {
		r.count("failed: "+op, 1)
	}
	return name != nil && !r.Failed()
}
