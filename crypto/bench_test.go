package crypto

import (
	"context"
	"path/filepath"
	"strconv"
	"testing"
)

func BenchmarkSeal(b *testing.B) {
	s := testSealer(b, 1)
	key, plain, dst := make([]byte, 61), make([]byte, 600), make([]byte, 0, 1024)
	b.SetBytes(600)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Seal(dst, 0x20, key, plain); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	s := testSealer(b, 1)
	key, plain, dst := make([]byte, 61), make([]byte, 600), make([]byte, 0, 1024)
	sealed, err := s.Seal(nil, 0x20, key, plain)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(600)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Open(dst, 0x20, key, sealed); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSealer(b *testing.B) {
	ring := openRing(b, testRoot(b, 1), NewMemKeystore(), true)
	u := mustUser(b, ring, "acme", "alice", true)
	tok := u.ThreadToken("t")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := u.Sealer("thread", tok[:]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkThreadToken(b *testing.B) {
	ring := openRing(b, testRoot(b, 1), NewMemKeystore(), true)
	u := mustUser(b, ring, "acme", "alice", true)
	b.ReportAllocs()
	for b.Loop() {
		u.ThreadToken("support-42")
	}
}

func BenchmarkUserCached(b *testing.B) {
	ring := openRing(b, testRoot(b, 1), NewMemKeystore(), true)
	mustUser(b, ring, "acme", "alice", true)
	b.ReportAllocs()
	for b.Loop() {
		mustUser(b, ring, "acme", "alice", false)
	}
}

// BenchmarkUserCreate is a user's first save: an entry made durable.
func BenchmarkUserCreate(b *testing.B) {
	ring := openRing(b, testRoot(b, 1), openFiles(b, filepath.Join(b.TempDir(), "keys"), true), true)
	n := 0
	for b.Loop() {
		n++
		if _, err := ring.User(context.Background(), "acme", strconv.Itoa(n), true); err != nil {
			b.Fatal(err)
		}
	}
}
