package engine

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// failingKeystore is one on a device that fails. It fails to read entries after the first so many,
// and to list and to write them, with err.
type failingKeystore struct {
	crypto.Keystore
	reads int // that succeed; -1: all
	list  bool
	write bool
	err   error
}

func (k *failingKeystore) Get(ctx context.Context, name string) ([]byte, error) {
	if k.reads == 0 {
		return nil, k.err
	}
	k.reads--
	return k.Keystore.Get(ctx, name)
}

func (k *failingKeystore) List(ctx context.Context, prefix string) iter.Seq2[string, error] {
	if !k.list {
		return k.Keystore.List(ctx, prefix)
	}
	return func(yield func(string, error) bool) { yield("", k.err) }
}

func (k *failingKeystore) Put(ctx context.Context, name string, old, new []byte) error {
	if k.write {
		return k.err
	}
	return k.Keystore.Put(ctx, name, old, new)
}

// A keystore that cannot be read or written is unavailable storage for every operation, however the
// system says so, and the error names no path, since it goes to the callers of a daemon.
func TestKeystoreOnAFailingDevice(t *testing.T) {
	ctx := context.Background()
	const path = "/secret/place"
	read := &fs.PathError{Op: "read", Path: path, Err: syscall.EIO}
	rename := &os.LinkError{Op: "rename", Old: path + ".tmp", New: path, Err: syscall.EIO}
	full := &os.LinkError{Op: "rename", Old: path + ".tmp", New: path, Err: syscall.ENOSPC}
	save := func(user string) func(s *Store) error {
		return func(s *Store) error {
			_, err := s.Thread(Ref{Tenant: "acme", User: user, Thread: "t"}).Save(ctx, Draft{Channels: []Change{jsonChannel("a", "2")}})
			return err
		}
	}
	verify := func(s *Store) error { _, err := s.Upkeep().Verify(ctx, upkeep.VerifyOptions{}); return err }
	for name, tt := range map[string]struct {
		fails failingKeystore
		lost  bool // the keystore is older than the user
		call  func(s *Store) error
		want  error
	}{
		"reading":                      {failingKeystore{err: read}, false, save("bob"), ErrUnavailable},
		"reading once more, with data": {failingKeystore{reads: 1, err: read}, true, save("bob"), ErrUnavailable},
		"creating":                     {failingKeystore{reads: -1, write: true, err: read}, false, save("carol"), ErrUnavailable},
		"renaming":                     {failingKeystore{reads: -1, write: true, err: rename}, false, save("carol"), ErrUnavailable},
		"renaming, without space":      {failingKeystore{reads: -1, write: true, err: full}, false, save("carol"), ErrNoSpace},
		"listing, in a verification":   {failingKeystore{reads: -1, list: true, err: read}, false, verify, ErrUnavailable},
		"reading, in a verification":   {failingKeystore{err: read}, false, verify, ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, Options{})
			f.broken = tt.lost
			old := copyKeystore(t, f.opts.Keystore, "")
			mustSave(t, f, Ref{Tenant: "acme", User: "bob", Thread: "t"}, Draft{Channels: []Change{jsonChannel("a", "1")}})
			if tt.lost {
				f.opts.Keystore = old
			}
			k := &failingKeystore{Keystore: f.opts.Keystore, reads: -1}
			f.opts.Keystore = k
			f.reopen()
			whole := k.Keystore
			*k = tt.fails
			k.Keystore = whole
			err := tt.call(f.Store)
			*k = failingKeystore{Keystore: whole, reads: -1}
			if !errors.Is(err, tt.want) || strings.Contains(err.Error(), path) {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}

// A verification of a store that is closed meanwhile says that, and not that the keyring is.
func TestVerifyWhileKeyringIsClosed(t *testing.T) {
	f := newFixture(t, Options{})
	v := &verifier{s: f.Store}
	if err := v.keystoreProblem(Ref{}, crypto.ErrClosed); !errors.Is(err, ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
}
