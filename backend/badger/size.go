package badger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// DiskBytes implements backend.Sizer: the blocks that the files in the directory take. Logs are
// mapped at their full length but count with their written part, where the file system has holes.
func (s *Store) DiskBytes(ctx context.Context) (int64, error) {
	s.use.RLock()
	defer s.use.RUnlock()
	if err := s.usable(); err != nil {
		return 0, err
	}
	var total int64
	err := filepath.WalkDir(s.dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || d.IsDir() {
			return gone(err)
		}
		info, err := d.Info()
		if err == nil {
			total += allocated(info)
		}
		return gone(err)
	})
	if err != nil {
		return 0, fmt.Errorf("sizing the store: %w", err)
	}
	return total, nil
}

// gone forgives a file that was compacted away meanwhile.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
