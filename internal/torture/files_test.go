package torture

import (
	"fmt"
	"os"
	"path/filepath"
)

// filesRound cuts files of a copy short, removes them, or puts their older version in their place;
// or it removes the memory files and hurts the log of the same groups, or replaces it by that of
// another life of the store.
func filesRound(r *round) {
	first := true // does damage that only the anchor tells
	r.damage(func(im *image, at place) (kind, what string) {
		if im.hasLog() && (first || r.rnd.IntN(4) == 0) {
			how := r.rnd.IntN(3)
			if first {
				how = putBackBoth
			}
			first = false
			return both, r.hurtBoth(im, at, how)
		}
		if im.hasLog() && r.rnd.IntN(8) == 0 {
			return oldLog, r.putLogBack(im, at)
		}
		path := pick(r, at)
		kind = at.kindOf(path)
		rel, err := filepath.Rel(string(at), path)
		r.must(err)
		older := im.older.path(rel)
		_, missing := os.Stat(older)
		switch k := r.rnd.IntN(3); {
		case k == 0:
			what = fmt.Sprintf("%s cut to %d bytes", rel, cutShort(r, path))
		case k == 1 || missing != nil:
			r.must(os.Remove(path))
			r.count("removed", 1)
			what = rel + " removed"
		default:
			r.must(copyFile(path, older))
			r.count("put back", 1)
			what = rel + " put back as it was before"
		}
		return kind, what
	})
}

func cutShort(r *round, path string) (size int64) {
	info, err := os.Stat(path)
	r.must(err)
	size = r.rnd.Int64N(info.Size())
	r.must(os.Truncate(path, size))
	r.count("cut", 1)
	return size
}

// oldLog is the kind of damage that replaces the whole log with an older one. It must be repaired.
const oldLog = "log, an older one"

// putLogBack puts back the older log, with its anchor, which does not know of the newer groups. The
// memory files and the tables have them all.
func (r *round) putLogBack(im *image, at place) (what string) {
	log := at.path("data", "log")
	r.must(os.RemoveAll(log))
	r.must(os.CopyFS(log, os.DirFS(im.older.path("data", "log"))))
	r.count("put back", 1)
	return "the whole log put back as it was before"
}

// both is the kind of damage to the log and to the memory files at once: nothing may be left to
// repair from, but it is seen.
const both = "log and .mem"

// putBackBoth is the way to hurt both that leaves an older log, which looks whole.
const putBackBoth = 1

// hurtBoth removes the memory files and hurts the log, in one of three ways.
func (r *round) hurtBoth(im *image, at place, how int) (what string) {
	memory, err := filepath.Glob(at.path("data", "*.mem"))
	r.must(err)
	for _, path := range memory {
		r.must(os.Remove(path))
	}
	segments, err := filepath.Glob(at.path("data", "log", "*.seg"))
	r.must(err)
	path := at.path("data", "log", "00000001.seg") // a store that was closed has none
	if len(segments) > 0 {
		path = segments[r.rnd.IntN(len(segments))]
	}
	name := filepath.Base(path)
	switch how {
	case 0:
		if len(segments) == 0 {
			return "memory files removed, where there is no segment"
		}
		return fmt.Sprintf("memory files removed, %s cut to %d bytes", name, cutShort(r, path))
	case putBackBoth:
		for _, path := range segments {
			r.must(os.Remove(path))
		}
		older, err := filepath.Glob(im.older.path("data", "log", "*.seg"))
		r.must(err)
		for _, path := range older {
			r.must(copyFile(at.path("data", "log", filepath.Base(path)), path))
		}
		r.count("put back", 1)
		return "memory files removed, all segments put back as they were before"
	}
	strange, err := filepath.Glob(im.other.path("data", "log", "*.seg"))
	r.must(err)
	from := strange[r.rnd.IntN(len(strange))]
	r.must(copyFile(path, from))
	r.count("of another life", 1)
	return fmt.Sprintf("memory files removed, in place of %s that of another life, %s", name, filepath.Base(from))
}
