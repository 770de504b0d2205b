package engine

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
)

// WriteMode says what becomes of a pending write whose index is taken.
type WriteMode uint8

const (
	Upsert WriteMode = iota // the new one replaces it
	Ignore                  // it stays, and the new one is dropped
)

// Write is one result of a task: a value for a channel.
type Write struct {
	Index         int64 // its place among the writes of the task; may be negative
	Channel, Type string
	Data          []byte
}

// PendingWrite is a write with the task that it is of. Data belongs to the caller.
type PendingWrite struct {
	Task, Path string
	Write
}

// maxWrites bounds the record of the writes of one task, which is written with the thread's and the namespace's.
const maxWrites = backend.MaxBatchBytes - 16<<10

// PutWrites adds writes of a task to a checkpoint, in order, and returns when they are durable. The checkpoint need not
// exist yet, nor the thread: that begins with them, and a later Delete deletes them too. The path of the task is that
// of its first writes or, with Upsert, of its last. A generation that is not 0 must be the thread's, or ErrGeneration is
// returned; with 0, writes to a deleted thread start it afresh. Putting the same writes again changes nothing, so after
// ErrAmbiguous that is what to do.
//
// A task has at most codec.MaxWrites writes for a checkpoint. The engine keeps nothing of ws.
func (t *Thread) PutWrites(ctx context.Context, checkpointID, taskID, taskPath string, mode WriteMode, ws []Write, generation uint64) error {
	if err := t.checkWrites(checkpointID, taskID, taskPath, mode, ws); err != nil {
		return fmt.Errorf("putting writes: %w", err)
	}
	ws, err := t.passWrites(ctx, checkpointID, taskID, taskPath, ws)
	if err != nil {
		return fmt.Errorf("putting writes: %w", err)
	}
	add := codec.Writes{Checkpoint: checkpointID, Task: taskID, Path: taskPath}
	a := attempt{t: t}
	_, err = a.run(ctx, func() (*Checkpoint, error) { return nil, t.putWrites(ctx, &add, mode, ws, generation) })
	if err != nil {
		return fmt.Errorf("putting writes: %w", err)
	}
	return nil
}

func (t *Thread) checkWrites(checkpoint, task, path string, mode WriteMode, ws []Write) error {
	errs := []error{t.ref.check(), checkName("checkpoint id", checkpoint, false), checkName("task id", task, false),
		checkName("task path", path, true)}
	if mode > Ignore {
		errs = append(errs, fmt.Errorf("%w: write mode %d", ErrInvalid, mode))
	}
	for i := range ws {
		errs = append(errs, checkName("channel", ws[i].Channel, false), checkName("type of a channel", ws[i].Type, true),
			t.s.checkSize(ws[i].Channel, len(ws[i].Data)))
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *Thread) putWrites(ctx context.Context, add *codec.Writes, mode WriteMode, ws []Write, generation uint64) error {
	l, err := t.s.acquireLive(ctx, t.ref)
	if err != nil {
		return err
	}
	var h hold
	if rec, _ := l.th.record(); generation != 0 && generation != rec.Generation {
		l.letGo(h)
		return fmt.Errorf("%w: the writes name generation %d, the thread has %d", ErrGeneration, generation, rec.Generation)
	}
	if err := l.th.u.sweep.rLock(ctx); err != nil {
		l.letGo(h)
		return err
	}
	h.sweep = true
	passed := false
	defer func() {
		if !passed { // also if it panicked
			l.letGo(h)
		}
	}()
	p, err := l.mergeWrites(ctx, add, mode, ws)
	if err != nil || p == nil {
		return err
	}
	passed = true
	if _, there := l.th.record(); !there {
		return l.begin(ctx, h, p)
	}
	return l.commitAside(ctx, h, p)
}

// begin commits the first batch of a thread, which brings the thread record with it. What is pending is waited for: it
// begins the thread, too, and may be of the same task, of which p knows no more than what was durable. It takes over h.
func (l *lineage) begin(ctx context.Context, h hold, p *pending) error {
	return l.change(ctx, h, func() (*pending, error) {
		if l.last != nil {
			return nil, l.after(l.last)
		}
		if err := l.open(ctx); err != nil {
			return nil, err
		}
		now, err := l.s.time()
		if err != nil {
			return nil, err
		}
		return p, l.touch(p, 0, now)
	})
}

// mergeWrites makes the batch that adds ws to what the task has; nil if that changes nothing. Parts are stored before.
func (l *lineage) mergeWrites(ctx context.Context, add *codec.Writes, mode WriteMode, ws []Write) (*pending, error) {
	if len(ws) == 0 {
		return nil, nil
	}
	tok := l.th.u.keys.BlindToken("task", add.Task)
	keys := [][]byte{append(l.writesPrefix(add.Checkpoint), tok[:]...)}
	if l.ref.Namespace != "" {
		keys = append(keys, l.th.nsKey(kindNamespace, l.ns))
	}
	got, err := l.s.be.Get(ctx, keys...)
	if err != nil {
		return nil, fmt.Errorf("reading writes: %w", err)
	}
	all := *add
	var before []byte
	if got[0].Version != "" {
		var old *codec.Writes
		if old, err = unseal(l.th.sealer, writesLayout, got[0].Key, got[0].Value); err != nil {
			return nil, err
		}
		before = codec.AppendWrites(nil, old)
		if all.Writes = old.Writes; mode == Ignore {
			all.Path = old.Path
		}
	}
	if all.Writes, err = l.s.addWrites(all.Writes, mode, ws); err != nil {
		return nil, err
	}
	if err := l.placeWrites(ctx, all.Writes); err != nil {
		return nil, err
	}
	plain := codec.AppendWrites(nil, &all)
	if bytes.Equal(plain, before) {
		return nil, nil
	}
	if len(plain) > maxWrites {
		return nil, &LimitError{fmt.Sprintf("record of the writes of task %q", add.Task), int64(len(plain)), maxWrites}
	}
	p := &pending{conds: []backend.Cond{{Key: keys[0], Version: got[0].Version}}}
	id := l.s.newBatchID()
	if err := addSealed(l, p, writesLayout, keys[0], &all, string(id[:])); err != nil {
		return nil, err
	}
	if len(got) > 1 && got[1].Version == "" {
		err = addSealed(l, p, namespaceLayout, keys[1], l.ref.Namespace, versionOne)
	}
	return p, err
}

// addWrites merges ws into the writes of a task.
func (s *Store) addWrites(have []codec.Write, mode WriteMode, ws []Write) ([]codec.Write, error) {
	for i := range ws {
		w := &ws[i]
		at, taken := slices.BinarySearchFunc(have, w.Index, func(c codec.Write, index int64) int { return cmp.Compare(c.Index, index) })
		if taken && mode == Ignore {
			continue
		}
		block := s.z.AppendBlock(nil, w.Data)
		if check, err := s.z.AppendRaw(nil, block, len(w.Data)); err != nil || !bytes.Equal(check, w.Data) {
			return nil, fmt.Errorf("checking a write before commit: it does not restore (%v)", err)
		}
		c := codec.Write{Index: w.Index, Channel: w.Channel, Type: w.Type, Size: uint64(len(w.Data)), Payload: block}
		if taken {
			have[at] = c
		} else {
			have = slices.Insert(have, at, c)
		}
	}
	if len(have) > codec.MaxWrites {
		return nil, fmt.Errorf("%w: %d writes of a task, at most %d are allowed", ErrInvalid, len(have), codec.MaxWrites)
	}
	return have, nil
}

// placeWrites moves the payloads that are too large for the record into parts, which are durable when it returns. The
// caller holds u.sweep for reading.
func (l *lineage) placeWrites(ctx context.Context, ws []codec.Write) error {
	inline := 0
	for i := range ws {
		w := &ws[i]
		if inline += len(w.Payload); inline <= codec.MaxInline || w.Parts != nil {
			continue
		}
		inline -= len(w.Payload)
		ids, muts, err := l.th.u.newParts(ctx, w.Payload)
		if err == nil {
			err = l.s.commitAll(ctx, muts)
		}
		if err != nil {
			return fmt.Errorf("storing parts: %w", err)
		}
		w.PartBytes, w.Parts, w.Payload = uint64(len(w.Payload)), ids, nil
	}
	return nil
}

// addSealed adds a value of the thread's to a batch.
func addSealed[T any](l *lineage, p *pending, f *layout[T], key []byte, v T, version string) error {
	value, err := seal(l.th.sealer, f, key, v)
	if err != nil {
		return err
	}
	p.muts = append(p.muts, backend.Mut{Key: key, Value: value, Version: version})
	return nil
}

// Writes returns the pending writes of a checkpoint, whether it exists or not, in order of task id, then of index. A
// thread that does not exist is ErrNotFound.
func (t *Thread) Writes(ctx context.Context, checkpointID string) ([]PendingWrite, error) {
	out, err := t.writes(ctx, checkpointID)
	if err == nil {
		out, err = t.giveWrites(ctx, checkpointID, out)
	}
	if err != nil {
		return nil, fmt.Errorf("reading writes: %w", err)
	}
	return out, nil
}

func (t *Thread) writes(ctx context.Context, checkpoint string) ([]PendingWrite, error) {
	if err := checkName("checkpoint id", checkpoint, false); err != nil {
		return nil, err
	}
	l, err := t.acquireThere(ctx)
	if err != nil {
		return nil, err
	}
	defer l.release()
	if err := l.th.u.sweep.rLock(ctx); err != nil { // parts of writes that are replaced meanwhile stay until they are read
		return nil, err
	}
	defer l.th.u.sweep.rUnlock()
	var tasks []*codec.Writes
	err = l.s.scan(ctx, prefixRange(l.writesPrefix(checkpoint)), func(e backend.Entry) error {
		if err := takeRoom(ctx, int64(len(e.Value))); err != nil {
			return err
		}
		w, err := unseal(l.th.sealer, writesLayout, e.Key, e.Value)
		if err == nil && w.Checkpoint != checkpoint {
			err = corrupt(place(e.Key), "names another checkpoint", nil)
		}
		tasks = append(tasks, w)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(tasks, func(a, b *codec.Writes) int { return cmp.Compare(a.Task, b.Task) })
	var out []PendingWrite
	for _, w := range tasks {
		parts := map[codec.PartID][]byte{}
		for i := range w.Writes {
			v := &w.Writes[i]
			if err := takeRoom(ctx, int64(v.Size)); err != nil {
				return nil, err
			}
			if err := l.th.u.readParts(ctx, parts, v.Parts); err != nil {
				return nil, err
			}
			data, err := l.s.writeData(v, parts)
			if err != nil {
				return nil, corrupt(place(l.writesPrefix(checkpoint)), "a write does not restore", err)
			}
			out = append(out, PendingWrite{w.Task, w.Path, Write{v.Index, v.Channel, v.Type, data}})
		}
	}
	return out, nil
}

func (s *Store) writeData(w *codec.Write, parts map[codec.PartID][]byte) (data []byte, err error) {
	block := w.Payload
	if w.Parts != nil {
		if block, err = joinParts(parts, w.Parts, w.PartBytes); err != nil {
			return nil, err
		}
	}
	data, err = s.z.AppendRaw([]byte{}, block, int(w.Size))
	if err == nil && uint64(len(data)) != w.Size {
		err = fmt.Errorf("%d bytes, the record says %d", len(data), w.Size)
	}
	return data, err
}
