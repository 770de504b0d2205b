package crypto

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
)

func rootOf(t testing.TB, key []byte) RootKey {
	t.Helper()
	k, err := NewRootKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// testRoot returns a fixed key, another one for each n.
func testRoot(t testing.TB, n byte) RootKey {
	return rootOf(t, bytes.Repeat([]byte{n}, keySize))
}

func secretBytes(t testing.TB, s *secret) (b []byte) {
	t.Helper()
	if err := s.use(func(key []byte) { b = bytes.Clone(key) }); err != nil {
		t.Fatal(err)
	}
	return b
}

func openRing(t testing.TB, root RootKey, ks Keystore, create bool) *Keyring {
	t.Helper()
	ring, err := OpenKeyring(context.Background(), root, ks, create)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ring.Close)
	return ring
}

// recode decodes and encodes the plaintext of an entry.
func recode(kind entryKind, plain []byte) ([]byte, error) {
	switch kind {
	case kindStore:
		e, err := decodeStoreEntry(plain)
		if err != nil {
			return nil, err
		}
		return e.encode()
	case kindUser:
		e, err := decodeUserEntry(plain)
		if err != nil {
			return nil, err
		}
		return e.encode()
	case kindDestroyed:
		e, err := decodeDestroyedEntry(plain)
		if err != nil {
			return nil, err
		}
		return e.encode(), nil
	}
	return nil, fmt.Errorf("kind %d", kind)
}

// Every prefix is refused; every flipped bit is refused or decodes to a value that encodes to those
// very bytes.
func TestEntryPlaintextSweep(t *testing.T) {
	for _, v := range vectors(t, "entries.txt") {
		kind, plain := entryKind(v.text(t, "kind")[0]-'0'), v.hex(t, "plain")
		if !bytes.Equal([]byte{byte(kind)}, v.hex(t, "entry")[5:6]) {
			t.Fatalf("kind of %s", v.text(t, "name"))
		}
		for n := range plain {
			if _, err := recode(kind, plain[:n:n]); err == nil {
				t.Errorf("kind %d cut to %d bytes decodes", kind, n)
			}
		}
		if _, err := recode(kind, append(bytes.Clone(plain), 0)); err == nil {
			t.Errorf("kind %d with a byte added decodes", kind)
		}
		refused := 0
		for bit := range len(plain) * 8 {
			b := bytes.Clone(plain)
			b[bit/8] ^= 1 << (bit % 8)
			again, err := recode(kind, b)
			if err != nil {
				refused++
			} else if !bytes.Equal(again, b) {
				t.Errorf("kind %d with bit %d flipped encodes to other bytes", kind, bit)
			}
		}
		if refused == 0 {
			t.Errorf("kind %d: no flip was refused", kind)
		}
	}
}

func TestEntryRefusals(t *testing.T) {
	key := bytes.Repeat([]byte{7}, keySize)
	user := func(version byte, tenant, user string, tail ...[]byte) []byte {
		b := append([]byte{version, 1, byte(len(tenant))}, tenant...)
		b = append(append(b, byte(len(user))), user...)
		return append(append(b, key...), bytes.Join(tail, nil)...)
	}
	gen := func(n byte) []byte { return append([]byte{0, 0, 0, n}, key...) }
	if _, err := decodeUserEntry(user(1, "t", "u", []byte{2}, gen(1), gen(3))); err != nil {
		t.Fatalf("the entry that the others vary: %v", err)
	}
	for name, plain := range map[string][]byte{
		"no data key":         user(1, "t", "u", []byte{0}),
		"key number 0":        user(1, "t", "u", []byte{1}, gen(0)),
		"key number twice":    user(1, "t", "u", []byte{2}, gen(1), gen(1)),
		"key numbers falling": user(1, "t", "u", []byte{2}, gen(2), gen(1)),
		"count too high":      user(1, "t", "u", []byte{2}, gen(1)),
		"count too low":       user(1, "t", "u", []byte{1}, gen(1), gen(2)),
		"count over limit":    user(1, "t", "u", []byte{0x81, 8}, bytes.Repeat(gen(1), 1025)),
		"count not shortest":  user(1, "t", "u", []byte{0x81, 0}, gen(1)),
		"empty user":          user(1, "t", "", []byte{1}, gen(1)),
		"user not UTF-8":      user(1, "t", "\xff", []byte{1}, gen(1)),
		"version 0":           user(0, "t", "u", []byte{1}, gen(1)),
		"nothing":             nil,
	} {
		if e, err := decodeUserEntry(plain); err == nil {
			t.Errorf("%s: decodes to %+v", name, e)
		}
	}
	if _, err := decodeUserEntry(user(2, "t", "u", []byte{1}, gen(1))); !errors.Is(err, ErrNewerFormat) {
		t.Errorf("version 2: %v", err)
	}
}

// A wrapped entry opens whole, in its own place, under its own key, and not otherwise.
func TestWrapSweep(t *testing.T) {
	root := testRoot(t, 1)
	p := place{store: [16]byte{9}, name: "abc/def"}
	sealed, err := wrap(root, p, kindUser, []byte("plaintext"))
	if err != nil {
		t.Fatal(err)
	}
	if kind, plain, err := unwrap(root, p, sealed); err != nil || kind != kindUser || string(plain) != "plaintext" {
		t.Fatalf("kind %d, %q, %v", kind, plain, err)
	}
	for n := range sealed {
		if _, _, err := unwrap(root, p, sealed[:n]); !errors.Is(err, ErrKeystoreEntry) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	for bit := range len(sealed) * 8 {
		b := bytes.Clone(sealed)
		b[bit/8] ^= 1 << (bit % 8)
		_, plain, err := unwrap(root, p, b)
		want := ErrKeystoreEntry
		switch byteAt := bit / 8; {
		case byteAt == 4 && b[4] > wrapVersion:
			want = ErrNewerFormat
		case byteAt >= 6 && byteAt < wrapHeaderSize:
			want = ErrWrongKey
		}
		if !errors.Is(err, want) || plain != nil {
			t.Errorf("bit %d flipped: %v, want %v", bit, err, want)
		}
	}
	for name, other := range map[string]place{
		"name":  {store: p.store, name: "abc/deg"},
		"store": {store: [16]byte{8}, name: p.name},
	} {
		if _, _, err := unwrap(root, other, sealed); !errors.Is(err, ErrKeystoreEntry) {
			t.Errorf("other %s: %v", name, err)
		}
	}
	other := testRoot(t, 2)
	other.id = root.id // a forged id does not help: the commitment is to the key
	if _, _, err := unwrap(other, p, sealed); !errors.Is(err, ErrKeystoreEntry) {
		t.Errorf("other key of the same id: %v", err)
	}
	if _, err := wrap(root, p, kindUser, make([]byte, maxEntry)); err == nil {
		t.Error("an entry over the limit is wrapped")
	}
}

// Equal plaintexts never have equal entries.
func TestWrapIsSalted(t *testing.T) {
	root, p := testRoot(t, 1), place{name: "a"}
	a, errA := wrap(root, p, kindUser, []byte("x"))
	b, errB := wrap(root, p, kindUser, []byte("x"))
	if errA != nil || errB != nil || bytes.Equal(a[14:], b[14:]) || bytes.Equal(a[46:78], b[46:78]) {
		t.Errorf("%x\n%x", a, b)
	}
}

func FuzzEntryPlaintext(f *testing.F) {
	for _, s := range []string{"\x01\x05", "\x01\x05\x01t\x01u", ""} {
		for kind := range byte(4) {
			f.Add(kind, []byte(s))
		}
	}
	key := bytes.Repeat([]byte{7}, keySize)
	tail := bytes.Join([][]byte{key, {1, 0, 0, 0, 1}, key}, nil)
	f.Add(byte(kindUser), append([]byte("\x01\x05\x01t\x01u"), tail...))
	f.Add(byte(kindStore), append([]byte("\x01\x050123456789abcdef"), tail...))
	f.Fuzz(func(t *testing.T, kind byte, plain []byte) {
		again, err := recode(entryKind(kind), plain)
		if err == nil && !bytes.Equal(again, plain) {
			t.Errorf("%x encodes again as %x", plain, again)
		}
	})
}

func FuzzUnwrap(f *testing.F) {
	root, p := testRoot(f, 1), place{name: "a"}
	good, err := wrap(root, p, kindUser, []byte("plaintext"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:wrapOverhead-1])
	f.Add([]byte(wrapMagic))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, _, err := unwrap(root, p, raw); err == nil && !bytes.Equal(raw, good) {
			t.Errorf("%x opens", raw)
		}
	})
}
