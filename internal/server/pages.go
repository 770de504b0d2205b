package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/ckptd/ckptd/engine"
)

// A page token is the position at which a listing continues: a version, the fingerprint of the
// request, and the position of the last item sent. It is opaque to callers and grants nothing,
// since every request is authorized again.

const (
	tokenVersion    = 1
	fingerprintSize = 8
	maxPageToken    = 24 << 10 // the longest names, of characters that JSON escapes with six
)

// position is the place of a checkpoint or, with only a ref, a thread in a listing.
type position struct {
	Ref        engine.Ref
	ID         string `json:",omitempty"`
	Seq        uint64 `json:",omitempty"`
	Generation uint64 `json:",omitempty"`
	Time       int64  `json:",omitempty"` // Unix milliseconds
}

func positionOf(cp *engine.Checkpoint) position {
	return position{Ref: cp.Ref, ID: cp.ID, Seq: cp.Seq, Generation: cp.Generation, Time: cp.Time.UnixMilli()}
}

// pages makes and reads the page tokens of one request.
type pages struct{ head []byte }

// newPages returns the pages of a request. forget clears the fields that can differ between the
// pages of a listing.
func newPages[M proto.Message](request M, forget func(M)) (*pages, error) {
	m := proto.Clone(request).(M)
	forget(m)
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(append([]byte(m.ProtoReflect().Descriptor().FullName()), b...))
	return &pages{append([]byte{tokenVersion}, sum[:fingerprintSize]...)}, nil
}

func (p *pages) token(at position) (string, error) {
	b, err := json.Marshal(at)
	return base64.RawURLEncoding.EncodeToString(append(bytes.Clone(p.head), b...)), err
}

// parse reads a token; an empty one is the zero position.
func (p *pages) parse(token string) (at position, err error) {
	if token == "" {
		return at, nil
	}
	bad := fmt.Errorf("%w: the page token belongs to another request", engine.ErrInvalid)
	if len(token) > maxPageToken {
		return at, bad
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil {
		return at, bad
	}
	b, ok := bytes.CutPrefix(b, p.head)
	if !ok || json.Unmarshal(b, &at) != nil {
		return position{}, bad
	}
	return at, nil
}
