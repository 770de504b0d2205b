package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// term is a property by which a blind index finds checkpoints.
type term struct{ field, value string }

const (
	fieldLabel  = "label"
	fieldStatus = "status"
	fieldRun    = "run"
)

func labelTerm(key, value string) term { return term{fieldLabel, key + "\x00" + value} }

// terms returns the index terms of a checkpoint, in order.
func terms(meta *codec.Attrs, status string) []term {
	var ts []term
	if status != "" && status != StatusRunning {
		ts = append(ts, term{fieldStatus, status})
	}
	if meta.RunID != "" {
		ts = append(ts, term{fieldRun, meta.RunID})
	}
	for _, k := range slices.Sorted(maps.Keys(meta.Labels)) {
		ts = append(ts, labelTerm(k, meta.Labels[k]))
	}
	return ts
}

// newTerms returns the terms of a checkpoint that its parent, if any, does not have (docs/format.md
// §12).
func newTerms(parent *codec.Attrs, parentStatus string, meta *codec.Attrs, status string) []term {
	had := terms(parent, parentStatus)
	return slices.DeleteFunc(terms(meta, status), func(t term) bool { return slices.Contains(had, t) })
}

// indexKey is the key of the entry of a term at a checkpoint of l.
func (l *storedLineage) indexKey(t term, seq uint64) []byte { return l.IndexKey(t.field, t.value, seq) }

func (l *storedLineage) indexMut(t term, seq uint64, at codec.IndexEntry) (backend.Mut, error) {
	return sealMut(l, space.Index, l.indexKey(t, seq), at, space.Once)
}

// indexTerms adds index entries to a save. Those that do not fit into its batch are written before
// it: readers notice an entry without a checkpoint, but would not find a checkpoint without an
// entry.
func (l *lineage) indexTerms(ctx context.Context, p *pending, ts []term) error {
	const room = backend.MaxBatchKeys / 4
	var early []backend.Mut
	for i, t := range ts {
		m, err := l.indexMut(t, p.seq, codec.IndexEntry{Time: p.state.rec.time, Step: p.state.rec.step})
		if err != nil {
			return err
		}
		if i < room {
			p.muts = append(p.muts, m)
		} else {
			early = append(early, m)
		}
	}
	if err := l.s.commitAll(ctx, early); err != nil {
		return fmt.Errorf("storing index entries: %w", err)
	}
	return nil
}
