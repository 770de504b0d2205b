package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/ckptd/ckptd/backend/badger"
	"github.com/ckptd/ckptd/backend/commitlog"
	"github.com/ckptd/ckptd/backend/commitlog/faultfs"
)

// powerRound takes the power from a store at work, at calls of the log to its files: of the pages
// that were not synced any subset is lost or torn. Badger's memory files are never synced: all of
// their pages may be lost. Its tables, and the lines of its MANIFEST, stand from their sync on, so
// they are taken as they are. The image is opened, and in the midst of that the power goes once
// more.
func powerRound(r *round) {
	c := &cut{r: r, base: r.dir, want: newBatches(), most: min(r.units, 10), every: 2 + r.rnd.IntN(100)}
	long := r.seed%3 == 0 // so that Badger flushes while it is at work
	if long {
		c.every *= 4
	}
	dir, files := place(filepath.Join(r.dir, "store-0")), faultfs.New()
	r.must(os.MkdirAll(dir.data(), 0o700))
	for opening := 1; len(c.images) < c.most; opening++ {
		c.dir, c.files = dir, files
		files.FailWith(c.call)
		b, err := openOver(dir, files)
		r.must(err)
		c.named.Store(tablesOf(dir))
		writers, each := 1<<r.rnd.IntN(5), 1+r.rnd.IntN(60)
		if long {
			writers, each = 16, 100
		}
		if r.rnd.IntN(3) == 0 {
			r.must(c.want.run(b, r.seed-uint64(opening), 2, 4))
			r.must(b.Compact(context.Background()))
		}
		r.must(c.want.run(b, r.seed+uint64(opening), writers, each))
		files.FailWith(nil)
		if r.rnd.IntN(2) == 0 { // the next one finds the leftovers of a kill
			left := files.Killed()
			next := place(filepath.Join(r.dir, fmt.Sprint("store-", opening)))
			r.must(dir.copyAtWork(next))
			dir, files = next, left
		}
		r.must(b.Close())
	}
	for _, im := range c.images {
		im.judge(r)
		if r.Failed() {
			return
		}
	}
}

func openOver(p place, files *faultfs.FS) (*badger.Store, error) {
	return badger.Open(p.data(), badger.Options{MemTableSize: 8 << 20, MinFree: 4 << 20, LogFiles: func(commitlog.FS) commitlog.FS { return files }})
}

// cut takes images of a store at work.
type cut struct {
	r     *round
	base  string // for the images
	dir   place
	files *faultfs.FS
	want  *batches
	most  int // images to take
	every int // calls of the log, about

	images []*powerless
	named  atomic.Pointer[[]string] // the tables whose names may be durable
}

// powerless is the store that a power loss left.
type powerless struct {
	place
	want *batches // as acknowledged then
	at   string
}

// call is told of every call of the log that changes something, before it is done. No other one is
// done meanwhile.
func (c *cut) call(op, name string) error {
	if op == "create" || op == "rename" || op == "remove" { // the names may have been synced before
		c.named.Store(tablesOf(c.dir))
	}
	if len(c.images) < c.most && c.r.rnd.IntN(c.every) == 0 {
		to := place(filepath.Join(c.base, fmt.Sprint("image-", len(c.images))))
		im := take(c.r, c.dir, c.files, to, c.want, fmt.Sprintf("at the %s of %q", op, name))
		if c.named.Load() != nil {
			im.loseNames(c.r, *c.named.Load())
		}
		c.images = append(c.images, im)
	}
	return nil
}

// judge opens an image and compares. It does the same to the images of a power loss during that
// opening.
func (im *powerless) judge(r *round) {
	files, err := faultfs.Load(im.path("data", "log"))
	r.must(err)
	again := &cut{r: r, base: string(im.place) + "-again", dir: im.place, files: files, want: im.want, most: 1, every: 1 + r.rnd.IntN(6)}
	if strings.HasSuffix(im.at, "again") {
		again.most = 0
	}
	files.FailWith(again.call)
	b, err := openOver(im.place, files)
	files.FailWith(nil)
	if err != nil {
		r.problem("power lost %s: opening: %v", im.at, err)
		return
	}
	for _, problem := range im.want.compare(b) {
		r.problem("power lost %s: %s", im.at, problem)
	}
	r.must(b.Close())
	r.did(strings.Split(im.at, ", ")[1:]...)
	for _, im := range again.images {
		im.at += ", again"
		im.judge(r)
	}
}

// tablesOf are the names of the tables in a place.
func tablesOf(p place) *[]string {
	paths, _ := filepath.Glob(p.path("data", "*.sst"))
	return &paths
}

// loseNames has the power take names that were not synced from tables that were. Ext4, XFS and
// btrfs make the name of a new file durable with the file, POSIX does not say so. It removes the
// newest table if Badger flushed it since the directory may have been synced. Badger syncs that
// when it compacts, which is seen by tables that are gone.
func (im *powerless) loseNames(r *round, named []string) {
	now := *tablesOf(im.place)
	if len(now) != len(named)+1 || r.rnd.IntN(4) == 0 {
		return
	}
	for i, path := range named {
		if filepath.Base(path) != filepath.Base(now[i]) {
			return
		}
	}
	im.at += ", a table's name lost"
	r.must(os.Remove(now[len(named)]))
}

// take makes an image of a directory whose log is in files.
func take(r *round, from place, files *faultfs.FS, to place, want *batches, at string) *powerless {
	im := &powerless{place: to, want: want.clone(), at: at} // first, so that nothing acknowledged while files are copied is expected
	r.must(from.copyAtWork(to))
	r.must(files.PowerLoss(r.rnd).Save(to.path("data", "log")))
	paths, err := filepath.Glob(to.path("data", "*.mem"))
	r.must(err)
	how := r.rnd.IntN(4)
	for _, path := range paths {
		r.must(lose(r.rnd, path, how))
	}
	im.at += []string{", memory files lost", ", memory files empty", ", memory files torn", ", memory files whole"}[how]
	return im
}

// lose loses a memory file, its content, or some of its pages.
func lose(rnd *rand.Rand, path string, how int) error {
	switch how {
	case 0:
		return os.Remove(path)
	case 3:
		return nil
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	end, err := used(f)
	for at := int64(0); err == nil && at < end; at += page {
		from := 0
		switch k := rnd.IntN(4); {
		case how == 2 && k < 2:
			continue
		case how == 2 && k == 2:
			from = rnd.IntN(page/512) * 512
		}
		_, err = f.WriteAt(zeroPage[from:], at+int64(from))
	}
	return err
}
