package engine

import (
	"testing"

	"github.com/ckptd/ckptd/crypto"
)

// threadSealer seals values that the engine itself would not.
func threadSealer(t testing.TB, l *lineage) *crypto.Sealer {
	t.Helper()
	s, err := l.Keys.Sealer("thread", l.Tok[:])
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// partSealer is threadSealer for parts and blobs.
func partSealer(t testing.TB, u *user) *crypto.Sealer {
	t.Helper()
	s, err := u.Keys.Sealer("parts")
	if err != nil {
		t.Fatal(err)
	}
	return s
}
