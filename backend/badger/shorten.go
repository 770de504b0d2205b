package badger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"slices"

	badgerdb "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
	"google.golang.org/protobuf/proto"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/internal/durable"
)

// The MANIFEST is a log itself: each entry leads from one set of tables to the next. If a table
// that it names is missing or damaged, the store is as it was after an earlier entry, provided that
//
//   - all tables of that set are there and whole, so that they hold every group up to theirs, and
//   - the log and the memory files have every group after that, up to the last one that is known of.
//
// So it does not matter why the table is missing: because a power loss took its name, which Badger
// does not sync, or because Badger removed it after it failed to sync the entry. A set before a
// compaction has lost its tables to that compaction, and one from which the log does not continue
// is refused.
//
// An entry that was written in part, in the middle of the MANIFEST, is left out: Badger goes on
// behind it.

// shortenings is how many earlier sets are tried.
const shortenings = 16

// shorten looks for such an earlier set, after an error about the newest one. It changes no file.
func (o *opening) shorten(why error) error {
	if _, whole := o.anchor(); !whole || o.fresh || !errors.Is(why, backend.ErrCorrupt) {
		return why
	}
	content, err := os.ReadFile(o.find(badgerdb.ManifestFilename))
	if err != nil {
		return why // which is about that
	}
	tried := *o
	torn := len(content) // where an entry was left out
	if mended := withoutTorn(content); mended != nil {
		content, torn = mended, entriesEnd(content, manifestHead)
	}
	sets := tableSets(content, o.find)
	for _, set := range slices.Backward(sets) {
		*o = tried
		o.tables = tables{checked: tried.tables.checked}
		if set.end == len(content) && set.end <= torn || o.tables.verifyAll(o.find, set.tables, o.s.settings()) != nil {
			continue
		}
		if len(set.tables) > 0 && o.tables.written == 0 || !o.reachesAll() {
			continue // tables without a position have data that was in no log
		}
		if set.end > torn && !o.knowsTables(content) {
			continue
		}
		o.manifest = content[:set.end]
		o.notes = append(o.notes, fmt.Sprintf("%s; tables up to group %d are whole, and the log has the groups after that", text(why), o.tables.pos.N))
		return nil
	}
	*o = tried
	return why
}

// reachesAll says whether groups follow from the tables, without a gap, to the last that is known
// of, also from tables that are left out.
func (o *opening) reachesAll() bool {
	if o.settle() != nil || o.refused != nil || o.lost != nil {
		return false
	}
	paths, err := filesIn(o.s.dir, ".sst")
	kept, err2 := filesIn(filepath.Join(o.s.dir, keptDir), ".sst") // a dry run does not put them back
	if err != nil || err2 != nil {
		return false
	}
	name, _ := o.goesFurther(append(paths, kept...))
	return name == ""
}

// writeShortened replaces the MANIFEST with the part of it that is right.
func (o *opening) writeShortened() error {
	if o.manifest == nil {
		return nil
	}
	return dirError(durable.WriteFile(filepath.Join(o.s.dir, badgerdb.ManifestFilename), o.manifest))
}

// tableSet is the tables that a MANIFEST names up to an entry.
type tableSet struct {
	tables map[uint64]badgerdb.TableManifest
	end    int // of the entry
}

// tableSets are those of a MANIFEST whose tables are all there, the oldest first.
func tableSets(content []byte, find place) (sets []tableSet) {
	if !bytes.HasPrefix(content, manifestHeader) {
		return nil
	}
	there := map[uint64]bool{}
	isThere := func(id uint64) bool {
		is, known := there[id]
		if !known {
			_, err := os.Stat(find(table.IDToFilename(id)))
			is = err == nil
			there[id] = is
		}
		return is
	}
	now, missing := map[uint64]badgerdb.TableManifest{}, 0
	removed := map[uint64]bool{}
	sets = append(sets, tableSet{nil, manifestHead})
	for at := manifestHead; ; {
		changes, next, ok := manifestChanges(content, at)
		if !ok {
			return sets
		}
		for _, c := range changes {
			_, named := now[c.Id]
			switch {
			case c.Op == pb.ManifestChange_CREATE && !named:
				if removed[c.Id] { // the file of that name is another one now
					sets = slices.DeleteFunc(sets, func(s tableSet) bool { _, has := s.tables[c.Id]; return has })
				}
				now[c.Id] = badgerdb.TableManifest{Level: uint8(c.Level), KeyID: c.KeyId, Compression: options.CompressionType(c.Compression)}
				if !isThere(c.Id) {
					missing++
				}
			case c.Op == pb.ManifestChange_DELETE && named:
				delete(now, c.Id)
				removed[c.Id] = true
				if !isThere(c.Id) {
					missing--
				}
			case c.Op == pb.ManifestChange_CREATE:
				return sets
			}
		}
		if at = next; missing == 0 {
			sets = append(sets, tableSet{maps.Clone(now), at})
			if len(sets) > shortenings {
				sets = sets[1:]
			}
		}
	}
}

// withoutTorn is a MANIFEST without an entry that was written in part, as on a full device, and that
// whole ones follow up to the end; nil if there is none. Badger never acted on that entry: it does so
// once an entry is written and synced. A damaged entry is not taken for one: either its length or
// its checksum shows that all of it is there.
func withoutTorn(content []byte) []byte {
	if !bytes.HasPrefix(content, manifestHeader) {
		return nil
	}
	at := entriesEnd(content, manifestHead)
	if len(content)-at < manifestEntry {
		return nil
	}
	sum := binary.BigEndian.Uint32(content[at+4:])
	end := at + manifestEntry + int(binary.BigEndian.Uint32(content[at:]))
	for next := at + 1; next < min(max(end, at+manifestEntry), len(content)); next++ {
		if changes, _, ok := manifestChanges(content, next); !ok || len(changes) == 0 || entriesEnd(content, next) < len(content) {
			continue
		}
		if next >= at+manifestEntry && checkCutOff(content[at+manifestEntry:next], sum) != nil {
			return nil
		}
		return slices.Concat(content[:at], content[next:])
	}
	return nil
}

// knowsTables makes sure that no table in the directory was named by what was left out of a
// MANIFEST, in case that was more than an entry that Badger never acted on. A table that no entry
// names is one that Badger was about to name, with groups that the log has.
func (o *opening) knowsTables(content []byte) bool {
	known := map[string]bool{}
	for at := manifestHead; ; {
		changes, next, ok := manifestChanges(content, at)
		if !ok {
			break
		}
		for _, c := range changes {
			known[table.IDToFilename(c.Id)] = true
		}
		at = next
	}
	paths, err := filesIn(o.s.dir, ".sst")
	for _, path := range paths {
		if known[filepath.Base(path)] {
			continue
		}
		if pos, _ := peek(path); pos.N <= o.tables.pos.N {
			return false
		}
	}
	return err == nil
}

// entriesEnd is where the whole entries of a MANIFEST end that begin at an offset.
func entriesEnd(content []byte, at int) int {
	for {
		_, next, ok := manifestChanges(content, at)
		if !ok {
			return at
		}
		at = next
	}
}

// manifestHeader begins a MANIFEST: Badger's magic, ours, and the version of its format.
var manifestHeader = []byte{'B', 'd', 'g', 'r', magic >> 8, magic & 0xff, 0, 8}

// manifestChanges parses the entry of a MANIFEST at an offset, if it is whole.
func manifestChanges(content []byte, at int) (changes []*pb.ManifestChange, next int, ok bool) {
	if len(content)-at < manifestEntry {
		return nil, 0, false
	}
	length, sum := int64(binary.BigEndian.Uint32(content[at:])), binary.BigEndian.Uint32(content[at+4:])
	rest := content[at+manifestEntry:]
	if length > int64(len(rest)) || crc32.Checksum(rest[:length], y.CastagnoliCrcTable) != sum {
		return nil, 0, false
	}
	var set pb.ManifestChangeSet
	if err := proto.Unmarshal(rest[:length], &set); err != nil {
		return nil, 0, false
	}
	return set.Changes, at + manifestEntry + int(length), true
}
