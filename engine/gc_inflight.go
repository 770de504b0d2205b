package engine

import (
	"sync"
	"sync/atomic"

	"github.com/ckptd/ckptd/codec"
)

// inFlight remembers the parts and blobs of a user that are named while an operation depends on it:
// a sweep, which must not delete parts named since it marked them, or a writer whose record follows
// long after its parts.
//
// A writer notes each part or blob that it names, and holds user.sweep for reading from before it
// looks whether the part is stored until the record that names it is durable. If that takes long,
// as in an upload, it locks only to look and to note, and is a holder all that time.
type inFlight struct {
	holders atomic.Int32
	mu      sync.Mutex
	parts   map[codec.PartID]struct{}
	blobs   map[BlobID]struct{}
}

// begin makes n remember until end.
func (n *inFlight) begin() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.holders.Add(1) == 1 {
		n.parts, n.blobs = map[codec.PartID]struct{}{}, map[BlobID]struct{}{}
	}
}

func (n *inFlight) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.holders.Add(-1) == 0 {
		n.parts, n.blobs = nil, nil
	}
}

func (n *inFlight) noteParts(ids []codec.PartID) {
	if n.holders.Load() == 0 || len(ids) == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.parts != nil {
		for _, id := range ids {
			n.parts[id] = struct{}{}
		}
	}
}

func (n *inFlight) noteBlobs(ids [][32]byte) {
	if n.holders.Load() == 0 || len(ids) == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.blobs != nil {
		for _, id := range ids {
			n.blobs[id] = struct{}{}
		}
	}
}

func (n *inFlight) hasPart(id codec.PartID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.parts[id]
	return ok
}

func (n *inFlight) hasBlob(id BlobID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.blobs[id]
	return ok
}
