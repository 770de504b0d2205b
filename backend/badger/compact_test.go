package badger_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/badger"
)

// noise is a value that packing leaves as it is and that is nowhere else by chance.
func noise(rnd *rand.Rand, size int) string {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return string(b)
}

func found(t *testing.T, dir, marker string) (in []string) {
	t.Helper()
	for path, text := range files(t, dir) {
		if strings.Contains(text, marker) {
			in = append(in, path)
		}
	}
	return in
}

// TestCompactRemoves writes values, supersedes them in every way and place, compacts, and searches
// the directory.
func TestCompactRemoves(t *testing.T) {
	supersede := map[string]func(t *testing.T, s backend.Backend, key string){
		"delete": func(t *testing.T, s backend.Backend, key string) {
			commit(t, s, backend.Mut{Key: []byte(key), Delete: true})
		},
		"overwrite": func(t *testing.T, s backend.Backend, key string) { commit(t, s, put(key, "new")) },
	}
	settle := map[string]func(t *testing.T, s *badger.Store, dir string) *badger.Store{
		"in the log": func(_ *testing.T, s *badger.Store, _ string) *badger.Store { return s },
		"in level 0": func(t *testing.T, s *badger.Store, dir string) *badger.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return open(t, dir).(*badger.Store)
		},
		"in the last level": func(t *testing.T, s *badger.Store, _ string) *badger.Store {
			if err := s.Compact(t.Context()); err != nil {
				t.Fatal(err)
			}
			return s
		},
	}
	for _, how := range slices.Sorted(maps.Keys(supersede)) {
		for _, where := range slices.Sorted(maps.Keys(settle)) {
			t.Run(how+" "+where, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(3, 4))
				dir := t.TempDir()
				s := open(t, dir).(*badger.Store)
				kept, gone := map[string]string{}, map[string]string{}
				for i := range 300 {
					kept[fmt.Sprintf("key-%03d", i)] = noise(rnd, 200)
				}
				for keys := range slices.Chunk(slices.Sorted(maps.Keys(kept)), backend.MaxBatchKeys) {
					var muts []backend.Mut
					for _, key := range keys {
						muts = append(muts, put(key, kept[key]))
					}
					commit(t, s, muts...)
				}
				s = settle[where](t, s, dir)
				for i := 0; i < 300; i += 29 {
					key := fmt.Sprintf("key-%03d", i)
					gone[key] = kept[key]
					delete(kept, key)
					if len(found(t, dir, gone[key])) == 0 {
						t.Fatalf("%s is not found before it is superseded: the search is blind", key)
					}
					supersede[how](t, s, key)
				}
				if err := s.Compact(t.Context()); err != nil {
					t.Fatal(err)
				}
				checkGone(t, s, dir, kept, gone)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = open(t, dir).(*badger.Store)
				defer s.Close()
				checkGone(t, s, dir, kept, gone)
			})
		}
	}
}

func checkGone(t *testing.T, s backend.Backend, dir string, kept, gone map[string]string) {
	t.Helper()
	for key, value := range gone {
		if in := found(t, dir, value); len(in) > 0 {
			t.Errorf("the old value of %s is in %q", key, in)
		}
	}
	for key, value := range kept {
		got, err := s.Get(t.Context(), []byte(key))
		if err != nil || string(got[0].Value) != value {
			t.Errorf("%s did not survive: %d bytes, %v", key, len(got[0].Value), err)
		}
	}
}
