package backend

import (
	"bytes"
	"fmt"
	"slices"
)

// Validate reports whether every driver accepts the batch: ErrTooLarge when it is over the portable
// floor, ErrInvalid when it is malformed. Drivers call it first in Commit, so that all refuse the
// same batches. It does not allocate for a batch it accepts.
func (b Batch) Validate() error {
	if len(b.Muts) > MaxBatchKeys || len(b.Conds) > MaxBatchKeys {
		return fmt.Errorf("%w: a batch names at most %d keys", ErrTooLarge, MaxBatchKeys)
	}
	size := 0
	for i := range b.Muts {
		m := &b.Muts[i]
		if err := checkName(m.Key, m.Version); err != nil {
			return err
		}
		size += len(m.Key)
		if m.Delete {
			continue
		}
		if m.Version == "" {
			return fmt.Errorf("%w: a write without a version", ErrInvalid)
		}
		size += len(m.Version) + len(m.Value)
	}
	for i := range b.Conds {
		c := &b.Conds[i]
		if err := checkName(c.Key, c.Version); err != nil {
			return err
		}
		size += len(c.Key) + len(c.Version)
	}
	if size > MaxBatchBytes {
		return fmt.Errorf("%w: a batch of %d bytes, at most %d", ErrTooLarge, size, MaxBatchBytes)
	}
	return b.checkKeys()
}

// checkKeys looks for faults that involve several keys: a key written or conditioned twice, an
// absent condition on a key that is not written, too many distinct keys.
func (b Batch) checkKeys() error {
	var mutSpace, condSpace [MaxBatchKeys]uint8 // indices, so that sorting moves bytes and stays on the stack
	muts, conds := order(mutSpace[:len(b.Muts)]), order(condSpace[:len(b.Conds)])
	slices.SortFunc(muts, func(i, j uint8) int { return bytes.Compare(b.Muts[i].Key, b.Muts[j].Key) })
	slices.SortFunc(conds, func(i, j uint8) int { return bytes.Compare(b.Conds[i].Key, b.Conds[j].Key) })

	for i := 1; i < len(muts); i++ {
		if bytes.Equal(b.Muts[muts[i-1]].Key, b.Muts[muts[i]].Key) {
			return fmt.Errorf("%w: a key written twice", ErrInvalid)
		}
	}
	distinct := len(muts)
	for i, at := range conds {
		c := &b.Conds[at]
		if i > 0 && bytes.Equal(b.Conds[conds[i-1]].Key, c.Key) {
			return fmt.Errorf("%w: a key with two conditions", ErrInvalid)
		}
		for len(muts) > 0 && bytes.Compare(b.Muts[muts[0]].Key, c.Key) < 0 {
			muts = muts[1:]
		}
		if len(muts) > 0 && bytes.Equal(b.Muts[muts[0]].Key, c.Key) {
			continue
		}
		if c.Version == "" {
			return fmt.Errorf("%w: an absent condition on a key that the batch does not write", ErrInvalid)
		}
		distinct++
	}
	if distinct > MaxBatchKeys {
		return fmt.Errorf("%w: a batch of %d keys, at most %d", ErrTooLarge, distinct, MaxBatchKeys)
	}
	return nil
}

// order fills s with 0, 1, 2, …
func order(s []uint8) []uint8 {
	for i := range s {
		s[i] = uint8(i)
	}
	return s
}

// ValidateKeys is Validate for the keys of a Get.
func ValidateKeys(keys ...[]byte) error {
	for _, k := range keys {
		if err := checkName(k, ""); err != nil {
			return err
		}
	}
	return nil
}

// Validate reports ErrInvalid for a range that no driver accepts. An empty range (Start at or after
// End) is fine.
func (r Range) Validate() error {
	if r.Limit < 0 || r.Bytes < 0 {
		return fmt.Errorf("%w: a negative limit", ErrInvalid)
	}
	return nil
}

func checkName(key []byte, version string) error {
	switch {
	case len(key) == 0:
		return fmt.Errorf("%w: an empty key", ErrInvalid)
	case len(key) > MaxKey:
		return fmt.Errorf("%w: a key of %d bytes, at most %d", ErrTooLarge, len(key), MaxKey)
	case len(version) > MaxVersion:
		return fmt.Errorf("%w: a version of %d bytes, at most %d", ErrTooLarge, len(version), MaxVersion)
	}
	return nil
}
