package badger

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/dgraph-io/badger/v4/y"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/commitlog"
	"github.com/ckptd/ckptd/internal/durable"
)

// copyTables copies the tables that the MANIFEST names.
func (v *salvager) copyTables() error {
	for _, name := range v.tables.names {
		if err := v.copyTable(name); err != nil {
			return err
		}
	}
	return nil
}

// copyUnnamed copies all other tables if the MANIFEST lacks some: one of them goes beyond what it
// names and the groups behind that, or cannot be read in full. Most often there are none, or those
// that a compaction was about to remove.
func (v *salvager) copyUnnamed(groups map[uint64]group) (took bool, err error) {
	names, err := v.unnamed()
	if err != nil || len(names) == 0 || v.manifest != nil { // the log has all that is in those that an earlier MANIFEST does not name
		return false, err
	}
	end := v.pos.N
	for ; groups[end+1].pos.N != 0; end++ {
	}
	beyond := ""
	for _, name := range names {
		pos, whole := peek(filepath.Join(v.s.dir, name))
		if pos.N > end || pos.N > 0 && v.at > 0 && pos.Incarnation != v.pos.Incarnation || !whole {
			beyond = name
		}
	}
	switch {
	case v.noManifest:
		v.missing("the MANIFEST cannot be read: all tables in the directory were used, so deleted data can be back")
	case beyond != "":
		v.missing("the MANIFEST does not name %s: all tables in the directory were used, so deleted data can be back", beyond)
	default:
		return false, nil
	}
	for _, name := range names {
		if err := v.copyTable(name); err != nil {
			return false, err
		}
	}
	return true, nil
}

// unnamed are the tables that the MANIFEST does not name.
func (v *salvager) unnamed() (names []string, err error) {
	for _, dir := range []string{v.s.dir, filepath.Join(v.s.dir, keptDir)} {
		paths, err := filesIn(dir, ".sst")
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			if name := filepath.Base(path); !slices.Contains(v.tables.names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// peek finds the newest position in a table, and says whether all of it can be read.
func peek(path string) (pos commitlog.Position, whole bool) {
	var at uint64
	bad, _, err := eachEntryOf(path, func(key []byte, value y.ValueStruct) error {
		if p, ts, ok := positionEntry(key, value); ok && ts > at {
			pos, at = p, ts
		}
		return nil
	})
	return pos, bad == 0 && err == nil
}

// copyTable copies the blocks of a table that are whole. Where they are not all, an opening that
// was cut short may have left a copy.
func (v *salvager) copyTable(name string) error {
	var bad, blocks int
	why := error(nil)
	found := false
	for _, path := range []string{filepath.Join(v.s.dir, name), filepath.Join(v.s.dir, keptDir, name)} {
		b, n, err := eachEntryOf(path, v.entry)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil && !errors.Is(err, backend.ErrCorrupt):
			return err
		case err == nil && b == 0:
			v.report.Tables++
			return nil
		case !found || why != nil && err == nil:
			bad, blocks, why = b, n, err
		}
		found = true
	}
	v.damaged = true
	switch {
	case !found:
		v.missing("%s: the table is missing", name)
		return nil
	case why != nil:
		v.missing("%s: %s", name, plain(why))
	default:
		v.missing("%s: %d of %d blocks cannot be read", name, bad, blocks)
	}
	v.report.Tables++
	return nil
}

// eachEntryOf calls f with the entries of a table whose blocks are whole.
func eachEntryOf(path string, f func(key []byte, value y.ValueStruct) error) (bad, blocks int, err error) {
	b, _, err := readAround(path)
	if errors.Is(err, durable.ErrNotRegular) {
		return 0, 0, fmt.Errorf("%w: %v", backend.ErrCorrupt, err)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			err = dirError(err)
		}
		return 0, 0, err
	}
	var failed error // of f, not damage
	defer func() {
		if failed != nil {
			err = failed
		} else if err != nil && !errors.Is(err, backend.ErrCorrupt) {
			err = fmt.Errorf("%w: %s", backend.ErrCorrupt, text(err))
		}
	}()
	defer guard("reading", &err)()
	return eachBlock(b, func(block []byte) error {
		return eachEntry(block, func(key []byte, value y.ValueStruct) error {
			if failed == nil {
				failed = f(key, value)
			}
			return failed
		})
	})
}

// entry takes one over, unless it is the driver's own or Badger's.
func (v *salvager) entry(key []byte, value y.ValueStruct) error {
	name, ts := y.ParseKey(key), y.ParseTs(key)
	v.newest = max(v.newest, ts)
	if p, _, ok := positionEntry(key, value); ok && ts > v.at {
		v.pos, v.at = p, ts
	}
	m := commitlog.Mutation{User: value.UserMeta, Key: name, Value: value.Value}
	if value.Meta&metaDelete != 0 {
		m.User = 0
	}
	return v.mutation(m, ts)
}

// positionEntry reads the driver's key, if it is that.
func positionEntry(key []byte, value y.ValueStruct) (p commitlog.Position, ts uint64, ok bool) {
	if !bytes.Equal(y.ParseKey(key), positionName) {
		return p, 0, false
	}
	p, err := parsePosition(value.Value)
	return p, y.ParseTs(key), err == nil
}
