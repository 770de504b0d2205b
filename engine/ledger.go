package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// Beside the pending writes of a checkpoint stands their ledger: how often one was put, and a sum over
// the writes of all tasks. It changes in the batch of the writes. So writes that were removed from the
// disk, or put back as they were once, do not match it; and a checkpoint that is saved on this one
// names the ledger as it is by then, so that ledger and writes cannot go back together either.

// ledgerState is a ledger that is pending.
type ledgerState struct {
	codec.Ledger
	version string
	by      *pending
}

// writesSum is what the writes of one task add to the sum of their ledger (docs/format.md §13).
func (u *user) writesSum(plain []byte) (sum [32]byte) {
	h := sha256.New()
	h.Write([]byte("ckptd/writes/1"))
	h.Write(u.CommitKey[:])
	h.Write(plain)
	h.Sum(sum[:0])
	return sum
}

// addSum adds sums modulo 2^256.
func addSum(a, b [32]byte) (sum [32]byte) {
	carry := uint64(0)
	for i := 24; i >= 0; i -= 8 {
		var n uint64
		n, carry = bits.Add64(binary.BigEndian.Uint64(a[i:]), binary.BigEndian.Uint64(b[i:]), carry)
		binary.BigEndian.PutUint64(sum[i:], n)
	}
	return sum
}

// subSum is the inverse of addSum.
func subSum(a, b [32]byte) (sum [32]byte) {
	borrow := uint64(0)
	for i := 24; i >= 0; i -= 8 {
		var n uint64
		n, borrow = bits.Sub64(binary.BigEndian.Uint64(a[i:]), binary.BigEndian.Uint64(b[i:]), borrow)
		binary.BigEndian.PutUint64(sum[i:], n)
	}
	return sum
}

// addLedger adds to a batch that changes pending writes the ledger as it is then.
func (l *storedLineage) addLedger(p *pending, checkpoint string, is codec.Ledger, version string) error {
	p.ledgerOf, p.ledger = checkpoint, ledgerState{is, version, p}
	return addSealed(l, p, space.Ledgers, l.LedgerKey(checkpoint), &codec.WritesLedger{Checkpoint: checkpoint, Ledger: is}, version)
}

// putLedger makes the ledger that p writes the one that counts. The caller holds l.mu.
func (l *lineage) putLedger(p *pending) {
	l.ledgers[p.ledgerOf], l.writes = &p.ledger, writesSome
	for _, t := range l.tips {
		if t.id == p.ledgerOf {
			t.ledger, t.ledgerKnown = p.ledger.Ledger, true
		}
	}
}

// openLedger is the ledger that was read, none if nothing stands there.
func (l *storedLineage) openLedger(e backend.Entry) (codec.Ledger, error) {
	if e.Version == "" {
		return codec.Ledger{}, nil
	}
	led, err := unseal(l, space.Ledgers, e.Key, e.Value)
	if err != nil {
		return codec.Ledger{}, err
	}
	return led.Ledger, nil
}

// readLedger is the ledger of a checkpoint, with what is pending. The caller holds l.mu.
func (l *lineage) readLedger(ctx context.Context, checkpoint string) (codec.Ledger, error) {
	if s := l.ledgers[checkpoint]; s != nil {
		return s.Ledger, nil
	}
	got, err := l.s.be.Get(ctx, l.LedgerKey(checkpoint))
	if err != nil {
		return codec.Ledger{}, fmt.Errorf("reading a ledger of writes: %w", err)
	}
	return l.openLedger(got[0])
}

// knowLedger makes sure that t knows the ledger of its writes. Most lineages have none, which one look tells for all
// saves to come, unless others may put some meanwhile. The caller holds l.mu.
func (l *lineage) knowLedger(ctx context.Context, t *tip) (err error) {
	alone := l.s.caps.Exclusive
	if t.ledgerKnown && alone {
		return nil
	}
	if l.writes == writesUnknown && alone {
		r := l.Writes()
		r.KeysOnly, r.Limit = true, 1
		page, _, err := l.s.be.Scan(ctx, r)
		if err != nil {
			return fmt.Errorf("looking for writes: %w", err)
		}
		if l.writes = writesNone; len(page) > 0 {
			l.writes = writesSome
		}
	}
	if l.writes == writesSome || !alone {
		if t.ledger, err = l.readLedger(ctx, t.id); err != nil {
			return err
		}
	}
	t.ledgerKnown = true
	return nil
}

// What is known of the pending writes of a lineage.
type writesKnown uint8

const (
	writesUnknown writesKnown = iota
	writesNone
	writesSome
)

// tally compares pending writes with their ledger. It must see all of a checkpoint's, in the order of their keys.
type tally struct {
	u      *user
	ledger *codec.WritesLedger
	sum    [32]byte
	id     string // of the checkpoint, once a write was seen
	key    []byte
}

// add adds what stands at a key: writes, or else their ledger.
func (y *tally) add(key []byte, w *codec.Writes, ledger *codec.WritesLedger) {
	if y.key == nil {
		y.key = key
	}
	if ledger != nil {
		y.ledger, y.id = ledger, ledger.Checkpoint
		return
	}
	y.id, y.sum = w.Checkpoint, addSum(y.sum, y.u.writesSum(codec.AppendWrites(nil, w)))
}

// err is what is wrong once all was seen.
func (y *tally) err() error {
	switch {
	case y.key == nil || y.ledger != nil && y.ledger.Sum == y.sum:
		return nil
	case y.ledger == nil:
		return corrupt(space.Place(y.key), "pending writes without a ledger", nil)
	}
	return corrupt(space.Place(y.key), "pending writes are not the latest ones", nil)
}

// eachWrites calls fn with all pending writes and their ledgers in a range; one of both is nil.
func (s *Store) eachWrites(ctx context.Context, of space.Owner, r backend.Range, fn func(e backend.Entry, w *codec.Writes, ledger *codec.WritesLedger) error) error {
	return s.scan(ctx, r, func(e backend.Entry) error {
		w, ledger, err := openWrites(of, e)
		if err != nil {
			return err
		}
		return fn(e, w, ledger)
	})
}

// dropWrites deletes the pending writes of a checkpoint. Their ledger says after every batch what is left, so that a
// removal that is cut short leaves nothing that seems to be tampered with. It stays for the caller to delete with what
// makes a checkpoint of the id, since others that were saved on that name it.
func (l *storedLineage) dropWrites(ctx context.Context, out *batcher, checkpoint string) (last []backend.Mut, err error) {
	var left *codec.WritesLedger
	err = l.s.scan(ctx, l.WritesOf(checkpoint), func(e backend.Entry) error {
		w, ledger, err := openWrites(l, e)
		switch {
		case ledger != nil:
			left, last = ledger, []backend.Mut{{Key: e.Key, Delete: true}}
			return nil
		case err != nil && !errors.Is(err, ErrCorrupt): // what is damaged goes all the same
			return err
		}
		p := &pending{muts: []backend.Mut{{Key: e.Key, Delete: true}}}
		if err == nil && left != nil {
			is := codec.Ledger{Changes: left.Changes + 1, Sum: subSum(left.Sum, l.u.writesSum(codec.AppendWrites(nil, w)))}
			id := l.s.newBatchID()
			if err := l.addLedger(p, checkpoint, is, string(id[:])); err != nil {
				return err
			}
			left.Ledger = is
		}
		return out.add(ctx, p.muts...)
	})
	return last, err
}

// openWrites opens the writes of a task, or a ledger.
func openWrites(of space.Owner, e backend.Entry) (w *codec.Writes, ledger *codec.WritesLedger, err error) {
	if space.Ledgers.Is(e.Value) {
		ledger, err = unseal(of, space.Ledgers, e.Key, e.Value)
		return nil, ledger, err
	}
	w, err = unseal(of, space.Writes, e.Key, e.Value)
	return w, nil, err
}
