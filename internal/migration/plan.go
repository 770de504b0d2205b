package migration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/migrate"
)

// Jobs migrates the states of a store. Methods are safe for concurrent use; of the jobs, one runs
// at a time.
type Jobs struct {
	store *engine.Store
	dir   string
	sets  func(tenant, kind string) *migrate.Set

	busy sync.Mutex // held while a job runs
}

// New returns the jobs of a store, which must have the same sets (engine.Options.Migrations). Their
// journals are in dir, which is created with the first one.
func New(s *engine.Store, dir string, sets func(tenant, kind string) *migrate.Set) *Jobs {
	return &Jobs{store: s, dir: dir, sets: sets}
}

// Spec selects the states to migrate and their target version.
type Spec struct {
	Scope
	To      uint64 `json:"to,omitempty"`      // 0 is the newest version that the set of each kind knows; another needs Kind
	Down    bool   `json:"down,omitempty"`    // ways back are taken
	Rewrite bool   `json:"rewrite,omitempty"` // whole histories, in place of new checkpoints on the heads
}

// Group is the heads of a kind that have the same version. A head is the newest checkpoint of a
// thread, or of a namespace in one, or one in which a branch ends.
type Group struct {
	Kind    string
	Version uint64
	Name    string // of the version, for display
	Heads   int
	Example engine.Ref // one of them: the first by user and thread

	// The following are for plans.
	To    uint64   // the version that they are to have; their own if nothing is to be done
	Steps []string // that lead there: descriptions with their sources
	Err   error    // the reason if no steps lead there
}

// Plan lists the steps that a job would take.
type Plan struct {
	Groups []Group // in order of kind and version
	Todo   int     // heads that would be migrated
}

// Err is why a plan cannot be carried out: nil if it can. It names a thread.
func (p *Plan) Err() error {
	for i := range p.Groups {
		if g := &p.Groups[i]; g.Err != nil {
			return fmt.Errorf("thread %q of user %q (one of %d such heads): %w", g.Example.Thread, g.Example.User, g.Heads, g.Err)
		}
	}
	return nil
}

// Status counts the heads in scope by kind and version.
func (j *Jobs) Status(ctx context.Context, scope Scope) ([]Group, error) {
	type key struct {
		kind    string
		version uint64
	}
	var mu sync.Mutex
	counts := map[key]*Group{}
	err := j.eachLineage(ctx, scope, workersOr(0), func(_ context.Context, l *lineage) error {
		mu.Lock()
		defer mu.Unlock()
		for _, cp := range l.heads {
			k := key{cp.Kind, cp.SchemaVersion}
			g := counts[k]
			if g == nil {
				g = &Group{Kind: cp.Kind, Version: cp.SchemaVersion, Name: fmt.Sprint(cp.SchemaVersion), Example: cp.Ref}
				if set := j.sets(scope.Tenant, cp.Kind); set != nil {
					g.Name = set.Name(cp.SchemaVersion)
				}
				counts[k] = g
			}
			if g.Heads++; cp.Ref.Compare(g.Example) < 0 {
				g.Example = cp.Ref
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("counting the states: %w", err)
	}
	var groups []Group
	for _, g := range counts {
		groups = append(groups, *g)
	}
	slices.SortFunc(groups, func(a, b Group) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Version, b.Version)) })
	return groups, nil
}

// Plan returns the steps that a job would take. The error is one of reading the store; Plan.Err has
// the reason if the plan cannot be carried out.
func (j *Jobs) Plan(ctx context.Context, spec Spec) (*Plan, error) {
	if err := j.check(spec); err != nil {
		return nil, err
	}
	groups, err := j.Status(ctx, spec.Scope)
	if err != nil {
		return nil, err
	}
	p := &Plan{Groups: groups}
	for i := range groups {
		g := &groups[i]
		var steps []*migrate.Step
		g.To, steps, g.Err = j.way(spec, g.Kind, g.Version)
		for _, s := range steps {
			g.Steps = append(g.Steps, fmt.Sprintf("%s (%s)", cmp.Or(s.Description, fmt.Sprintf("%d to %d", s.From, s.To)), s.Source))
		}
		if len(steps) > 0 {
			p.Todo += g.Heads
		}
	}
	return p, nil
}

// check refuses a scope that no store can have.
func (j *Jobs) check(spec Spec) error {
	switch {
	case spec.Tenant == "":
		return fmt.Errorf("%w: no tenant given", engine.ErrInvalid)
	case spec.To != 0 && spec.Kind == "":
		return fmt.Errorf("%w: a target version needs a kind", engine.ErrInvalid)
	case spec.Kind != "" && j.sets(spec.Tenant, spec.Kind) == nil:
		return fmt.Errorf("%w: no migrations for kind %q", migrate.ErrNoPath, spec.Kind)
	}
	return nil
}

// way returns the version that a state is to have, and the steps that lead there. A kind without
// migrations stays as it is.
func (j *Jobs) way(spec Spec, kind string, version uint64) (uint64, []*migrate.Step, error) {
	set := j.sets(spec.Tenant, kind)
	if kind == "" || set == nil {
		return version, nil, nil
	}
	to := spec.To
	_, newest := set.Versions()
	if to == 0 {
		to = newest
	}
	steps, err := set.Path(version, to, spec.Down && version <= newest)
	if v, ok := errors.AsType[*migrate.VersionError](err); ok && version > newest {
		err = &migrate.VersionError{Kind: v.Kind, Of: kind, From: version, To: to,
			Why: fmt.Sprintf("the migrations are older than the store: they end at version %s", set.Name(newest))}
	}
	return to, steps, err
}
