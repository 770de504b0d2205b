package badger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dgraph-io/badger/v4/y"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/commitlog"
	"github.com/ckptd/ckptd/internal/durable"
)

// Badger's memory files hold the transactions that are not in tables yet. After an unclean end they
// are a second copy of the log. They are set aside before Badger opens, which would replay each
// separately and in part.
const (
	memorySuffix = ".mem"
	asideDir     = "aside"     // the files of an unclean end, until its groups are in tables
	asideNew     = "aside.new" // the same, while they are moved
	asideSuffix  = ".memory"
)

// memoryFiles are the paths of the memory files of the last unclean end: set aside, or in the
// directory.
func memoryFiles(dir string) (paths []string, err error) {
	paths, err = filesIn(filepath.Join(dir, asideDir), asideSuffix)
	if _, missing := os.Lstat(filepath.Join(dir, asideDir)); missing == nil || err != nil {
		return paths, err // those in the directory were made by an opening that did not finish
	}
	for _, place := range []struct{ dir, suffix string }{{asideNew, asideSuffix}, {"", memorySuffix}} {
		found, err := filesIn(filepath.Join(dir, place.dir), place.suffix)
		if err != nil {
			return nil, err
		}
		paths = append(paths, found...)
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

// setAside takes memory files out of Badger's sight. The first ones that an unclean end left stay
// until dropAside. Later ones come from openings that were cut short, in which nothing was
// acknowledged, and are removed. Where the log is about to be replayed, the folder is made even if
// there is no file to put in it: the memory files of the replay hold several groups in one
// transaction, and must not count.
func setAside(dir string, replay bool) error {
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
	if _, err := os.Lstat(moving); err != nil && len(files) == 0 && !replay {
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

// dropAside removes the files that were set aside.
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

// memoryGroups reads the groups after a position from memory files: from each file, those up to its
// first damage.
func memoryGroups(paths []string, after commitlog.Position) (map[uint64]memoryGroup, error) {
	return someMemoryGroups(paths, after, func(uint64) bool { return true })
}

// someMemoryGroups does so, and keeps the mutations of the groups that are wanted. Of the others it
// keeps the positions: memory files are large, and after most crashes the log has every group.
func someMemoryGroups(paths []string, after commitlog.Position, wanted func(n uint64) bool) (map[uint64]memoryGroup, error) {
	groups := map[uint64]memoryGroup{}
	for _, path := range paths {
		err := transactionsIn(path, func(muts []commitlog.Mutation) {
			g, ok := groupOf(muts)
			if !ok || g.pos.N <= after.N || g.pos.Incarnation != after.Incarnation {
				return
			}
			if !wanted(g.pos.N) {
				g.muts = nil
			}
			groups[g.pos.N] = g.clone()
		})
		if err != nil {
			return nil, err
		}
	}
	return groups, nil
}

// clone is a group that stays valid.
func (g memoryGroup) clone() memoryGroup {
	g.muts = slices.Clone(g.muts)
	for i := range g.muts {
		m := &g.muts[i]
		m.Key, m.Value = bytes.Clone(m.Key), bytes.Clone(m.Value)
	}
	return g
}

// transactionsIn calls f with the complete transactions of a memory file, up to the first damage.
// The mutations are valid during the call.
func transactionsIn(path string, f func([]commitlog.Mutation)) error {
	file, err := os.Open(path)
	if err != nil {
		return dirError(err)
	}
	defer file.Close()
	r := memoryReader{in: file}
	r.transactions(f)
	return dirError(r.err)
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

// The format of a memory file: a head of 20 bytes, then entries. Each is a head of two bytes and
// the lengths of key and value and a time of expiry as uvarints, then key and value, and a CRC-32C
// of all that. A key ends with the 8 bytes of the transaction's timestamp.
const (
	memoryHead    = 20
	metaDelete    = 1 << 0
	metaTxn       = 1 << 6
	metaTxnEnd    = 1 << 7
	timestampSize = 8
)

const (
	memoryChunk = 1 << 20                       // bytes read at once
	mostEntry   = backend.MaxBatchBytes + 1<<10 // bytes of an entry, at most
)

// memoryReader reads a memory file piece by piece. Badger gives the file twice the size that it
// fills, so the end of the content is the first entry that is not valid.
type memoryReader struct {
	in   io.Reader
	rest []byte // read and not parsed
	own  []byte // the memory that rest is part of
	eof  bool
	err  error
}

// transactions calls f with the complete transactions, up to the first damage.
func (r *memoryReader) transactions(f func([]commitlog.Mutation)) {
	r.fill(true)
	if len(r.rest) < memoryHead || binary.BigEndian.Uint64(r.rest) != 0 { // encrypted, which ckptd's never are
		return
	}
	r.rest = r.rest[memoryHead:]
	var muts []commitlog.Mutation // of the transaction at hand
	var at uint64
	for {
		r.fill(len(muts) == 0)
		meta, m, rest, ok := memoryEntry(r.rest)
		if !ok || len(m.Key) < timestampSize {
			return
		}
		r.rest = rest
		switch ts := y.ParseTs(m.Key); {
		case meta&metaTxnEnd != 0:
			if end, err := strconv.ParseUint(string(m.Value), 10, 64); err != nil || end != at {
				return
			}
			f(muts)
			muts, at = muts[:0], 0
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

// fill reads on until rest holds an entry of any size. Unless the memory is free, mutations refer
// to it.
func (r *memoryReader) fill(free bool) {
	if r.eof || len(r.rest) >= mostEntry {
		return
	}
	size := len(r.rest) + memoryChunk + mostEntry
	if !free || cap(r.own) < size {
		r.own = make([]byte, size)
	}
	n := copy(r.own[:size], r.rest)
	more, err := io.ReadFull(r.in, r.own[n:size])
	if err != nil {
		r.eof = true
		if err != io.EOF && err != io.ErrUnexpectedEOF {
			r.err = err
		}
	}
	r.rest = r.own[:n+more]
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
