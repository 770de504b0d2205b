package engine

import (
	"fmt"

	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// storedThread is a thread as storage has it in one of its epochs. It knows nothing of what is in memory or pending, and needs
// no lock of its own.
type storedThread struct {
	*space.Thread
	u  *user
	id string // "" if it is not known
}

// stored returns the thread of a token in one of its epochs. Its id is not known.
func (u *user) stored(tok crypto.Token, epoch uint32) (*storedThread, error) {
	at, err := u.Thread(tok, epoch)
	if err != nil {
		return nil, fmt.Errorf("deriving keys of a thread: %w", ofKeys(err))
	}
	return &storedThread{Thread: at, u: u}, nil
}

// in returns the thread in one of its epochs, which stays that one when the thread gets another.
func (t *storedThread) in(epoch uint32) *storedThread {
	return &storedThread{t.At(epoch), t.u, t.id}
}

// storedLineage is a lineage as storage has it, as storedThread.
type storedLineage struct {
	space.Lineage
	s   *Store
	u   *user
	ref Ref
}

func (t *storedThread) lineage(namespace string) *storedLineage {
	return &storedLineage{t.Namespace(namespace), t.u.s, t.u, Ref{t.u.tenant, t.u.name, t.id, namespace}}
}
