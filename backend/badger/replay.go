package badger

import (
	"bytes"
	"fmt"

	badgerdb "github.com/dgraph-io/badger/v4"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/commitlog"
)

// apply writes groups to Badger, in order and without their conditions, many to a transaction. The
// store then is at last, which is the position of the last group, unless a loss was accepted.
func (s *Store) apply(groups []group, last commitlog.Position) (err error) {
	defer guard("replaying the log", &err)()
	r := s.logs.Reader()
	defer r.Close()
	a := applier{s: s, txn: s.db.NewTransaction(true)}
	defer func() { a.txn.Discard() }()
	for _, g := range groups {
		muts, err := g.mutations(r)
		if err == nil {
			err = a.group(muts)
		}
		if err != nil {
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

// group adds a group to the transaction, or to another one if it does not fit into this one whole:
// where it was never synced a power loss can take it from the log, and half of it must not be in
// tables then. One that fits into none is of a process with larger memory tables, and is split.
func (a *applier) group(muts []commitlog.Mutation) error {
	if size := costOf(muts); a.size+size > a.s.commits.limit && size <= a.s.commits.limit {
		if err := a.next(); err != nil {
			return err
		}
	}
	for _, m := range muts {
		if err := a.mutation(m); err != nil {
			return err
		}
	}
	return nil
}

// next begins another transaction.
func (a *applier) next() error {
	if err := a.commit(); err != nil {
		return err
	}
	a.txn, a.size = a.s.db.NewTransaction(true), 0
	return nil
}

func (a *applier) mutation(m commitlog.Mutation) error {
	size := costOf([]commitlog.Mutation{m})
	if a.size+size > a.s.commits.limit {
		if err := a.next(); err != nil {
			return err
		}
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

// mutations reads those of a group, which stay valid.
func (g *group) mutations(r *commitlog.Reader) (muts []commitlog.Mutation, err error) {
	if g.memory != nil {
		return g.memory.muts, nil
	}
	b, err := r.Mutations(g.frame)
	if err != nil {
		return nil, fmt.Errorf("%w: reading the log: %v", backend.ErrUnavailable, err)
	}
	err = commitlog.ParseMutations(bytes.Clone(b), func(m commitlog.Mutation) error {
		muts = append(muts, m)
		return nil
	})
	return muts, err
}

// size is about the size of the group's frame.
func (g *memoryGroup) size() int64 { return int64(costOf(g.muts)) }

// costOf is how many bytes mutations take in a transaction, at most.
func costOf(muts []commitlog.Mutation) (n int) {
	for _, m := range muts {
		n += entryOverhead + len(m.Key) + len(m.Value)
	}
	return n
}
