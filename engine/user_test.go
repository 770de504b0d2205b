package engine

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/ckptd/ckptd/codec"
)

// heapInUse is the heap in use after a collection.
func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the one the first found free
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// waitForGuards collects garbage until at most most guards are left: their cleanups run some time
// after a collection.
func waitForGuards(s *Store, most int) (n int) {
	for range 200 {
		runtime.GC()
		s.mu.Lock()
		n = len(s.guards)
		s.mu.Unlock()
		if n <= most {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return n
}

// However many users were touched, idle ones take no more memory than the cache may.
func TestIdleUsersAreForgotten(t *testing.T) {
	const users, most = 3000, 1 << 20
	f := newFixture(t, Options{CacheBytes: most})
	f.broken = true // to verify all of them takes long
	touchUsers(t, f, users)
	const fit = most / userBytes
	if n := len(f.cache.users); n == 0 || n > fit {
		t.Errorf("%d of %d users are in the cache, which has room for %d", n, users, fit)
	}
	if size := f.Upkeep().CacheStats().Bytes; size > most {
		t.Errorf("the cache holds %d bytes, at most %d are allowed", size, most)
	}
	if n := waitForGuards(f.Store, fit); n > fit {
		t.Errorf("%d of %d users have a guard in memory, at most %d are in the cache", n, users, fit)
	}
}

func touchUsers(t testing.TB, f *fixture, users int) {
	t.Helper()
	for i := range users {
		if err := f.User("acme", fmt.Sprint("user-", i)).Upkeep().Create(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// The memory left by 100,000 users who were touched once, and that of each in the cache.
func BenchmarkIdleUsers(b *testing.B) {
	const users, most = 100_000, 16 << 20
	for b.Loop() {
		f := newFixture(b, Options{CacheBytes: most})
		f.broken = true
		touchUsers(b, f, users)
		held, cached := heapInUse(), len(f.cache.users)
		f.cache = newCache(most)
		inCache := held - heapInUse()
		b.ReportMetric(float64(inCache)/float64(cached), "B/user-in-cache")
		b.ReportMetric(float64(inCache)/most, "of-cache")
	}
}

// An evicted user that is still in use has the same locks as the next one made for the name.
func TestForgottenUserKeepsItsGuard(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{CacheBytes: -1})
	name := userName{"acme", "alice"}
	first, err := f.user(ctx, name, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.sweep.rLock(ctx); err != nil {
		t.Fatal(err)
	}
	first.naming.begin()
	for range 3 {
		runtime.GC()
		second, err := f.user(ctx, name, false)
		if err != nil {
			t.Fatal(err)
		}
		if second == first {
			t.Fatal("the cache kept the user")
		}
		if second.sweep.free.TryAcquire(everyone) {
			t.Error("a sweep begins during a save of the same user")
			second.sweep.unlock()
		}
		id := codec.PartID{1}
		second.naming.noteParts([]codec.PartID{id})
		if !first.naming.hasPart(id) {
			t.Error("a sweep does not see named parts")
		}
	}
	first.naming.end()
	first.sweep.rUnlock()
	first = nil
	if n := waitForGuards(f.Store, 0); n != 0 {
		t.Errorf("%d guards are in memory, and no user", n)
	}
}
