package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/engine"
)

// TestWitnessAccepts takes random pasts of a store, which part from each other at some group or in
// their incarnation, and looks at one from where another was seen. What went on is accepted, what
// went back or is another past is not, until it has gone beyond.
func TestWitnessAccepts(t *testing.T) {
	rnd := rand.New(rand.NewPCG(81, 82))
	path := filepath.Join(t.TempDir(), "seen")
	did := map[string]int{}
	for range 2000 {
		n := 1 + rnd.IntN(20)
		parting := rnd.IntN(n + 1) // the last group that both pasts have
		past := func(name string, store, life byte) []backend.Position {
			positions := []backend.Position{{Store: [16]byte{store}, Incarnation: [16]byte{life}}}
			for i := 1; i <= n; i++ {
				p := backend.Position{Store: [16]byte{store}, Incarnation: [16]byte{life}, N: uint64(i), Time: time.UnixMilli(int64(i)).UTC()}
				copy(p.Hash[:], fmt.Sprint("group ", i))
				if i > parting {
					copy(p.Hash[:], fmt.Sprint(name, i))
				}
				positions = append(positions, p)
			}
			return positions
		}
		i, k := rnd.IntN(n+1), rnd.IntN(n+1)
		seen, now, want := past("one", 1, 1)[i], backend.Position{}, error(nil)
		what := []string{"the same", "another past", "begun anew", "another store"}[rnd.IntN(4)]
		switch what {
		case "the same":
			now = past("one", 1, 1)[k]
			if k < i {
				want = errWitness
			}
		case "another past":
			now = past("other", 1, 1)[k]
			if k < i || k == i && i > parting {
				want = errWitness
			}
		case "begun anew":
			now = past("one", 1, 2)[k]
			if i > 0 {
				want = errWitness
			}
		default:
			now, want = past("one", 2, 1)[k], engine.ErrInvalid
		}
		b, err := json.Marshal(witnessOf(seen))
		if err == nil {
			err = os.WriteFile(path, append(b, '\n'), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		w, err := readWitness(path)
		if err != nil || *w != witnessOf(seen) {
			t.Fatalf("read %+v, %v", w, err)
		}
		if err := w.accepts(path, witnessOf(now)); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("%s: seen at %d, now at %d, parted at %d: %v", what, i, k, parting, err)
		}
		did[fmt.Sprint(what, want != nil)]++

		// One that is cut short, or goes on, is not read.
		at := rnd.IntN(len(b))
		for _, damaged := range [][]byte{b[:at], slices.Concat(b, []byte{'x'}), slices.Concat(b, b)} {
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			if w, err := readWitness(path); !errors.Is(err, engine.ErrInvalid) {
				t.Fatalf("%q was read as %+v, %v", damaged, w, err)
			}
		}
	}
	if len(did) != 7 {
		t.Errorf("only %v was tried", did)
	}
}
