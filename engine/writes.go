package engine

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// WriteMode says what happens to a pending write whose index is taken.
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

// PendingWrite is a write with its task. Data belongs to the caller.
type PendingWrite struct {
	Task, Path string
	Write
}

// maxWrites bounds the record with the writes of one task, which shares a batch with the thread's
// and the namespace's records.
const maxWrites = backend.MaxBatchBytes - 16<<10

// PutWrites adds writes of a task to a checkpoint, in order, and returns the generation of the thread
// when they are durable. The checkpoint need not exist yet, nor the thread: the writes start it, and
// a later Delete deletes them too. The path of the task is that of its first writes or, with Upsert,
// of its last. If generation is not 0 it must be the thread's, or the error is ErrGeneration; with 0,
// writes to a deleted thread start it again. Putting the same writes again changes nothing, so repeat
// the call after ErrAmbiguous.
//
// A task can have at most codec.MaxWrites writes for a checkpoint. The engine keeps nothing of ws.
func (t *Thread) PutWrites(ctx context.Context, checkpointID, taskID, taskPath string, mode WriteMode, ws []Write, generation uint64) (uint64, error) {
	if err := t.checkWrites(checkpointID, taskID, taskPath, mode, ws); err != nil {
		return 0, fmt.Errorf("putting writes: %w", err)
	}
	ws, err := t.runWriteHooks(ctx, checkpointID, taskID, taskPath, ws)
	if err != nil {
		return 0, fmt.Errorf("putting writes: %w", err)
	}
	add := codec.Writes{Checkpoint: checkpointID, Task: taskID, Path: taskPath}
	a := attempt{t: t}
	_, err = a.run(ctx, func() (_ *Checkpoint, err error) {
		generation, err = t.putWrites(ctx, &add, mode, ws, generation)
		return nil, err
	})
	if err != nil {
		return 0, fmt.Errorf("putting writes: %w", err)
	}
	return generation, nil
}

func (t *Thread) checkWrites(checkpoint, task, path string, mode WriteMode, ws []Write) error {
	errs := []error{t.ref.check(), checkName("checkpoint id", checkpoint, false), checkName("task id", task, false),
		checkLongName("task path", path)}
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

// putWrites is one try of PutWrites. It returns the generation that it found, or the one that the
// caller asked for if it failed.
func (t *Thread) putWrites(ctx context.Context, add *codec.Writes, mode WriteMode, ws []Write, generation uint64) (uint64, error) {
	l, err := t.s.rlockLive(ctx, t.ref)
	if err != nil {
		return generation, err
	}
	var h changeLocks
	if err := l.checkGeneration("writes are", generation); err != nil {
		l.releaseLocks(h)
		return generation, err
	}
	has := l.generation()
	if err := l.u.sweep.rLock(ctx); err != nil {
		l.releaseLocks(h)
		return generation, err
	}
	h.sweep = true
	passed := false
	defer func() {
		if !passed { // also if it panicked
			l.releaseLocks(h)
		}
	}()
	// The parts of large writes are stored here, without a lock that saves wait for.
	if add.Writes, err = l.s.codeWrites(mode, ws); err == nil {
		err = l.spillWrites(ctx, add.Writes)
	}
	if err != nil {
		return generation, err
	}
	if len(ws) == 0 {
		return has, nil
	}
	passed = true
	if err := l.change(ctx, h, func() (*pending, error) { return l.mergeWrites(ctx, add, mode) }); err != nil {
		return generation, err
	}
	return has, nil
}

// mergeWrites makes the batch that adds writes to those of the task; nil if that changes nothing.
// The first writes of a thread also write its record: then they wait for pending changes, which do
// so, too. The caller holds l.mu.
func (l *lineage) mergeWrites(ctx context.Context, add *codec.Writes, mode WriteMode) (*pending, error) {
	if err := l.open(ctx); err != nil {
		return nil, err
	}
	key := l.WritesKey(add.Checkpoint, add.Task)
	_, there := l.th.record()
	if before := l.pendingFunc(func(p *pending) bool { return bytes.Equal(p.writesKey, key) }); before != nil {
		return nil, l.dependsOn(before)
	} else if !there && l.last != nil {
		return nil, l.dependsOn(l.last)
	}
	is, err := l.writesAt(ctx, key, add.Checkpoint)
	if err != nil {
		return nil, err
	}
	all := *add
	if mode == Ignore && is.old != nil {
		all.Path = is.old.Path
	}
	if all.Writes, err = is.merge(mode, add.Writes); err != nil {
		return nil, err
	}
	if err := l.spillWrites(ctx, all.Writes); err != nil {
		return nil, err
	}
	plain := codec.AppendWrites(nil, &all)
	if bytes.Equal(plain, is.plain) {
		return nil, nil
	}
	if len(plain) > maxWrites {
		return nil, &LimitError{fmt.Sprintf("record of the writes of task %q", add.Task), int64(len(plain)), maxWrites}
	}
	p := &pending{conds: is.conds, writesKey: key}
	id := l.s.newBatchID()
	version := string(id[:])
	if err := addSealed(l, p, space.Writes, key, &all, version); err != nil {
		return nil, err
	}
	ledger := codec.Ledger{Changes: is.ledger.Changes + 1, Sum: addSum(is.ledger.Sum, l.u.writesSum(plain))}
	if is.plain != nil {
		ledger.Sum = subSum(ledger.Sum, l.u.writesSum(is.plain))
	}
	if err := l.addLedger(p, add.Checkpoint, ledger, version); err != nil {
		return nil, err
	}
	if is.newSpace {
		if err := l.putNamespace(p, ""); err != nil {
			return nil, err
		}
	}
	if there {
		return p, nil
	}
	now, err := l.s.time()
	if err != nil {
		return nil, err
	}
	return p, l.updateThread(p, 0, now)
}

// taskWrites are the stored writes of a task and their ledger.
type taskWrites struct {
	old      *codec.Writes
	plain    []byte // old as stored; nil if there is none
	ledger   codec.Ledger
	conds    []backend.Cond
	newSpace bool // the namespace has no record yet
}

// writesAt reads the stored writes at the key of a task. The caller holds l.mu.
func (l *lineage) writesAt(ctx context.Context, key []byte, checkpoint string) (is taskWrites, err error) {
	keys := [][]byte{key, l.LedgerKey(checkpoint)}
	if l.ref.Namespace != "" {
		keys = append(keys, l.NamespaceKey(l.NS))
	}
	got, err := l.s.be.Get(ctx, keys...)
	if err != nil {
		return is, fmt.Errorf("reading writes: %w", err)
	}
	if got[0].Version != "" {
		if is.old, err = unseal(l, space.Writes, key, got[0].Value); err != nil {
			return is, err
		}
		is.plain = codec.AppendWrites(nil, is.old)
	}
	version := got[1].Version
	if s := l.ledgers[checkpoint]; s != nil {
		is.ledger, version = s.Ledger, s.version
	} else if is.ledger, err = l.openLedger(got[1]); err != nil {
		return is, err
	}
	if is.plain != nil && is.ledger.Changes == 0 {
		return is, corrupt(space.Describe(key), "pending writes without a ledger", nil)
	}
	is.conds = []backend.Cond{{Key: key, Version: got[0].Version}, {Key: keys[1], Version: version}}
	is.newSpace = len(got) > 2 && got[2].Version == "" && l.head == 0 // else a pending save writes it
	return is, nil
}

// merge adds writes to the stored ones.
func (is *taskWrites) merge(mode WriteMode, add []codec.Write) (all []codec.Write, err error) {
	if is.old != nil {
		all = is.old.Writes
	}
	for i := range add {
		at, taken := slices.BinarySearchFunc(all, add[i].Index, func(w codec.Write, index int64) int { return cmp.Compare(w.Index, index) })
		switch {
		case !taken:
			all = slices.Insert(all, at, add[i])
		case mode != Ignore:
			all[at] = add[i]
		}
	}
	if len(all) > codec.MaxWrites {
		return nil, fmt.Errorf("%w: %d writes of a task, at most %d are allowed", ErrInvalid, len(all), codec.MaxWrites)
	}
	return all, nil
}

// codeWrites encodes writes of a task, in order of their indexes.
func (s *Store) codeWrites(mode WriteMode, ws []Write) (have []codec.Write, err error) {
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
	return have, nil
}

// spillWrites moves payloads that are too large for the record into parts, which are durable when
// it returns. The caller holds u.sweep for reading.
func (l *lineage) spillWrites(ctx context.Context, ws []codec.Write) error {
	inline := 0
	for i := range ws {
		w := &ws[i]
		if inline += len(w.Payload); inline <= codec.MaxInline || w.Parts != nil {
			continue
		}
		inline -= len(w.Payload)
		ids, muts, err := l.u.newParts(ctx, w.Payload)
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

// addSealed adds a value of the thread to a batch.
func addSealed[T any](of space.Owner, p *pending, k *space.Kind[T], key []byte, v T, version string) error {
	mut, err := sealMut(of, k, key, v, version)
	if err != nil {
		return err
	}
	p.muts = append(p.muts, mut)
	return nil
}

// Writes returns the pending writes of a checkpoint, which need not exist, in order of task path,
// then of task id, then of index. If the thread does not exist, that is ErrNotFound.
func (t *Thread) Writes(ctx context.Context, checkpointID string) ([]PendingWrite, error) {
	out, err := t.writes(ctx, checkpointID)
	if err == nil {
		out, err = t.runWriteLoadHooks(ctx, checkpointID, out, false)
	}
	if err != nil {
		return nil, fmt.Errorf("reading writes: %w", err)
	}
	return out, nil
}

// writes reads the writes while others may be put. If that fails repeatedly, it locks the thread.
func (t *Thread) writes(ctx context.Context, checkpoint string) (out []PendingWrite, err error) {
	if err := checkName("checkpoint id", checkpoint, false); err != nil {
		return nil, err
	}
	read := func(l *lineage) (err error) {
		out, err = l.readWrites(ctx, checkpoint)
		return err
	}
	if err = t.s.withLineage(ctx, t.ref, read); err == errOvertaken {
		err = t.s.withExclusive(ctx, t.ref, read)
	}
	return out, err
}

func (l *lineage) readWrites(ctx context.Context, checkpoint string) (out []PendingWrite, err error) {
	if _, there := l.th.record(); !there {
		return nil, ErrNotFound
	}
	if err := l.u.sweep.rLock(ctx); err != nil { // keeps parts of replaced writes until they are read
		return nil, err
	}
	defer l.u.sweep.rUnlock()
	tasks, err := l.tasks(ctx, checkpoint)
	if err != nil {
		return nil, err
	}
	return l.restoreWrites(ctx, checkpoint, tasks, func(string) bool { return true })
}

// restoreWrites returns the writes of tasks to the wanted channels, in order. The caller holds
// u.sweep for reading.
func (l *lineage) restoreWrites(ctx context.Context, checkpoint string, tasks []*codec.Writes, want func(channel string) bool) (out []PendingWrite, err error) {
	slices.SortFunc(tasks, func(a, b *codec.Writes) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Task, b.Task)) })
	for _, w := range tasks {
		parts := map[codec.PartID][]byte{}
		for i := range w.Writes {
			v := &w.Writes[i]
			if !want(v.Channel) {
				continue
			}
			if err := reserve(ctx, int64(v.Size)); err != nil {
				return nil, err
			}
			if err := l.u.readParts(ctx, parts, v.Parts); err != nil {
				return nil, err
			}
			data, err := l.s.writeData(v, parts)
			if err != nil {
				return nil, corrupt(space.Describe(l.LedgerKey(checkpoint)), "a write does not restore", err)
			}
			out = append(out, PendingWrite{w.Task, w.Path, Write{v.Index, v.Channel, v.Type, data}})
		}
	}
	return out, nil
}

// errOvertaken: each time writes were read, others had been put in the meantime.
var errOvertaken = fmt.Errorf("%w: pending writes keep changing while they are read", ErrUnavailable)

// overtakenTries is how often to read writes that are being changed.
const overtakenTries = 4

// tasks returns the pending writes of a checkpoint. If some are put in the meantime, it reads them
// again, until they match their ledger.
func (l *lineage) tasks(ctx context.Context, checkpoint string) ([]*codec.Writes, error) {
	for range overtakenTries {
		tasks, whole, err := l.tasksNow(ctx, checkpoint)
		if whole || err != nil {
			return tasks, err
		}
	}
	return nil, errOvertaken
}

// tasksNow is one try of tasks. If others were put in the meantime, the result is not whole.
func (l *lineage) tasksNow(ctx context.Context, checkpoint string) (tasks []*codec.Writes, whole bool, err error) {
	y, room := tally{u: l.u}, reservation{}
	err = l.s.eachWrites(ctx, l, l.WritesOf(checkpoint), func(e backend.Entry, w *codec.Writes, ledger *codec.WritesLedger) error {
		y.add(e.Key, w, ledger)
		if y.id != checkpoint {
			return corrupt(space.Describe(e.Key), "is for another checkpoint", nil)
		}
		if w != nil {
			tasks = append(tasks, w)
		}
		return room.reserve(ctx, int64(len(e.Value)))
	})
	if err != nil {
		return nil, false, err
	}
	damage := y.err()
	if damage == nil {
		return tasks, true, nil
	}
	got, err := l.s.be.Get(ctx, l.LedgerKey(checkpoint))
	if err != nil {
		return nil, false, fmt.Errorf("reading a ledger of writes: %w", err)
	}
	now, err := l.openLedger(got[0])
	if err != nil {
		return nil, false, err
	}
	if y.ledger == nil && now.Changes > 0 || y.ledger != nil && now != y.ledger.Ledger {
		room.release()
		return nil, false, nil
	}
	h, err := l.durableNow(ctx)
	if err != nil {
		return nil, false, err
	}
	return tasks, true, l.forgiveWrites(ctx, h.head, checkpoint, damage)
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
		err = fmt.Errorf("%d bytes, but the record says %d", len(data), w.Size)
	}
	return data, err
}
