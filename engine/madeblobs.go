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

// maxMadeBlobs bounds the bytes of the blobs that the hooks of one save put, which wait in memory.
const maxMadeBlobs = 64 << 20

// madeBlobs are the blobs that hooks put. Their ids are known at once, and nothing is stored before the save is certain
// to be tried: hooks that fail leave nothing.
type madeBlobs struct {
	u *user

	mu     sync.Mutex
	closed bool
	size   int
	ids    [][32]byte
	data   [][]byte
}

// put is hook.Call.PutBlob.
func (m *madeBlobs) put(data []byte) (id [32]byte, err error) {
	mac := hmac.New(sha256.New, m.u.BlobMAC[:])
	mac.Write(data)
	mac.Sum(id[:0])
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return id, fmt.Errorf("%w: a hook put a blob after it had ended", hook.ErrInvalid)
	case m.has(id):
		return id, nil
	case len(m.ids) == codec.MaxBlobs || m.size+len(data) > maxMadeBlobs:
		return id, fmt.Errorf("%w: the hooks of one save can put at most %d blobs with %d bytes in total", hook.ErrLimit, codec.MaxBlobs, maxMadeBlobs)
	}
	m.size += len(data)
	m.ids, m.data = append(m.ids, id), append(m.data, bytes.Clone(data))
	return id, nil
}

// close ends the time in which blobs may be put; what follows needs no lock.
func (m *madeBlobs) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
}

func (m *madeBlobs) has(id [32]byte) bool {
	for i := range m.ids {
		if m.ids[i] == id {
			return true
		}
	}
	return false
}

// store stores the blobs. The caller holds u.sweep for reading until a record that names them is durable.
func (m *madeBlobs) store(ctx context.Context) error {
	for _, data := range m.data {
		p := newBlobPut(m.u, maxMadeBlobs)
		if err := p.putLocked(ctx, data); err != nil {
			return fmt.Errorf("storing a blob of a hook: %w", err)
		}
	}
	return nil
}
