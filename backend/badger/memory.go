package badger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dgraph-io/badger/v4/y"

	"github.com/ckptd/ckptd/backend/commitlog"
	"github.com/ckptd/ckptd/internal/durable"
)

// Badger's memory files hold the transactions that are not in tables yet. After an unclean end they are a second copy of what
// the log has. They are set aside before Badger opens, which would replay each for itself and in part.
const (
	memorySuffix = ".mem"
	asideDir     = "aside"     // the files of an unclean end, until its groups are in tables
	asideNew     = "aside.new" // the same, while they are moved
	asideSuffix  = ".memory"
)

// memoryFiles are the paths of the memory files of the last unclean end: set aside, or in the directory.
func memoryFiles(dir string) (paths []string, err error) {
	for _, place := range []struct{ dir, suffix string }{{asideDir, asideSuffix}, {asideNew, asideSuffix}, {"", memorySuffix}} {
		found, err := filesIn(filepath.Join(dir, place.dir), place.suffix)
		if err != nil {
			return nil, err
		}
		paths = append(paths, found...)
		if place.dir == asideDir && len(found) > 0 {
			break // what is in the directory was made by an opening that did not end
		}
	}
	return paths, nil
}

// filesIn lists the files of a directory, if it is there, whose names end so.
func filesIn(dir, suffix string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, dirError(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, nil
}

// setAside takes memory files out of Badger's sight. The first ones that an unclean end left stay until dropAside; what openings
// made that were cut short after that is removed, since nothing was ever acknowledged in it.
func setAside(dir string) error {
	aside, moving := filepath.Join(dir, asideDir), filepath.Join(dir, asideNew)
	files, err := filesIn(dir, memorySuffix)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(aside); err == nil {
		for _, path := range files {
			if err := os.Remove(path); err != nil {
				return dirError(err)
			}
		}
		return durable.SyncDir(dir)
	}
	if _, err := os.Lstat(moving); err != nil && len(files) == 0 {
		return nil
	}
	if err := os.MkdirAll(moving, 0o700); err != nil {
		return dirError(err)
	}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), memorySuffix) + asideSuffix
		if err := os.Rename(path, filepath.Join(moving, name)); err != nil {
			return dirError(err)
		}
	}
	if err := durable.SyncDir(moving); err != nil {
		return dirError(err)
	}
	if err := os.Rename(moving, aside); err != nil {
		return dirError(err)
	}
	return durable.SyncDir(dir)
}

// dropAside removes what was set aside.
func dropAside(dir string) error {
	return removeDir(dir, asideDir)
}

// removeDir removes a directory in dir, durably.
func removeDir(dir, name string) error {
	path := filepath.Join(dir, name)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.RemoveAll(path); err != nil {
		return dirError(err)
	}
	return durable.SyncDir(dir)
}

// memoryGroup is a group as a memory file holds it.
type memoryGroup struct {
	pos  commitlog.Position
	muts []commitlog.Mutation
}

// memoryGroups reads the groups behind a position out of memory files: each that is whole, from the start of a file to its first
// damage.
func memoryGroups(paths []string, after commitlog.Position) (map[uint64]memoryGroup, error) {
	groups := map[uint64]memoryGroup{}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, dirError(err)
		}
		eachTransaction(b, func(muts []commitlog.Mutation) {
			g, ok := groupOf(muts)
			if ok && g.pos.N > after.N && g.pos.Incarnation == after.Incarnation {
				groups[g.pos.N] = g
			}
		})
	}
	return groups, nil
}

// groupOf takes the driver's key out of a transaction.
func groupOf(muts []commitlog.Mutation) (g memoryGroup, ok bool) {
	for _, m := range muts {
		if !bytes.Equal(m.Key, positionName) {
			g.muts = append(g.muts, m)
			continue
		}
		var err error
		if g.pos, err = parsePosition(m.Value); err != nil {
			return g, false
		}
		ok = true
	}
	return g, ok
}

// What Badger writes into a memory file: a head of 20 bytes, then entries. Each is a head of two bytes and the lengths of key
// and value and a time of expiry as uvarints, then key and value, and a CRC-32C of all that. A key ends with the 8 bytes of the
// transaction's timestamp.
const (
	memoryHead    = 20
	metaDelete    = 1 << 0
	metaTxn       = 1 << 6
	metaTxnEnd    = 1 << 7
	timestampSize = 8
)

// eachTransaction calls f with every transaction that is complete, up to the first damage.
func eachTransaction(b []byte, f func([]commitlog.Mutation)) {
	if len(b) < memoryHead || binary.BigEndian.Uint64(b) != 0 { // encrypted, which ckptd's never are
		return
	}
	b = b[memoryHead:]
	var muts []commitlog.Mutation
	var at uint64
	for {
		meta, m, rest, ok := memoryEntry(b)
		if !ok || len(m.Key) < timestampSize {
			return
		}
		b = rest
		switch ts := y.ParseTs(m.Key); {
		case meta&metaTxnEnd != 0:
			if end, err := strconv.ParseUint(string(m.Value), 10, 64); err != nil || end != at {
				return
			}
			f(muts)
			muts, at = nil, 0
		case meta&metaTxn == 0 || at != 0 && at != ts:
			return
		default:
			at, m.Key = ts, y.ParseKey(m.Key)
			if meta&metaDelete != 0 {
				m.User, m.Value = 0, nil
			}
			muts = append(muts, m)
		}
	}
}

// memoryEntry reads an entry. Key and value are part of b.
func memoryEntry(b []byte) (meta byte, m commitlog.Mutation, rest []byte, ok bool) {
	if len(b) < 2 {
		return 0, m, nil, false
	}
	var length [3]uint64 // of the key, of the value, and when it expires
	at := 2
	for i := range length {
		v, n := binary.Uvarint(b[at:])
		if n <= 0 {
			return 0, m, nil, false
		}
		length[i] = v
		at += n
	}
	left := uint64(len(b) - at)
	if length[0] == 0 || length[0] > left || length[1] > left || length[0]+length[1]+crc32.Size > left {
		return 0, m, nil, false
	}
	key, end := at+int(length[0]), at+int(length[0]+length[1])
	if crc32.Checksum(b[:end], y.CastagnoliCrcTable) != binary.BigEndian.Uint32(b[end:]) {
		return 0, m, nil, false
	}
	m = commitlog.Mutation{User: b[1], Key: b[at:key:key], Value: b[key:end:end]}
	return b[0], m, b[end+crc32.Size:], true
}
