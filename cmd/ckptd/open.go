package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/badger"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/pluginset"
)

// keyVariable is the environment variable that holds a root key itself.
const keyVariable = "CKPTD_KEY"

// open opens the store. With create, it creates a store, with its key file and keystore, if the
// data directory is missing or empty, and prints a note. Otherwise, a missing store is errNoStore
// and nothing is created.
func (a *app) open(ctx context.Context, create bool) (*engine.Store, error) {
	fresh, err := missingOrEmpty(a.data)
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	if fresh && !create {
		return nil, fmt.Errorf("%w in %s", errNoStore, a.data)
	}
	a.pluginOptions.Dir = a.base + ".plugins"
	a.plugins = pluginset.New(a.pluginOptions)
	if a.pluginOptions.Workers {
		a.migrations.workers = a.plugins
	}
	if err := a.migrations.open(ctx, a.base, func(err error) { a.note("%s", oneLine(err.Error())) }); err != nil {
		return nil, err
	}
	// The backend comes first: it knows whose the directory is, and locks it against others that
	// would make keys.
	options := a.backend
	options.MustExist = !create
	be, err := badger.Open(a.data, options)
	if errors.Is(err, backend.ErrLocked) {
		return nil, fmt.Errorf("%w: wait for it, use another --data or, if it is ckptd serve, connect to it with --server unix:%s.sock", err, a.base)
	}
	if err != nil {
		return nil, err
	}
	a.positioner = be
	o := engine.Options{Create: create, CacheBytes: a.cacheBytes}
	said, made := "", false
	if o.Root, said, made, err = a.rootKey(ctx, be, create); err == nil {
		o.Keystore, err = a.keystore(ctx, be, create)
	}
	if err != nil {
		return nil, errors.Join(err, be.Close())
	}
	o.Hooks = a.plugins
	o.Migrations = a.migrations.find
	s, err := engine.Open(ctx, be, o)
	if err != nil {
		return nil, err
	}
	a.plugins.Open(s.Upkeep())
	a.migrations.sets.Open(s.Upkeep())
	if fresh || made { // a first use that was cut short may have left the directory
		a.note("created the store %s %s", a.data, said)
	}
	return s, nil
}

// rootKey reads the root key, from the environment if it is there. It may create one for a store
// without data. said describes the key, for the note about a new store; made reports whether the
// key is new.
func (a *app) rootKey(ctx context.Context, be backend.Backend, create bool) (root crypto.RootKey, said string, made bool, err error) {
	if os.Getenv(keyVariable) != "" {
		root, err = crypto.KeyFromEnv(keyVariable)
		return root, "under the key in " + keyVariable, false, err
	}
	root, err = crypto.ReadKeyFile(a.keyFile)
	if !errors.Is(err, crypto.ErrKeyFileMissing) || !create || !hasNothing(ctx, be) {
		return root, "under the key " + a.keyFile, false, err
	}
	if root, err = crypto.GenerateRootKey(); err == nil {
		err = crypto.WriteKeyFile(a.keyFile, root)
	}
	return root, fmt.Sprintf("and its key %s: back up %s and, again after every new user, %s, apart from the data; without both, nothing can be read",
		a.keyFile, a.keyFile, a.keysDir), true, err
}

func (a *app) keystore(ctx context.Context, be backend.Backend, create bool) (crypto.Keystore, error) {
	k, err := crypto.OpenFileKeystore(a.keysDir, create && hasNothing(ctx, be))
	if err != nil {
		return nil, err
	}
	return k, nil
}

// hasNothing reports whether the backend is empty for sure, as when the store is just being made or
// a crash left it so.
func hasNothing(ctx context.Context, be backend.Backend) bool {
	first, _, err := be.Scan(ctx, backend.Range{Limit: 1, KeysOnly: true})
	return err == nil && len(first) == 0
}

func missingOrEmpty(dir string) (bool, error) {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	} else if err != nil {
		return false, err
	}
	defer f.Close()
	names, err := f.Readdirnames(1)
	if len(names) > 0 {
		return false, nil
	}
	if info, statErr := f.Stat(); statErr == nil && !info.IsDir() {
		return false, fmt.Errorf("%s is a file, want a directory", dir)
	}
	if err == io.EOF {
		return true, nil
	}
	return false, err
}

// with opens the store of the data directory or, if there is a server, that behind it, calls f, and
// closes the store.
func (a *app) with(ctx context.Context, create bool, f func(store) error) error {
	s, err := a.reach(ctx, create)
	if err != nil {
		return err
	}
	err = f(s)
	if a.server.addr != "" && errors.Is(err, engine.ErrNotFound) {
		// A server does not tell one from the other.
		err = notSeenError{fmt.Errorf("%w, or you cannot see it (asked for tenant %q, user %q)", err, a.tenant, a.user)}
	}
	return errors.Join(err, s.Close())
}

// reach is open for a store that may be behind a server, which has made it already.
func (a *app) reach(ctx context.Context, create bool) (store, error) {
	if a.server.addr != "" {
		c, err := a.dial()
		if err != nil {
			return nil, err
		}
		return remote{c}, nil
	}
	s, err := a.open(ctx, create)
	if err != nil {
		return nil, err
	}
	return embed(s, a.plugins), nil
}

// withOwn is with for commands that work on the local store only.
func (a *app) withOwn(ctx context.Context, create bool, f func(*engine.Store) error) error {
	if a.server.addr != "" {
		return usagef("this command works on local files: omit --server")
	}
	s, err := a.open(ctx, create)
	if err != nil {
		return err
	}
	return errors.Join(f(s), embed(s, a.plugins).Close())
}
