package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/ckptd/ckptd/engine"
)

// model is the knowledge about the store between two rounds, including what its users learn in a
// round.
type model struct {
	known map[engine.Ref][]*known // for operations to refer to; some may be gone
	lines map[engine.Ref]*state
	lives map[string]*life // of threads
	blobs map[engine.BlobID]string
	put   []engine.BlobID // in order
	undos []*headUndo
	swept bool // garbage collection has run

	versions map[engine.Version]string // digest of the bytes that a version names
	given    map[place]given           // which call got a seq
	highest  map[line]uint64           // highest acknowledged seq
	steps    int64
}

type line struct {
	ref engine.Ref
	gen uint64
}

type place struct {
	line
	seq uint64
}

type given struct {
	id string
	by string // the operation
}

// known is a checkpoint as shown by an answer.
type known struct {
	name   string
	cp     *engine.Checkpoint // without data
	draft  *engine.Draft      // the draft, if a caller saved it
	chosen bool               // the caller chose the id
}

// state is the state of a lineage between two rounds.
type state struct {
	revs     []*rev // by seq
	branches map[string]string
	writes   map[writeKey]string
}

// life is the state of a thread between two rounds.
type life struct {
	there   bool
	gen     uint64
	expires time.Time     // zero: never
	ttl     time.Duration // 0: unknown, or none
	keeps   bool          // the history from before a migration,
	kept    map[keptKey]*content
}

type keptKey struct {
	ns  string
	seq uint64
}

func newModel() *model {
	return &model{known: map[engine.Ref][]*known{}, lines: map[engine.Ref]*state{}, lives: map[string]*life{}, blobs: map[engine.BlobID]string{},
		versions: map[engine.Version]string{}, given: map[place]given{}, highest: map[line]uint64{}}
}

// nextStep returns a step that no other draft has, so that it identifies the draft of a checkpoint.
func (m *model) nextStep(name string) int64 {
	var r, c, o int64
	fmt.Sscanf(name, "r%dc%do%d", &r, &c, &o)
	m.steps++
	return ((r*100+c)*10000+o)*1000 + 1
}

// learn records an acknowledged checkpoint.
func (m *model) learn(ref engine.Ref, name string, cp *engine.Checkpoint, d *engine.Draft) {
	k := &known{name: name, cp: cp, draft: d, chosen: d != nil && d.ID != ""}
	m.known[ref] = append(m.known[ref], k)
}

func newLife() *life { return &life{} }

// copies returns the names of threads that were made by copying others.
func (m *model) copies() (names []string) {
	for t, life := range m.lives {
		if life.there && t[0] == 'x' {
			names = append(names, t)
		}
	}
	slices.Sort(names)
	return names
}
