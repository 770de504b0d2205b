package codec

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
)

// ChannelInfo names a channel of a state.
type ChannelInfo struct {
	Number     uint64
	Name, Type string
	Rewritten  bool // hooks changed the submitted value
}

// Hook identifies a plugin, or the redactor's rules, that ran on the state of a checkpoint.
type Hook struct {
	Name           string // never empty
	Digest, Config [32]byte
}

// Attrs are the attributes of a checkpoint, which seldom change from one to the next
// (docs/format.md §8).
type Attrs struct {
	RunID    string
	Labels   map[string]string
	Meta     []byte
	Blobs    [][32]byte // increasing
	Branch   string
	Channels []ChannelInfo // numbers increasing
	Hooks    []Hook        // in the order in which they run
	Kind     string        // of the thread
	Delta    []string      // channels whose state lies in pending writes of ancestors, increasing
}

// extended reports whether a needs version 2 of the encoding.
func (a *Attrs) extended() bool {
	return a.Kind != "" || len(a.Hooks) > 0 || slices.ContainsFunc(a.Channels, func(c ChannelInfo) bool { return c.Rewritten })
}

// AppendAttrs appends the encoding of a.
func AppendAttrs(dst []byte, a *Attrs) []byte {
	version := byte(recordVersion)
	if a.extended() {
		version = extendedVersion
	}
	if len(a.Delta) > 0 {
		version = deltaVersion
	}
	dst = appendString(append(dst, version), a.RunID)
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
	if version >= extendedVersion {
		dst = appendString(appendHooks(dst, a), a.Kind)
	}
	if version == deltaVersion {
		dst = binary.AppendUvarint(dst, uint64(len(a.Delta)))
		for _, name := range a.Delta {
			dst = appendString(dst, name)
		}
	}
	return dst
}

// appendHooks appends the hooks, and the channels that they rewrote.
func appendHooks(dst []byte, a *Attrs) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(a.Hooks)))
	for i := range a.Hooks {
		h := &a.Hooks[i]
		dst = append(append(appendString(dst, h.Name), h.Digest[:]...), h.Config[:]...)
	}
	n := 0
	for _, c := range a.Channels {
		if c.Rewritten {
			n++
		}
	}
	dst = binary.AppendUvarint(dst, uint64(n))
	for _, c := range a.Channels {
		if c.Rewritten {
			dst = binary.AppendUvarint(dst, c.Number)
		}
	}
	return dst
}

// ParseAttrs decodes b. Meta aliases it.
func ParseAttrs(b []byte) (*Attrs, error) {
	r := reader{b: b}
	version := r.versions(recordVersion, deltaVersion)
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
	if version >= extendedVersion {
		r.hooks(a)
		if a.Kind = r.str("kind"); version == extendedVersion && !a.extended() {
			r.fail("version 2 without anything that needs it")
		}
	}
	if version == deltaVersion {
		r.deltaChannels(a)
	}
	return finish(&r, a)
}

func (r *reader) channels(a *Attrs) {
	names := map[string]bool{}
	for i := range r.count("channels", MaxChannels) {
		c := ChannelInfo{Number: r.count("channel number", MaxSeq), Name: r.str("channel"), Type: r.str("type")}
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

func (r *reader) deltaChannels(a *Attrs) {
	n := r.count("delta channels", MaxChannels)
	if n == 0 {
		r.fail("version 3 without delta channels")
	}
	for i := range n {
		name := r.nonEmpty("delta channel")
		if i > 0 && name <= a.Delta[i-1] {
			r.fail("delta channels out of order")
		}
		if r.err != nil {
			return
		}
		a.Delta = append(a.Delta, name)
	}
}

// hooks is the inverse of appendHooks.
func (r *reader) hooks(a *Attrs) {
	for range r.count("hooks", MaxHooks) {
		h := Hook{Name: r.nonEmpty("name of a hook"), Digest: r.hash(), Config: r.hash()}
		if r.err != nil {
			return
		}
		a.Hooks = append(a.Hooks, h)
	}
	last := uint64(0)
	for range r.count("rewritten channels", uint64(len(a.Channels))) {
		number := r.uvarint()
		i, ok := slices.BinarySearchFunc(a.Channels, number, func(c ChannelInfo, n uint64) int { return cmp.Compare(c.Number, n) })
		if !ok || number <= last {
			r.fail("rewritten channels out of order")
			return
		}
		a.Channels[i].Rewritten, last = true, number
	}
}
