package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/badger"
	. "github.com/ckptd/ckptd/engine"
)

// A store is closed during saves: acknowledged saves exist when it is opened again, and the others
// returned that the store is closed.
func TestCloseBesideSaves(t *testing.T) {
	rounds := 4
	if longRun() > 0 {
		rounds = 50
	}
	dir := filepath.Join(t.TempDir(), "store")
	openDir := func() backend.Backend {
		be, err := badger.Open(dir, badger.Options{MemTableSize: 8 << 20})
		if err != nil {
			t.Fatal(err)
		}
		return be
	}
	o := withKeys(t, Options{})
	all := map[spot]string{}
	for round := range rounds {
		s := open(t, openDir(), o)
		saveUntilClosed(t, s, round, all)
		s = open(t, openDir(), o)
		for at, want := range all {
			cp, err := s.Thread(at.ref).Load(t.Context(), At(at.id))
			if err != nil || string(cp.Channels[0].Data) != want {
				t.Errorf("round %d: %v was acknowledged, and is %+v, %v", round, at, cp, err)
			}
		}
		checkDeep(t, s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// saveUntilClosed saves from many goroutines, and closes the store when so many saves were
// acknowledged. It adds these to all.
func saveUntilClosed(t *testing.T, s *Store, round int, all map[spot]string) {
	const writers, threads = 8, 3
	before := 30 + 37*round%200
	var mu sync.Mutex
	var wg sync.WaitGroup
	enough := make(chan struct{})
	acked := 0
	for n := range writers {
		r := rand.New(rand.NewPCG(uint64(round), uint64(n)))
		ref := refOf(fmt.Sprint("t", n%threads))
		wg.Go(func() {
			for i := 0; ; i++ {
				text := fmt.Sprintf("round %d, writer %d, save %d: %s", round, n, i, randomText(r, r.IntN(4000)))
				cp, err := s.Thread(ref).Save(context.Background(), Draft{Channels: state("%s", text)})
				if err != nil {
					if !errors.Is(err, ErrClosed) {
						t.Errorf("round %d: %v", round, err)
					}
					return
				}
				mu.Lock()
				all[spot{ref, cp.ID}] = text
				if acked++; acked == before {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	<-enough
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
}
