package codec

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// randomPath draws a path below seq by extending it, and the seqs that it should have.
func randomPath(rng *rand.Rand, seq uint64, most int) (p Path, want []uint64) {
	for at := uint64(1); at < seq && len(want) < most; at++ {
		if rng.IntN(3) == 0 {
			at += rng.Uint64N(20)
		}
		if at < seq {
			p = p.Extend(at)
			want = append(want, at)
		}
	}
	slices.Reverse(want)
	return p, want
}

func TestPath(t *testing.T) {
	rng := newRand(20)
	for range 500 {
		seq := 1 + rng.Uint64N(400)
		p, want := randomPath(rng, seq, MaxPath-1)
		if got := slices.Collect(p.All); !slices.Equal(got, want) || p.Len() != uint64(len(want)) {
			t.Fatalf("path %v yields %v, want %v", p, got, want)
		}
		for i := 1; i < len(p); i++ {
			if p[i].Last+1 >= p[i-1].Last-p[i-1].Len+1 {
				t.Fatalf("runs of %v are not maximal", p)
			}
		}
		for at := range seq + 2 {
			i := slices.Index(want, at)
			from := p.From(at)
			if i < 0 && from != nil || i >= 0 && !slices.Equal(slices.Collect(from.All), want[i:]) {
				t.Fatalf("path %v from %d is %v", p, at, from)
			}
		}
		if len(p) == 0 {
			continue
		}
		enc := p.append(nil, seq)
		r := reader{b: enc}
		if got := r.path(nil, seq); r.done() != nil || !slices.Equal(got, p) {
			t.Fatalf("path %v comes back as %v, %v", p, got, r.err)
		}
	}
}

func TestPathExtendSharesNothing(t *testing.T) {
	p := Path{}.Extend(1).Extend(5)
	q, r := p.Extend(6), p.Extend(9)
	if want := (Path{{5, 1}, {1, 1}}); !slices.Equal(p, want) {
		t.Errorf("path became %v", p)
	}
	if !slices.Equal(q, Path{{6, 2}, {1, 1}}) || !slices.Equal(r, Path{{9, 1}, {5, 1}, {1, 1}}) {
		t.Errorf("extended to %v and %v", q, r)
	}
	q = append(p.From(1), Span{0, 1})
	if !slices.Equal(p, Path{{5, 1}, {1, 1}}) || len(q) != 2 {
		t.Errorf("path became %v", p)
	}
}

func TestPathStopsWhenAsked(t *testing.T) {
	var got []uint64
	for seq := range (Path{{9, 3}, {4, 2}}).All {
		if got = append(got, seq); seq == 8 {
			break
		}
	}
	if !slices.Equal(got, []uint64{9, 8}) {
		t.Errorf("got %v", got)
	}
}

func randomString(rng *rand.Rand) string {
	return []string{"a", "b∂", "messages", string(rep('x', MaxName))}[rng.IntN(4)]
}

func randomHash(rng *rand.Rand) (h [32]byte) {
	for i := range h {
		h[i] = byte(rng.Uint32())
	}
	return h
}

func randomParts(rng *rand.Rand) (size uint64, ids []PartID) {
	ids = make([]PartID, 1+rng.IntN(4))
	for i := range ids {
		ids[i] = PartID(rep(byte(rng.Uint32()), 16))
	}
	return uint64(len(ids)-1)*MaxPart + 1 + rng.Uint64N(MaxPart), ids
}

func randomRecord(rng *rand.Rand, seq uint64) *Record {
	rec := &Record{
		Ghost: rng.IntN(2) == 0, Time: rng.Int64N(MaxTime + 1), Step: int64(rng.Uint64()) >> rng.IntN(64),
		Status: append(statusCodes[1:], "paused", "Running", "ß")[rng.IntN(9)], Schema: rng.Uint64() >> rng.IntN(64),
	}
	switch rng.IntN(3) {
	case 0:
		rec.ID = "id" + randomString(rng)[:1]
	case 1:
		rec.UUID = [16]byte(rep(byte(1+rng.IntN(255)), 16))
	}
	switch rng.IntN(3) {
	case 0:
		if seq > 1 {
			rec.ParentDist, rec.ParentHash = 1+rng.Uint64N(seq-1), randomHash(rng)
		}
	case 1:
		rec.ParentID = "parent"
	}
	if seq > 1 && rng.IntN(3) == 0 {
		rec.Replaced = 1 + rng.Uint64N(seq-1)
	}
	rec.Took = rec.ParentDist != 0 && rng.IntN(4) == 0
	rec.Holds, rec.Abridged = rec.Ghost && rng.IntN(3) == 0, rec.Ghost && rng.IntN(3) == 0
	if rec.ParentDist != 0 && rng.IntN(2) == 0 {
		rec.Writes = Ledger{1 + rng.Uint64()>>(1+rng.IntN(63)), randomHash(rng)}
	}
	if rng.IntN(2) == 0 {
		rec.Fuel = rng.Uint64() >> rng.IntN(64)
	}
	number := uint64(0)
	for range 1 + rng.IntN(6) {
		e := randomEntry(rng, seq, number)
		if n := len(rec.Entries); n > 0 && e.Mode == Keep && slices.Equal(e.Path, rec.Entries[n-1].Path) {
			number++ // else they would be one entry
			e.Number = number
		}
		if e.Mode == Keep && rng.IntN(2) == 0 {
			e.More = rng.Uint64N(400) >> rng.IntN(9)
		}
		rec.Entries = append(rec.Entries, e)
		number = e.Number + e.More + 1 + rng.Uint64N(1000)>>rng.IntN(10)
	}
	return rec
}

func randomEntry(rng *rand.Rand, seq, number uint64) Entry {
	e := Entry{Number: number, Mode: Full}
	if p, _ := randomPath(rng, seq, 1+rng.IntN(MaxPath-1)); len(p) > 0 {
		e.Mode, e.Path = Mode(rng.IntN(3)), p
		if e.Mode == Full {
			e.Path = nil
		}
	}
	if e.Mode == Keep {
		return e
	}
	e.Size, e.Commitment = rng.Uint64N(MaxChannel+1), randomHash(rng)
	if rng.IntN(3) == 0 {
		e.PartBytes, e.Parts = randomParts(rng)
	} else {
		e.Payload = text(rng, rng.IntN(300))
	}
	return e
}

func TestRecordRoundTrip(t *testing.T) {
	rng := newRand(21)
	for range 3000 {
		seq := 1 + rng.Uint64N(MaxSeq)>>rng.IntN(31)
		rec := randomRecord(rng, seq)
		enc := AppendRecord([]byte("before"), seq, rec)
		got, err := ParseRecord(enc[len("before"):], seq)
		if err != nil {
			t.Fatalf("%+v: %v", rec, err)
		}
		if !reflect.DeepEqual(got, rec) {
			t.Fatalf("got  %+v\nwant %+v", got, rec)
		}
	}
}

func TestRecordRefuses(t *testing.T) {
	full := Entry{Mode: Full, Size: 1, Payload: []byte{2, 7}}
	good := func() *Record {
		return &Record{Status: "running", Entries: []Entry{full}}
	}
	at := func(number uint64, e Entry) Entry {
		e.Number = number
		return e
	}
	var many []Entry
	for i := range uint64(MaxChannels + 2) {
		many = append(many, at(i, full))
	}
	half := full
	half.Payload = rep(1, MaxInline/2+1)
	for name, change := range map[string]func(*Record){
		"empty status":         func(r *Record) { r.Status = "" },
		"long status":          func(r *Record) { r.Status = string(rep('s', MaxName+1)) },
		"status not UTF-8":     func(r *Record) { r.Status = "\xff" },
		"long id":              func(r *Record) { r.ID = string(rep('s', MaxName+1)) },
		"two ids":              func(r *Record) { r.ID, r.UUID[0] = "a", 1 },
		"two parents":          func(r *Record) { r.ParentID, r.ParentDist = "a", 1 },
		"parent at seq 0":      func(r *Record) { r.ParentDist = 10 },
		"parent before":        func(r *Record) { r.ParentDist = 1<<64 - 1 },
		"replaced at seq 0":    func(r *Record) { r.Replaced = 10 },
		"no entries":           func(r *Record) { r.Entries = nil },
		"no attributes":        func(r *Record) { r.Entries[0].Number = 1 },
		"numbers fall":         func(r *Record) { r.Entries = []Entry{at(0, full), at(5, full), at(4, full)} },
		"number twice":         func(r *Record) { r.Entries = []Entry{at(0, full), at(0, full)} },
		"number too great":     func(r *Record) { r.Entries = []Entry{at(0, full), at(MaxSeq+1, full)} },
		"numbers over the top": func(r *Record) { r.Entries = []Entry{at(0, full), at(MaxSeq, full), at(MaxSeq+1, full)} },
		"too many channels":    func(r *Record) { r.Entries = many },
		"unknown mode":         func(r *Record) { r.Entries[0].Mode = 3 },
		"mode 8":               func(r *Record) { r.Entries[0].Mode = 8 },
		"keep in parts":        func(r *Record) { r.Entries[0] = Entry{Path: Path{{1, 1}}, Parts: []PartID{{}}} },
		"no path":              func(r *Record) { r.Entries[0].Mode = ByDelta },
		"path to itself":       func(r *Record) { r.Entries[0].Mode, r.Entries[0].Path = ByDelta, Path{{10, 1}} },
		"path to seq 0":        func(r *Record) { r.Entries[0].Mode, r.Entries[0].Path = ByDelta, Path{{9, 10}} },
		"path of no records":   func(r *Record) { r.Entries[0].Mode, r.Entries[0].Path = ByDelta, Path{{9, 0}} },
		"path with split runs": func(r *Record) { r.Entries[0].Mode, r.Entries[0].Path = ByDelta, Path{{9, 1}, {8, 1}} },
		"path back up":         func(r *Record) { r.Entries[0].Mode, r.Entries[0].Path = ByDelta, Path{{5, 1}, {7, 1}} },
		"value too long":       func(r *Record) { r.Entries[0].Size = MaxChannel + 1 },
		"payload too long":     func(r *Record) { r.Entries[0].Payload = rep(1, MaxInline+1) },
		"payloads too long":    func(r *Record) { r.Entries = []Entry{at(0, half), at(1, half)} },
		"parts too small":      func(r *Record) { r.Entries[0].Parts, r.Entries[0].PartBytes = []PartID{{}}, MaxPart+1 },
		"parts too large":      func(r *Record) { r.Entries[0].Parts, r.Entries[0].PartBytes = []PartID{{}, {}}, MaxPart },
		"parts without a byte": func(r *Record) { r.Entries[0].Parts, r.Entries[0].PartBytes = []PartID{{}}, 0 },
		"parts over the limit": func(r *Record) {
			r.Entries[0].Parts, r.Entries[0].PartBytes = make([]PartID, maxParts+1), maxParts*MaxPart+1
		},
		"parts of uint64 bytes": func(r *Record) { r.Entries[0].Parts, r.Entries[0].PartBytes = []PartID{{}}, 1<<64-1 },
	} {
		rec := good()
		change(rec)
		checkRefused(t, "record", name, AppendRecord(nil, 10, rec), params{seq: 10})
	}
	enc := AppendRecord(nil, 10, good())
	if !checkStrict(t, "record", enc, params{seq: 10}) {
		t.Error("the record that is changed is refused itself")
	}
}

func TestRecordRefusesLongPaths(t *testing.T) {
	for _, c := range []struct {
		p  Path
		ok bool
	}{
		{Path{{999, MaxPath - 1}}, true},
		{Path{{999, MaxPath}}, false},
		{Path{{999, 200}, {500, 55}}, true},
		{Path{{999, 200}, {500, 56}}, false},
		{Path{{999, 1 << 40}}, false},
		{Path{{999, 1<<64 - 8}, {998, 3}}, false},
	} {
		for _, e := range []Entry{{Path: c.p}, {Mode: ByDelta, Path: c.p}} {
			enc := AppendRecord(nil, 1000, &Record{Status: "running", Entries: []Entry{e}})
			if got := checkStrict(t, "record", enc, params{seq: 1000}); got != c.ok {
				t.Errorf("path %v, mode %d: accepted is %v", c.p, e.Mode, got)
			}
			if err := e.CheckPath(); (err == nil) != c.ok {
				t.Errorf("path %v, mode %d: checked is %v", c.p, e.Mode, err)
			}
		}
	}
}

// checkRefused fails unless b is malformed.
func checkRefused(t *testing.T, decoder, name string, b []byte, p params) {
	t.Helper()
	if checkStrict(t, decoder, b, p) {
		t.Errorf("%s with %s is accepted", decoder, name)
	}
}

func TestPayloadsAreClipped(t *testing.T) {
	enc := AppendRecord(nil, 91, hotRecord())
	want := bytes.Clone(enc)
	rec, err := ParseRecord(enc, 91)
	if err != nil {
		t.Fatal(err)
	}
	p := rec.Entries[1].Payload
	if cap(p) != len(p) || &p[0] != &enc[len(enc)-len(p)] {
		t.Errorf("payload of %d bytes has room for %d", len(p), cap(p))
	}
	if !bytes.Equal(enc, want) {
		t.Error("parsing changed its input")
	}
}

// CheckRecord agrees with ParseRecord on all good records, with its memory full of others, and
// without allocating.
func TestCheckRecord(t *testing.T) {
	rng := newRand(23)
	var enc []byte
	for range 500 {
		seq := 1 + rng.Uint64N(1000)
		rec, other := randomRecord(rng, seq), randomRecord(rng, seq)
		enc = AppendRecord(enc[:0], seq, rec)
		if err := CheckRecord(enc, seq, rec); err != nil {
			t.Fatalf("%+v: %v", rec, err)
		}
		if got, err := ParseRecord(enc, seq); err != nil || !got.equal(rec) || !rec.equal(got) {
			t.Fatalf("%+v comes back as %+v, %v", rec, got, err)
		}
		if !reflect.DeepEqual(rec, other) && CheckRecord(enc, seq, other) == nil {
			t.Fatalf("%+v passes for %+v", rec, other)
		}
		if CheckRecord(enc[:len(enc)-1], seq, rec) == nil {
			t.Fatal("a record that ends early passes")
		}
	}
	rec := &Record{Time: 1, Status: "paused", ID: "id", ParentID: "p", Entries: []Entry{
		{Mode: Keep, Path: Path{{8, 3}, {4, 1}}}, {Number: 3, Mode: Full, Size: 3, Payload: []byte("abc")}}}
	enc = AppendRecord(enc[:0], 9, rec)
	if n := testing.AllocsPerRun(100, func() { CheckRecord(enc, 9, rec) }); n > 1 { // the race detector empties pools
		t.Errorf("%v allocations", n)
	}
}

// No field of a record or an entry is left out of the comparison.
func TestRecordEqual(t *testing.T) {
	differs := func(v reflect.Value, equal func() bool) {
		for i := range v.NumField() {
			field, name := v.Field(i), v.Type().Field(i).Name
			was := reflect.New(field.Type()).Elem()
			was.Set(field)
			switch field.Kind() {
			case reflect.Slice:
				field.Set(reflect.MakeSlice(field.Type(), 1, 1))
			case reflect.Array:
				field.Index(0).SetUint(1)
			case reflect.Bool:
				field.SetBool(true)
			case reflect.String:
				field.SetString("x")
			case reflect.Int64:
				field.SetInt(7)
			case reflect.Struct:
				field.Field(0).SetUint(7)
			default:
				field.SetUint(7)
			}
			if equal() {
				t.Errorf("another %s makes no difference", name)
			}
			field.Set(was)
		}
		if !equal() {
			t.Error("differs from itself")
		}
	}
	rec, entry := &Record{}, &Entry{}
	differs(reflect.ValueOf(rec).Elem(), func() bool { return rec.equal(&Record{}) })
	differs(reflect.ValueOf(entry).Elem(), func() bool { return entry.equal(&Entry{}) })
	writes, write := &Writes{}, &Writes{Writes: make([]Write, 1)}
	differs(reflect.ValueOf(writes).Elem(), func() bool { return writes.Equal(&Writes{}) })
	differs(reflect.ValueOf(&write.Writes[0]).Elem(), func() bool { return write.Equal(&Writes{Writes: make([]Write, 1)}) })
}
