package badger

import (
	"bytes"
	"fmt"

	badgerdb "github.com/dgraph-io/badger/v4"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/commitlog"
)

// apply writes groups to Badger, in order and without their conditions, many to a transaction. The store then is at last, which is the
// position of the last group, unless a loss was accepted.
func (s *Store) apply(groups []group, last commitlog.Position) (err error) {
	defer guard("replaying the log", &err)()
	r := s.logs.Reader()
	defer r.Close()
	a := applier{s: s, txn: s.db.NewTransaction(true)}
	defer func() { a.txn.Discard() }()
	for _, g := range groups {
		if err := a.group(r, g); err != nil {
			return err
		}
		a.done = g.pos
	}
	a.done = last
	return a.commit()
}

// applier fills transactions.
type applier struct {
	s    *Store
	txn  *badgerdb.Txn
	size int
	done commitlog.Position // up to which groups are in the transaction whole
}

func (a *applier) group(r *commitlog.Reader, g group) error {
	if g.memory != nil {
		for _, m := range g.memory.muts {
			if err := a.mutation(m); err != nil {
				return err
			}
		}
		return nil
	}
	b, err := r.Mutations(g.frame)
	if err != nil {
		return fmt.Errorf("%w: reading the log: %v", backend.ErrUnavailable, err)
	}
	return commitlog.ParseMutations(bytes.Clone(b), a.mutation) // Badger refers to it until the transaction is done
}

func (a *applier) mutation(m commitlog.Mutation) error {
	size := entryOverhead + len(m.Key) + len(m.Value)
	if a.size+size > a.s.commits.limit {
		if err := a.commit(); err != nil {
			return err
		}
		a.txn, a.size = a.s.db.NewTransaction(true), 0
	}
	a.size += size
	if m.User == 0 {
		return a.txn.Delete(m.Key)
	}
	return a.txn.SetEntry(&badgerdb.Entry{Key: m.Key, Value: m.Value, UserMeta: m.User})
}

func (a *applier) commit() error {
	if a.done != (commitlog.Position{}) {
		if err := a.txn.Set(positionName, appendPosition(nil, a.done)); err != nil {
			return err
		}
	}
	return a.s.commitAlone(a.txn)
}

// size is about the size of the group's frame.
func (g *memoryGroup) size() (n int64) {
	for _, m := range g.muts {
		n += int64(entryOverhead + len(m.Key) + len(m.Value))
	}
	return n
}
