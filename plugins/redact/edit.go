package redact

import (
	"cmp"
	"slices"
)

// edit replaces the bytes from start to end, counted in what was scanned, by text.
type edit struct {
	start, end int
	text       []byte
}

// apply returns data with the edits made, which are in order and apart. It does not modify data.
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

// ordered sorts edits and removes those within another.
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

// revision is a text that was edited, perhaps more than once, and knows where each byte came from.
type revision struct {
	text []byte
	from []int // by byte of text: where it was in the first text, -1 if it is new
}

// revise returns the text that the edits make of r.
func (r revision) revise(edits []edit) revision {
	if r.from == nil {
		r.from = make([]int, len(r.text))
		for i := range r.from {
			r.from[i] = i
		}
	}
	var made revision
	at := 0
	for _, e := range append(slices.Clip(edits), edit{start: len(r.text), end: len(r.text)}) {
		made.text = append(append(made.text, r.text[at:e.start]...), e.text...)
		made.from = append(made.from, r.from[at:e.start]...)
		for range e.text {
			made.from = append(made.from, -1)
		}
		at = e.end
	}
	return made
}

// edits returns the edits that make r of the first text, which has n bytes.
func (r revision) edits(n int) []edit {
	var all []edit
	open := edit{}
	for i, from := range append(slices.Clip(r.from), n) {
		if from < 0 {
			open.text = append(open.text, r.text[i])
			continue
		}
		if open.end = from; open.end > open.start || len(open.text) > 0 {
			all = append(all, open)
		}
		open = edit{start: from + 1}
	}
	return all
}
