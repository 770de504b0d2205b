package migrate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
)

// Set holds the ordered steps of one kind.
type Set struct {
	kind           string
	oldest, newest uint64
	ups, downs     map[uint64]*Step // by From
	names          map[uint64]string
	schemas        map[uint64]*Schema
	limits         Limits
	digest         [32]byte
}

// Spec is the input of NewSet.
type Spec struct {
	Kind     string
	Steps    []Step
	Fixtures []Fixture
	Names    map[uint64]string  // of versions, for display: "1.2.0"
	Schemas  map[uint64]*Schema // documents of a version are validated against its schema
	Limits   Limits             // of every step; zero fields mean DefaultLimits
	Digest   [32]byte           // of the files it was read from; zero for Go functions
}

// NewSet checks a set and runs its fixtures. Steps that leave a gap or lead to the same version
// twice, and failing fixtures, are ErrInvalid.
func NewSet(ctx context.Context, spec Spec) (*Set, error) {
	s := &Set{kind: spec.Kind, ups: map[uint64]*Step{}, downs: map[uint64]*Step{}, names: spec.Names, schemas: spec.Schemas,
		limits: Limits{cmp.Or(spec.Limits.Time, DefaultLimits().Time), cmp.Or(spec.Limits.Memory, DefaultLimits().Memory)}, digest: spec.Digest}
	if spec.Kind == "" {
		return nil, invalid("the set has no kind")
	}
	for i := range spec.Steps {
		if err := s.add(&spec.Steps[i]); err != nil {
			return nil, err
		}
	}
	if err := s.checkOrder(); err != nil {
		return nil, err
	}
	for i := range spec.Fixtures {
		if err := s.check(ctx, &spec.Fixtures[i]); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Set) add(step *Step) error {
	steps := s.ups
	switch {
	case step.To+1 == step.From:
		steps = s.downs
	case step.From+1 != step.To:
		return invalid("kind %q: %s leads from version %d to %d: a step must lead to the next or the previous version",
			s.kind, step.Source, step.From, step.To)
	}
	if had := steps[step.From]; had != nil {
		return invalid("kind %q: %s and %s both lead from version %d to %d: remove one", s.kind, had.Source, step.Source, step.From, step.To)
	}
	steps[step.From] = step
	return nil
}

func (s *Set) checkOrder() error {
	if len(s.ups) == 0 {
		return invalid("kind %q: no steps", s.kind)
	}
	from := slices.Sorted(maps.Keys(s.ups))
	s.oldest, s.newest = from[0], from[len(from)-1]+1
	for i, v := range from {
		if v != s.oldest+uint64(i) {
			return invalid("kind %q: no step from version %d to %d, but %s continues from %d", s.kind, s.oldest+uint64(i), s.oldest+uint64(i)+1,
				s.ups[v].Source, v)
		}
	}
	for _, v := range slices.Sorted(maps.Keys(s.downs)) {
		if s.ups[v-1] == nil {
			return invalid("kind %q: %s is a reverse step from version %d to %d, but there is no step from %d to %d", s.kind, s.downs[v].Source, v, v-1, v-1, v)
		}
	}
	for _, v := range slices.Sorted(maps.Keys(s.names)) {
		if v < s.oldest || v > s.newest {
			return invalid("kind %q: version %d is named %q, but no step leads from or to it", s.kind, v, s.names[v])
		}
	}
	return nil
}

// Kind returns the kind of thread that the steps apply to.
func (s *Set) Kind() string { return s.kind }

// Versions returns the oldest and the newest version that the set knows.
func (s *Set) Versions() (oldest, newest uint64) { return s.oldest, s.newest }

// Digest returns the digest of the files from which the set was read, zero for a set of Go
// functions.
func (s *Set) Digest() [32]byte { return s.digest }

// Name formats a version for display: "3", or "3 (1.2.0)".
func (s *Set) Name(version uint64) string {
	if name := s.names[version]; name != "" {
		return fmt.Sprintf("%d (%s)", version, name)
	}
	return fmt.Sprint(version)
}

// Version finds a version by its number or its display name.
func (s *Set) Version(text string) (uint64, bool) {
	for v := s.oldest; v <= s.newest; v++ {
		if text == fmt.Sprint(v) || text == s.names[v] {
			return v, true
		}
	}
	return 0, false
}

// Path returns the steps from one version to another, in order; none if they are the same. A path
// down exists only if down is set and all its steps have a way back.
func (s *Set) Path(from, to uint64, down bool) ([]*Step, error) {
	fail := func(kind error, format string, args ...any) ([]*Step, error) {
		return nil, &VersionError{Kind: kind, Of: s.kind, From: from, To: to, Why: fmt.Sprintf(format, args...)}
	}
	switch {
	case from == to:
		return nil, nil
	case from > s.newest:
		return fail(ErrTooNew, "the newest that this set knows is %d; install a newer set", s.newest)
	case to > s.newest:
		return fail(ErrNoPath, "the newest that this set knows is %d", s.newest)
	case from < s.oldest || to < s.oldest:
		return fail(ErrNoPath, "the oldest that this set knows is %d", s.oldest)
	case from > to && !down:
		return fail(ErrTooNew, "a newer program saved it; upgrade this one, or ask for the way back")
	}
	var path []*Step
	for v := from; v < to; v++ {
		path = append(path, s.ups[v])
	}
	for v := from; v > to; v-- {
		if s.downs[v] == nil {
			return fail(ErrTooNew, "there is no way back from %d to %d", v, v-1)
		}
		path = append(path, s.downs[v])
	}
	return path, nil
}

// Migrate migrates a state from one version to another. It returns the steps it ran, in order.
func (s *Set) Migrate(ctx context.Context, state State, from, to uint64, down bool) (State, []*Step, error) {
	path, err := s.Path(from, to, down)
	if err != nil || len(path) == 0 {
		return state, nil, err
	}
	leave, err := s.enter(ctx, state.Decoded())
	if err != nil {
		return State{}, nil, path[0].fail(s.kind, err)
	}
	defer leave()
	d, err := Open(state)
	if err != nil {
		return State{}, nil, path[0].fail(s.kind, err)
	}
	if d, err = s.walk(ctx, d, path); err != nil {
		return State{}, nil, err
	}
	last := path[len(path)-1]
	out, err := d.State()
	if err != nil {
		return State{}, nil, last.fail(s.kind, err)
	}
	return out, path, nil
}

// walk runs steps and validates each result against the schema of its version.
func (s *Set) walk(ctx context.Context, d *Document, path []*Step) (*Document, error) {
	for _, step := range path {
		var err error
		if d, err = step.apply(ctx, s.kind, s.limits, d); err != nil {
			return nil, err
		}
		if schema := s.schemas[step.To]; schema != nil {
			if err := schema.Check(ctx, d); err != nil {
				return nil, step.fail(s.kind, err)
			}
		}
	}
	return d, nil
}

// Registry holds at most one set per kind.
type Registry struct{ sets map[string]*Set }

// NewRegistry creates a registry. Two sets for the same kind are ErrInvalid.
func NewRegistry(sets ...*Set) (*Registry, error) {
	r := &Registry{sets: map[string]*Set{}}
	for _, s := range sets {
		if r.sets[s.kind] != nil {
			return nil, invalid("two sets are for the kind %q: keep one", s.kind)
		}
		r.sets[s.kind] = s
	}
	return r, nil
}

// Set returns the set of a kind, or nil if there is none. A nil registry has no sets.
func (r *Registry) Set(kind string) *Set {
	if r == nil {
		return nil
	}
	return r.sets[kind]
}

// Kinds lists the kinds that have a set, sorted.
func (r *Registry) Kinds() []string {
	if r == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(r.sets))
}
