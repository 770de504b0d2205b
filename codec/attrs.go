package codec

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"
)

// ChannelInfo names a channel of a state.
type ChannelInfo struct {
	Number     uint64
	Name, Type string
}

// Attrs are what describes a checkpoint and seldom changes from one to the next (docs/format.md §8).
type Attrs struct {
	RunID    string
	Labels   map[string]string
	Meta     []byte
	Blobs    [][32]byte // increasing
	Branch   string
	Channels []ChannelInfo // numbers increasing
}

// AppendAttrs appends the encoding of a.
func AppendAttrs(dst []byte, a *Attrs) []byte {
	dst = appendString(append(dst, recordVersion), a.RunID)
	dst = binary.AppendUvarint(dst, uint64(len(a.Labels)))
	if len(a.Labels) > 0 {
		for _, k := range slices.Sorted(maps.Keys(a.Labels)) {
			dst = appendString(appendString(dst, k), a.Labels[k])
		}
	}
	dst = appendBytes(dst, a.Meta)
	dst = binary.AppendUvarint(dst, uint64(len(a.Blobs)))
	for i := range a.Blobs {
		dst = append(dst, a.Blobs[i][:]...)
	}
	dst = appendString(dst, a.Branch)
	dst = binary.AppendUvarint(dst, uint64(len(a.Channels)))
	for _, c := range a.Channels {
		dst = binary.AppendUvarint(dst, c.Number)
		dst = appendString(appendString(dst, c.Name), c.Type)
	}
	return dst
}

// ParseAttrs decodes b. Meta aliases it.
func ParseAttrs(b []byte) (*Attrs, error) {
	r := reader{b: b}
	r.version()
	a := &Attrs{RunID: r.str("run id")}
	last := ""
	for i := range r.count("labels", MaxLabels) {
		k, v := r.str("label"), r.str("label value")
		if i > 0 && k <= last {
			r.fail("labels out of order")
		}
		if r.err != nil {
			return nil, r.err
		}
		if a.Labels == nil {
			a.Labels = map[string]string{}
		}
		a.Labels[k], last = v, k
	}
	if a.Meta = r.bytes("metadata", MaxMeta); len(a.Meta) == 0 {
		a.Meta = nil
	}
	for i := range r.count("blobs", MaxBlobs) {
		id := r.hash()
		if i > 0 && bytes.Compare(id[:], a.Blobs[i-1][:]) <= 0 {
			r.fail("blobs out of order")
		}
		if r.err != nil {
			return nil, r.err
		}
		a.Blobs = append(a.Blobs, id)
	}
	a.Branch = r.str("branch")
	r.channels(a)
	return finish(&r, a)
}

func (r *reader) channels(a *Attrs) {
	names := map[string]bool{}
	for i := range r.count("channels", MaxChannels) {
		c := ChannelInfo{r.count("channel number", MaxSeq), r.str("channel"), r.str("type")}
		if c.Number == 0 || i > 0 && c.Number <= a.Channels[i-1].Number || names[c.Name] {
			r.fail("channels out of order")
		}
		if r.err != nil {
			return
		}
		names[c.Name] = true
		a.Channels = append(a.Channels, c)
	}
}
