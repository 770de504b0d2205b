package codec

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func randomAttrs(rng *rand.Rand) *Attrs {
	a := &Attrs{RunID: randomString(rng), Branch: randomString(rng)}
	for i := range rng.IntN(5) {
		if a.Labels == nil {
			a.Labels = map[string]string{}
		}
		a.Labels[fmt.Sprint("label", rng.IntN(100*(i+1)))] = randomString(rng)
	}
	if rng.IntN(2) == 0 {
		a.Meta = rep('m', 1+rng.IntN(1000))
	}
	for range rng.IntN(4) {
		a.Blobs = append(a.Blobs, randomHash(rng))
	}
	slices.SortFunc(a.Blobs, func(x, y [32]byte) int { return slices.Compare(x[:], y[:]) })
	number := uint64(0)
	for i := range rng.IntN(6) {
		number += 1 + rng.Uint64N(300)
		a.Channels = append(a.Channels, ChannelInfo{number, fmt.Sprint("channel", i), randomString(rng), rng.IntN(8) == 0})
	}
	for i := range rng.IntN(3) {
		a.Hooks = append(a.Hooks, Hook{fmt.Sprint("hook", i), randomHash(rng), randomHash(rng)})
	}
	if rng.IntN(2) == 0 {
		a.Kind = randomString(rng)
	}
	return a
}

func randomWrites(rng *rand.Rand) *Writes {
	w := &Writes{Checkpoint: randomString(rng), Task: randomString(rng), Path: randomString(rng)}
	for range rng.IntN(5) {
		v := Write{Index: int64(rng.Uint64()) >> rng.IntN(64), Channel: randomString(rng), Type: randomString(rng), Size: rng.Uint64N(MaxChannel + 1)}
		if rng.IntN(2) == 0 {
			v.Payload = text(rng, rng.IntN(200))
		} else {
			v.PartBytes, v.Parts = randomParts(rng)
		}
		w.Writes = append(w.Writes, v)
	}
	slices.SortFunc(w.Writes, func(a, b Write) int { return cmp.Compare(a.Index, b.Index) })
	w.Writes = slices.CompactFunc(w.Writes, func(a, b Write) bool { return a.Index == b.Index })
	return w
}

// checkRoundTrip fails unless parse returns the encoded value.
func checkRoundTrip[T any](t *testing.T, want T, enc []byte, parse func([]byte) (T, error)) {
	t.Helper()
	got, err := parse(enc)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %+v, %v\nwant %+v", got, err, want)
	}
}

func TestSmallRecordsRoundTrip(t *testing.T) {
	rng := newRand(30)
	for range 1000 {
		a := randomAttrs(rng)
		checkRoundTrip(t, a, AppendAttrs(nil, a), ParseAttrs)
		w := randomWrites(rng)
		checkRoundTrip(t, w, AppendWrites(nil, w), ParseWrites)
		seq := 1 + rng.Uint64N(MaxSeq)
		dist := rng.Uint64N(seq)
		s := &Stub{1 + rng.Uint64N(dist+1), dist, randomHash(rng), randomString(rng)}
		checkRoundTrip(t, s, AppendStub(nil, s), func(b []byte) (*Stub, error) { return ParseStub(b, seq) })
		m := &Blob{Hour: rng.Uint64N(maxHour + 1)}
		m.Size, m.Parts = randomParts(rng)
		checkRoundTrip(t, m, AppendBlob(nil, m), ParseBlob)
		e := IndexEntry{rng.Int64N(MaxTime + 1), int64(rng.Uint64())}
		checkRoundTrip(t, e, AppendIndexEntry(nil, e), ParseIndexEntry)
		i := &StoreInfo{[16]byte(rep(byte(rng.Uint32()), 16)), rng.Int64N(MaxTime + 1)}
		checkRoundTrip(t, i, AppendStoreInfo(nil, i), ParseStoreInfo)
		p := &Retention{rng.Uint64(), rng.Uint64N(MaxTime + 1), rng.IntN(2) == 0}
		checkRoundTrip(t, p, AppendRetention(nil, p), ParseRetention)
		th := &Thread{randomString(rng), rng.Uint64N(1 << 32), rng.Uint64(), rng.IntN(2) == 0, rng.Int64N(MaxTime + 1), rng.Int64N(MaxTime + 1), rng.Int64N(MaxTime + 1), 0, 0, 0, 0, 0, false}
		if !th.Deleted && rng.IntN(2) == 0 {
			th.Kept, th.Active = rng.Uint64N(max(th.Epoch, 1)), rng.Int64N(MaxTime+1)
		}
		if !th.Deleted && rng.IntN(2) == 0 {
			th.Cuts, th.LastCut, th.Cutting = 1+rng.Uint64N(MaxCuts), rng.Int64N(MaxTime+1), rng.IntN(2) == 0
		}
		ns := &Namespace{randomString(rng), rng.Uint64N(2) * rng.Uint64N(MaxCuts+1), []string{"", randomString(rng)}[rng.IntN(2)], rng.IntN(2) == 0}
		checkRoundTrip(t, ns, AppendNamespace(nil, ns), ParseNamespace)
		if rng.IntN(2) == 0 && th.Epoch < 1<<32-1 {
			th.Used = th.Epoch + 1
		}
		checkRoundTrip(t, th, AppendThread(nil, th), ParseThread)
		id := &IDEntry{1 + rng.Uint64N(MaxSeq), randomString(rng), rng.Uint64() * uint64(rng.IntN(2))}
		checkRoundTrip(t, id, AppendIDEntry(nil, id), ParseIDEntry)
		br := &Branch{randomString(rng), 1 + rng.Uint64N(MaxSeq)}
		checkRoundTrip(t, br, AppendBranch(nil, br), ParseBranch)
		name := randomString(rng)
		checkRoundTrip(t, name, AppendName(nil, name), ParseName)
	}
}

func TestPartRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 1000, MaxPart} {
		data := rep('p', n)
		hour, got, err := ParsePart(AppendPart(nil, 472_222, data))
		if err != nil || hour != 472_222 || string(got) != string(data) {
			t.Errorf("part of %d bytes: hour %d, %d bytes, %v", n, hour, len(got), err)
		}
	}
	checkRefused(t, "part", "too many bytes", AppendPart(nil, 1, rep(1, MaxPart+1)), params{})
	checkRefused(t, "part", "no hour that is a time", AppendPart(nil, maxHour+1, nil), params{})
}

func TestAttrsRefuse(t *testing.T) {
	long := strings.Repeat("x", MaxName+1)
	labels := map[string]string{}
	for i := range MaxLabels + 1 {
		labels[fmt.Sprint(i)] = ""
	}
	var channels []ChannelInfo
	for i := range uint64(MaxChannels + 1) {
		channels = append(channels, ChannelInfo{Number: i + 1, Name: fmt.Sprint(i)})
	}
	for name, a := range map[string]*Attrs{
		"long run id":         {RunID: long},
		"run id not UTF-8":    {RunID: "\xc0"},
		"long label":          {Labels: map[string]string{long: ""}},
		"long label value":    {Labels: map[string]string{"": long}},
		"label not UTF-8":     {Labels: map[string]string{"a": "\xed\xa0\x80"}},
		"too many labels":     {Labels: labels},
		"long metadata":       {Meta: make([]byte, MaxMeta+1)},
		"blobs fall":          {Blobs: [][32]byte{hash32(2), hash32(1)}},
		"blob twice":          {Blobs: [][32]byte{hash32(2), hash32(2)}},
		"too many blobs":      {Blobs: make([][32]byte, MaxBlobs+1)},
		"long branch":         {Branch: long},
		"long kind":           {Kind: long},
		"long delta channel":  {Delta: []string{long}},
		"no delta channel":    {Delta: []string{""}},
		"delta channels fall": {Delta: []string{"b", "a"}},
		"delta channel twice": {Delta: []string{"a", "a"}},
		"many delta channels": {Delta: make([]string, MaxChannels+1)},
		"channel number 0":    {Channels: []ChannelInfo{{Number: 0, Name: "a"}}},
		"channels fall":       {Channels: []ChannelInfo{{Number: 2, Name: "a"}, {Number: 1, Name: "b"}}},
		"channel twice":       {Channels: []ChannelInfo{{Number: 2, Name: "a"}, {Number: 2, Name: "b"}}},
		"channel name twice":  {Channels: []ChannelInfo{{Number: 1, Name: "a"}, {Number: 2, Name: "b"}, {Number: 3, Name: "a"}}},
		"channel number":      {Channels: []ChannelInfo{{Number: MaxSeq + 1, Name: "a"}}},
		"long channel":        {Channels: []ChannelInfo{{Number: 1, Name: long}}},
		"long type":           {Channels: []ChannelInfo{{Number: 1, Name: "a", Type: long}}},
		"too many channels":   {Channels: channels},
		"channel not UTF-8":   {Channels: []ChannelInfo{{Number: 1, Name: "\xff"}}},
		"too many hooks":      {Hooks: slices.Repeat([]Hook{{Name: "a"}}, MaxHooks+1)},
		"hook without a name": {Hooks: []Hook{{Digest: hash32(1)}}},
		"long hook":           {Hooks: []Hook{{Name: long}}},
		"hook not UTF-8":      {Hooks: []Hook{{Name: "\xff"}}},
		"channel number 2^64": {Channels: []ChannelInfo{{Number: math.MaxUint64, Name: "a"}}},
	} {
		checkRefused(t, "attrs", name, AppendAttrs(nil, a), params{})
	}
	swapped := AppendAttrs(nil, &Attrs{Labels: map[string]string{"a": "", "b": ""}})
	swapped[3+1], swapped[3+4] = 'b', 'a'
	checkRefused(t, "attrs", "labels in disorder", swapped, params{})
	swapped[3+1] = 'a'
	checkRefused(t, "attrs", "a label twice", swapped, params{})
	swapped[3+4] = 'b'
	if !checkStrict(t, "attrs", swapped, params{}) {
		t.Error("the labels that are swapped are refused themselves")
	}
}

func TestSmallRecordsRefuse(t *testing.T) {
	long := strings.Repeat("x", MaxName+1)
	half := rep(1, MaxInline/2+1)
	var many []Write
	for i := range int64(MaxWrites + 1) {
		many = append(many, Write{Index: i, Payload: []byte{0}})
	}
	seq := func(n uint64) params { return params{seq: n} }
	for _, c := range []struct {
		decoder, name string
		enc           []byte
		params
	}{
		{"stub", "seq 0", AppendStub(nil, &Stub{1, 0, hash32(1), "s"}), seq(0)},
		{"stub", "seq 0 and the greatest distance", AppendStub(nil, &Stub{1, math.MaxUint64, hash32(1), "s"}), seq(0)},
		{"stub", "a seq over the limit", AppendStub(nil, &Stub{1, 0, hash32(1), "s"}), seq(MaxSeq + 1)},
		{"stub", "a first seq of 0", AppendStub(nil, &Stub{1, 5, hash32(1), "s"}), seq(5)},
		{"stub", "no records", AppendStub(nil, &Stub{0, 1, hash32(1), "s"}), seq(5)},
		{"stub", "more records than seqs", AppendStub(nil, &Stub{3, 1, hash32(1), "s"}), seq(5)},
		{"stub", "no id", AppendStub(nil, &Stub{1, 1, hash32(1), ""}), seq(5)},
		{"blob", "a missing part", AppendBlob(nil, &Blob{Size: MaxPart + 1, Parts: []PartID{part(1)}}), params{}},
		{"blob", "a part too many", AppendBlob(nil, &Blob{Size: MaxPart, Parts: []PartID{part(1), part(2)}}), params{}},
		{"blob", "a part of nothing", AppendBlob(nil, &Blob{Parts: []PartID{part(1)}}), params{}},
		{"blob", "the greatest size", AppendBlob(nil, &Blob{Size: math.MaxUint64}), params{}},
		{"blob", "a late hour", AppendBlob(nil, &Blob{Hour: maxHour + 1}), params{}},
		{"store", "a late creation", AppendStoreInfo(nil, &StoreInfo{Created: MaxTime + 1}), params{}},
		{"store", "a negative creation", AppendStoreInfo(nil, &StoreInfo{Created: -1}), params{}},
		{"retention", "a great age", AppendRetention(nil, &Retention{OlderThan: MaxTime + 1}), params{}},
		{"thread", "no id", AppendThread(nil, &Thread{}), params{}},
		{"thread", "an epoch over 4 bytes", AppendThread(nil, &Thread{ID: "t", Epoch: 1 << 32}), params{}},
		{"thread", "a negative time to live", AppendThread(nil, &Thread{ID: "t", TTL: -1}), params{}},
		{"thread", "a late expiry", AppendThread(nil, &Thread{ID: "t", Expires: math.MaxInt64}), params{}},
		{"id", "seq 0", AppendIDEntry(nil, &IDEntry{0, "a", 0}), params{}},
		{"id", "a seq over the limit", AppendIDEntry(nil, &IDEntry{MaxSeq + 1, "a", 1}), params{}},
		{"id", "no id", AppendIDEntry(nil, &IDEntry{1, "", 0}), params{}},
		{"branch", "seq 0", AppendBranch(nil, &Branch{"a", 0}), params{}},
		{"branch", "no name", AppendBranch(nil, &Branch{"", 1}), params{}},
		{"name", "no name", AppendName(nil, ""), params{}},
		{"name", "a long name", AppendName(nil, long), params{}},
		{"name", "no UTF-8", AppendName(nil, "\x80"), params{}},
		{"writes", "no checkpoint", AppendWrites(nil, &Writes{}), params{}},
		{"writes", "a long task", AppendWrites(nil, &Writes{Checkpoint: "c", Task: long}), params{}},
		{"writes", "an index twice", AppendWrites(nil, &Writes{Checkpoint: "c", Writes: []Write{{Index: 1}, {Index: 1}}}), params{}},
		{"writes", "falling indexes", AppendWrites(nil, &Writes{Checkpoint: "c", Writes: []Write{{Index: 1}, {Index: -1}}}), params{}},
		{"writes", "too many", AppendWrites(nil, &Writes{Checkpoint: "c", Writes: many}), params{}},
		{"writes", "a value too long", AppendWrites(nil, &Writes{Checkpoint: "c", Writes: []Write{{Size: MaxChannel + 1}}}), params{}},
		{"writes", "payloads too long", AppendWrites(nil, &Writes{Checkpoint: "c", Writes: []Write{{Payload: half}, {Index: 1, Payload: half}}}), params{}},
	} {
		checkRefused(t, c.decoder, c.name, c.enc, c.params)
	}
}

func TestUnknownVersionsAndFlagsAreRefused(t *testing.T) {
	for _, s := range smallSamples() {
		switch s.decoder {
		case "stub", "part", "blob", "index": // have no version
		default:
			next := byte(2)
			switch s.decoder {
			case "attrs":
				next = 4
			case "id", "namespace":
				next = 3
			}
			for _, v := range []byte{0, next, 0x81, 0xff} {
				checkRefused(t, s.decoder, fmt.Sprint("version ", v), append([]byte{v}, s.enc[1:]...), s.params)
			}
		}
	}
	thread := AppendThread(nil, &Thread{ID: "t"})
	for flags := 2; flags < 256; flags++ {
		thread[5] = byte(flags)
		checkRefused(t, "thread", fmt.Sprint("flags ", flags), thread, params{})
	}
	rec := AppendRecord(nil, 1, &Record{Status: "running", Entries: []Entry{{Mode: Full}}})
	for flags := range 256 {
		// Without the fields that they announce, all flags but that of a ghost are refused.
		b := append([]byte{byte(flags)}, rec[1:]...)
		if flags&0x80 != 0 {
			b = append([]byte{byte(flags), 1}, rec[1:]...)
		}
		if got, want := checkStrict(t, "record", b, params{seq: 1}), flags == 0 || flags == flagGhost; got != want {
			t.Errorf("flags %#x: accepted is %v", flags, got)
		}
	}
}
