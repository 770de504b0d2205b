package crypto

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var errFault = errors.New("fault for a test")

// Whichever step fails, a reopened keystore has the entry before or after the change, whole, and
// nothing else; a change that was reported as done is done.
func TestFileKeystoreFaultSweep(t *testing.T) {
	ctx := t.Context()
	for name, op := range map[string]struct {
		before, after string
		run           func(ks *FileKeystore) error
	}{
		"create":  {"", "new", func(ks *FileKeystore) error { return ks.Put(ctx, "t/u", nil, []byte("new")) }},
		"replace": {"old entry", "new", func(ks *FileKeystore) error { return ks.Put(ctx, "t/u", []byte("old entry"), []byte("new")) }},
		"delete":  {"old entry", "", func(ks *FileKeystore) error { return ks.Delete(ctx, "t/u") }},
	} {
		t.Run(name, func(t *testing.T) {
			for k := 0; ; k++ {
				dir := filepath.Join(t.TempDir(), "keys")
				ks := openFiles(t, dir, true)
				mustPut(t, ks, "store", "", "s")
				if op.before != "" {
					mustPut(t, ks, "t/u", "", op.before)
				}
				steps, failed := 0, ""
				ks.fault = func(step, path string) error {
					if steps++; steps > k { // a medium that fails stays failed
						if failed == "" {
							failed = step
						}
						return errFault
					}
					return nil
				}
				err := op.run(ks)
				if failed == "" {
					if err != nil || k == 0 {
						t.Fatalf("without a fault after %d steps: %v", k, err)
					}
					expectEntry(t, openFiles(t, dir, false), op.after)
					return
				}
				if !errors.Is(err, errFault) {
					t.Fatalf("step %d, %s: error %v", k, failed, err)
				}
				if _, err := ks.Get(ctx, "store"); failed == "syncdir" && !errors.Is(err, errFault) {
					t.Errorf("step %d: in use after a failed sync: %v", k, err)
				}
				got := expectEntry(t, openFiles(t, dir, false), op.before, op.after)
				if got == op.after && slices.Contains([]string{"write", "mkdir", "rename"}, failed) && steps == k+1 {
					t.Errorf("step %d, %s failed, but the change is there", k, failed)
				}
				left, _ := filepath.Glob(filepath.Join(dir, tempPrefix+"*"))
				if len(left) > 0 {
					t.Errorf("step %d, %s: %q left after reopening", k, failed, left)
				}
			}
		})
	}
}

// expectEntry returns the entry t/u, "" for none, which must be one of want.
func expectEntry(t *testing.T, ks *FileKeystore, want ...string) string {
	t.Helper()
	b, err := ks.Get(t.Context(), "t/u")
	if err != nil && !errors.Is(err, ErrNotFound) || !slices.Contains(want, string(b)) {
		t.Errorf("%q, %v, want one of %q", b, err, want)
	}
	return string(b)
}

// A new entry is acknowledged only after its content, its name, and the names of its folders were
// made durable, in an order that leaves no name without content.
func TestFileKeystorePutIsDurable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	ks := openFiles(t, dir, true)
	var steps []string
	ks.fault = func(step, path string) error {
		rel, err := filepath.Rel(dir, path)
		if strings.HasPrefix(rel, tempPrefix) {
			rel = "temp"
		}
		steps = append(steps, step+" "+filepath.ToSlash(rel))
		return err
	}
	mustPut(t, ks, "t/user", "", "new")
	want := []string{"write temp", "sync temp", "mkdir t", "syncdir .", "mkdir t/us", "syncdir t", "rename t/us/user.key", "syncdir t/us"}
	if !slices.Equal(steps, want) {
		t.Errorf("put:\n%q, want\n%q", steps, want)
	}
	steps = nil
	if err := ks.Delete(t.Context(), "t/user"); err != nil {
		t.Fatal(err)
	}
	want = []string{"rename temp", "syncdir t/us", "overwrite temp", "sync temp", "remove temp", "syncdir ."}
	if !slices.Equal(steps, want) {
		t.Errorf("delete:\n%q, want\n%q", steps, want)
	}
}

// A name that a killed process may have left in the page cache only is made durable before its
// entry is used, once.
func TestFileKeystoreGetIsDurable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	mustPut(t, openFiles(t, dir, true), "t/user", "", "new")
	ks := openFiles(t, dir, false)
	var synced []string
	ks.fault = func(step, path string) error {
		if step == "syncdir" {
			rel, _ := filepath.Rel(dir, path)
			synced = append(synced, filepath.ToSlash(rel))
		}
		return nil
	}
	for range 2 {
		if _, err := ks.Get(t.Context(), "t/user"); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{".", "t", "t/us"}; !slices.Equal(synced, want) {
		t.Errorf("synced %q, want %q", synced, want)
	}
	ks = openFiles(t, dir, false)
	ks.fault = func(string, string) error { return errFault }
	if b, err := ks.Get(t.Context(), "t/user"); !errors.Is(err, errFault) || b != nil {
		t.Errorf("the sync failed: %q, %v", b, err)
	}
}

// A change that fails before it takes effect leaves nothing behind, and the keystore in use.
func TestFileKeystorePutFailsCleanly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	for _, at := range []string{"write", "sync", "mkdir", "rename"} {
		ks := openFiles(t, dir, true)
		ks.fault = func(step, path string) error {
			if step == at {
				return errFault
			}
			return nil
		}
		if err := ks.Put(t.Context(), "t/u", nil, []byte("x")); !errors.Is(err, errFault) {
			t.Errorf("%s: %v", at, err)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, tempPrefix+"*")); len(left) > 0 {
			t.Errorf("%s: %q left behind", at, left)
		}
		ks.fault = nil
		mustPut(t, ks, "t/u", "", "x")
		if err := ks.Delete(t.Context(), "t/u"); err != nil {
			t.Error(err)
		}
	}
}

// An entry whose name may yet be lost is not readable, and readers of other entries do not wait for
// it.
func TestFileKeystoreHidesWhatIsNotDurable(t *testing.T) {
	ks := openFiles(t, filepath.Join(t.TempDir(), "keys"), true)
	mustPut(t, ks, "t/other", "", "y")
	steps, within := 0, false
	ks.fault = func(step, path string) error {
		if steps++; within {
			return nil
		}
		within = true
		defer func() { within = false }()
		if b, err := ks.Get(t.Context(), "t/other"); string(b) != "y" {
			t.Errorf("another entry at step %s: %q, %v", step, b, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if b, err := ks.Get(ctx, "t/u"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("readers are let in at step %s: %q, %v", step, b, err)
		}
		return nil
	}
	mustPut(t, ks, "t/u", "", "x")
	if err := ks.Delete(t.Context(), "t/u"); err != nil || steps == 0 {
		t.Errorf("%d steps, %v", steps, err)
	}
	ks.fault = nil
	if b, err := ks.Get(t.Context(), "t/u"); !errors.Is(err, ErrNotFound) {
		t.Errorf("at the end: %q, %v", b, err)
	}
}

// Deleting a missing entry is neither an error nor a reason to stop, even without a folder.
func TestFileKeystoreDeleteOfNothing(t *testing.T) {
	ks := openFiles(t, filepath.Join(t.TempDir(), "keys"), true)
	for range 2 {
		if err := ks.Delete(t.Context(), "no/body"); err != nil {
			t.Error(err)
		}
	}
	mustPut(t, ks, "no/body", "", "x")
}

func TestFileKeystoreReadOnly(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("permissions do not bind root")
	}
	dir := filepath.Join(t.TempDir(), "keys")
	mustPut(t, openFiles(t, dir, true), "store", "", "x")
	if err := os.WriteFile(filepath.Join(dir, tempPrefix+"X"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(dir, 0o700) })
	ks := openFiles(t, dir, false)
	if b, err := ks.Get(t.Context(), "store"); string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
	if err := ks.Put(t.Context(), "t/u", nil, []byte("x")); !errors.Is(err, os.ErrPermission) {
		t.Errorf("put: %v", err)
	}
}
