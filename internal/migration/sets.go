package migration

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ckptd/ckptd/internal/durable"
	"github.com/ckptd/ckptd/migrate"
)

// Sealer seals files next to a store. An upkeep.Store is one.
type Sealer interface {
	SealSidecar(dst []byte, name string, plain []byte) ([]byte, error)
	OpenSidecar(name string, sealed []byte) ([]byte, error)
	Pseudonym(purpose string, names ...string) string
}

// Installed is a migration set installed in a store.
type Installed struct {
	Tenant    string // whose it is; "" is every tenant that has none of its own for the kind
	Kind      string
	Digest    [32]byte
	Installed time.Time
	Set       *migrate.Set
}

// Sets are the migration sets installed in a store, read on first use. Methods are safe for
// concurrent use.
type Sets struct {
	dir     string
	reader  *migrate.Reader
	problem func(error)

	now atomic.Pointer[map[setName]*Installed] // all, for readers that do not wait; nil: not read yet

	mu     sync.Mutex // guards the fields below
	sealer Sealer
	read   bool
	err    error // of reading
	all    map[setName]*Installed
}

type setName struct{ tenant, kind string }

// NewSets returns the sets of a store that will be opened later. They are stored in dir, which is
// created with the first one. Sets that cannot be read are reported to problem, unless that is nil,
// and provide no migrations until they can be read.
func NewSets(dir string, r *migrate.Reader, problem func(error)) *Sets {
	return &Sets{dir: dir, reader: r, problem: problem}
}

// Open sets the sealer of the sets, as soon as the store is open.
func (s *Sets) Open(sealer Sealer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealer, s.read = sealer, false
	s.now.Store(nil)
}

// For is the set of a kind, nil if there is none: engine.Options.Migrations.
func (s *Sets) For(tenant, kind string) *migrate.Set {
	all := s.now.Load()
	if all == nil {
		s.mu.Lock()
		if err := s.load(context.Background()); err != nil && s.problem != nil {
			s.problem(err)
			s.err = nil // it was reported
		}
		all = s.now.Load()
		s.mu.Unlock()
	}
	if all == nil { // the store is not open
		return nil
	}
	for _, name := range []setName{{tenant, kind}, {"", kind}} {
		if in := (*all)[name]; in != nil {
			return in.Set
		}
	}
	return nil
}

// publish makes all the current sets. The caller holds s.mu.
func (s *Sets) publish() {
	all := maps.Clone(s.all)
	s.now.Store(&all)
}

// List reads the sets again, and returns them sorted by tenant and kind.
func (s *Sets) List(ctx context.Context) ([]Installed, error) {
	s.mu.Lock()
	s.read = false
	s.mu.Unlock()
	return s.Known(ctx)
}

// Known returns the sets as they were read, or installed since, in order of tenant and kind.
func (s *Sets) Known(ctx context.Context) ([]Installed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	var all []Installed
	for _, in := range s.all {
		all = append(all, *in)
	}
	slices.SortFunc(all, func(a, b Installed) int { return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Kind, b.Kind)) })
	return all, nil
}

// Install installs the sets of a directory, as migrate.Reader.Read describes it, each in place of
// one of its kind: for a tenant or, with "", for all that have none of their own. All of them are
// read, and their fixtures run, before any is installed. A set whose digest is asked for and is
// another one is migrate.ErrInvalid.
func (s *Sets) Install(ctx context.Context, tenant string, fsys fs.FS, digests map[string][32]byte) ([]Installed, error) {
	registry, err := s.reader.Read(ctx, fsys)
	if err != nil {
		return nil, err
	}
	if len(registry.Kinds()) == 0 {
		return nil, fmt.Errorf("%w: the directory has no folder named after a kind", migrate.ErrInvalid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	var done []Installed
	for _, kind := range registry.Kinds() {
		set := registry.Set(kind)
		if want, ok := digests[kind]; ok && want != set.Digest() {
			return nil, fmt.Errorf("%w: the set for %q has the digest %x, want %x", migrate.ErrInvalid, kind, set.Digest(), want)
		}
		done = append(done, Installed{tenant, kind, set.Digest(), time.Now().UTC().Truncate(time.Second), set})
	}
	for i := range done {
		files, err := fs.Sub(fsys, migrate.FolderOf(done[i].Kind))
		if err == nil {
			err = s.write(&done[i], files)
		}
		if err != nil {
			return nil, fmt.Errorf("installing the migrations for %q: %w", done[i].Kind, err)
		}
		s.all[setName{tenant, done[i].Kind}] = &done[i]
		s.publish()
	}
	return done, nil
}

// Remove removes a set. One that is not there is fs.ErrNotExist.
func (s *Sets) Remove(ctx context.Context, tenant, kind string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(ctx); err != nil {
		return err
	}
	path := filepath.Join(s.dir, s.file(tenant, kind))
	if err := os.Remove(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the migrations for %q: %w", kind, fs.ErrNotExist)
		}
		return fmt.Errorf("removing the migrations for %q: %w", kind, err)
	}
	delete(s.all, setName{tenant, kind})
	s.publish()
	return durable.SyncDir(s.dir)
}

// setFile is the plaintext of the file of a set.
type setFile struct {
	Version   int       `json:"version"`
	Tenant    string    `json:"tenant"`
	Kind      string    `json:"kind"`
	Installed time.Time `json:"installed"`
	Digest    []byte    `json:"sha256"`
	Files     []byte    `json:"files"` // zip
}

const setFileVersion = 1

func (s *Sets) file(tenant, kind string) string {
	return s.sealer.Pseudonym("migrations", tenant, kind) + ".set"
}

// nameBeside is the name that the file of a set is sealed under.
func nameBeside(file string) string { return "migrations/sets/" + file }

func (s *Sets) write(in *Installed, files fs.FS) error {
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	if err := z.AddFS(files); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	plain, err := json.Marshal(&setFile{setFileVersion, in.Tenant, in.Kind, in.Installed, in.Digest[:], packed.Bytes()})
	if err != nil {
		return err
	}
	file := s.file(in.Tenant, in.Kind)
	sealed, err := s.sealer.SealSidecar(nil, nameBeside(file), plain)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	if err := durable.SyncDir(filepath.Dir(s.dir)); err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(s.dir, file), sealed)
}

// load reads the sets, once. The caller holds s.mu.
func (s *Sets) load(ctx context.Context) error {
	if s.read {
		return s.err
	}
	if s.sealer == nil {
		return errors.New("reading the installed migrations: the store is not open yet")
	}
	s.read, s.err, s.all = true, nil, map[setName]*Installed{}
	defer s.publish()
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.err = fmt.Errorf("reading the installed migrations: %w", err)
		return s.err
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".set") {
			continue // a leftover of a crash
		}
		in, err := s.open(ctx, e.Name())
		if err != nil {
			s.err = fmt.Errorf("reading the installed migrations: %w", err)
			continue
		}
		s.all[setName{in.Tenant, in.Kind}] = in
	}
	return s.err
}

// maxSetFile bounds the file of a set in bytes.
const maxSetFile = 256 << 20

func (s *Sets) open(ctx context.Context, file string) (*Installed, error) {
	sealed, err := durable.ReadFile(filepath.Join(s.dir, file), maxSetFile)
	if err != nil {
		return nil, err
	}
	plain, err := s.sealer.OpenSidecar(nameBeside(file), sealed)
	if err != nil {
		return nil, err
	}
	var in setFile
	if err := json.Unmarshal(plain, &in); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if in.Version != setFileVersion {
		return nil, fmt.Errorf("%s has version %d, which this ckptd does not support", file, in.Version)
	}
	files, err := zip.NewReader(bytes.NewReader(in.Files), int64(len(in.Files)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	reader := *s.reader
	reader.Tried = true // otherwise one tenant with many sets could delay the start for all others
	set, err := reader.ReadSet(ctx, files, in.Kind)
	if err != nil {
		return nil, err
	}
	if digest := set.Digest(); !bytes.Equal(digest[:], in.Digest) {
		return nil, fmt.Errorf("%w: the set for %q does not have the digest that it was installed with", migrate.ErrInvalid, in.Kind)
	}
	return &Installed{in.Tenant, in.Kind, set.Digest(), in.Installed, set}, nil
}
