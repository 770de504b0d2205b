package engine

import (
	"slices"
	"sort"

	"github.com/ckptd/ckptd/codec"
)

// reads are the records that a restore of a checkpoint reads besides its own, each counted once for
// all channels that need it. Saves keep it up to date at a cost proportional to the change.
type reads struct {
	list    []sharedRecord // the oldest first
	records int            // needed by some channel
	bytes   int64          // of these
}

// sharedRecord is a record and the number of channels with it on their path. A record without any
// stays listed for a while.
type sharedRecord struct {
	seq      uint64
	size     uint32
	channels uint32
}

// add lists a record newer than all.
func (r *reads) add(seq uint64, size int64, channels int) {
	if channels == 0 {
		return
	}
	if len(r.list) > 2*r.records+8 {
		r.list = slices.DeleteFunc(r.list, func(s sharedRecord) bool { return s.channels == 0 })
	}
	r.list = append(r.list, sharedRecord{seq, uint32(size), uint32(channels)})
	r.records++
	r.bytes += size
}

// drop takes a channel off the records of its path with after < seq <= upTo.
func (r *reads) drop(p codec.Path, after, upTo uint64) {
	for s := range r.on(p, after, upTo) {
		if s.channels--; s.channels == 0 {
			r.records--
			r.bytes -= int64(s.size)
		}
	}
}

// on yields the records of a path with after < seq <= upTo, newest first.
func (r *reads) on(p codec.Path, after, upTo uint64) func(yield func(*sharedRecord) bool) {
	return func(yield func(*sharedRecord) bool) {
		for _, run := range p {
			last, end := min(run.Last, upTo), max(run.Last-run.Len, after)
			if last <= end {
				continue
			}
			// The records of a span are neighbours in the list, too.
			i := sort.Search(len(r.list), func(i int) bool { return r.list[i].seq >= last })
			for seq := last; seq > end; seq, i = seq-1, i-1 {
				if !yield(&r.list[i]) {
					return
				}
			}
		}
	}
}

// has reports whether a channel needs the record at seq, which must not be older than the newest
// listed.
func (r *reads) has(seq uint64) bool {
	n := len(r.list)
	return n > 0 && r.list[n-1].seq == seq && r.list[n-1].channels > 0
}

// copyFrom makes r a copy of other.
func (r *reads) copyFrom(other *reads) {
	r.list, r.records, r.bytes = append(r.list[:0], other.list...), other.records, other.bytes
}

func (r *reads) memory() int64 { return int64(cap(r.list)) * 16 }

// typical is the median size of a record.
func (r *reads) typical() int64 {
	var sizes []uint32
	for _, s := range r.list {
		if s.channels > 0 {
			sizes = append(sizes, s.size)
		}
	}
	if len(sizes) == 0 {
		return headerEstimate
	}
	slices.Sort(sizes)
	return max(headerEstimate, int64(sizes[len(sizes)/2]))
}

// readsOf counts the records that the channels of t need. A missing record has no size.
func readsOf(t *checkpointState, records map[uint64]*record) (r reads) {
	var seqs []uint64
	for c := range t.all {
		for seq := range c.path.All {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	for len(seqs) > 0 {
		n := 1
		for n < len(seqs) && seqs[n] == seqs[0] {
			n++
		}
		size := int64(0)
		if rec := records[seqs[0]]; rec != nil {
			size = rec.size
		}
		r.add(seqs[0], size, n)
		seqs = seqs[n:]
	}
	return r
}
