package torture

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/badger"
	"github.com/ckptd/ckptd/backend/commitlog"
	"github.com/ckptd/ckptd/engine"
)

// image is a store that nobody has open, left by a kill or by a clean close, and its content.
type image struct {
	place
	older place  // the same some commits before
	other place  // that after another life
	want  string // file with the dump
	how   string
}

// dump is all that a store holds: every key with its stored bytes, and the checkpoints that the
// engine reads from them.
type dump struct {
	Entries  map[string]backend.Entry
	Contents map[string]thread
}

// fillJob leaves a store with tables in several levels and commits that are in none yet.
func (j *job) fill() error {
	ctx := context.Background()
	stdin := bufio.NewReader(os.Stdin)
	for part := range 4 {
		s, b, err := j.Place.open()
		if err != nil {
			return err
		}
		found, err := contents(ctx, s)
		if err != nil {
			return err
		}
		if part == 2 {
			if err := b.Compact(ctx); err != nil {
				return err
			}
		}
		w := *j
		w.Cycle, w.Seed = 2*part, j.Seed+uint64(part)
		w.work(ctx, s, found)
		if part < 3 {
			if err := s.Close(); err != nil {
				return err
			}
			continue
		}
		if err := tell(line{Ready: true}); err != nil {
			return err
		}
		if _, err := stdin.ReadString('\n'); err != nil { // a copy was made
			return err
		}
		if found, err = contents(ctx, s); err != nil {
			return err
		}
		w.Cycle++
		w.work(ctx, s, found)
		if err := writeDump(ctx, j.Place.path("..", "want"), s, b); err != nil {
			return err
		}
		if j.Close {
			return s.Close()
		}
		if err := j.Place.awaitAnchor(ctx, b); err != nil {
			return err
		}
	}
	if err := tell(line{Ready: true}); err != nil {
		return err
	}
	_, err := stdin.ReadString('\n') // to be killed
	return err
}

// awaitAnchor waits until the anchor names the last group. It follows by 20 ms or more, and a loss
// of the groups in between from both copies is not detected.
func (p place) awaitAnchor(ctx context.Context, b *badger.Store) error {
	last, err := b.Position(ctx)
	if err != nil {
		return err
	}
	files := commitlog.ReadOnly(p.path("data", "log"))
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		id, _ := commitlog.StoreOf(files)
		log, err := commitlog.Open(files, commitlog.Options{Store: id})
		if err == nil {
			if at, ok := log.Anchor(); ok && at.N == last.N {
				return nil
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the anchor does not follow: %v", err)
		}
	}
}

// fill makes an image in the directory of the round.
func (r *round) fill(closed bool) *image {
	im := &image{place: place(filepath.Join(r.dir, "store")), older: place(filepath.Join(r.dir, "older")), other: place(filepath.Join(r.dir, "other")),
		want: filepath.Join(r.dir, "want"), how: "killed"}
	j := job{Kind: "fill", Place: im.place, Seed: r.seed, Writers: 4, Ops: 25, Calm: true, Close: closed}
	if closed {
		im.how = "closed"
	}
	r.must(os.MkdirAll(string(im.place), 0o700))
	c, err := start(j)
	r.must(err)
	for ready := 0; ready < 2; {
		l, err := c.next()
		if err != nil && closed && ready == 1 {
			break
		}
		if err != nil {
			r.Fatalf("filling a store: %v: %s", err, c.complaint())
		}
		if l.Failed != "" || l.Stopped != "" {
			r.Fatalf("filling a store: %s%s", l.Failed, l.Stopped)
		}
		if !l.Ready {
			continue
		}
		if ready++; ready == 1 {
			r.must(im.copyTo(im.older))
			_, err := c.in.Write([]byte("\n"))
			r.must(err)
		}
	}
	if closed {
		if text := c.complaint(); text != "" {
			r.Fatalf("filling a store: %s", text)
		}
	} else {
		c.kill()
	}
	r.must(im.older.copyTo(im.other))
	r.must(live(im.other, r.seed))
	return im
}

// live works on a store for a while, until it is killed.
func live(p place, seed uint64) error {
	c, err := start(job{Kind: "write", Place: p, Seed: seed + 99, Cycle: 99, Writers: 4, Ops: 25, Calm: true})
	if err != nil {
		return err
	}
	defer c.kill()
	for ready := 0; ready < 2; {
		l, err := c.next()
		if err != nil || l.Failed != "" || l.Stopped != "" {
			return fmt.Errorf("another life: %v %s%s", err, l.Failed, l.Stopped)
		}
		if l.Ready {
			ready++
		}
	}
	return nil
}

// entries reads all that a backend holds.
func entries(ctx context.Context, b backend.Backend) (map[string]backend.Entry, error) {
	all := map[string]backend.Entry{}
	for r := (backend.Range{Limit: 10_000}); ; {
		page, next, err := b.Scan(ctx, r)
		if err != nil {
			return nil, err
		}
		for _, e := range page {
			all[string(e.Key)] = e
		}
		if r.Start = next; next == nil {
			return all, nil
		}
	}
}

func writeDump(ctx context.Context, path string, s *engine.Store, b backend.Backend) error {
	var d dump
	var err error
	if d.Entries, err = entries(ctx, b); err != nil {
		return err
	}
	if d.Contents, err = contents(ctx, s); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(gob.NewEncoder(f).Encode(&d), f.Close())
}

func readDump(path string) (*dump, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var d dump
	if err := gob.NewDecoder(f).Decode(&d); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &d, nil
}
