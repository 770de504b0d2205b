package crypto

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// forEachKeystore runs a test on every kind of keystore.
func forEachKeystore(t *testing.T, f func(t *testing.T, ks Keystore)) {
	t.Run("mem", func(t *testing.T) { f(t, NewMemKeystore()) })
	t.Run("file", func(t *testing.T) { f(t, openFiles(t, filepath.Join(t.TempDir(), "keys"), true)) })
}

func openFiles(t testing.TB, dir string, create bool) *FileKeystore {
	t.Helper()
	ks, err := OpenFileKeystore(dir, create)
	if err != nil {
		t.Fatal(err)
	}
	return ks
}

func mustPut(t testing.TB, ks Keystore, name, old, new string) {
	t.Helper()
	var was []byte
	if old != "" {
		was = []byte(old)
	}
	if err := ks.Put(context.Background(), name, was, []byte(new)); err != nil {
		t.Fatal(err)
	}
}

func collect(t testing.TB, names iter.Seq2[string, error]) []string {
	t.Helper()
	var all []string
	for name, err := range names {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func TestKeystore(t *testing.T) {
	forEachKeystore(t, func(t *testing.T, ks Keystore) {
		ctx := t.Context()
		expect := func(name, want string) {
			t.Helper()
			got, err := ks.Get(ctx, name)
			if want == "" && !errors.Is(err, ErrNotFound) || want != "" && (err != nil || string(got) != want) {
				t.Errorf("%s is %q, %v, want %q", name, got, err, want)
			}
		}
		conflict := func(name string, old []byte) {
			t.Helper()
			if err := ks.Put(ctx, name, old, []byte("wrong")); !errors.Is(err, ErrKeystoreConflict) {
				t.Errorf("putting %s over %q: %v", name, old, err)
			}
		}
		expect("a/b", "")
		conflict("a/b", []byte("one"))
		conflict("a/b", []byte{})
		mustPut(t, ks, "a/b", "", "one")
		expect("a/b", "one")
		conflict("a/b", nil)
		conflict("a/b", []byte("on"))
		conflict("a/b", []byte{})
		mustPut(t, ks, "a/b", "one", "second")
		expect("a/b", "second")
		mustPut(t, ks, "a/b", "second", "3")
		expect("a/b", "3")
		for range 2 {
			if err := ks.Delete(ctx, "a/b"); err != nil {
				t.Error(err)
			}
			expect("a/b", "")
		}
		mustPut(t, ks, "a/b", "", "again")
		expect("a/b", "again")
	})
}

// Slices passed in and out belong to the caller.
func TestKeystoreKeepsNoSlices(t *testing.T) {
	forEachKeystore(t, func(t *testing.T, ks Keystore) {
		in := []byte("entry")
		if err := ks.Put(t.Context(), "a", nil, in); err != nil {
			t.Fatal(err)
		}
		clear(in)
		out, _ := ks.Get(t.Context(), "a")
		clear(out)
		if got, err := ks.Get(t.Context(), "a"); string(got) != "entry" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

func TestKeystoreList(t *testing.T) {
	forEachKeystore(t, func(t *testing.T, ks Keystore) {
		names := []string{"store", "a", "ab", "ab/ab", "ab/c", "ab/cd", "ab/cdef", "ab/cdeg", "abc/d", "ab/cd/cd", "ab/cd/e/f", "c/-_"}
		for _, n := range names {
			mustPut(t, ks, n, "", "entry "+n)
		}
		for _, n := range names {
			if got, err := ks.Get(t.Context(), n); string(got) != "entry "+n {
				t.Errorf("%s: %q, %v", n, got, err)
			}
		}
		for _, prefix := range []string{"", "a", "ab", "ab/", "ab/c", "ab/cd", "ab/cd/", "abc/", "x", "x/", "/", "../", "AB/"} {
			var want []string
			for _, n := range names {
				if strings.HasPrefix(n, prefix) {
					want = append(want, n)
				}
			}
			slices.Sort(want)
			if got := collect(t, ks.List(t.Context(), prefix)); !slices.Equal(got, want) {
				t.Errorf("prefix %q lists %q, want %q", prefix, got, want)
			}
		}
		n := 0
		for range ks.List(t.Context(), "ab/") {
			if n++; n == 2 {
				break
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for name, err := range ks.List(ctx, "") {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled: %q, %v", name, err)
			}
		}
	})
}

func TestKeystoreRefusals(t *testing.T) {
	forEachKeystore(t, func(t *testing.T, ks Keystore) {
		ctx := t.Context()
		for _, name := range []string{"", ".", "..", "/", "/a", "a/", "a//b", "../a", "a/../b", "A", "a.key", ".tmp-a", "a b", "a\x00", `a\b`,
			"KEYSTORE", "ä", strings.Repeat("a", 65), "a/b/c/d/e"} {
			_, getErr := ks.Get(ctx, name)
			for op, err := range map[string]error{"get": getErr, "put": ks.Put(ctx, name, nil, []byte("x")), "delete": ks.Delete(ctx, name)} {
				if !errors.Is(err, ErrInvalidName) {
					t.Errorf("%s %q: %v", op, name, err)
				}
			}
		}
		for _, size := range []int{0, maxEntry + 1} {
			if err := ks.Put(ctx, "a", nil, make([]byte, size)); err == nil {
				t.Errorf("an entry of %d bytes is taken", size)
			}
		}
		if err := ks.Put(ctx, "a", nil, make([]byte, maxEntry)); err != nil {
			t.Errorf("the largest entry: %v", err)
		}
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		_, getErr := ks.Get(cancelled, "a")
		for op, err := range map[string]error{"get": getErr, "put": ks.Put(cancelled, "b", nil, []byte("x")), "delete": ks.Delete(cancelled, "a")} {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled %s: %v", op, err)
			}
		}
		if got := collect(t, ks.List(ctx, "")); !slices.Equal(got, []string{"a"}) {
			t.Errorf("left behind: %q", got)
		}
	})
}

// Of many that swap at once, one wins each round.
func TestKeystoreSwapsAreAtomic(t *testing.T) {
	forEachKeystore(t, func(t *testing.T, ks Keystore) {
		const rounds, workers = 15, 8
		var old []byte
		for round := range rounds {
			var wins atomic.Int32
			var wg sync.WaitGroup
			for w := range workers {
				wg.Go(func() {
					err := ks.Put(t.Context(), "a/b", old, fmt.Appendf(nil, "%d by %d", round, w))
					if err == nil {
						wins.Add(1)
					} else if !errors.Is(err, ErrKeystoreConflict) {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if wins.Load() != 1 {
				t.Fatalf("round %d has %d winners", round, wins.Load())
			}
			old, _ = ks.Get(t.Context(), "a/b")
		}
	})
}

// Two keystores over one directory take turns, as two processes do.
func TestFileKeystoreSwapsAcrossOpens(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	var wins atomic.Int32
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			ks, err := OpenFileKeystore(dir, true)
			if err != nil {
				t.Error(err)
				return
			}
			for i := range 20 {
				switch err := ks.Put(t.Context(), fmt.Sprintf("t/u%d", i), nil, []byte("x")); {
				case err == nil:
					wins.Add(1)
				case !errors.Is(err, ErrKeystoreConflict):
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if wins.Load() != 20 {
		t.Errorf("20 entries were created %d times", wins.Load())
	}
}

func TestFileKeystoreReopens(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "keys")
	ks := openFiles(t, dir, true)
	mustPut(t, ks, "store", "", "s")
	mustPut(t, ks, "tenant/user", "", "u")
	if _, err := os.Stat(filepath.Join(dir, "tenant", "us", "user.key")); err != nil {
		t.Error(err) // docs/format.md §16
	}
	for _, create := range []bool{false, true} {
		ks = openFiles(t, dir, create)
		if got, err := ks.Get(t.Context(), "tenant/user"); string(got) != "u" {
			t.Errorf("%q, %v", got, err)
		}
	}
	err := filepath.WalkDir(filepath.Dir(dir), func(path string, e os.DirEntry, err error) error {
		if info, infoErr := e.Info(); err != nil || infoErr != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v, %v", path, info.Mode(), err, infoErr)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestFileKeystoreRefusesForeignDirectories(t *testing.T) {
	write := func(name, text string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	none := func(*testing.T, string) {}
	for name, c := range map[string]struct {
		prepare       func(t *testing.T, dir string)
		closed, asNew error
	}{
		"empty":          {none, ErrNoStore, nil},
		"foreign file":   {write("notes.txt", "x"), ErrForeignKeystore, ErrForeignKeystore},
		"foreign marker": {write(markerName, "something else\n"), ErrForeignKeystore, ErrForeignKeystore},
		"marker cut":     {write(markerName, markerText[:9]), ErrNoStore, nil},
		"marker empty":   {write(markerName, ""), ErrNoStore, nil},
		"marker newer":   {write(markerName, "ckptd keystore 2\n"), ErrNewerFormat, ErrNewerFormat},
		"marker longer":  {write(markerName, markerText+"x"), ErrForeignKeystore, ErrForeignKeystore},
		"marker cut, entries there": {func(t *testing.T, dir string) {
			write(markerName, markerText[:9])(t, dir)
			write("store.key", "x")(t, dir)
		}, ErrForeignKeystore, ErrForeignKeystore},
		"a file": {func(t *testing.T, dir string) {
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
			write(filepath.Base(dir), "x")(t, filepath.Dir(dir))
		}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.prepare(t, dir)
			before, _ := filepath.Glob(filepath.Join(dir, "*"))
			for _, create := range []bool{false, true} {
				want := c.closed
				if create {
					want = c.asNew
				}
				_, err := OpenFileKeystore(dir, create)
				if name == "a file" {
					if err == nil {
						t.Error("a file is opened as a keystore")
					}
					continue
				}
				if !errors.Is(err, want) {
					t.Errorf("create %v: %v, want %v", create, err, want)
				}
				if after, _ := filepath.Glob(filepath.Join(dir, "*")); want != nil && !slices.Equal(before, after) {
					t.Errorf("create %v: refused, but left %q", create, after)
				}
			}
		})
	}
	missing := filepath.Join(t.TempDir(), "missing")
	if _, err := OpenFileKeystore(missing, false); !errors.Is(err, ErrNoStore) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if _, err := os.Stat(missing); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("opening made a directory: %v", err)
	}
}

func TestFileKeystorePassesOverStrangers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	ks := openFiles(t, dir, true)
	mustPut(t, ks, "tenant/user", "", "u")
	for _, stray := range []string{"tenant/us/notes.txt", "tenant/us/other.key", "tenant/stray.key", "tenant/us/USER.key", ".hidden"} {
		if err := os.WriteFile(filepath.Join(dir, stray), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := collect(t, ks.List(t.Context(), "")); !slices.Equal(got, []string{"tenant/user"}) {
		t.Errorf("%q", got)
	}
}

func TestFileKeystoreRemovesLeftovers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	openFiles(t, dir, true)
	left := filepath.Join(dir, tempPrefix+"X")
	if err := os.WriteFile(left, []byte("old key material"), 0o600); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(t.TempDir(), "link")
	if err := os.Link(left, kept); err != nil {
		t.Fatal(err)
	}
	openFiles(t, dir, false)
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the leftover is there: %v", err)
	}
	if b, err := os.ReadFile(kept); err != nil || bytes.Contains(b, []byte("key material")) {
		t.Errorf("not overwritten: %q, %v", b, err)
	}
}

// Replaced and deleted entries are overwritten: a hard link shows the fate of the bytes.
func TestFileKeystoreOverwrites(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	ks := openFiles(t, dir, true)
	mustPut(t, ks, "t/u", "", "first secret")
	file := ks.path("t/u")
	for name, change := range map[string]func() error{
		"replaced": func() error { return ks.Put(t.Context(), "t/u", []byte("first secret"), []byte("second secret")) },
		"deleted":  func() error { return ks.Delete(t.Context(), "t/u") },
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ks.Get(t.Context(), "t/u"); err != nil {
				mustPut(t, ks, "t/u", "", "first secret")
			}
			kept := filepath.Join(t.TempDir(), "link")
			if err := os.Link(file, kept); err != nil {
				t.Fatal(err)
			}
			if err := change(); err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(kept); err != nil || len(b) == 0 || bytes.Contains(b, []byte("secret")) {
				t.Errorf("%q, %v", b, err)
			}
			if err := ks.Delete(t.Context(), "t/u"); err != nil {
				t.Fatal(err)
			}
		})
	}
}
