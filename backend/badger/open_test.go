package badger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	badgerdb "github.com/dgraph-io/badger/v4"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/badger"
)

// children are the jobs of this binary, instead of running tests, when a test starts it again.
var children = map[string]func(args []string) error{
	"open":  openAndReport,
	"crash": writeUntilKilled,
	"close": writeAndClose,
}

func TestMain(m *testing.M) {
	if name, args := os.Getenv("BADGER_TEST_CHILD"), os.Args[1:]; name != "" {
		if err := children[name](args); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "BADGER_TEST_CHILD="+name)
	return cmd
}

func openAndReport(args []string) error {
	s, err := badger.Open(args[0], small)
	if err == nil {
		return s.Close()
	}
	fmt.Println(errors.Is(err, backend.ErrLocked), err)
	return nil
}

// writeAndClose commits 100 entries, says so, and closes when its input ends. It succeeds if that
// is ErrNoSpace.
func writeAndClose(args []string) error {
	s, err := badger.Open(args[0], small)
	if err != nil {
		return err
	}
	for i := range 100 {
		err := s.Commit(context.Background(), backend.Batch{Muts: []backend.Mut{put(fmt.Sprint(i), "value")}})
		if err != nil {
			return err
		}
	}
	fmt.Println("written")
	if _, err := io.ReadAll(os.Stdin); err != nil {
		return err
	}
	if err := s.Close(); !errors.Is(err, backend.ErrNoSpace) {
		return fmt.Errorf("closing: %v, want ErrNoSpace", err)
	}
	if err := s.Close(); !errors.Is(err, backend.ErrClosed) {
		return fmt.Errorf("closing twice: %v, want ErrClosed", err)
	}
	return nil
}

// files reads a directory whole.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		out[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func commit(t *testing.T, s backend.Backend, muts ...backend.Mut) {
	t.Helper()
	if err := s.Commit(t.Context(), backend.Batch{Muts: muts}); err != nil {
		t.Fatal(err)
	}
}

func put(key, value string) backend.Mut {
	return backend.Mut{Key: []byte(key), Value: []byte(value), Version: "v"}
}

const writtenKeys = 200

func writtenKey(i int) string { return fmt.Sprintf("key-%03d", i) }

var writtenValue = strings.Repeat("value ", 50)

// written returns a directory with a closed store that holds some entries in a table.
func written(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	s := open(t, dir)
	for i := range writtenKeys {
		commit(t, s, put(writtenKey(i), writtenValue))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	empty := func(t *testing.T) string { return t.TempDir() }
	with := func(name, text string) func(*testing.T) string {
		return func(t *testing.T) string {
			dir := t.TempDir()
			write(t, filepath.Join(dir, name), text)
			return dir
		}
	}
	mustExist := small
	mustExist.MustExist = true
	for _, tt := range []struct {
		name string
		dir  func(*testing.T) string
		opts badger.Options
		want error
	}{
		{"a directory of other files", with("notes.txt", "mine"), small, backend.ErrForeign},
		{"a Badger store of another program", plainBadger, small, backend.ErrForeign},
		{"another program's marker", with("CKPTD", "hello\n"), small, backend.ErrForeign},
		{"another driver's marker", with("CKPTD", "ckptd cloud 1\n"), small, backend.ErrForeign},
		{"a newer format", with("CKPTD", "ckptd badger 3 whatever\n"), small, backend.ErrNewerFormat},
		{"the format without a log", with("CKPTD", "ckptd badger 1\n"), small, backend.ErrOlderFormat},
		{"a marker without a version", with("CKPTD", "ckptd badger \n"), small, backend.ErrCorrupt},
		{"a marker with version 0", with("CKPTD", "ckptd badger 0\n"), small, backend.ErrCorrupt},
		{"a marker with half an id", with("CKPTD", "ckptd badger 2 00112233\n"), small, backend.ErrCorrupt},
		{"a marker cut short", with("CKPTD", "ckptd badger 2"), small, backend.ErrCorrupt},
		{"a store without its MANIFEST", noManifest, small, backend.ErrCorrupt},
		{"nothing, with MustExist", empty, mustExist, fs.ErrNotExist},
		{"memory too small", empty, badger.Options{MemTableSize: 1 << 20}, backend.ErrInvalid},
		{"a device too full", empty, badger.Options{MinFree: 1 << 60}, backend.ErrNoSpace},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := tt.dir(t)
			before := files(t, dir)
			s, err := badger.Open(dir, tt.opts)
			if err == nil {
				s.Close()
			}
			if !errors.Is(err, tt.want) {
				t.Fatalf("%v, want %v", err, tt.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
			after := files(t, dir)
			delete(after, filepath.Join(dir, "CKPTD"))
			delete(before, filepath.Join(dir, "CKPTD"))
			if !maps.Equal(before, after) {
				t.Errorf("the directory went from %d to %d files or changed", len(before), len(after))
			}
		})
	}
	t.Run("a file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		write(t, path, "mine")
		for _, opts := range []badger.Options{small, mustExist} {
			if _, err := badger.Open(path, opts); err == nil {
				t.Error("a file was opened as a store")
			}
		}
	})
	t.Run("missing, with MustExist", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "missing")
		if _, err := badger.Open(path, mustExist); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v", err)
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Error("the directory was created")
		}
	})
}

func plainBadger(t *testing.T) string {
	dir := t.TempDir()
	db, err := badgerdb.Open(badgerdb.DefaultOptions(dir).WithLogger(nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func noManifest(t *testing.T) string {
	dir := written(t)
	if err := os.Remove(filepath.Join(dir, "MANIFEST")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A store of another program with our marker put beside it is told by Badger's own header.
func TestOpenForeignBehindOurMarker(t *testing.T) {
	dir := plainBadger(t)
	ours := written(t)
	write(t, filepath.Join(dir, "CKPTD"), files(t, ours)[filepath.Join(ours, "CKPTD")])
	if err := os.CopyFS(filepath.Join(dir, "log"), os.DirFS(filepath.Join(ours, "log"))); err != nil {
		t.Fatal(err)
	}
	if _, err := badger.Open(dir, small); !errors.Is(err, backend.ErrForeign) {
		t.Errorf("%v, want ErrForeign", err)
	}
}

func TestOpenCreates(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := open(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	opts := small
	opts.MustExist = true
	again, err := badger.Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()

	// After a crash in the middle of the first open there is no store.
	dir = t.TempDir()
	write(t, filepath.Join(dir, "CKPTD.tmp123"), "ckptd ba")
	if err := os.Mkdir(filepath.Join(dir, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	open(t, dir).Close()
	if _, err := os.Stat(filepath.Join(dir, "CKPTD.tmp123")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the temporary marker was left behind")
	}
}

func TestOpenTwice(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	defer s.Close()
	commit(t, s, put("a", "1"))
	if _, err := badger.Open(dir, small); !errors.Is(err, backend.ErrLocked) {
		t.Errorf("in this process: %v", err)
	}
	out, err := child(t, "open", dir).CombinedOutput()
	if err != nil || !bytes.HasPrefix(out, []byte("true ")) {
		t.Errorf("in another process: %s, %v", out, err)
	}
	commit(t, s, put("b", "1")) // and the first is none the worse
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if out, err := child(t, "open", dir).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("after closing: %s, %v", out, err)
	}
}

func TestOpenReadOnlyDirectory(t *testing.T) {
	dir := written(t)
	makeReadOnly(t, dir)
	before := files(t, dir)
	for _, d := range []string{dir, filepath.Join(dir, "new")} {
		if _, err := badger.Open(d, small); !errors.Is(err, backend.ErrReadOnly) {
			t.Errorf("%s: %v, want ErrReadOnly", filepath.Base(d), err)
		}
	}
	if !maps.Equal(before, files(t, dir)) {
		t.Error("the directory changed")
	}
}

// makeReadOnly takes the right to write from a directory: by its mode, or, for root, who needs no
// rights, with the attribute of the file system.
func makeReadOnly(t *testing.T, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Chmod(dir, 0o700) })
		return
	}
	if out, err := exec.Command("chattr", "+i", dir).CombinedOutput(); err != nil {
		t.Skipf("root, and the file system has no immutable directories: %s %v", out, err)
	}
	t.Cleanup(func() { exec.Command("chattr", "-i", dir).Run() })
}

// A table with a flipped bit or cut short is noticed when the store is opened, without taking the
// process down.
func TestOpenDamagedTable(t *testing.T) {
	dir := written(t)
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) != 1 {
		t.Fatalf("%q, %v", tables, err)
	}
	good := files(t, dir)[tables[0]]
	for i := 0; i < len(good); i += 1 + len(good)/50 {
		damaged := []byte(good)
		damaged[i] ^= 1 << (i % 8)
		expectCorrupt(t, dir, tables[0], string(damaged), fmt.Sprintf("bit flipped in byte %d of %d", i, len(good)))
		expectCorrupt(t, dir, tables[0], good[:i], fmt.Sprintf("cut to %d of %d", i, len(good)))
	}
	for i := len(good) - 120; i < len(good); i++ { // the lengths and the checksum at the end
		damaged := []byte(good)
		damaged[i] ^= 1 << (i % 8)
		expectCorrupt(t, dir, tables[0], string(damaged), fmt.Sprintf("bit flipped in byte %d of %d", i, len(good)))
		expectCorrupt(t, dir, tables[0], good[:i], fmt.Sprintf("cut to %d of %d", i, len(good)))
	}
	if err := os.Remove(tables[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := badger.Open(dir, small); !errors.Is(err, backend.ErrCorrupt) {
		t.Errorf("without the table: %v", err)
	}
}

// expectCorrupt opens the store with a table replaced. What is packed can read the same with a bit
// flipped (a copy from further back); then everything must be there.
func expectCorrupt(t *testing.T, dir, table, text, what string) {
	t.Helper()
	write(t, table, text)
	s, err := badger.Open(dir, small)
	if err == nil {
		defer s.Close()
		entries, _, err := s.Scan(t.Context(), backend.Range{})
		if err != nil || len(entries) != writtenKeys {
			t.Errorf("%s: opened, with %d entries: %v", what, len(entries), err)
		}
		for i, e := range entries {
			if string(e.Key) != writtenKey(i) || string(e.Value) != writtenValue {
				t.Errorf("%s: opened, and %q is %q", what, e.Key, e.Value)
			}
		}
		return
	}
	if !errors.Is(err, backend.ErrCorrupt) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: %v, want one line of ErrCorrupt", what, err)
	}
}

// A process that is killed right after it created a log leaves one without a byte.
func TestOpenAfterUnbornLogs(t *testing.T) {
	dir := t.TempDir()
	s, err := badger.Open(dir, badger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	key := []byte("key")
	if err := s.Commit(t.Context(), backend.Batch{Muts: []backend.Mut{{Key: key, Value: []byte("value"), Version: "1"}}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"00009.mem", "000009.vlog"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if s, err = badger.Open(dir, badger.Options{}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, err := s.Get(t.Context(), key); err != nil || string(got[0].Value) != "value" {
		t.Errorf("got %+v, %v", got, err)
	}
}
