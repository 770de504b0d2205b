package badger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	badgerdb "github.com/dgraph-io/badger/v4"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/commitlog"
	"github.com/ckptd/ckptd/internal/durable"
)

// Outcome is the effect that Open would have on a directory.
type Outcome string

// Outcomes of Open.
const (
	OpensClean   Outcome = "open"   // all groups are in tables
	OpensReplays Outcome = "replay" // and writes groups of the log to tables first
	OpensRepairs Outcome = "repair" // and repairs damage from a second copy
	OpensNot     Outcome = "refuse" // it changes nothing
)

// Diagnosis describes the content of a directory, and the effect of opening it.
type Diagnosis struct {
	Store  commitlog.ID // of the directory
	Format int

	Tables, Memory, Log Part
	Anchor              commitlog.Position
	AnchorWhole         bool
	Interrupted         bool // an opening was cut short
	Unfinished          bool // the log ends with a part of a group, which was in progress and not acknowledged

	Outcome Outcome
	Stands  commitlog.Position // the last group before the first gap
	Replay  int                // groups that are not in tables
	Repairs []string           // damage that Open would repair
	Damage  []string           // damage that it would not, and why it refuses
	Lost    *Loss              // the acknowledged commits that are missing; nil if none are
	Err     error              // of Open, nil unless it would refuse

	markerLost bool
}

// Part is one of the places that hold commits.
type Part struct {
	Files int
	Bytes int64
	Group uint64 // the last that was found there
}

// Loss describes acknowledged commits that are missing.
type Loss struct {
	Groups uint64             // how many; 0: unknown
	After  commitlog.Position // the last group before them
	Why    string
}

// String describes the loss in a line.
func (l *Loss) String() string {
	if l.Groups == 0 {
		return l.Why
	}
	since := "the beginning"
	if l.After.N > 0 {
		since = l.Since().Format(time.RFC3339)
	}
	groups := "1 group of commits"
	if l.Groups > 1 {
		groups = fmt.Sprintf("%d groups of commits", l.Groups)
	}
	return fmt.Sprintf("%s since %s, from number %d on: %s", groups, since, l.After.N+1, l.Why)
}

// Since returns the time of the last group before the loss; zero if there is none.
func (l *Loss) Since() time.Time {
	if l.After.N == 0 {
		return time.Time{}
	}
	return time.UnixMilli(l.After.Time).UTC()
}

// Diagnose examines a directory and changes nothing in it. Meanwhile nobody can open the store.
//
// It fails only if it cannot examine the directory: fs.ErrNotExist, backend.ErrForeign, ErrLocked,
// ErrNewerFormat, ErrNewerLog, ErrOlderFormat, or the error of the system for a file that cannot be
// read.
func Diagnose(dir string, opts Options) (*Diagnosis, error) {
	d, err := diagnose(dir, opts)
	if err != nil {
		return nil, fmt.Errorf("looking at %s: %w", dir, err)
	}
	return d, nil
}

func diagnose(dir string, opts Options) (*Diagnosis, error) {
	o, d, release, err := look(dir, opts)
	if err != nil {
		return nil, err
	}
	defer release()
	o.dry, o.accept = true, true
	if d.Err = o.look(); d.Err == nil {
		d.Err = o.refused
	}
	for _, cannot := range []error{backend.ErrNewerFormat, backend.ErrUnavailable, backend.ErrReadOnly} {
		if errors.Is(d.Err, cannot) {
			return nil, d.Err
		}
	}
	d.settle(o)
	return d, d.count(o)
}

// look begins to look at a directory whose marker may be damaged. Nobody opens the store until
// release.
func look(dir string, opts Options) (o *opening, d *Diagnosis, release func(), err error) {
	d = &Diagnosis{Format: formatVersion}
	if d.Store, err = d.identify(dir); err != nil {
		return nil, nil, nil, err
	}
	c := &claim{id: d.Store}
	if c.dir, err = lockDir(dir, lockShared); err != nil {
		return nil, nil, nil, err
	}
	c.marker, err = durable.Open(filepath.Join(dir, markerName), os.O_RDONLY)
	if err == nil {
		err = lockShared(c.marker)
	} else if err = dirError(err); errors.Is(err, fs.ErrNotExist) || errors.Is(err, durable.ErrNotRegular) {
		err = nil
	}
	if err == nil {
		opts.LogFiles = func(commitlog.FS) commitlog.FS { return readOnlyLog(dir) }
		o = &opening{}
		o.s, err = newStore(dir, opts)
	}
	if err != nil {
		c.release()
		return nil, nil, nil, err
	}
	o.s.claim = c
	return o, d, c.release, nil
}

func readOnlyLog(dir string) commitlog.FS { return commitlog.ReadOnly(filepath.Join(dir, logDir)) }

// identify reads the id of a directory in its marker or, if that is damaged or gone, in the log.
func (d *Diagnosis) identify(dir string) (commitlog.ID, error) {
	id, ours, err := readMarker(dir)
	if ours && err == nil || err != nil && !errors.Is(err, backend.ErrCorrupt) && !errors.Is(err, backend.ErrForeign) {
		return id, err
	}
	if of, ok := commitlog.StoreOf(readOnlyLog(dir)); ok {
		d.markerLost = true
		d.Repairs = append(d.Repairs, "the file "+markerName+" is damaged or missing, and can be restored from the log")
		return of, nil
	}
	if err == nil {
		err = checkEmpty(dir)
	}
	if err == nil {
		err = fmt.Errorf("no store there: %w", fs.ErrNotExist)
	}
	return id, err
}

// settle fills in the findings.
func (d *Diagnosis) settle(o *opening) {
	d.Lost, d.Stands, d.Replay = o.lost, o.last, len(o.groups)
	for _, why := range o.puts {
		d.Repairs = append(d.Repairs, why+", and an opening that was cut short left a copy")
	}
	d.Repairs = append(d.Repairs, o.notes...)
	if d.Err != nil && !errors.Is(d.Err, o.refused) && d.Lost != nil { // accepting the loss would not do
		d.Damage, d.Lost = append(d.Damage, d.Lost.Why), nil
	}
	switch {
	case d.markerLost && o.logGone: // and what was in the marker is not known, since the log is not that of the tables
		d.Err = fmt.Errorf("%w: its %s file is damaged or missing, and %s", backend.ErrCorrupt, markerName, o.lost.Why)
		d.Damage, d.Repairs, d.Lost = append(d.Damage, plain(d.Err)), nil, nil
	case d.markerLost && d.Err == nil:
		d.Err = fmt.Errorf("%w: its %s file is damaged or missing", backend.ErrCorrupt, markerName)
	case d.Err != nil:
		for _, table := range o.tables.damaged {
			d.Damage = append(d.Damage, plain(table))
		}
		if len(d.Damage) == 0 && d.Lost != nil && d.Lost.Groups > 0 {
			d.Damage = []string{d.Lost.String()}
		} else if len(d.Damage) == 0 {
			d.Damage = []string{plain(d.Err)}
		}
	}
	switch {
	case d.Err != nil:
		d.Outcome = OpensNot
	case len(d.Repairs) > 0:
		d.Outcome = OpensRepairs
	case d.Replay > 0:
		d.Outcome = OpensReplays
	default:
		d.Outcome = OpensClean
	}
}

// plain is the text of an error without the class, which the diagnosis has.
func plain(err error) string {
	return strings.NewReplacer(backend.ErrCorrupt.Error()+": ", "", "backend: ", "").Replace(text(err))
}

// count fills in the sizes of the parts, and the last group of each.
func (d *Diagnosis) count(o *opening) error {
	dir := o.s.dir
	tables, err := filesIn(dir, ".sst")
	if err != nil {
		return err
	}
	memory, err := memoryFiles(dir)
	if err != nil {
		return err
	}
	d.Tables = Part{Group: o.tables.pos.N}
	d.Tables.add(tables)
	d.Memory.add(memory)
	if groups, err := memoryGroups(memory, o.tables.pos); err == nil {
		for n := range groups {
			d.Memory.Group = max(d.Memory.Group, n)
		}
	}
	if log := o.s.logs; log != nil {
		d.Log.Files, d.Log.Bytes = log.Segments(), log.Bytes()
		d.Anchor, d.AnchorWhole = log.Anchor()
	}
	d.Unfinished = o.tail != nil && o.tail.Doubt && !o.logGone && d.Err == nil && len(d.Repairs) == 0
	if o.tail != nil && len(o.tail.Frames) > 0 {
		d.Log.Group = o.tail.Frames[len(o.tail.Frames)-1].Pos.N
	}
	for _, name := range []string{asideDir, asideNew, keptDir, keptNew} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			d.Interrupted = true
		}
	}
	return nil
}

func (p *Part) add(paths []string) {
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil {
			p.Files, p.Bytes = p.Files+1, p.Bytes+allocated(info)
		}
	}
}

// Repair opens a store and closes it, which repairs all damage that has a second copy, and lists
// that damage. Unlike Open, it also restores the marker, from the log.
func Repair(dir string, opts Options) (mended []string, err error) {
	d, err := Diagnose(dir, opts)
	if err != nil {
		return nil, err
	}
	if d.markerLost {
		if len(d.Repairs) == 0 { // it cannot be
			return nil, fmt.Errorf("repairing %s: %w", dir, d.Err)
		}
		if err := repairMarker(dir, d.Store); err != nil {
			return nil, fmt.Errorf("repairing %s: %w", dir, err)
		}
	}
	opts.MustExist = true
	s, err := Open(dir, opts)
	if err != nil {
		return nil, err
	}
	return d.Repairs, s.Close()
}

// repairMarker writes the marker of a directory that no process has open.
func repairMarker(dir string, id commitlog.ID) error {
	held, err := lockDir(dir, lock)
	if err != nil {
		return err
	}
	defer held.Close()
	return dirError(durable.WriteFile(filepath.Join(dir, markerName), []byte(marker(id))))
}

// Accepted describes a store whose loss was accepted.
type Accepted struct {
	Lost     *Loss
	Evidence string             // the folder with the old files
	Now      commitlog.Position // from which the store continues, in a new incarnation
}

// AcceptLoss continues a store without the commits that are missing, after the last group before the
// first gap. The old files are kept next to the directory. Errors: backend.ErrInvalid (nothing is
// missing), and those of Open, such as for a damaged table.
func AcceptLoss(dir string, opts Options) (*Accepted, error) {
	a, err := acceptLoss(dir, opts)
	if err != nil {
		return nil, fmt.Errorf("accepting the loss in %s: %w", dir, err)
	}
	return a, nil
}

func acceptLoss(dir string, opts Options) (a *Accepted, err error) {
	s, err := newStore(dir, opts)
	if err != nil {
		return nil, err
	}
	if s.claim, err = claimDir(dir, false); err != nil {
		return nil, err
	}
	o := opening{s: s, accept: true}
	if err = o.look(); err == nil && o.lost == nil {
		err = fmt.Errorf("%w: nothing is missing that is known of", backend.ErrInvalid)
	}
	if err == nil {
		err = s.commits.space.init(s.opts, o.tables.pending, o.bytes)
	}
	if err == nil {
		o.lost.After = o.last
		a = &Accepted{Lost: o.lost}
		a.Evidence, err = keepEvidence(dir, s.opts.MinFree)
	}
	if err != nil {
		return nil, errors.Join(err, s.abandon())
	}
	o.newIncarnation()
	if err := o.start(); err != nil {
		return nil, fmt.Errorf("%w; the old files are in %s", errors.Join(err, s.stopBadger(), s.abandon()), a.Evidence)
	}
	a.Now = o.last
	if err := s.Close(); err != nil {
		return nil, fmt.Errorf("%w; the old files are in %s", err, a.Evidence)
	}
	return a, nil
}

// checkRegistry reports whether Badger's KEYREGISTRY can be read. It holds no keys, since Badger
// encrypts nothing here.
func checkRegistry(find place) (damaged bool, err error) {
	path := find(badgerdb.KeyRegistryFileName)
	if _, err := os.Stat(path); err != nil {
		return false, dirError(gone(err))
	}
	_, err = badgerdb.OpenKeyRegistry(badgerdb.KeyRegistryOptions{Dir: filepath.Dir(path), ReadOnly: true})
	return err != nil, nil
}
