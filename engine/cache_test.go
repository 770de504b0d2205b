package engine

import (
	"context"
	"fmt"
	"testing"
)

// The cache bounds the memory of threads, however many there are.
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

// States and parts that a save or load finds in memory are hits, those that it has to read misses.
func TestCacheStats(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t1"))
	save := func() {
		t.Helper()
		if _, err := th.Save(ctx, Draft{Keep: true, Channels: []Change{{Name: "state", Data: make([]byte, 4000)}}}); err != nil {
			t.Fatal(err)
		}
	}
	load := func(w Which) {
		t.Helper()
		if _, err := th.Load(ctx, w); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, hits, misses uint64) {
		t.Helper()
		got := f.Upkeep().CacheStats()
		if got.Hits != hits || got.Misses != misses {
			t.Errorf("%s: %d hits and %d misses, want %d and %d", what, got.Hits, got.Misses, hits, misses)
		}
	}

	save()
	check("a first save", 0, 0)
	save()
	check("a save after a save", 1, 0)
	load(Latest)
	check("a load of the head", 2, 0)
	load(AtSeq(1))
	check("a load of an older checkpoint", 2, 1)
	if size := f.Upkeep().CacheStats().Bytes; size < 4000 || size > 16000 {
		t.Errorf("one state of 4000 bytes takes %d", size)
	}

	f.reopen()
	th = f.Thread(testRef("t1"))
	check("opened again", 0, 0)
	if size := f.Upkeep().CacheStats().Bytes; size != 0 {
		t.Errorf("an empty cache takes %d bytes", size)
	}
	save()
	check("a save after opening", 0, 1)
	load(Latest)
	check("a load after it", 1, 1)
}

// Parts are counted as states are.
func TestCacheStatsOfParts(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{CacheBytes: 4 << 20})
	state := make([]byte, 8<<10)
	for i := range state { // does not compress, so it becomes a part
		state[i] = byte(i * i >> 3 * (i | 1) >> 5)
	}
	for _, name := range []string{"t1", "t2"} {
		if _, err := f.Thread(testRef(name)).Save(ctx, Draft{Channels: []Change{{Name: "state", Data: state}}}); err != nil {
			t.Fatal(err)
		}
	}
	f.reopen()
	for _, name := range []string{"t1", "t2"} {
		if _, err := f.Thread(testRef(name)).Load(ctx, Latest); err != nil {
			t.Fatal(err)
		}
	}
	// Two states are read, the part that they share only once.
	if got := f.Upkeep().CacheStats(); got.Hits != 1 || got.Misses != 3 {
		t.Errorf("%d hits and %d misses, want 1 and 3", got.Hits, got.Misses)
	}
}
