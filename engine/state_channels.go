package engine

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ckptd/ckptd/codec"
)

// How a state finds its channels and lists them in its record. A save that changes one channel
// among thousands must not look at all of them.

// fewChannels is the number of channels up to which a linear search is used, which needs no memory.
const fewChannels = 16

// nameIndex finds the channels of a table by name.
type nameIndex struct {
	of     *codec.Attrs // whose table that is
	index  map[string]int
	sorted []int // places in order of name
}

// indexNames returns the index of t's channels, if there are many.
func (t *checkpointState) indexNames() *nameIndex {
	if n := &t.names; n.of == t.meta {
		return n
	}
	n := nameIndex{of: t.meta, index: make(map[string]int, len(t.meta.Channels)), sorted: make([]int, len(t.meta.Channels))}
	for i := range t.meta.Channels {
		n.index[t.meta.Channels[i].Name], n.sorted[i] = i, i
	}
	slices.SortFunc(n.sorted, func(a, b int) int { return strings.Compare(t.meta.Channels[a].Name, t.meta.Channels[b].Name) })
	t.names = n
	return &t.names
}

// channelIndex is the index of a channel in t.chans, or -1.
func (t *checkpointState) channelIndex(name string) int {
	if len(t.meta.Channels) <= fewChannels {
		return slices.IndexFunc(t.meta.Channels, func(c codec.ChannelInfo) bool { return c.Name == name })
	}
	if i, ok := t.indexNames().index[name]; ok {
		return i
	}
	return -1
}

// ordinal counts the channels before the one with a number, including the attributes.
func (t *checkpointState) ordinal(number uint64) int {
	if number == 0 {
		return 0
	}
	i, _ := slices.BinarySearchFunc(t.chans, number, func(c channelState, number uint64) int { return cmp.Compare(c.number, number) })
	return 1 + i
}

// byNumber returns the channel with a number, which must exist.
func (t *checkpointState) byNumber(number uint64) *channelState {
	if number == 0 {
		return &t.attrs
	}
	return &t.chans[t.ordinal(number)-1]
}

// byName yields the indexes of the channels in the order of their names.
func (t *checkpointState) byName(yield func(i int) bool) {
	var room [fewChannels]int
	order := room[:0]
	if n := len(t.meta.Channels); n > fewChannels {
		order = t.indexNames().sorted
	} else {
		for i := range n {
			at := len(order) // few, and mostly in order: insert them
			for at > 0 && t.meta.Channels[order[at-1]].Name > t.meta.Channels[i].Name {
				at--
			}
			order = slices.Insert(order, at, i)
		}
	}
	for _, i := range order {
		if !yield(i) {
			return
		}
	}
}

// root is the hash of the channels of t.
func (t *checkpointState) root() [32]byte {
	return t.tree.Root(1+len(t.chans), func(i int) (uint64, *[32]byte) {
		if i == 0 {
			return 0, &t.attrs.commit
		}
		c := &t.chans[i-1]
		return c.number, &c.commit
	})
}

// collectKept finds the runs of channels that a record would keep, after t was restored or its
// table changed. It leaves out channels that no record holds: they are about to be stored.
func (t *checkpointState) collectKept() {
	t.kept = t.kept[:0]
	for c := range t.all {
		if len(c.path) > 0 {
			t.kept = appendKept(t.kept, codec.Entry{Number: c.number, Mode: codec.Keep, Path: c.path})
		}
	}
}

// appendKept adds e, merged with the run before it if possible.
func appendKept(runs []codec.Entry, e codec.Entry) []codec.Entry {
	if n := len(runs); n > 0 {
		last := &runs[n-1]
		if last.Number+last.More+1 == e.Number && slices.Equal(last.Path, e.Path) {
			if last.More == 0 { // until now the path belonged to one channel, which extends it in place
				last.Path = slices.Clone(last.Path)
			}
			last.More += 1 + e.More
			return runs
		}
	}
	return append(runs, e)
}

// table lists the entries of t: those of w.coded, which are in order of number, and keep entries
// for the rest.
func (w *saving) table(t *checkpointState) []codec.Entry {
	w.entries = w.entries[:0]
	coded := w.coded
	for _, run := range t.kept {
		end := run.Number + run.More + 1
		for len(coded) > 0 && coded[0].c.number < end {
			w.appendKeep(run, coded[0].c.number)
			w.entries = append(w.entries, coded[0].e.entry)
			run.Number = max(run.Number, coded[0].c.number+1)
			coded = coded[1:]
		}
		w.appendKeep(run, end)
	}
	for i := range coded {
		w.entries = append(w.entries, coded[i].e.entry)
	}
	return w.entries
}

// appendKeep adds the part of a run before a number.
func (w *saving) appendKeep(run codec.Entry, before uint64) {
	if run.Number < before {
		run.More = before - run.Number - 1
		w.entries = append(w.entries, run)
	}
}

// updateKept sets t.kept to the entries of its new record.
func (w *saving) updateKept(t *checkpointState) {
	t.kept = t.kept[:0]
	coded := w.coded
	for i := range w.entries {
		e := w.entries[i]
		if e.Mode != codec.Keep {
			e = codec.Entry{Number: e.Number, Mode: codec.Keep, Path: coded[0].c.path}
			coded = coded[1:]
		}
		t.kept = appendKept(t.kept, e)
	}
}
