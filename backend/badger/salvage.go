package badger

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	badgerdb "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/y"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/commitlog"
	"github.com/ckptd/ckptd/internal/durable"
)

// Salvaged is what became of a damaged store in a new one.
type Salvaged struct {
	Tables  int      // that were read
	Groups  int      // of commits that came from the log and from memory files
	Missing []string // what could not be read
	Lost    *Loss    // what of the acknowledged commits is missing at the end
}

// Salvage reads whatever can be read in a directory, in which it changes nothing, and writes it to a new store in a directory that must
// be missing or empty. Damage costs a block of a table, or a group of the log: where that had the newest version of a key, an older one
// or none is left, and a deleted one may be back. So what is salvaged is to be verified by whoever can tell what belongs together.
func Salvage(dir, to string, opts Options) (*Salvaged, error) {
	r, err := salvage(dir, to, opts)
	if err != nil {
		return nil, fmt.Errorf("salvaging %s: %w", dir, err)
	}
	return r, nil
}

func salvage(dir, to string, opts Options) (*Salvaged, error) {
	if names, err := os.ReadDir(to); len(names) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(err, fmt.Errorf("%w: %s is not empty", backend.ErrInvalid, to))
	}
	o, _, release, err := look(dir, opts)
	if err != nil {
		return nil, err
	}
	defer release()
	o.dry, o.accept = true, true
	why := o.look()
	if errors.Is(why, backend.ErrNewerFormat) {
		return nil, why
	}
	v := &salvager{opening: o, report: &Salvaged{Missing: []string{}, Lost: o.lost}}
	if err := v.into(filepath.Clean(to), opts); err != nil {
		return nil, err
	}
	return v.report, nil
}

// into writes the new store under a name that nobody has, and gives it its own once it is whole.
func (v *salvager) into(to string, opts Options) error {
	parent := filepath.Dir(to)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return dirError(err)
	}
	temp, err := os.MkdirTemp(parent, filepath.Base(to)+".new-")
	if err != nil {
		return dirError(err)
	}
	if err = v.write(temp, opts); err == nil {
		err = dirError(errors.Join(os.Rename(temp, to), durable.SyncDir(parent)))
	}
	if err != nil {
		os.RemoveAll(temp)
	}
	return err
}

// salvager copies what can be read of a store into Badger, with Badger's timestamps, so that the newest version of a key wins in
// whatever order they come.
type salvager struct {
	*opening
	report *Salvaged
	db     *badgerdb.DB
	batch  *badgerdb.WriteBatch
	pos    commitlog.Position // the newest that a table has
	at     uint64             // when that was written
	newest uint64             // timestamp
}

func (v *salvager) write(to string, opts Options) error {
	opts.LogFiles, opts.MustExist = nil, false
	s, err := Open(to, opts)
	if err != nil {
		return err
	}
	settings := s.settings()
	if err := s.Close(); err != nil {
		return err
	}
	return v.fill(settings)
}

func (v *salvager) fill(settings badgerdb.Options) (err error) {
	defer guard("salvaging", &err)()
	if v.db, err = badgerdb.OpenManaged(settings); err != nil {
		return openError(err)
	}
	v.batch = v.db.NewManagedWriteBatch()
	err = errors.Join(v.copyTables(), v.copyGroups())
	if flushed := v.batch.Flush(); err == nil && flushed != nil {
		err = fmt.Errorf("%w: %s", backend.ErrUnavailable, text(flushed))
	}
	return errors.Join(err, v.db.Close())
}

// copyTables copies the tables that the MANIFEST names or, if it cannot be read, all that there are.
func (v *salvager) copyTables() error {
	names, find := v.tables.names, inKept(v.s.dir)
	if len(names) == 0 {
		for _, dir := range []string{v.s.dir, filepath.Join(v.s.dir, keptDir)} {
			paths, err := filesIn(dir, ".sst")
			if err != nil {
				return err
			}
			for _, path := range paths {
				names = append(names, filepath.Base(path))
			}
		}
		slices.Sort(names)
		names = slices.Compact(names)
		if len(names) > 0 {
			v.missing("the MANIFEST cannot be read: all tables that there are were taken, and what was deleted may be back")
		}
	}
	for _, name := range names {
		bad, blocks, err := v.copyTable(find(name))
		switch {
		case err != nil && !errors.Is(err, backend.ErrCorrupt):
			return err
		case err != nil:
			v.missing("%s: %s", name, plain(err))
		case bad > 0:
			v.missing("%s: %d of %d blocks cannot be read", name, bad, blocks)
		}
		v.report.Tables++
	}
	return nil
}

func (v *salvager) missing(format string, args ...any) {
	v.report.Missing = append(v.report.Missing, fmt.Sprintf(format, args...))
}

// copyTable copies the blocks of a table that are whole.
func (v *salvager) copyTable(path string) (bad, blocks int, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, fmt.Errorf("%w: the table is missing", backend.ErrCorrupt)
	}
	if err != nil {
		return 0, 0, dirError(err)
	}
	defer guard("reading", &err)()
	return eachBlock(b, func(block []byte) error { return eachEntry(block, v.entry) })
}

// entry takes one over, unless it is the driver's own or Badger's.
func (v *salvager) entry(key []byte, value y.ValueStruct) error {
	name, ts := y.ParseKey(key), y.ParseTs(key)
	v.newest = max(v.newest, ts)
	if bytes.Equal(name, positionName) && ts > v.at {
		if p, err := parsePosition(value.Value); err == nil {
			v.pos, v.at = p, ts
		}
	}
	m := commitlog.Mutation{User: value.UserMeta, Key: name, Value: value.Value}
	if value.Meta&metaDelete != 0 {
		m.User = 0
	}
	return v.mutation(m, ts)
}

func (v *salvager) mutation(m commitlog.Mutation, ts uint64) error {
	if len(m.Key) == 0 || m.Key[0] != dataSpace {
		return nil
	}
	name := bytes.Clone(m.Key)
	var err error
	if m.User == 0 {
		err = v.batch.DeleteAt(name, ts)
	} else {
		err = v.batch.SetEntryAt(&badgerdb.Entry{Key: name, Value: bytes.Clone(m.Value), UserMeta: m.User}, ts)
	}
	if err != nil {
		return fmt.Errorf("%w: writing: %s", backend.ErrUnavailable, text(err))
	}
	return nil
}

// copyGroups applies the groups of the log and of memory files behind the tables, whether there are gaps between them or not.
func (v *salvager) copyGroups() error {
	incarnation, err := v.incarnation()
	if err != nil {
		return err
	}
	begin := commitlog.Position{Incarnation: incarnation}
	paths, err := memoryFiles(v.s.dir)
	if err != nil {
		return err
	}
	memory, err := memoryGroups(paths, begin)
	if err != nil {
		return err
	}
	groups := map[uint64]group{}
	for n, m := range memory {
		groups[n] = group{pos: m.pos, memory: &m}
	}
	if v.s.logs != nil {
		tail, err := v.s.logs.Scan(begin)
		if err != nil {
			return dirError(err)
		}
		for _, f := range tail.Frames {
			groups[f.Pos.N] = group{pos: f.Pos, frame: f}
		}
	}
	return v.apply(groups)
}

// incarnation is that of the tables or, if none says it, of the log or of the memory files.
func (v *salvager) incarnation() (commitlog.ID, error) {
	if v.at > 0 {
		return v.pos.Incarnation, nil
	}
	if log := v.s.logs; log != nil {
		if p, ok := log.Anchor(); ok {
			return p.Incarnation, nil
		}
		if id, ok := log.Incarnation(); ok {
			return id, nil
		}
	}
	err := v.incarnationOfMemory()
	return v.tables.pos.Incarnation, err
}

func (v *salvager) apply(groups map[uint64]group) error {
	reader := v.s.logs.Reader()
	defer reader.Close()
	for _, n := range v.worthwhile(slices.Sorted(maps.Keys(groups))) {
		g := groups[n]
		v.newest++
		v.report.Groups++
		take := func(m commitlog.Mutation) error { return v.mutation(m, v.newest) }
		if g.memory != nil {
			for _, m := range g.memory.muts {
				if err := take(m); err != nil {
					return err
				}
			}
			continue
		}
		b, err := reader.Mutations(g.frame)
		if err == nil {
			err = commitlog.ParseMutations(b, take)
		}
		if err != nil {
			return dirError(err)
		}
	}
	return nil
}

// worthwhile are the numbers of the groups to apply. Those that follow each other to the last one are, though tables have them too,
// since they then change nothing, and mend what is damaged there. Before a gap only those are that tables lack.
func (v *salvager) worthwhile(sorted []uint64) []uint64 {
	first := len(sorted)
	for first > 0 && (first == len(sorted) || sorted[first-1]+1 == sorted[first]) {
		first--
	}
	for first > 0 && sorted[first-1] > v.pos.N {
		first--
	}
	have := v.pos.N
	for _, n := range sorted[first:] {
		switch {
		case n == have+2:
			v.missing("group %d is missing", have+1)
		case n > have+2:
			v.missing("groups %d to %d are missing", have+1, n-1)
		}
		have = max(have, n)
	}
	return sorted[first:]
}
