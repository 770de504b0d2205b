package migration

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/durable"
	"github.com/ckptd/ckptd/internal/wire"
	"github.com/ckptd/ckptd/migrate"
)

// State says where a job is.
type State string

// The states of a job.
const (
	Running   State = "running" // or was interrupted: Run resumes it
	Stopped   State = "stopped" // too many states failed: Run tries again
	Done      State = "done"
	Undoing   State = "undoing" // or was interrupted: Undo resumes it
	Undone    State = "undone"
	Finishing State = "finishing" // the originals of histories are going
)

// Job is a migration that was begun.
type Job struct {
	ID       string
	Spec     Spec
	To       map[string]uint64 // version that each kind gets
	State    State
	Created  time.Time
	Updated  time.Time // of the state
	Migrated int       // heads or, if histories are rewritten, threads
	Failed   int
	Undone   int
	Kept     int // could not be undone
}

// Start creates a job for Run to carry out. It fails where a plan fails, for example if the set is
// older than the store. If MaxErrorRate is 0, it tries the steps on all states first, and creates
// no job if one fails: the report then has the failures, and the error is wire.ErrJobRefused. With
// a higher rate failing states are skipped, and the job stops if they exceed the rate.
func (j *Jobs) Start(ctx context.Context, spec Spec, o RunOptions) (*Job, *Report, error) {
	return j.StartAs(ctx, "", spec, o)
}

// StartAs is Start with an id from NewID, so that a caller that stores the id first knows the job
// after a kill.
func (j *Jobs) StartAs(ctx context.Context, id string, spec Spec, o RunOptions) (*Job, *Report, error) {
	plan, err := j.Plan(ctx, spec)
	if err == nil {
		err = plan.Err()
	}
	if err != nil {
		return nil, nil, err
	}
	if o.MaxErrorRate == 0 {
		dry := o
		dry.Throttle = 0
		report, err := j.DryRun(ctx, spec, spec.Rewrite, dry)
		if err != nil {
			return nil, nil, err
		}
		if err := report.Err(); err != nil {
			return nil, report, fmt.Errorf("%w, %d of %d states would fail: %w", wire.ErrJobRefused, report.Failed, report.States, err)
		}
	}
	b := &begin{Version: journalVersion, Spec: spec, Created: time.Now().UTC().Truncate(time.Second), Digests: map[string][]byte{}, To: map[string]uint64{}}
	for i := range plan.Groups {
		if g := &plan.Groups[i]; len(g.Steps) > 0 || g.To != g.Version || spec.Rewrite && g.Kind != "" && j.sets(spec.Tenant, g.Kind) != nil {
			digest := j.sets(spec.Tenant, g.Kind).Digest()
			b.Digests[g.Kind], b.To[g.Kind] = digest[:], g.To
		}
	}
	for try, named := 0, id != ""; ; try++ {
		if !named {
			id = NewID(b.Created, try)
		}
		l, err := j.create(id, b)
		if err == nil {
			return &Job{ID: id, Spec: spec, To: b.To, State: Running, Created: b.Created, Updated: b.Created}, nil, l.close()
		}
		if named || !errors.Is(err, fs.ErrExist) {
			return nil, nil, fmt.Errorf("creating the journal of a job: %w", err)
		}
	}
}

// NewID is an id for a job that begins now; try counts those that were taken.
func NewID(now time.Time, try int) string {
	id := now.UTC().Format("20060102-150405")
	if try > 0 {
		id += fmt.Sprintf("-%d", try)
	}
	return id
}

// ValidID reports whether a job may have that id.
func ValidID(id string) bool { return len(id) <= 32 && jobID.MatchString(id) }

var jobID = regexp.MustCompile(`^[0-9]{8}-[0-9]{6}(-[0-9]+)?$`)

// Job returns a job.
func (j *Jobs) Job(id string) (*Job, error) {
	l, h, err := j.read(id, false)
	if err != nil {
		return nil, err
	}
	return &h.job, l.close()
}

// List returns the jobs, the oldest first.
func (j *Jobs) List() ([]*Job, error) {
	entries, err := os.ReadDir(j.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing migration jobs: %w", err)
	}
	var all []*Job
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".job")
		if !ok || !jobID.MatchString(id) {
			continue
		}
		job, err := j.Job(id)
		if err != nil {
			return nil, err
		}
		all = append(all, job)
	}
	slices.SortFunc(all, func(a, b *Job) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	return all, nil
}

// Unfinished returns the job of a spec that Run can resume, or nil.
func (j *Jobs) Unfinished(spec Spec) (*Job, error) {
	all, err := j.List()
	if err != nil {
		return nil, err
	}
	for _, job := range all {
		if job.Spec == spec && (job.State == Running || job.State == Stopped) {
			return job, nil
		}
	}
	return nil, nil
}

// history is the content of a journal.
type history struct {
	job      Job
	begin    *begin
	pending  []intent     // which may have been carried out, or not
	outcomes []int64      // places of frames with outcomes, by number; -1 for other frames
	undone   map[int]bool // frames of outcomes that were undone
}

// read reads the journal of a job. With repair frames can be appended.
func (j *Jobs) read(id string, repair bool) (*journal, *history, error) {
	if !jobID.MatchString(id) {
		return nil, nil, fmt.Errorf("%w %q", wire.ErrNoJob, id)
	}
	h := &history{job: Job{ID: id}, undone: map[int]bool{}}
	l, err := j.open(id, repair, h.see)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%w %q", wire.ErrNoJob, id)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading migration job %s: %w", id, err)
	}
	if h.begin == nil { // it was cut short before it had a first frame
		return nil, nil, errors.Join(fmt.Errorf("%w %q: it never started", wire.ErrNoJob, id), l.close())
	}
	return l, h, nil
}

// see reads a frame at a position in the file.
func (h *history) see(at int64, f *frame) error {
	place := int64(-1)
	switch {
	case f.Begin != nil:
		h.begin = f.Begin
		if f.Begin.Version != journalVersion {
			return fmt.Errorf("%w: unknown journal version %d", engine.ErrNewerFormat, f.Begin.Version)
		}
		h.job.Spec, h.job.To, h.job.State = f.Begin.Spec, f.Begin.To, Running
		h.job.Created, h.job.Updated = f.Begin.Created, f.Begin.Created
	case f.Intents != nil:
		h.pending = f.Intents
	case f.Outcomes != nil:
		h.pending, place = nil, at
		for _, o := range f.Outcomes {
			if o.Failed {
				h.job.Failed++
			} else {
				h.job.Migrated++
			}
		}
	case f.Undone != nil:
		for _, n := range f.Undone {
			h.undone[n] = true
		}
		h.job.Undone += f.Count
		h.job.Kept += len(f.Left)
	case f.State != nil:
		h.job.State, h.job.Updated = f.State.State, f.State.Time
		if f.State.State == Running { // failed states are tried again
			h.job.Failed = 0
		}
	}
	h.outcomes = append(h.outcomes, place)
	return nil
}

// become records a new state of a job.
func (l *journal) become(h *history, s State) error {
	h.job.State, h.job.Updated = s, time.Now().UTC().Truncate(time.Second)
	return l.commit(&frame{State: &change{s, h.job.Updated}})
}

// pinned checks that the sets of a job are those that it began with.
func (j *Jobs) pinned(b *begin) error {
	for kind, want := range b.Digests {
		set := j.sets(b.Spec.Tenant, kind)
		if set == nil {
			return fmt.Errorf("%w: the migrations for kind %q that the job started with are missing", migrate.ErrNoPath, kind)
		}
		if digest := set.Digest(); !bytes.Equal(digest[:], want) {
			return fmt.Errorf("%w: the migrations for kind %q changed since the job started: restore them, or undo the job", wire.ErrJobState, kind)
		}
	}
	return nil
}

// Finish ends a job for good: the originals of rewritten histories and the journal are removed.
// Originals of heads are ordinary checkpoints and stay. An unfinished job must first be completed
// or undone.
func (j *Jobs) Finish(ctx context.Context, id string) error {
	if !j.busy.TryLock() {
		return wire.ErrJobBusy
	}
	defer j.busy.Unlock()
	l, h, err := j.read(id, true)
	if err != nil {
		return err
	}
	defer l.close()
	switch h.job.State {
	case Done, Finishing:
		if h.begin.Spec.Rewrite {
			if err := l.become(h, Finishing); err != nil {
				return err
			}
			if err := j.dropHistories(ctx, l, h); err != nil {
				return fmt.Errorf("finishing job %s: %w", id, err)
			}
		}
	case Undone:
	default:
		return fmt.Errorf("%w: job %s is %s: complete it, or undo it", wire.ErrJobState, id, h.job.State)
	}
	if err := os.Remove(j.path(id)); err != nil {
		return fmt.Errorf("finishing job %s: %w", id, err)
	}
	return durable.SyncDir(j.dir)
}
