package badger

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"

	badgerdb "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/ristretto/v2/z"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/commitlog"
)

// tables holds the findings about Badger's tables, made before Badger opens them.
type tables struct {
	pos     commitlog.Position // up to which group they go; zero for a store without tables
	written uint64             // when, in Badger's time; 0 if no table has a position
	names   []string           // of the files
	damaged []error
	checked map[string]checked // the tables, by their paths
	pending int64              // bytes that the compaction needs that Badger starts right after opening, if level 0 is due for one
}

// checked is a table that was verified.
type checked struct {
	pos     commitlog.Position
	written uint64
	err     error
}

// verifyTables checks the MANIFEST, and every block of every table, before Badger opens them.
// Badger can check tables itself, but it does it on goroutines of its own, where damage mostly is a
// panic or a log.Fatal that ends the process (a flipped bit in a packed block, a table cut short),
// or a table that it leaves out with a word in the log.
func verifyTables(find place, o badgerdb.Options) (t tables, err error) {
	defer guard("checking the tables", &err)()
	f, err := os.Open(find(badgerdb.ManifestFilename))
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil // a new store, checkFiles saw that there are no tables
	}
	if err != nil {
		return t, dirError(err)
	}
	defer f.Close()
	manifest, _, err := badgerdb.ReplayManifestFile(f, o.ExternalMagicVersion, o)
	if err != nil {
		return t, openError(err)
	}
	content, err := os.ReadFile(f.Name())
	if err != nil {
		return t, dirError(err)
	}
	if err := checkManifest(content); err != nil {
		return t, err
	}
	return t, t.verifyAll(find, manifest.Tables, o)
}

// verifyAll checks the tables that a MANIFEST names.
func (t *tables) verifyAll(find place, named map[uint64]badgerdb.TableManifest, o badgerdb.Options) (err error) {
	for _, id := range slices.Sorted(maps.Keys(named)) {
		name := table.IDToFilename(id)
		t.names = append(t.names, name)
		if err := t.verify(find(name), named[id].Compression, o.BlockSize); err != nil {
			t.damaged = append(t.damaged, fmt.Errorf("%s: %w", name, err))
		}
	}
	if len(t.damaged) > 0 {
		return t.damaged[0]
	}
	// Memory tables that are replayed add to level 0.
	t.pending, err = compactionDue(find, named, o.NumLevelZeroTables-memTables-1)
	return err
}

// compactionDue is the size of level 0, and of the first level below it that has tables, if level 0
// has many.
func compactionDue(find place, named map[uint64]badgerdb.TableManifest, many int) (due int64, err error) {
	inLevelZero, below := 0, uint8(math.MaxUint8)
	for _, t := range named {
		if t.Level == 0 {
			inLevelZero++
		} else {
			below = min(below, t.Level)
		}
	}
	if inLevelZero < many {
		return 0, nil
	}
	for id, t := range named {
		if t.Level != 0 && t.Level != below {
			continue
		}
		info, err := os.Stat(find(table.IDToFilename(id)))
		if err != nil {
			return 0, dirError(err)
		}
		due += info.Size()
	}
	return due, nil
}

// verify checks a table, and looks into it for a newer position.
func (t *tables) verify(path string, packed options.CompressionType, blockSize int) error {
	c, known := t.checked[path]
	if !known {
		c.pos, c.written, c.err = verifyTable(path, packed, blockSize)
		if t.checked == nil {
			t.checked = map[string]checked{}
		}
		t.checked[path] = c
	}
	if c.err == nil && c.written > t.written {
		t.pos, t.written = c.pos, c.written
	}
	return c.err
}

func verifyTable(path string, packed options.CompressionType, blockSize int) (pos commitlog.Position, written uint64, err error) {
	defer guard("checking a table", &err)()
	f, err := z.OpenMmapFile(path, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return pos, 0, fmt.Errorf("%w: the table is missing", backend.ErrCorrupt)
	}
	if err != nil {
		return pos, 0, openError(err)
	}
	tbl, err := table.OpenTable(f, table.Options{ReadOnly: true, Compression: packed, BlockSize: blockSize})
	if err != nil {
		return pos, 0, openError(err)
	}
	if err := tbl.VerifyChecksum(); err != nil {
		return pos, 0, errors.Join(openError(err), tbl.Close(-1))
	}
	pos, written, err = positionOf(tbl)
	return pos, written, errors.Join(err, tbl.Close(-1))
}
