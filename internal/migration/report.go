package migration

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/migrate"
)

// Limits of a report. Failures beyond them are only counted.
const (
	MaxExamples = 20  // of each step
	maxSteps    = 200 // and different kinds of failures
)

// Report is the result of a dry run, a run or an undo.
type Report struct {
	States   int // that were looked at
	Current  int // had the version already
	Left     int // have no kind, or one without migrations
	Migrated int // were migrated, or would be; undone, of an undo
	Gone     int // went while it ran
	Failed   int

	Failures []StepFailures // the most frequent first
}

// StepFailures are the failures of a step.
type StepFailures struct {
	Kind     string // "" where no step was at fault
	From, To uint64
	Source   string // of the step
	Count    int
	Examples []Failure // at most MaxExamples, in order of user, thread and seq
}

// Failure is a state that could not be migrated. Reason may quote it.
type Failure struct {
	Ref    engine.Ref
	ID     string
	Seq    uint64
	Path   string // JSON pointer to where in the document of the step, "" for the whole
	Reason string
}

// tally collects a report from many goroutines.
type tally struct {
	mu       sync.Mutex
	report   Report
	failures map[string]*StepFailures
}

// add counts.
func (t *tally) add(count func(*Report)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	count(&t.report)
}

// fail takes note of a state that could not be migrated.
func (t *tally) fail(cp *engine.Checkpoint, err error) {
	at := StepFailures{}
	f := Failure{Ref: cp.Ref, ID: cp.ID, Seq: cp.Seq, Reason: err.Error()}
	if e, ok := errors.AsType[*migrate.StepError](err); ok {
		at = StepFailures{Kind: e.Kind, From: e.From, To: e.To, Source: e.Source}
		f.Path, f.Reason = e.Path, e.Reason
	} else if e, ok := errors.AsType[*migrate.VersionError](err); ok {
		at = StepFailures{Kind: e.Of, From: e.From, To: e.To}
		f.Reason = e.Why
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.report.Failed++
	if t.failures == nil {
		t.failures = map[string]*StepFailures{}
	}
	name := fmt.Sprintf("%q %d %d %q", at.Kind, at.From, at.To, at.Source)
	s := t.failures[name]
	if s == nil && len(t.failures) < maxSteps {
		s = &at
		t.failures[name] = s
	}
	if s != nil {
		s.Count++
		s.Examples = append(s.Examples, f)
		if len(s.Examples) >= 2*MaxExamples {
			s.trim()
		}
	}
}

// trim keeps the first examples, whichever goroutine found them.
func (s *StepFailures) trim() {
	slices.SortFunc(s.Examples, func(a, b Failure) int { return cmp.Or(a.Ref.Compare(b.Ref), cmp.Compare(a.Seq, b.Seq)) })
	s.Examples = s.Examples[:min(len(s.Examples), MaxExamples)]
}

// done returns the report.
func (t *tally) done() *Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.report
	for _, s := range t.failures {
		s.trim()
		f := *s
		f.Examples = slices.Clone(f.Examples) // more are added, and sorted, while the report is read
		r.Failures = append(r.Failures, f)
	}
	slices.SortFunc(r.Failures, func(a, b StepFailures) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.From, b.From), cmp.Compare(a.Source, b.Source))
	})
	return &r
}

// Err is the first failure, nil if there is none.
func (r *Report) Err() error {
	if r.Failed == 0 {
		return nil
	}
	if len(r.Failures) == 0 || len(r.Failures[0].Examples) == 0 {
		return fmt.Errorf("%w: %d states", migrate.ErrStep, r.Failed)
	}
	s := r.Failures[0]
	f := s.Examples[0]
	err := &migrate.StepError{Kind: s.Kind, From: s.From, To: s.To, Source: s.Source, Path: f.Path, Reason: f.Reason}
	if s.Source == "" {
		return fmt.Errorf("%w: thread %q, seq %d: %s", migrate.ErrStep, f.Ref.Thread, f.Seq, f.Reason)
	}
	return fmt.Errorf("thread %q, seq %d: %w", f.Ref.Thread, f.Seq, err)
}
