package sim

import (
	"fmt"
	"time"

	"github.com/ckptd/ckptd/engine"
)

// model is what is known of the store between two rounds, and what its users learn in a round.
type model struct {
	known map[engine.Ref][]*known // for operations to name; some may be gone
	lines map[engine.Ref]*state
	lives map[string]*life // of threads
	blobs map[engine.BlobID]string
	put   []engine.BlobID // in order
	undos []*headUndo
	swept bool // garbage was collected

	versions map[engine.Version]string // the bytes that a version names, as a digest
	given    map[place]given           // who got a seq
	highest  map[line]uint64           // seq that was ever acknowledged
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

// known is a checkpoint as an answer named it.
type known struct {
	name   string
	cp     *engine.Checkpoint // without data
	draft  *engine.Draft      // what was saved, if a caller saved it
	chosen bool               // the caller chose the id
}

// state is a lineage between two rounds.
type state struct {
	revs     []*rev // by seq
	branches map[string]string
	writes   map[writeKey]string
}

// life is what is known of a thread between two rounds.
type life struct {
	there   bool
	gen     uint64
	expires time.Time     // zero: never
	ttl     time.Duration // 0: not known, or none
	keeps   bool          // the history as it was before a migration,
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

// nextStep is a step that no other draft has: by it a checkpoint tells which draft it was made of.
func (m *model) nextStep(name string) int64 {
	var r, c, o int64
	fmt.Sscanf(name, "r%dc%do%d", &r, &c, &o)
	m.steps++
	return ((r*100+c)*10000+o)*1000 + 1
}

// learn takes note of a checkpoint that was acknowledged.
func (m *model) learn(ref engine.Ref, name string, cp *engine.Checkpoint, d *engine.Draft) {
	k := &known{name: name, cp: cp, draft: d, chosen: d != nil && d.ID != ""}
	m.known[ref] = append(m.known[ref], k)
}

func newLife() *life { return &life{} }
