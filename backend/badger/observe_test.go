package badger_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/badger"
)

// Every commit is told of once, before it returns, and refused ones never.
func TestObserve(t *testing.T) {
	ctx := context.Background()
	var commits, bytes int // unguarded on purpose: the race detector sees calls that are not one after the other
	s, err := badger.Open(t.TempDir(), badger.Options{MemTableSize: small.MemTableSize, Observe: func(g backend.Group) {
		if g.Commits < 1 || g.Took <= 0 {
			t.Errorf("observed %+v", g)
		}
		commits += g.Commits
		bytes += g.Bytes
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put := func(key string, conds ...backend.Cond) error {
		return s.Commit(ctx, backend.Batch{Muts: []backend.Mut{{Key: []byte(key), Value: []byte("12345"), Version: "1"}}, Conds: conds})
	}

	if err := put("key-00"); err != nil {
		t.Fatal(err)
	}
	if commits != 1 || bytes != 6+5+1 {
		t.Errorf("after one commit of 12 bytes, %d of %d bytes were observed", commits, bytes)
	}
	if err := put("key-00", backend.Cond{Key: []byte("key-00")}); err == nil {
		t.Fatal("a condition that does not hold was ignored")
	}
	if commits != 1 {
		t.Errorf("a refused commit was observed")
	}

	const writers, each = 16, 8
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if err := put(fmt.Sprintf("w%02d-%02d", w, i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if want := 1 + writers*each; commits != want || bytes != 12*want {
		t.Errorf("%d commits of %d bytes were observed, want %d of 12 bytes", commits, bytes, want)
	}
}
