package badger_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	badgerdb "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/badger"
)

// BenchmarkCommit compares durable writes of 1 kB under a new key: through this driver, with the
// condition that the key is absent and without, and through a plain Badger Update with SyncWrites.
func BenchmarkCommit(b *testing.B) {
	for _, writers := range []int{1, 16, 64, 256} {
		for _, absent := range []bool{false, true} {
			name := "put"
			if absent {
				name = "put-if-absent"
			}
			b.Run(fmt.Sprintf("driver=group/op=%s/writers=%d", name, writers), func(b *testing.B) {
				s, err := badger.Open(b.TempDir(), badger.Options{})
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				bench(b, writers, func(key, value []byte) error {
					batch := backend.Batch{Muts: []backend.Mut{{Key: key, Value: value, Version: "12345678"}}}
					if absent {
						batch.Conds = []backend.Cond{{Key: key}}
					}
					return s.Commit(b.Context(), batch)
				})
			})
		}
		b.Run(fmt.Sprintf("driver=plain/op=put/writers=%d", writers), func(b *testing.B) {
			db, err := badgerdb.Open(badgerdb.DefaultOptions(b.TempDir()).WithSyncWrites(true).WithLogger(nil).
				WithCompression(options.None))
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			bench(b, writers, func(key, value []byte) error {
				return db.Update(func(txn *badgerdb.Txn) error { return txn.Set(key, value) })
			})
		})
	}
}

// bench runs b.N writes from many goroutines, each with keys like the engine's: 63 bytes, rising
// within a thread.
func bench(b *testing.B, writers int, write func(key, value []byte) error) {
	value := make([]byte, 1000)
	for i := range value {
		value[i] = byte(rand.Uint32())
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for w := range writers {
		wg.Go(func() {
			key := make([]byte, 63)
			binary.BigEndian.PutUint64(key, uint64(w)*0x9E3779B97F4A7C15)
			for n := uint64(0); left.Add(-1) >= 0; n++ {
				binary.BigEndian.PutUint64(key[50:], n)
				if err := write(key, value); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
}
