package engine

import (
	"errors"
	"fmt"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// unseal returns the value of a kind that is stored at key.
func unseal[T any](of space.Owner, k *space.Kind[T], key, stored []byte) (v T, err error) {
	if v, err = k.Open(of, key, stored); err != nil {
		err = openError(err)
	}
	return v, err
}

// sealMut returns the mutation that stores a value of a kind at key.
func sealMut[T any](of space.Owner, k *space.Kind[T], key []byte, v T, version string) (backend.Mut, error) {
	m, err := k.Put(of, key, v, version)
	return m, ofKeys(err)
}

// openError tells values that cannot be opened from missing keys.
func openError(err error) error {
	var e *space.OpenError
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case e.Parsed:
		return corrupt(space.Describe(e.Key), "does not parse", e.Err)
	case errors.Is(err, crypto.ErrClosed):
		return fmt.Errorf("opening %s: %w", space.Describe(e.Key), ofKeys(e.Err))
	case errors.Is(err, crypto.ErrKeyDestroyed):
		return fmt.Errorf("opening %s: %w", space.Describe(e.Key), ErrKeyDestroyed)
	case errors.Is(err, crypto.ErrNewerFormat):
		return fmt.Errorf("opening %s: %w", space.Describe(e.Key), ErrNewerFormat)
	}
	return corrupt(space.Describe(e.Key), "does not open", e.Err)
}

// ofFormat returns the engine's error for data in another format, if err says that.
func ofFormat(err error) error {
	switch {
	case errors.Is(err, crypto.ErrNewerFormat):
		return ErrNewerFormat
	case errors.Is(err, crypto.ErrOlderFormat):
		return ErrOlderFormat
	}
	return err
}
