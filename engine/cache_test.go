package engine

import (
	"context"
	"fmt"
	"testing"
)

// What is remembered of threads is bounded by the cache, not by how many there are.
func TestIdleThreadsAreForgotten(t *testing.T) {
	ctx := context.Background()
	const most = 64 << 10
	f := newFixture(t, Options{CacheBytes: most})
	for i := range 500 {
		if _, err := f.Thread(testRef(fmt.Sprint("t", i))).Save(ctx, Draft{Channels: []Change{{Name: "state", Data: make([]byte, 4000)}}}); err != nil {
			t.Fatal(err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.lineages); n == 0 || n > most/4000 {
		t.Errorf("%d lineages are in memory, at most %d fit the cache", n, most/4000)
	}
	if len(f.threads) != len(f.lineages) {
		t.Errorf("%d threads for %d lineages", len(f.threads), len(f.lineages))
	}
	if f.cache.size > most {
		t.Errorf("cache holds %d bytes, at most %d are allowed", f.cache.size, most)
	}
}
