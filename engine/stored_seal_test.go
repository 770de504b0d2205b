package engine

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// trySeal seals a value at a key, and reads it as readers do.
func trySeal[T any](of space.Owner, k *space.Kind[T], key []byte, v T) error {
	mut, err := sealMut(of, k, key, v, space.Once)
	if err == nil {
		_, err = unseal(of, k, key, mut.Value)
		if err != nil {
			err = errors.Join(ErrCorrupt, err)
		}
	}
	return err
}

// A value of any kind that a reader refuses, or takes for something else, cannot be sealed.
func TestSealRefusesWhatReadersRefuse(t *testing.T) {
	f := newFixture(t, Options{})
	const seq = 1000
	u, err := f.user(context.Background(), userName{"acme", "alice"}, true)
	if err != nil {
		t.Fatal(err)
	}
	th, err := u.stored(u.ThreadToken("t"), 1)
	if err != nil {
		t.Fatal(err)
	}
	s, long := th.lineage(""), strings.Repeat("x", codec.MaxName+1)
	key := s.RecordKey(seq)
	record := func(change func(rec *codec.Record)) func() error {
		rec := &codec.Record{Time: 1, Status: "running", Entries: []codec.Entry{{Mode: codec.Keep, Path: codec.Path{{Last: seq - 1, Len: 1}}}}}
		change(rec)
		return func() error { return trySeal(s, space.Records, key, rec) }
	}
	entry := func(change func(e *codec.Entry)) func() error {
		return record(func(rec *codec.Record) { change(&rec.Entries[0]) })
	}
	at := func(fn func() error) func() error { return fn }
	for name, try := range map[string]func() error{
		"record, path too long":        entry(func(e *codec.Entry) { e.Path[0].Len = codec.MaxPath + 1 }),
		"record, path of itself":       entry(func(e *codec.Entry) { e.Path[0].Last = seq }),
		"record, no path":              entry(func(e *codec.Entry) { e.Path = nil }),
		"record, runs that touch":      entry(func(e *codec.Entry) { e.Path = codec.Path{{Last: 9, Len: 1}, {Last: 8, Len: 1}} }),
		"record, no attributes":        entry(func(e *codec.Entry) { e.Number = 1 }),
		"record, channel number":       entry(func(e *codec.Entry) { e.Number = codec.MaxSeq + 1 }),
		"record, size of a channel":    entry(func(e *codec.Entry) { e.Mode, e.Path, e.Size = codec.Full, nil, codec.MaxChannel+1 }),
		"record, path of a full value": entry(func(e *codec.Entry) { e.Mode = codec.Full }),
		"record, inline payload": entry(func(e *codec.Entry) {
			e.Mode, e.Path, e.Payload = codec.Full, nil, make([]byte, codec.MaxInline+1)
		}),
		"record, parts for no bytes": entry(func(e *codec.Entry) { e.Mode, e.Path, e.Parts = codec.Full, nil, make([]codec.PartID, 1) }),
		"record, time before 1970":   record(func(rec *codec.Record) { rec.Time = -1 }),
		"record, time after 10889":   record(func(rec *codec.Record) { rec.Time = codec.MaxTime + 1 }),
		"record, long id":            record(func(rec *codec.Record) { rec.ID = long }),
		"record, two ids":            record(func(rec *codec.Record) { rec.ID, rec.UUID[0] = "x", 1 }),
		"record, two parents":        record(func(rec *codec.Record) { rec.ParentID, rec.ParentDist = "x", 1 }),
		"record, parent not before":  record(func(rec *codec.Record) { rec.ParentDist = seq }),
		"record, hash of no parent":  record(func(rec *codec.Record) { rec.ParentHash[0] = 1 }),
		"record, no status":          record(func(rec *codec.Record) { rec.Status = "" }),
		"record, status not UTF-8":   record(func(rec *codec.Record) { rec.Status = "\xff" }),
		"record, ledger of nothing":  record(func(rec *codec.Record) { rec.Writes.Sum[0] = 1 }),
		"record, too many channels":  record(func(rec *codec.Record) { rec.Entries = slices.Repeat(rec.Entries, codec.MaxChannels+2) }),
		"record, channels out of order": record(func(rec *codec.Record) {
			rec.Entries = slices.Repeat(rec.Entries, 2)
		}),

		"stub, no id":    at(func() error { return trySeal(s, space.Stubs, key, &codec.Stub{Count: 1}) }),
		"stub, no count": at(func() error { return trySeal(s, space.Stubs, key, &codec.Stub{ID: "x"}) }),
		"stub, distance": at(func() error { return trySeal(s, space.Stubs, key, &codec.Stub{Count: 1, FirstDist: seq, ID: "x"}) }),
		"part, too large": at(func() error {
			return trySeal(s, space.Parts, key, space.Part{Hour: 1, Data: make([]byte, codec.MaxPart+1)})
		}),
		"part, hour":     at(func() error { return trySeal(s, space.Parts, key, space.Part{Hour: codec.MaxTime}) }),
		"blob, hour":     at(func() error { return trySeal(s, space.Blobs, key, &codec.Blob{Hour: codec.MaxTime}) }),
		"blob, no parts": at(func() error { return trySeal(s, space.Blobs, key, &codec.Blob{Size: 1}) }),
		"store, created": at(func() error { return trySeal(f.space, space.StoreInfo, key, &codec.StoreInfo{Created: -1}) }),
		"retention, age": at(func() error {
			return trySeal(f.space, space.Retention, key, &codec.Retention{OlderThan: codec.MaxTime + 1})
		}),
		"thread, no id":   at(func() error { return trySeal(s, space.Threads, key, &codec.Thread{Epoch: 1}) }),
		"thread, created": at(func() error { return trySeal(s, space.Threads, key, &codec.Thread{ID: "x", Epoch: 1, Created: -1}) }),
		"thread, expiry": at(func() error {
			return trySeal(s, space.Threads, key, &codec.Thread{ID: "x", Epoch: 1, Expires: codec.MaxTime + 1})
		}),
		"thread, epoch":      at(func() error { return trySeal(s, space.Threads, key, &codec.Thread{ID: "x", Epoch: 1 << 32}) }),
		"thread, kept epoch": at(func() error { return trySeal(s, space.Threads, key, &codec.Thread{ID: "x", Epoch: 1, Kept: 1}) }),
		"thread, used epoch": at(func() error { return trySeal(s, space.Threads, key, &codec.Thread{ID: "x", Epoch: 2, Used: 1}) }),
		"id, seq 0":          at(func() error { return trySeal(s, space.IDs, key, &codec.IDEntry{ID: "x"}) }),
		"id, too long":       at(func() error { return trySeal(s, space.IDs, key, &codec.IDEntry{Seq: 1, ID: long}) }),
		"branch, seq":        at(func() error { return trySeal(s, space.Branches, key, &codec.Branch{Name: "x", Head: codec.MaxSeq + 1}) }),
		"branch, no name":    at(func() error { return trySeal(s, space.Branches, key, &codec.Branch{Head: 1}) }),
		"writes, no id":      at(func() error { return trySeal(s, space.Writes, key, &codec.Writes{}) }),
		"writes, too many": at(func() error {
			w := &codec.Writes{Checkpoint: "x"}
			for i := range int64(codec.MaxWrites + 1) {
				w.Writes = append(w.Writes, codec.Write{Index: i})
			}
			return trySeal(s, space.Writes, key, w)
		}),
		"writes, the same index": at(func() error {
			return trySeal(s, space.Writes, key, &codec.Writes{Checkpoint: "x", Writes: make([]codec.Write, 2)})
		}),
		"ledger, no id": at(func() error {
			return trySeal(s, space.Ledgers, key, &codec.WritesLedger{Ledger: codec.Ledger{Changes: 1}})
		}),
		"ledger, no changes": at(func() error { return trySeal(s, space.Ledgers, key, &codec.WritesLedger{Checkpoint: "x"}) }),
		"index, before 1970": at(func() error { return trySeal(s, space.Index, key, codec.IndexEntry{Time: -1}) }),
		"index, after 10889": at(func() error { return trySeal(s, space.Index, key, codec.IndexEntry{Time: codec.MaxTime + 1}) }),
		"namespace, no name": at(func() error { return trySeal(s, space.Namespaces, key, &codec.Namespace{}) }),
		"namespace, long": at(func() error {
			return trySeal(s, space.Namespaces, key, &codec.Namespace{Name: strings.Repeat("x", codec.MaxLongName+1)})
		}),
	} {
		if err := try(); err == nil {
			t.Errorf("%s: was sealed", name)
		} else if errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "before commit") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := record(func(*codec.Record) {})(); err != nil {
		t.Errorf("a good record: %v", err)
	}
}

// However long the path of a channel is, a save that keeps the channel is refused or can be read.
func TestKeepOnEveryLengthOfPath(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	ref, r := testRef("t"), rand.New(rand.NewPCG(1, 2))
	messages := noise(r, 50_000)
	deepest := 0
	for i := range 300 {
		messages = append(messages, noise(r, 200)...)
		appended := mustSave(t, f, ref, Draft{Keep: true, Step: int64(i), Channels: []Change{{Name: "messages", Data: messages}}})
		if deepest = max(deepest, appended.Cost.Depth); appended.Cost.Depth < 250 {
			continue
		}
		kept, err := f.Thread(ref).Save(ctx, Draft{Keep: true, Step: int64(i), Status: StatusSucceeded})
		if err != nil {
			kept = appended
		}
		f.reopen()
		if cp, err := f.Thread(ref).Load(ctx, Latest); err != nil || cp.ID != kept.ID || !bytes.Equal(cp.Channels[0].Data, messages) {
			t.Fatalf("depth %d: acknowledged was seq %d, and then: %v", appended.Cost.Depth, kept.Seq, err)
		}
	}
	if deepest < codec.MaxPath-1 {
		t.Errorf("the longest path has %d records", deepest)
	}
}
