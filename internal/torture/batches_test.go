package torture

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/ckptd/ckptd/backend"
)

// batches is the model of writers to a backend, each with keys of its own. A batch writes some of
// them and deletes others, all or nothing; the value of a key follows from the number of its batch.
type batches struct {
	mu    sync.Mutex
	count uint64
	acked map[string]uint64         // number of the batch that wrote a key last
	begun map[int]map[string]uint64 // the batch of each writer that is under way; 0 deletes
}

func newBatches() *batches {
	return &batches{acked: map[string]uint64{}, begun: map[int]map[string]uint64{}}
}

func (m *batches) clone() *batches {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &batches{count: m.count, acked: maps.Clone(m.acked), begun: maps.Clone(m.begun)}
}

func keyOf(writer, k int) string { return fmt.Sprintf("writer-%02d-%02d", writer, k) }

// valueOf is the value that a batch writes to a key: up to some 100 kB, so that memory tables fill
// up, mostly little.
func valueOf(key string, n uint64) []byte {
	r := rand.New(rand.NewPCG(n, uint64(len(key))<<32+uint64(key[8])<<8+uint64(key[10])))
	size := 20 + r.IntN(500)
	if n%16 == 0 {
		size = r.IntN(100 << 10)
	}
	b := make([]byte, 8, size+16)
	binary.BigEndian.PutUint64(b, n)
	for len(b) < size {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b
}

// begin notes a batch of a writer and makes it.
func (m *batches) begin(rnd *rand.Rand, writer int) (b backend.Batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count++
	effect := map[string]uint64{}
	for range 1 + rnd.IntN(4) {
		key := keyOf(writer, rnd.IntN(20))
		if _, twice := effect[key]; twice {
			continue
		}
		if effect[key] = m.count; rnd.IntN(6) == 0 {
			effect[key] = 0
			b.Muts = append(b.Muts, backend.Mut{Key: []byte(key), Delete: true})
			continue
		}
		b.Muts = append(b.Muts, backend.Mut{Key: []byte(key), Value: valueOf(key, m.count), Version: "v"})
	}
	m.begun[writer] = effect
	return b
}

func (m *batches) ack(writer int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	apply(m.acked, m.begun[writer])
	delete(m.begun, writer)
}

// drop forgets a batch that was refused.
func (m *batches) drop(writer int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.begun, writer)
}

func apply(to, effect map[string]uint64) {
	for key, n := range effect {
		if to[key] = n; n == 0 {
			delete(to, key)
		}
	}
}

// run has writers commit so many batches each. It returns the first error.
func (m *batches) run(b backend.Backend, seed uint64, writers, each int) error {
	errs := make([]error, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(w)))
			for range each {
				if errs[w] = b.Commit(context.Background(), m.begin(rnd, w)); errs[w] != nil {
					return
				}
				m.ack(w)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// compare lists the faults in the content of a backend.
func (m *batches) compare(b backend.Backend) (problems []string) {
	all, err := entries(context.Background(), b)
	if err != nil {
		return []string{fmt.Sprintf("reading: %v", err)}
	}
	found := map[string]uint64{}
	for key, e := range all {
		if len(key) != len(keyOf(0, 0)) {
			problems = append(problems, fmt.Sprintf("there is a key %q of no writer", key))
			continue
		}
		if found[key] = 0; len(e.Value) >= 8 {
			found[key] = binary.BigEndian.Uint64(e.Value)
		}
		if !bytes.Equal(e.Value, valueOf(key, found[key])) {
			problems = append(problems, fmt.Sprintf("%s has a value that nobody wrote", key))
		}
	}
	for w := range 64 {
		was, now := ofWriter(m.acked, w), ofWriter(found, w)
		next := maps.Clone(was)
		apply(next, m.begun[w])
		if !maps.Equal(now, was) && !maps.Equal(now, next) {
			problems = append(problems, fmt.Sprintf("writer %d: found %v, acknowledged %v, begun %v", w, differ(now, was), differ(was, now), m.begun[w]))
		}
	}
	return problems
}

func ofWriter(all map[string]uint64, w int) map[string]uint64 {
	own := map[string]uint64{}
	for k := range 20 {
		if n, ok := all[keyOf(w, k)]; ok {
			own[keyOf(w, k)] = n
		}
	}
	return own
}

// differ lists the part of a that is not in b.
func differ(a, b map[string]uint64) (list []string) {
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if n, ok := b[key]; !ok || n != a[key] {
			list = append(list, fmt.Sprintf("%s: %d", key, a[key]))
		}
	}
	return list
}
