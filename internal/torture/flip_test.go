package torture

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// flipRound flips single bits in copies of a store, in files of every kind. In the log and in
// Badger's memory files all is repaired; elsewhere each answer is right, or an error.
func flipRound(r *round) {
	r.damage(func(im *image, at place) (kind, what string) {
		path := pick(r, at)
		kind, what, err := flip(r, at, path)
		r.must(err)
		return kind, what
	})
}

// damage makes a store and asks for the verdict on copies of it that hurt has changed. A round is
// 50 of them.
func (r *round) damage(hurt func(im *image, at place) (kind, what string)) {
	closed := r.seed%2 == 0
	im := r.fill(closed)
	var p prober
	defer p.stop()
	if v := p.ask(question{Place: r.copy(im.place), Want: im.want, Engine: true}); len(v.Problems) > 0 || v.Refused != "" {
		r.problem("%s, with no damage: %s %s", im.how, v.Refused, strings.Join(v.Problems, "; "))
		return
	}
	for range min(r.units, 50) {
		at := r.copy(im.place)
		kind, what := hurt(im, at)
		v := p.ask(question{Place: at, Want: im.want, Engine: kind == "keystore", GoOn: r.rnd.IntN(4) == 0})
		r.judge(im, kind, what, v)
		if r.Failed() {
			return // the copy stays
		}
		r.must(os.RemoveAll(string(at)))
	}
}

// copy is a copy of a place, in the one where the damage is done.
func (r *round) copy(p place) place {
	to := place(filepath.Join(r.dir, "damaged"))
	r.must(os.RemoveAll(string(to)))
	r.must(p.copyTo(to))
	return to
}

// judge counts a verdict, or reports it. One flipped bit in the log, and any damage to a memory
// file, must be repaired.
func (r *round) judge(im *image, kind, what string, v *verdict) {
	if (kind == ".mem" || kind == oldLog || kind == "log" && r.row.name == "flip") && v.Refused != "" {
		v.add("it is not repaired: %s", v.Refused)
	}
	switch {
	case len(v.Problems) == 0 && v.Refused == "":
		r.did(im.how, kind+", read")
	case len(v.Problems) == 0:
		r.did(im.how, kind+", refused")
	case !im.hasLog() && kind != "keystore":
		r.did("judged only with the log: " + kind) // the driver before it has no second copy, and believes its MANIFEST
	default:
		r.problem("%s, %s: %s", im.how, what, strings.Join(v.Problems, "; "))
	}
}

// pick picks a file of a place, each kind as often as the others.
func pick(r *round, p place) string {
	paths, err := p.files()
	r.must(err)
	kinds := map[string][]string{}
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.Size() > 0 {
			kinds[p.kindOf(path)] = append(kinds[p.kindOf(path)], path)
		}
	}
	names := slices.Sorted(maps.Keys(kinds))
	of := kinds[names[r.rnd.IntN(len(names))]]
	return of[r.rnd.IntN(len(of))]
}

// flip flips a bit of a file, mostly in its content and not in the zeros behind.
func flip(r *round, p place, path string) (kind, what string, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	size, err := used(f)
	if info, _ := f.Stat(); size == 0 || r.rnd.IntN(8) == 0 {
		size = info.Size()
	}
	at, bit := r.rnd.Int64N(size), r.rnd.IntN(8)
	b := make([]byte, 1)
	if err == nil {
		_, err = f.ReadAt(b, at)
	}
	if err == nil {
		b[0] ^= 1 << bit
		_, err = f.WriteAt(b, at)
	}
	rel, _ := filepath.Rel(string(p), path)
	return p.kindOf(path), fmt.Sprintf("bit %d of byte %d of %s (%d bytes used)", bit, at, rel, size), err
}

// used is how much of a file comes before the zeros that it ends with.
func used(f *os.File) (end int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	buf := make([]byte, 64<<10)
	for at := int64(0); at < info.Size(); {
		if at, err = nextData(f, at, info.Size()); err != nil || at < 0 {
			return end, err
		}
		n, err := f.ReadAt(buf, at)
		if err != nil && err != io.EOF {
			return end, err
		}
		for i := n - 1; i >= 0; i-- {
			if buf[i] != 0 {
				end = at + int64(i) + 1
				break
			}
		}
		at += int64(n)
	}
	return end, nil
}
