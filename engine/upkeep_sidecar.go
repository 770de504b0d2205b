package engine

import (
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/ckptd/ckptd/engine/internal/space"
)

// A host keeps some files outside the backend, such as access tokens. They are sealed under keys of
// the store (docs/format.md §19). Rotating the root key does not affect them.

func (s storeUpkeep) SealSidecar(dst []byte, name string, plain []byte) ([]byte, error) {
	sealed, err := space.Sidecar.AppendSealed(dst, &space.Scratch{}, s.space, []byte(name), plain)
	if err != nil {
		return nil, fmt.Errorf("sealing %s: %w", name, ofKeys(err))
	}
	return sealed, nil
}

func (s storeUpkeep) OpenSidecar(name string, sealed []byte) ([]byte, error) {
	plain, err := space.Sidecar.Open(s.space, []byte(name), sealed)
	if err = ofFormat(err); errors.Is(err, ErrNewerFormat) || errors.Is(err, ErrOlderFormat) {
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	if err != nil {
		return nil, corrupt(name, "does not open with the keys of this store", errors.Unwrap(err))
	}
	return plain, nil
}

func (s storeUpkeep) Pseudonym(purpose string, names ...string) string {
	tok := s.keys.IndexToken("", "pseudonym", fmt.Sprintf("%q %q", purpose, names))
	return hex.EncodeToString(tok[:])
}
