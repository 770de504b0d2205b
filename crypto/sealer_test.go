package crypto

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
)

// testSealer returns a sealer of a user with a fixed set of data keys.
func testSealer(t testing.TB, numbers ...uint32) *Sealer {
	t.Helper()
	keys := &dataKeys{}
	for _, g := range numbers {
		keys.list = append(keys.list, dataKey{g, newSecret(bytes.Repeat([]byte{byte(g)}, keySize))})
	}
	s, err := newSealer(&domain{store: [16]byte{1, 2, 3}}, keys, "test", []byte("scope"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustSeal(t testing.TB, s *Sealer, typ byte, key, plain string) []byte {
	t.Helper()
	v, err := s.Seal(nil, typ, []byte(key), []byte(plain))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestSealOpen(t *testing.T) {
	s := testSealer(t, 1)
	for _, size := range []int{0, 1, 600, 1 << 20} {
		plain := bytes.Repeat([]byte{'p'}, size)
		sealed, err := s.Seal([]byte("head"), 0x20, []byte("key"), plain)
		if err != nil || len(sealed) != 4+size+Overhead || string(sealed[:4]) != "head" {
			t.Fatalf("size %d: %d bytes, %v", size, len(sealed), err)
		}
		got, err := s.Open([]byte("x"), 0x20, []byte("key"), sealed[4:])
		if err != nil || !bytes.Equal(got[1:], plain) || got[0] != 'x' {
			t.Errorf("size %d: %d bytes, %v", size, len(got), err)
		}
		if size > 1 && bytes.Contains(sealed, plain) {
			t.Errorf("size %d: the plaintext shows", size)
		}
	}
}

// Every prefix and every flipped bit is refused, with the error of the part that is damaged.
func TestOpenSweep(t *testing.T) {
	s := testSealer(t, 1, 3)
	sealed := mustSeal(t, s, 0x20, "key", "some plaintext")
	for n := range sealed {
		want := ErrOpen
		if n < Overhead {
			want = ErrEnvelope
		}
		if got, err := s.Open(nil, 0x20, []byte("key"), sealed[:n]); !errors.Is(err, want) || got != nil {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	for bit := range len(sealed) * 8 {
		b := bytes.Clone(sealed)
		b[bit/8] ^= 1 << (bit % 8)
		got, err := s.Open(nil, 0x20, []byte("key"), b)
		want := ErrOpen
		switch number := b[7]; {
		case bit/8 < 4:
			want = ErrEnvelope
		case bit/8 < 7, bit/8 == 7 && number > 3:
			want = ErrUnknownKeyNumber
		case bit/8 == 7 && number == 2:
			want = ErrKeyDestroyed
		}
		if !errors.Is(err, want) || got != nil {
			t.Errorf("bit %d flipped: %v, want %v", bit, err, want)
		}
		if want == ErrOpen && err != ErrOpen {
			t.Errorf("bit %d flipped: the error tells more than it should: %v", bit, err)
		}
	}
}

// A record opens nowhere but in its own place.
func TestSealBindsPlace(t *testing.T) {
	s := testSealer(t, 1)
	sealed := mustSeal(t, s, 0x20, "key", "plain")
	scoped := func(store byte, purpose string, scope ...[]byte) *Sealer {
		o, err := newSealer(&domain{store: [16]byte{store, 2, 3}}, s.keys, purpose, scope...)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	if _, err := scoped(1, "test", []byte("scope")).Open(nil, 0x20, []byte("key"), sealed); err != nil {
		t.Fatalf("the same sealer made again: %v", err)
	}
	for name, c := range map[string]struct {
		s   *Sealer
		key string
	}{
		"other key":        {s, "kez"},
		"longer key":       {s, "key\x00"},
		"no key":           {s, ""},
		"other store":      {scoped(2, "test", []byte("scope")), "key"},
		"other purpose":    {scoped(1, "tess", []byte("scope")), "key"},
		"other scope":      {scoped(1, "test", []byte("scopf")), "key"},
		"no scope":         {scoped(1, "test"), "key"},
		"scope cut in two": {scoped(1, "test", []byte("sc"), []byte("ope")), "key"},
		"scope in purpose": {scoped(1, "testscope"), "key"},
	} {
		if _, err := c.s.Open(nil, 0x20, []byte(c.key), sealed); err != ErrOpen {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Open(nil, 0x2f, []byte("key"), sealed); !errors.Is(err, ErrEnvelope) {
		t.Errorf("other type: %v", err)
	}
}

// The type is bound too, also where the header was changed to match.
func TestSealBindsType(t *testing.T) {
	s := testSealer(t, 1)
	sealed := mustSeal(t, s, 0x20, "key", "plain")
	sealed[3] = 0x2f
	if _, err := s.Open(nil, 0x2f, []byte("key"), sealed); err != ErrOpen {
		t.Errorf("%v", err)
	}
}

func TestKeyNumbers(t *testing.T) {
	old, both := testSealer(t, 1), testSealer(t, 1, 2)
	if old.KeyNumber() != 1 || both.KeyNumber() != 2 {
		t.Fatalf("key numbers %d and %d", old.KeyNumber(), both.KeyNumber())
	}
	first, second := mustSeal(t, old, 1, "k", "first"), mustSeal(t, both, 1, "k", "second")
	for range 2 { // derived, then cached
		for want, sealed := range map[string][]byte{"first": first, "second": second} {
			if got, err := both.Open(nil, 1, []byte("k"), sealed); err != nil || string(got) != want {
				t.Errorf("%q, %v, want %q", got, err, want)
			}
		}
	}
	if len(both.older) != 1 {
		t.Errorf("%d older keys kept, want 1", len(both.older))
	}
	if _, err := old.Open(nil, 1, []byte("k"), second); !errors.Is(err, ErrUnknownKeyNumber) {
		t.Errorf("a key to come: %v", err)
	}
	if _, err := testSealer(t, 2).Open(nil, 1, []byte("k"), first); !errors.Is(err, ErrKeyDestroyed) {
		t.Errorf("a key gone: %v", err)
	}
}

func TestSealsAreBounded(t *testing.T) {
	s := testSealer(t, 1)
	s.seals.Store(1<<32 - 1)
	mustSeal(t, s, 1, "k", "the last")
	for range 3 {
		if v, err := s.Seal(nil, 1, []byte("k"), nil); !errors.Is(err, ErrKeyExhausted) || v != nil {
			t.Errorf("%x, %v", v, err)
		}
	}
}

func TestNoncesDiffer(t *testing.T) {
	s := testSealer(t, 1)
	seen := map[string]bool{}
	for range 1000 {
		v := mustSeal(t, s, 1, "k", "same")
		seen[string(v[headerSize:headerSize+nonceSize])] = true
	}
	if len(seen) != 1000 {
		t.Errorf("%d nonces in 1000 seals", len(seen))
	}
}

func TestSealAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector drops pooled buffers")
	}
	s := testSealer(t, 1)
	key, plain := make([]byte, 61), make([]byte, 600)
	dst, out := make([]byte, 0, 1024), make([]byte, 0, 1024)
	allocs := testing.AllocsPerRun(1000, func() {
		sealed, err := s.Seal(dst, 0x20, key, plain)
		if err == nil {
			_, err = s.Open(out, 0x20, key, sealed)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations for a seal and an open", allocs)
	}
}

func TestSealConcurrently(t *testing.T) {
	old, s := testSealer(t, 1), testSealer(t, 1, 2)
	past := mustSeal(t, old, 1, "k", "past")
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 200 {
				key, plain := fmt.Appendf(nil, "key %d %d", w, i), fmt.Appendf(nil, "plain %d %d", w, i)
				v, err := s.Seal(nil, 1, key, plain)
				if err == nil {
					v, err = s.Open(nil, 1, key, v)
				}
				if err != nil || !bytes.Equal(v, plain) {
					t.Errorf("%q, %v", v, err)
				}
				if v, err := s.Open(nil, 1, []byte("k"), past); err != nil || string(v) != "past" {
					t.Errorf("%q, %v", v, err)
				}
			}
		})
	}
	wg.Wait()
}

// Only sealed values open.
func FuzzOpen(f *testing.F) {
	_, u := vectorRing(f)
	first := vectors(f, "envelopes.txt")[0] // fixed, as every process of the fuzzer has to know it
	s, err := u.Sealer(first.text(f, "purpose"), first.hex(f, "scope"))
	if err != nil {
		f.Fatal(err)
	}
	key, sealed := first.hex(f, "key"), map[string]bool{}
	for _, v := range vectors(f, "envelopes.txt") {
		typ, value := v.hex(f, "type")[0], v.hex(f, "value")
		f.Add(typ, value)
		f.Add(typ, value[:len(value)-1])
		if v.text(f, "want") == "ok" && v.text(f, "purpose") == first.text(f, "purpose") {
			sealed[string([]byte{typ})+string(value)] = true
		}
	}
	f.Fuzz(func(t *testing.T, typ byte, value []byte) {
		got, err := s.Open(nil, typ, key, value)
		if opens := err == nil; opens != sealed[string([]byte{typ})+string(value)] {
			t.Errorf("type %#x, %x: %x, %v", typ, value, got, err)
		}
	})
}
