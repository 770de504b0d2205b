package redact

import (
	"cmp"
	"slices"
)

// edit replaces the bytes from start to end of the scanned data with text.
type edit struct {
	start, end int
	text       []byte
}

// apply returns data with the edits applied. They must be sorted and must not overlap. It does not
// modify data.
func apply(data []byte, edits []edit) []byte {
	size := len(data)
	for _, e := range edits {
		size += len(e.text) - (e.end - e.start)
	}
	out := make([]byte, 0, size)
	at := 0
	for _, e := range edits {
		out = append(append(out, data[at:e.start]...), e.text...)
		at = e.end
	}
	return append(out, data[at:]...)
}

// ordered sorts edits and removes those that lie within another.
func ordered(edits []edit) []edit {
	slices.SortStableFunc(edits, func(x, y edit) int {
		return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(y.end, x.end))
	})
	kept := edits[:0]
	for _, e := range edits {
		if n := len(kept); n > 0 && e.start < kept[n-1].end {
			kept[n-1].end = max(kept[n-1].end, e.end)
			continue
		}
		kept = append(kept, e)
	}
	return kept
}

// onto combines edits with more, which are edits of their result, into edits of the original text.
// An edit in more that overlaps one in edits replaces all of it.
func onto(edits, more []edit) []edit {
	all := make([]edit, 0, len(edits)+len(more))
	shift := 0 // position i of the original is now at i+shift
	pass := func(e edit) { shift, edits = shift+e.end-e.start-len(e.text), edits[1:] }
	for _, m := range more {
		for len(edits) > 0 && edits[0].start-shift+len(edits[0].text) <= m.start {
			all = append(all, edits[0])
			pass(edits[0])
		}
		start, end := m.start+shift, 0
		for len(edits) > 0 && edits[0].start-shift < m.end {
			start, end = min(start, edits[0].start), edits[0].end
			pass(edits[0])
		}
		all = append(all, edit{start, max(end, m.end+shift), m.text})
	}
	return ordered(append(all, edits...))
}
