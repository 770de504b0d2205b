package engine

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"sync"

	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/hook"
)

// maxHookBlobs bounds the bytes of the blobs that the hooks of one save put. They wait in memory.
const maxHookBlobs = 64 << 20

// hookBlobs are the blobs that hooks put. Their ids are known at once, but they are not stored
// until the hooks have succeeded and the save is planned, so failed hooks leave nothing.
type hookBlobs struct {
	u *user

	mu     sync.Mutex
	closed bool
	size   int
	ids    [][32]byte
	data   [][]byte
}

// put is hook.Call.PutBlob.
func (m *hookBlobs) put(data []byte) (id [32]byte, err error) {
	mac := hmac.New(sha256.New, m.u.BlobMAC[:])
	mac.Write(data)
	mac.Sum(id[:0])
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return id, fmt.Errorf("%w: a hook put a blob after it ended", hook.ErrInvalid)
	case m.has(id):
		return id, nil
	case len(m.ids) == codec.MaxBlobs || m.size+len(data) > maxHookBlobs:
		return id, fmt.Errorf("%w: the hooks of a save can put at most %d blobs, of %d bytes in all", hook.ErrLimit, codec.MaxBlobs, maxHookBlobs)
	}
	m.size += len(data)
	m.ids, m.data = append(m.ids, id), append(m.data, bytes.Clone(data))
	return id, nil
}

// close refuses further blobs; after it no lock is needed.
func (m *hookBlobs) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
}

func (m *hookBlobs) has(id [32]byte) bool {
	for i := range m.ids {
		if m.ids[i] == id {
			return true
		}
	}
	return false
}

// store stores the blobs. The caller holds u.sweep for reading until a record that names them is
// durable.
func (m *hookBlobs) store(ctx context.Context) error {
	for _, data := range m.data {
		p := newBlobPut(m.u, maxHookBlobs)
		if err := p.putLocked(ctx, data); err != nil {
			return fmt.Errorf("storing a blob of a hook: %w", err)
		}
	}
	return nil
}
