package torture

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// fullRound has a store run out of space on a small file system, by itself or because others fill
// it, and gives it more: nothing acknowledged is lost, and commits go on. Now and then the process
// is killed while there is none, and the store is opened then.
func fullRound(r *round) {
	disk := filepath.Join(r.dir, "disk")
	r.must(os.Mkdir(disk, 0o700))
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=64m"); err != nil {
		r.skip("mounting a tmpfs: %v", err)
		return
	}
	defer unix.Unmount(disk, unix.MNT_DETACH)
	defer func() {
		if r.Failed() {
			place(disk).copyTo(place(filepath.Join(r.dir, "disk-kept")))
		}
	}()
	f := &full{round: r, place: place(filepath.Join(disk, "store")), disk: disk, want: newBatches()}
	r.must(os.MkdirAll(f.data(), 0o700))
	crowded := r.seed%2 == 0
	how := f.fillUp(crowded)
	if f.Failed() {
		return
	}
	f.space("160m")
	b, err := f.openBackend()
	if err != nil {
		r.problem("%s: opening where there is space again: %v", how, err)
		return
	}
	for _, problem := range f.want.compare(b) {
		r.problem("%s: %s", how, problem)
	}
	r.must(b.Close())
	r.did(how)
}

// full is a store on a small file system.
type full struct {
	*round
	place
	disk string
	want *batches
}

func (f *full) space(size string) {
	f.must(unix.Mount("", f.disk, "", unix.MS_REMOUNT, "size="+size))
}

// fillUp runs writers until there is no space, and a while longer.
func (f *full) fillUp(crowded bool) (how string) {
	c, err := start(job{Kind: "commit", Place: f.place, Seed: f.seed, Writers: 1 << f.rnd.IntN(5)})
	f.must(err)
	killed := f.rnd.IntN(3) == 0
	limit := time.AfterFunc(patience, func() { c.Process.Kill() })
	defer limit.Stop()
	refused, resumed := 0, 0
	others, err := os.Create(filepath.Join(f.disk, "others"))
	f.must(err)
	defer others.Close()
	for {
		l, err := c.next()
		if err != nil {
			return f.ended(c, crowded, refused)
		}
		if f.want.take(l); l.Failed+l.Broken+l.Stopped != "" {
			f.problem("%s%s%s", l.Failed, l.Broken, l.Stopped)
			f.killed(c)
			return
		}
		switch {
		case l.NoSpace != nil:
			if refused++; refused == 20 && killed {
				f.killed(c)
				return f.openFull()
			} else if refused == 20 {
				f.space("128m")
			}
		case l.Done != nil && refused >= 20:
			if resumed++; resumed == 50 {
				f.killed(c)
				return "went on when there was space again"
			}
		case l.Done != nil && crowded && f.rnd.IntN(8) == 0:
			others.Write(make([]byte, 1<<20))
		}
	}
}

// killed kills a child and takes in its last messages.
func (f *full) killed(c *child) {
	c.Process.Kill()
	for l, err := c.next(); err == nil; l, err = c.next() {
		f.want.take(l)
	}
	c.Wait()
}

// ended judges the end of a child that nobody killed. Others may fill the device faster than a
// store can look.
func (f *full) ended(c *child, crowded bool, refused int) string {
	text := c.complaint()
	if !crowded || text == "" {
		f.problem("it never went on: %d refusals, and then: %s", refused, text)
	}
	return "the process died because others had filled the device"
}

// openFull opens the store in a process of its own, while there is no space.
func (f *full) openFull() string {
	c, err := start(job{Kind: "commit", Place: f.place, Close: true})
	f.must(err)
	l, err := c.next()
	c.kill()
	switch {
	case err != nil:
		f.problem("opening without space killed the process: %s", c.stderr.String())
	case l.Ready:
		return "killed without space, and opened"
	case !strings.Contains(l.Failed, "no space left"):
		f.problem("opening without space: %s", l.Failed)
	}
	return "killed without space, and refused"
}
