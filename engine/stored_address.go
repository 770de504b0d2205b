package engine

import (
	"fmt"

	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// storedThread is one epoch of a thread in storage. It knows nothing of the state in memory or of
// pending changes, and needs no lock of its own.
type storedThread struct {
	*space.Thread
	u  *user
	id string // "" if it is not known
}

// stored returns one epoch of the thread with a token. Its id is not known.
func (u *user) stored(tok crypto.Token, epoch uint32) (*storedThread, error) {
	at, err := u.Thread(tok, epoch)
	if err != nil {
		return nil, fmt.Errorf("deriving keys of a thread: %w", ofKeys(err))
	}
	return &storedThread{Thread: at, u: u}, nil
}

// in returns another epoch of the thread, which does not change when the thread moves on to a new
// one.
func (t *storedThread) in(epoch uint32) *storedThread {
	return &storedThread{t.At(epoch), t.u, t.id}
}

// storedLineage is a lineage in storage, as storedThread is a thread.
type storedLineage struct {
	space.Lineage
	s   *Store
	u   *user
	ref Ref
}

func (t *storedThread) lineage(namespace string) *storedLineage {
	return &storedLineage{t.Namespace(namespace), t.u.s, t.u, Ref{t.u.tenant, t.u.name, t.id, namespace}}
}
