package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// params are a decoder's parameters besides the bytes.
type params struct {
	seq          uint64
	target, base int // of a delta
	most         int // of a block
}

// again parses b and encodes the result. A zstd frame, whose content has many encodings, is copied
// from b.
type again func(b []byte, p params) ([]byte, error)

// decoders are all that the package has, by the name they have in testdata.
var decoders = map[string]again{
	"record": func(b []byte, p params) ([]byte, error) {
		rec, err := ParseRecord(b, p.seq)
		return encode(err, func() []byte { return AppendRecord(nil, p.seq, rec) })
	},
	"stub": func(b []byte, p params) ([]byte, error) {
		s, err := ParseStub(b, p.seq)
		return encode(err, func() []byte { return AppendStub(nil, s) })
	},
	"part": func(b []byte, _ params) ([]byte, error) {
		hour, data, err := ParsePart(b)
		return encode(err, func() []byte { return AppendPart(nil, hour, data) })
	},
	"index": func(b []byte, _ params) ([]byte, error) {
		e, err := ParseIndexEntry(b)
		return encode(err, func() []byte { return AppendIndexEntry(nil, e) })
	},
	"name": func(b []byte, _ params) ([]byte, error) {
		s, err := ParseName(b)
		return encode(err, func() []byte { return AppendName(nil, s) })
	},
	"attrs":     inverse(ParseAttrs, AppendAttrs),
	"blob":      inverse(ParseBlob, AppendBlob),
	"store":     inverse(ParseStoreInfo, AppendStoreInfo),
	"retention": inverse(ParseRetention, AppendRetention),
	"namespace": inverse(ParseNamespace, AppendNamespace),
	"thread":    inverse(ParseThread, AppendThread),
	"id":        inverse(ParseIDEntry, AppendIDEntry),
	"branch":    inverse(ParseBranch, AppendBranch),
	"writes":    inverse(ParseWrites, AppendWrites),
	"ledger":    inverse(ParseWritesLedger, AppendWritesLedger),
	"path": func(b []byte, p params) ([]byte, error) {
		r := reader{b: b}
		path := r.path(nil, p.seq)
		return encode(r.done(), func() []byte { return path.append(nil, p.seq) })
	},
	"block": blockAgain,
	"delta": deltaAgain,
}

func encode(err error, enc func() []byte) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return enc(), nil
}

func inverse[T any](parse func([]byte) (*T, error), app func([]byte, *T) []byte) again {
	return func(b []byte, _ params) ([]byte, error) {
		v, err := parse(b)
		return encode(err, func() []byte { return app(nil, v) })
	}
}

func blockAgain(b []byte, p params) ([]byte, error) {
	raw, err := testZstd.AppendRaw(nil, b, p.most)
	if err != nil {
		return nil, err
	}
	if len(raw) > p.most {
		return nil, fmt.Errorf("%d bytes out of a block of at most %d", len(raw), p.most)
	}
	return appendBlockAs(nil, b, raw), nil
}

// appendBlockAs appends raw as the block b at the end of an encoding has it.
func appendBlockAs(dst, b, raw []byte) []byte {
	head, n := binary.Uvarint(b)
	dst = binary.AppendUvarint(dst, uint64(len(raw))<<1|head&1)
	if head&1 == codingZstd {
		return append(dst, b[n:]...)
	}
	return append(dst, raw...)
}

func deltaAgain(b []byte, p params) ([]byte, error) {
	d, err := testZstd.ParseDelta(b, p.target, p.base, nil, nil)
	if err != nil {
		return nil, err
	}
	// A delta that was accepted can be applied.
	if got := Compose(nil, []Delta{d}, make([]byte, p.base)); len(got) != p.target {
		return nil, fmt.Errorf("delta of %d bytes builds %d", p.target, len(got))
	}
	out := appendOps(nil, d.Ops)
	return appendBlockAs(out, b[min(len(out), len(b)):], d.Literals), nil
}

var testZstd = NewZstd()

// checkStrict fails unless b is refused as malformed or encodes to b again.
func checkStrict(t *testing.T, name string, b []byte, p params) (ok bool) {
	t.Helper()
	got, err := decoders[name](b, p)
	switch {
	case err != nil && !errors.Is(err, ErrMalformed):
		t.Errorf("%s % x: error %v is not ErrMalformed", name, b, err)
	case err == nil && !bytes.Equal(got, b):
		t.Errorf("%s % x encodes to % x", name, b, got)
	}
	return err == nil
}

// sample is an encoding that is correct, in the simplest and the fullest form that a structure has.
type sample struct {
	decoder, name string
	params
	enc []byte
}

// rep is n bytes b.
func rep(b byte, n int) []byte { return bytes.Repeat([]byte{b}, n) }

func hash32(b byte) [32]byte { return [32]byte(rep(b, 32)) }

func part(b byte) PartID { return PartID(rep(b, 16)) }

const sampleText = `,{"role":"user","content":"the sun and the sea and the stars and the sun"}`

func samples() []sample {
	return slices.Concat(recordSamples(), smallSamples(), payloadSamples())
}

func recordSamples() []sample {
	path := Path{{299, 1}, {290, 200}, {2, 2}}
	first := Entry{Mode: Full, Size: 3, Commitment: hash32(0xa0), Payload: []byte{6, 1, 2, 3}}
	longest := Path{{MaxSeq - 1, MaxPath}}
	out := []sample{
		{"path", "three runs", params{seq: 300}, path.append(nil, 300)},
		{"path", "the longest", params{seq: MaxSeq}, longest.append(nil, MaxSeq)},
	}
	add := func(name string, seq uint64, rec *Record) {
		out = append(out, sample{"record", name, params{seq: seq}, AppendRecord(nil, seq, rec)})
	}
	add("a keep on the longest path", 300, &Record{Time: 1, Status: "running", Entries: []Entry{{Path: Path{{299, MaxPath - 1}}}}})
	add("runs of channels that are kept", 300, &Record{Time: 1, Status: "running", Entries: []Entry{
		{More: 2, Path: Path{{299, 1}}}, {Number: 3, Path: Path{{298, 1}}}, {Number: 4, More: 200, Path: Path{{299, 1}}},
		{Number: 300, More: 1, Path: Path{{299, 1}}},
	}})
	add("the first", 1, &Record{Time: 1_700_000_000_000, Status: "running", Entries: []Entry{first}})
	add("caller's id, dangling parent, status by name", 1, &Record{
		Time: MaxTime, Step: -3, Status: "paused", Schema: 1<<64 - 1, ID: "ab", ParentID: "lost", Entries: []Entry{first},
	})
	add("every other field", 300, &Record{
		Ghost: true, Time: 1, Step: 1<<63 - 1, Status: "waiting", Schema: 2, UUID: [16]byte(rep(0x77, 16)),
		ParentDist: 2, ParentHash: hash32(0xb0), Replaced: 299, Writes: Ledger{300, hash32(0xc0)},
		Entries: []Entry{
			{Path: Path{{299, 1}}},
			{Number: 1, Mode: ByDelta, Path: Path{{298, 2}, {290, 200}, {1, 1}}, Size: 1000, Commitment: hash32(0xd0), Payload: []byte{0, 0}},
			{Number: 200, Mode: Full, Size: 1 << 20, Commitment: hash32(0xe0), PartBytes: MaxPart + 1, Parts: []PartID{part(1), part(2)}},
			{Number: MaxSeq, Mode: ByDelta, Path: Path{{255, 255}}, Size: 0, PartBytes: 1, Parts: []PartID{part(3)}},
		},
	})
	add("fuel of hooks", 1, &Record{Time: 1, Status: "running", Fuel: 1<<64 - 1, Entries: []Entry{first}})
	return out
}

func smallSamples() []sample {
	var out []sample
	add := func(decoder, name string, enc []byte) {
		out = append(out, sample{decoder, name, params{}, enc})
	}
	add("attrs", "nothing", AppendAttrs(nil, &Attrs{}))
	add("attrs", "everything", AppendAttrs(nil, &Attrs{
		RunID: "run-1", Labels: map[string]string{"": "empty", "a": "", "team": "sea"}, Meta: []byte(`{"k":1}`),
		Blobs: [][32]byte{hash32(1), hash32(2)}, Branch: "main",
		Channels: []ChannelInfo{{Number: 1, Name: "messages", Type: "json"}, {Number: 2, Name: "", Type: ""}, {Number: MaxSeq, Name: "ß", Type: "bytes"}},
	}))
	add("attrs", "hooks", AppendAttrs(nil, &Attrs{
		Channels: []ChannelInfo{{Number: 1, Name: "messages", Rewritten: true}, {Number: 2, Name: "plan"}, {Number: 300, Name: "files", Rewritten: true}},
		Hooks:    []Hook{{"mail@1.0.0", hash32(3), hash32(4)}, {"redact", hash32(5), hash32(0)}},
	}))
	add("attrs", "delta channels", AppendAttrs(nil, &Attrs{Delta: []string{"a", "b"}}))
	add("attrs", "a kind", AppendAttrs(nil, &Attrs{Kind: "support"}))
	add("attrs", "a rewritten channel of hooks that are gone", AppendAttrs(nil, &Attrs{Channels: []ChannelInfo{{Number: 7, Name: "a", Rewritten: true}}}))
	out = append(out, sample{"stub", "one record", params{seq: 1}, AppendStub(nil, &Stub{1, 0, hash32(9), "s"})})
	out = append(out, sample{"stub", "a run", params{seq: 300}, AppendStub(nil, &Stub{200, 299, hash32(9), "step-300"})})
	add("part", "no bytes", AppendPart(nil, 0, nil))
	add("part", "bytes", AppendPart(nil, maxHour, []byte("abc")))
	add("blob", "no bytes", AppendBlob(nil, &Blob{Hour: 1}))
	add("blob", "two parts", AppendBlob(nil, &Blob{Hour: 472222, Size: MaxPart + 1, Parts: []PartID{part(1), part(2)}}))
	add("index", "negative step", AppendIndexEntry(nil, IndexEntry{1_700_000_000_000, -1}))
	add("ledger", "the first change", AppendWritesLedger(nil, &WritesLedger{"cp", Ledger{1, hash32(7)}}))
	add("store", "store", AppendStoreInfo(nil, &StoreInfo{[16]byte(rep(5, 16)), 1_700_000_000_000}))
	add("retention", "labelled", AppendRetention(nil, &Retention{10, 86_400_000, true}))
	add("thread", "plain", AppendThread(nil, &Thread{ID: "t"}))
	add("thread", "deleted", AppendThread(nil, &Thread{"support-42", 1<<32 - 1, 300, true, 1_700_000_000_000, 1000, 1_700_000_001_000, 0, 0, 0, 0, 0, false}))
	add("thread", "kept epoch", AppendThread(nil, &Thread{ID: "t", Epoch: 3, Generation: 1, Kept: 2}))
	add("thread", "kept and used epochs", AppendThread(nil, &Thread{ID: "t", Epoch: 3, Generation: 1, Kept: 1, Used: 300}))
	add("thread", "active", AppendThread(nil, &Thread{ID: "t", Epoch: 3, Generation: 1, Used: 300, Active: 1_700_000_000_000}))
	cut := Thread{ID: "t", Epoch: 3, Generation: 1, Active: 1_700_000_000_000, Cuts: 300, LastCut: 1_700_000_000_000}
	add("thread", "namespaces deleted", AppendThread(nil, &cut))
	cut.Cuts, cut.Cutting = MaxCuts, true
	add("thread", "namespaces being deleted", AppendThread(nil, &cut))
	add("namespace", "plain", AppendNamespace(nil, &Namespace{Name: "planner"}))
	add("namespace", "called", AppendNamespace(nil, &Namespace{Name: "planner", CalledFrom: "c-1"}))
	add("namespace", "deleted", AppendNamespace(nil, &Namespace{Name: "planner", Deleted: true}))
	add("namespace", "second life", AppendNamespace(nil, &Namespace{Name: "planner", Life: 1}))
	add("namespace", "all", AppendNamespace(nil, &Namespace{"planner", MaxCuts, "c-1", true}))
	add("id", "id", AppendIDEntry(nil, &IDEntry{MaxSeq, "step-1", 0}))
	add("id", "what was submitted", AppendIDEntry(nil, &IDEntry{300, "a", 1<<63 | 2}))
	add("branch", "branch", AppendBranch(nil, &Branch{"main", 1}))
	add("name", "name", AppendName(nil, "planner"))
	add("name", "longest", AppendName(nil, strings.Repeat("n", MaxName)))
	add("writes", "none", AppendWrites(nil, &Writes{Checkpoint: "c"}))
	add("writes", "two", AppendWrites(nil, &Writes{"c-1", "task", "a/b", []Write{
		{Index: -1, Channel: "messages", Type: "json", Size: 2, Payload: []byte{4, '[', ']'}},
		{Index: 4, Channel: "messages", Size: 70_000, PartBytes: 66_000, Parts: []PartID{part(4)}},
	}}))
	return out
}

func payloadSamples() []sample {
	out := []sample{
		{"block", "no bytes", params{most: 0}, testZstd.AppendBlock(nil, nil)},
		{"block", "raw", params{most: 3}, testZstd.AppendBlock(nil, []byte("abc"))},
		{"block", "zstd", params{most: 256}, testZstd.AppendBlock(nil, []byte(sampleText))},
		{"block", "zstd of 300 bytes", params{most: 300}, testZstd.AppendBlock(nil, []byte(strings.Repeat(sampleText, 5)[:300]))},
		{"block", "zstd of 70000 bytes", params{most: 1 << 20}, testZstd.AppendBlock(nil, rep('x', 70_000))},
	}
	d := NewDiffer(testZstd)
	base := []byte("[" + sampleText[1:] + "]")
	var idx Index
	idx.Extend(base)
	add := func(name string, prefix, suffix int, insert string) {
		enc := d.AppendDelta(nil, base, between(base, prefix, suffix, []byte(insert)), &idx, nil)
		out = append(out, sample{"delta", name, params{target: prefix + suffix + len(insert), base: len(base)}, enc})
	}
	add("nothing of nothing", 0, 0, "")
	add("the base", len(base), 0, "")
	add("literals only", 0, 0, "abc")
	add("an insert", 1, len(base)-1, "x")
	add("an append with a copy", len(base)-1, 1, strings.Replace(sampleText, "sun", "moon", 1))
	add("a deletion at both ends", 0, 0, string(base[10:40]))
	return out
}

// appendOps appends a list of operations without its literals, as it is.
func appendOps(dst []byte, ops []Op) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(ops)))
	end := 0
	for _, op := range ops {
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(op.Literals)), uint64(op.Copied))
		if op.Copied == 0 {
			dst = binary.AppendVarint(dst, int64(op.Offset))
			continue
		}
		dst = binary.AppendVarint(dst, int64(op.Offset-end))
		end = op.Offset + op.Copied
	}
	return dst
}

func TestSamplesEncodeAgain(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range samples() {
		if !checkStrict(t, s.decoder, s.enc, s.params) {
			_, err := decoders[s.decoder](s.enc, s.params)
			t.Errorf("%s %q: %v", s.decoder, s.name, err)
		}
		seen[s.decoder] = true
	}
	for name := range decoders {
		if !seen[name] {
			t.Errorf("no sample of %s", name)
		}
	}
}

func TestEveryTruncationIsRefused(t *testing.T) {
	for _, s := range samples() {
		for n := range s.enc {
			ok := checkStrict(t, s.decoder, slices.Clip(s.enc[:n]), s.params)
			// The bytes of a part have no length of their own: only its first field can be cut.
			if ok && s.decoder != "part" {
				t.Errorf("%s %q: %d of %d bytes are accepted", s.decoder, s.name, n, len(s.enc))
			}
		}
	}
}

func TestTrailingBytesAreRefused(t *testing.T) {
	for _, s := range samples() {
		if s.decoder == "part" {
			continue
		}
		for _, tail := range [][]byte{{0}, {1}, {0xff}, s.enc, rep(0, 300)} {
			if b := slices.Concat(s.enc, tail); checkStrict(t, s.decoder, b, s.params) {
				t.Errorf("%s %q: % x is accepted behind it", s.decoder, s.name, tail)
			}
		}
	}
}

func TestEveryBitFlipIsRefusedOrEncodesAgain(t *testing.T) {
	for _, s := range samples() {
		for i := range 8 * len(s.enc) {
			b := bytes.Clone(s.enc)
			b[i/8] ^= 1 << (i % 8)
			checkStrict(t, s.decoder, b, s.params)
		}
	}
}

// TestLongNumbersAreRefused writes every number of a sample that could be one in a longer form.
func TestLongNumbersAreRefused(t *testing.T) {
	for _, s := range samples() {
		if s.decoder == "part" {
			continue
		}
		for i, c := range s.enc {
			if c < 0x80 {
				checkStrict(t, s.decoder, slices.Concat(s.enc[:i], []byte{c | 0x80, 0}, s.enc[i+1:]), s.params)
			}
		}
	}
}

// TestHugeNumbersAreRefused puts numbers near the ends of the integer types in every place of every
// sample: no decoder may panic, allocate by them, or take them for small ones.
func TestHugeNumbersAreRefused(t *testing.T) {
	for _, s := range samples() {
		for i := range s.enc {
			for _, v := range []uint64{1<<31 - 1, 1 << 31, 1 << 32, 1<<63 - 1, 1 << 63, 1<<64 - 2, 1<<64 - 1} {
				b := slices.Concat(s.enc[:i], binary.AppendUvarint(nil, v), s.enc[i+1:])
				checkStrict(t, s.decoder, b, s.params)
			}
		}
	}
}

func TestDecodersAllocateByTheInput(t *testing.T) {
	number := func(v uint64) []byte { return binary.AppendUvarint(nil, v) }
	frame := []byte{0xa0, 0, 0, 0, 0x10, 3, 0, 2, 0} // says 256 MiB, has one block of 16 KiB zeros
	for _, c := range []struct {
		decoder string
		b       []byte
		params
		why string
	}{
		{"record", slices.Concat(rep(0, 8), []byte{1, 0}, number(MaxChannels)), params{seq: 9}, "entries in 0 bytes"},
		{"record", slices.Concat(rep(0, 8), []byte{1, 0}, number(MaxChannels), rep(0, MaxChannels)), params{seq: 9}, "entries in 4096 bytes"},
		{"writes", slices.Concat([]byte{1, 1, 'c', 0, 0, 1, 0, 0, 0}, number(70_000), []byte{1}, number(MaxChannel), number(1024)), params{}, "parts for"},
		{"blob", slices.Concat([]byte{0}, number(MaxChannel), number(1024)), params{}, "parts for"},
		{"attrs", slices.Concat([]byte{1, 0, 0}, number(MaxMeta)), params{}, "ends early"},
		{"block", number(MaxChannel << 1), params{most: MaxChannel}, "raw block holds 0"},
		{"block", slices.Concat(number(MaxChannel<<1|1), frame), params{most: MaxChannel}, "room for 16384"},
		{"delta", slices.Concat(number(MaxChannel/8), number(MaxChannel)), params{target: MaxChannel}, "bad number"},
		{"delta", slices.Concat([]byte{1}, number(MaxChannel), []byte{0, 0}, number(MaxChannel<<1|1), frame), params{target: MaxChannel}, "room for 16384"},
	} {
		var err error
		n := allocated(func() { _, err = decoders[c.decoder](c.b, c.params) })
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: error %v, want %q", c.decoder, err, c.why)
		}
		if n > 8192 {
			t.Errorf("%s, %s: %d bytes allocated for %d", c.decoder, c.why, n, len(c.b))
		}
	}
}

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
