package backendtest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/backend"
)

// Reopen checks that a durable driver keeps what it acknowledged over Close. open opens the store
// in dir, creating it the first time.
func Reopen(t *testing.T, open func(t *testing.T, dir string) backend.Backend) {
	t.Run("Model", func(t *testing.T) {
		dir := t.TempDir()
		m := newModel(newStore(t, open(t, dir)), 99)
		for range 6 {
			m.run(200)
			if err := m.s.Close(); err != nil {
				t.Fatalf("closing: %v", err)
			}
			m.s = newStore(t, open(t, dir))
			if caps := m.s.Caps(); !caps.Durable {
				t.Fatalf("%s is not durable", caps.Name)
			}
			m.compareAll()
		}
	})
	t.Run("CloseWaits", func(t *testing.T) {
		dir := t.TempDir()
		s := newStore(t, open(t, dir))
		acked := s.closeWhileWriting()
		s = newStore(t, open(t, dir))
		if got := int64(len(s.all(backend.Range{KeysOnly: true}))); got != acked {
			t.Errorf("%d commits were acknowledged, %d keys are there", acked, got)
		}
	})
	t.Run("Untouched", func(t *testing.T) {
		dir := t.TempDir()
		for range 3 {
			s := newStore(t, open(t, dir))
			if got := s.all(backend.Range{}); len(got) != 0 {
				t.Errorf("an unused store holds %q", keysOf(got))
			}
			if err := s.Close(); err != nil {
				t.Fatalf("closing: %v", err)
			}
		}
	})
}

// model drives a store with random operations and knows what each must give.
type model struct {
	s    *store
	rnd  *rand.Rand
	data map[string]backend.Entry
	n    int // versions given out
}

func newModel(s *store, seed uint64) *model {
	return &model{s: s, rnd: rand.New(rand.NewPCG(seed, 7)), data: map[string]backend.Entry{}}
}

func (m *model) run(operations int) {
	m.s.Helper()
	for range operations {
		switch m.rnd.IntN(10) {
		default:
			m.commit()
		case 7:
			m.compareGet()
		case 8, 9:
			m.compareScan()
		}
		if m.s.Failed() {
			return
		}
	}
}

// key is one of about 200 with common prefixes.
func (m *model) key() string {
	return strings.Repeat(string(rune('a'+m.rnd.IntN(3))), 1+m.rnd.IntN(3)) + fmt.Sprintf("%c%d", m.rnd.IntN(4), m.rnd.IntN(6))
}

// commit sends a random batch whose conditions hold about every other time.
func (m *model) commit() {
	b := backend.Batch{}
	written := map[string]bool{}
	for range 1 + m.rnd.IntN(6) {
		k := m.key()
		if written[k] {
			continue
		}
		written[k] = true
		mut := del(k)
		if m.rnd.IntN(4) > 0 {
			m.n++
			mut = put(k, strings.Repeat(fmt.Sprint(m.n, " "), m.rnd.IntN(100)), fmt.Sprint("v", m.n))
		}
		b.Muts = append(b.Muts, mut)
	}
	holds := true
	conditioned := map[string]bool{}
	for range m.rnd.IntN(3) {
		k := m.key()
		if m.rnd.IntN(2) == 0 {
			k = string(b.Muts[m.rnd.IntN(len(b.Muts))].Key)
		}
		version := m.data[k].Version
		if m.rnd.IntN(6) == 0 {
			version = fmt.Sprint("v", m.rnd.IntN(m.n+1)+1)
		}
		if conditioned[k] || version == "" && !written[k] {
			continue
		}
		conditioned[k] = true
		b.Conds = append(b.Conds, match(k, version))
		holds = holds && version == m.data[k].Version
	}
	err := m.s.Commit(m.s.Context(), b)
	if !holds {
		if !errors.Is(err, backend.ErrConflict) {
			m.s.Errorf("a condition does not hold, and the commit gave %v", err)
		}
		return
	}
	if err != nil {
		m.s.Errorf("commit: %v", err)
		return
	}
	for _, mut := range b.Muts {
		if mut.Delete {
			delete(m.data, string(mut.Key))
		} else {
			m.data[string(mut.Key)] = backend.Entry{Key: mut.Key, Value: mut.Value, Version: mut.Version}
		}
	}
}

func (m *model) compareGet() {
	var keys [][]byte
	for range m.rnd.IntN(20) {
		keys = append(keys, []byte(m.key()))
	}
	got, err := m.s.Get(m.s.Context(), keys...)
	if err != nil || len(got) != len(keys) {
		m.s.Errorf("get of %d keys: %d entries, %v", len(keys), len(got), err)
		return
	}
	for i, e := range got {
		want := m.data[string(keys[i])]
		if string(e.Value) != string(want.Value) || e.Version != want.Version {
			m.s.Errorf("%q is %q version %q, want %q version %q", e.Key, e.Value, e.Version, want.Value, want.Version)
		}
	}
}

func (m *model) compareScan() {
	r := backend.Range{
		Reverse: m.rnd.IntN(2) == 0, KeysOnly: m.rnd.IntN(4) == 0,
		Limit: m.rnd.IntN(40), Bytes: m.rnd.IntN(2) * m.rnd.IntN(3000),
	}
	if m.rnd.IntN(3) > 0 {
		r.Start = []byte(m.key())
	}
	if m.rnd.IntN(3) > 0 {
		r.End = []byte(m.key())
	}
	m.compare(r)
}

func (m *model) compareAll() {
	m.s.Helper()
	m.compare(backend.Range{})
	m.compare(backend.Range{Reverse: true})
}

func (m *model) compare(r backend.Range) {
	m.s.Helper()
	want := within(slices.Sorted(maps.Keys(m.data)), r)
	got := m.s.all(r)
	if !slices.Equal(keysOf(got), want) {
		m.s.Errorf("scan %+v gave %q, want %q", r, keysOf(got), want)
		return
	}
	for _, e := range got {
		w := m.data[string(e.Key)]
		if e.Version != w.Version || !r.KeysOnly && string(e.Value) != string(w.Value) {
			m.s.Errorf("%q is %q version %q, want %q version %q", e.Key, e.Value, e.Version, w.Value, w.Version)
		}
	}
}
