package engine

import "github.com/ckptd/ckptd/codec"

// keepEntries counts the keep entries in the table of records that change little: runs of channels
// with consecutive numbers and the same path. Channels that change one by one at random split them
// into more and more runs, until they are encoded again side by side.
type keepEntries struct {
	t     *checkpointState
	path  []int // of each channel, the attributes first; equal numbers are equal paths
	other int   // the number of the next path of a single channel
	count int
}

const (
	// keepEntryBytes is the approximate size of a keep entry.
	keepEntryBytes = 7
	// thisRecord is the path of channels stored in full in the record being built.
	thisRecord = -1
)

func (w *saving) newKeepEntries(t *checkpointState) *keepEntries {
	r := &keepEntries{t: t, path: make([]int, 1+len(t.chans))}
	for i := range r.path {
		r.path[i] = thisRecord
	}
	for _, run := range t.kept {
		r.other++
		at := t.ordinal(run.Number)
		for i := range int(run.More) + 1 {
			r.path[at+i] = r.other
		}
	}
	for i := range w.coded {
		r.path[t.ordinal(w.coded[i].c.number)] = thisRecord
		if w.coded[i].e.entry.Mode != codec.Full {
			r.other++
			r.path[t.ordinal(w.coded[i].c.number)] = r.other
		}
	}
	for at := range r.path {
		r.count += r.begins(at)
	}
	return r
}

// begins is 1 if a run begins at an ordinal, else 0.
func (r *keepEntries) begins(at int) int {
	switch {
	case at == len(r.path):
		return 0
	case at == 0, r.path[at] != r.path[at-1], at > 1 && r.t.chans[at-1].number != r.t.chans[at-2].number+1,
		at == 1 && r.t.chans[0].number != 1:
		return 1
	}
	return 0
}

// move gives a channel another path: the one of channels stored in full, or one of its own.
func (r *keepEntries) move(at int, full bool) {
	r.count -= r.begins(at) + r.begins(at+1)
	if r.path[at] = thisRecord; !full {
		r.other++
		r.path[at] = r.other
	}
	r.count += r.begins(at) + r.begins(at+1)
}
