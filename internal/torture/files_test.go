package torture

import (
	"fmt"
	"os"
	"path/filepath"
)

// filesRound cuts files of a copy short, removes them, or puts their older version in their place.
func filesRound(r *round) {
	r.damage(func(im *image, at place) (kind, what string) {
		path := pick(r, at)
		kind = at.kindOf(path)
		rel, err := filepath.Rel(string(at), path)
		r.must(err)
		older := im.older.path(rel)
		_, missing := os.Stat(older)
		switch k := r.rnd.IntN(3); {
		case k == 0:
			info, err := os.Stat(path)
			r.must(err)
			size := r.rnd.Int64N(info.Size())
			r.must(os.Truncate(path, size))
			what = fmt.Sprintf("%s cut from %d to %d bytes", rel, info.Size(), size)
			r.count("cut", 1)
		case k == 1 || missing != nil:
			r.must(os.Remove(path))
			what = rel + " removed"
			if kind == "keystore" && filepath.Dir(filepath.Dir(filepath.Dir(path))) == at.path("keys") {
				kind = removedKeys
			}
			r.count("removed", 1)
		default:
			r.must(copyFile(path, older))
			what = rel + " put back as it was before"
			r.count("put back", 1)
		}
		return kind, what
	})
}
