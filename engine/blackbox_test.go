package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/crypto"
	. "github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// Helpers of the tests that see the engine as its callers do.

// keepsOpen ignores Close, so that the data outlives the store on it.
type keepsOpen struct{ backend.Backend }

func (keepsOpen) Close() error { return nil }

// withKeys adds keys to options, with which one store after the other can be opened on the same
// data.
func withKeys(t testing.TB, o Options) Options {
	t.Helper()
	root, err := crypto.GenerateRootKey()
	if err != nil {
		t.Fatal(err)
	}
	o.Root, o.Keystore, o.Create = root, crypto.NewMemKeystore(), true
	return o
}

func open(t testing.TB, b backend.Backend, withKeys Options) *Store {
	t.Helper()
	s, err := Open(context.Background(), b, withKeys)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func openWith(t testing.TB, b backend.Backend, o Options) *Store {
	t.Helper()
	return open(t, b, withKeys(t, o))
}

func openOn(t testing.TB, b backend.Backend) *Store {
	t.Helper()
	return openWith(t, b, Options{})
}

func refOf(thread string) Ref { return Ref{Tenant: "acme", User: "alice", Thread: thread} }

// spot is where a checkpoint is.
type spot struct {
	ref Ref
	id  string
}

func state(format string, args ...any) []Change {
	return []Change{{Name: "messages", Data: fmt.Appendf(nil, format, args...)}}
}

// randomText hardly compresses.
func randomText(r *rand.Rand, n int) []byte {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ,"
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[r.IntN(len(letters))]
	}
	return b
}

func drainSeq[T any](seq func(func(T, error) bool)) (err error) {
	for _, err = range seq {
		if err != nil {
			return err
		}
	}
	return nil
}

// checkDeep verifies all of a store.
func checkDeep(t testing.TB, s *Store) {
	t.Helper()
	rep, err := s.Upkeep().Verify(context.Background(), upkeep.VerifyOptions{Deep: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range rep.Problems {
		if i == 10 {
			t.Errorf("and %d problems more", len(rep.Problems)-i)
			break
		}
		t.Errorf("%+v", p)
	}
}

// longRun is how many operations a campaign does, by CKPTD_LONG, or 0.
func longRun() int {
	n, _ := strconv.Atoi(os.Getenv("CKPTD_LONG"))
	return n
}
