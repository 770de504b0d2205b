package badger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	badgerdb "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/y"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/internal/durable"
)

const (
	manifestHead  = 8
	manifestEntry = 8 // length and checksum of the changes that follow
)

// checkManifest refuses a MANIFEST that Badger would read only a part of. Badger takes a length
// that is too great for an end cut off by a crash, and then removes the tables that the rest names.
// Here it must be a part of an entry and nothing else.
func checkManifest(b []byte) error {
	if len(b) < manifestHead {
		return fmt.Errorf("%w: the MANIFEST has %d bytes", backend.ErrCorrupt, len(b))
	}
	for b = b[manifestHead:]; len(b) >= manifestEntry; {
		length, sum := int64(binary.BigEndian.Uint32(b)), binary.BigEndian.Uint32(b[4:])
		rest := b[manifestEntry:]
		if length > int64(len(rest)) {
			return checkCutOff(rest, sum)
		}
		if crc32.Checksum(rest[:length], y.CastagnoliCrcTable) != sum {
			return fmt.Errorf("%w: the MANIFEST has an entry with a wrong checksum", backend.ErrCorrupt)
		}
		b = rest[length:]
	}
	return nil
}

// checkCutOff finds out whether an entry that seems to be cut off is whole, and its length damaged.
func checkCutOff(rest []byte, sum uint32) error {
	var have uint32 // of the bytes before i
	for i := 0; have != sum; i++ {
		if i == len(rest) {
			return nil
		}
		have = crc32.Update(have, y.CastagnoliCrcTable, rest[i:i+1])
	}
	return fmt.Errorf("%w: the MANIFEST has an entry with a wrong length", backend.ErrCorrupt)
}

// settleManifest rewrites the MANIFEST. Its end may not be durable, and when Badger opens it
// removes the tables that the MANIFEST stopped naming: after a power loss an older end would name
// them.
func settleManifest(dir string) error {
	path := filepath.Join(dir, badgerdb.ManifestFilename)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a new store
	}
	if err == nil {
		err = durable.WriteFile(path, content)
	}
	if err != nil {
		return dirError(err)
	}
	return nil
}
