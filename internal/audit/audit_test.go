package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	acme  = "00112233445566778899aabbccddeeff"
	alice = "ffeeddccbbaa99887766554433221100"
)

// vector is the example of docs/format.md §19, made in another language.
const vector = `{"n":1,"time":"2026-03-01T12:00:00.000Z","kind":"denied","method":"/ckptd.v1.CheckpointService/Load","caller":"token:0badc0de","tenant":"00112233445566778899aabbccddeeff","code":"not_found","count":3,"prev":"0000000000000000000000000000000000000000000000000000000000000000","hash":"5e94afa7f0cccf13331fb93e48d398736d53befc469c8b374e8cb25b06dbec41"}` + "\n"

func openLog(t testing.TB, path string) *Log {
	t.Helper()
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func admin(code string) Entry {
	return Entry{Kind: Admin, Method: "/ckptd.v1.AdminService/CreateUser", Caller: "peer:0", Tenant: acme, User: alice, Code: code}
}

func denied(code string) Entry {
	return Entry{Kind: Denied, Method: "/ckptd.v1.CheckpointService/Load", Caller: "token:0badc0de", Tenant: acme, Code: code}
}

func add(t testing.TB, l *Log, entries ...Entry) {
	t.Helper()
	for _, e := range entries {
		if err := l.Append(e); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// entries are those of the log's file, without times.
func entries(t testing.TB, l *Log) []Entry {
	t.Helper()
	var all []Entry
	for e, err := range l.Entries() {
		if err != nil {
			t.Fatal(err)
		}
		e.Time = time.Time{}
		all = append(all, e)
	}
	return all
}

func TestVector(t *testing.T) {
	e := Entry{1, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Denied, "/ckptd.v1.CheckpointService/Load", "token:0badc0de", acme, "", "", "", "not_found", 3}
	b, hash, err := encode(e, [32]byte{})
	if err != nil || string(b) != vector {
		t.Fatalf("got %s%v, want %s", b, err, vector)
	}
	l, err := decode([]byte(vector))
	if err != nil || l.hash != hash || !cmp.Equal(l.Entry, e) {
		t.Fatalf("read as %+v, %v", l, err)
	}
}

func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := openLog(t, path)
	add(t, l, admin("ok"), denied("not_found"), Entry{Kind: Export, Method: "m", Caller: "jwt:x", Thread: alice, Code: "ok"})
	want := []Entry{admin("ok"), denied("not_found"), {Kind: Export, Method: "m", Caller: "jwt:x", Thread: alice, Code: "ok"}}
	for i := range want {
		want[i].Number, want[i].Count = uint64(i+1), 1
	}
	if got := entries(t, l); !cmp.Equal(got, want) {
		t.Fatal(cmp.Diff(want, got))
	}
	number, hash := l.Last()
	r, err := verify(hash, read(t, path))
	if err != nil || r != (Report{First: 1, Last: 3, Hash: hash, Lines: 3}) || number != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}

	// It goes on after a restart.
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(admin("ok")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("appended to a closed log: %v", err)
	}
	l = openLog(t, path)
	add(t, l, admin("again"))
	if r, err := verify(hash, read(t, path)); err != nil || r.Lines != 4 {
		t.Errorf("after a restart: %+v, %v", r, err)
	}
}

func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := openLog(t, path)
	add(t, l, admin("1"), admin("2"))
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	add(t, l, admin("3"), denied("4"), denied("4")) // not reopened yet; the last one is only counted
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	l.Close() // before anything came into the new file, which says by itself what it goes on from
	l = openLog(t, path)
	add(t, l, admin("7"))
	if err := l.Reopen(); err != nil { // nothing was moved
		t.Fatal(err)
	}
	add(t, l, admin("8"))
	old, young := read(t, path+".1"), read(t, path)
	if r, err := verify("", old, young); err != nil || r.Lines != 8 || r.Last != 8 || r.Notices != 0 {
		t.Errorf("both: %+v, %v", r, err)
	}
	if r, err := verify("", young); err != nil || r.First != 6 {
		t.Errorf("only the new one: %+v, %v", r, err)
	}
	if _, err := verify("", young, old); !errors.Is(err, ErrBroken) {
		t.Errorf("in the wrong order: %v", err)
	}
	l.Close()
	l = openLog(t, path)
	if n, _ := l.Last(); n != 8 {
		t.Errorf("after a restart the last line is %d", n)
	}
}

// Truncating the file in its place, as some rotate logs, breaks no chain either.
func TestTruncatedInPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := openLog(t, path)
	add(t, l, admin("1"), admin("2"))
	old := read(t, path)
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	add(t, l, admin("3"))
	if r, err := verify("", old, read(t, path)); err != nil || r.Lines != 3 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestTornEnd(t *testing.T) {
	whole := logOf(t, 3)
	starts := []int{0}
	for i, c := range whole {
		if c == '\n' {
			starts = append(starts, i+1)
		}
	}
	for cut := 1; cut < len(whole); cut += 7 {
		for _, junk := range []string{"", "\x00\x00", "\x00\n\x00"} {
			path := filepath.Join(t.TempDir(), "log")
			write(t, path, append(bytes.Clone(whole[:cut]), junk...))
			good := 0
			for good+1 < len(starts) && starts[good+1] <= cut {
				good++
			}
			l, err := Open(path)
			if good == 0 && strings.Contains(junk, "\n") {
				if err == nil {
					t.Fatalf("cut at %d %q: a file without a good line was opened", cut, junk)
				}
				continue
			}
			if err != nil {
				t.Fatalf("cut at %d %q: %v", cut, junk, err)
			}
			add(t, l, admin("on"))
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			torn := string(whole[starts[good]:cut]) + junk
			notices := 0
			if torn != "" {
				notices = 1
				if got := read(t, path+".torn"); string(got) != torn {
					t.Fatalf("cut at %d: %q was moved aside, want %q", cut, got, torn)
				}
			}
			r, err := verify("", read(t, path))
			if err != nil || r.Lines != good+notices+1 || r.Notices != notices {
				t.Fatalf("cut at %d %q: %+v, %v", cut, junk, r, err)
			}
		}
	}
}

func TestOpenRefusesOtherFiles(t *testing.T) {
	for name, content := range map[string][]byte{
		"text":                     []byte("Dear diary,\ntoday\n"),
		"a log cut at its front":   logOf(t, 1)[1:],
		"much behind the last one": append(logOf(t, 1), bytes.Repeat([]byte("x"), maxTail+1)...),
	} {
		path := filepath.Join(t.TempDir(), "log")
		write(t, path, content)
		if l, err := Open(path); err == nil {
			l.Close()
			t.Errorf("%s: opened", name)
		}
		if !bytes.Equal(read(t, path), content) {
			t.Errorf("%s: changed", name)
		}
	}
}

func TestAppendRefusesNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := openLog(t, path)
	for name, change := range map[string]func(*Entry){
		"tenant": func(e *Entry) { e.Tenant = "acme" },
		"user":   func(e *Entry) { e.User = "alice" },
		"thread": func(e *Entry) { e.Thread = strings.ToUpper(alice) },
		"kind":   func(e *Entry) { e.Kind = "other" },
		"caller": func(e *Entry) { e.Caller = "" },
	} {
		e := admin("ok")
		change(&e)
		if err := l.Append(e); err == nil {
			t.Errorf("%s: appended", name)
		}
	}
	e := admin("ok")
	e.Method = "/a\"\\<\n\xffé" + strings.Repeat("x", 300)
	add(t, l, e)
	got := entries(t, l)
	if len(got) != 1 || !strings.HasPrefix(got[0].Method, "/a???????xxx") || len(got[0].Method) != maxText {
		t.Errorf("%+v", got)
	}
}

func TestDenialsFold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "log")
		l := openLog(t, path)
		for range 1000 {
			add(t, l, denied("not_found"))
		}
		add(t, l, denied("permission_denied"), admin("ok"), admin("ok"))
		counts := func() string {
			var s []string
			for _, e := range entries(t, l) {
				s = append(s, fmt.Sprintf("%s %d", e.Code, e.Count))
			}
			return strings.Join(s, ", ")
		}
		if got, want := counts(), "not_found 1, permission_denied 1, ok 1, ok 1"; got != want {
			t.Fatalf("at once there is %s, want %s", got, want)
		}
		time.Sleep(foldFor + time.Millisecond)
		synctest.Wait()
		if got, want := counts(), "not_found 1, permission_denied 1, ok 1, ok 1, not_found 999"; got != want {
			t.Fatalf("after a second there is %s, want %s", got, want)
		}
		time.Sleep(10 * foldFor)
		add(t, l, denied("not_found"), denied("not_found"))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if r, err := verify("", read(t, path)); err != nil || r.Lines != 7 {
			t.Fatalf("after all %+v, %v", r, err)
		}
	})
}

// However a flood varies, it writes a bounded number of lines a second, and every denial is
// counted.
func TestFloodIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "log")
		l := openLog(t, path)
		const n = 5000
		for i := range n {
			e := denied("not_found")
			e.Thread = fmt.Sprintf("%032x", i)
			e.Caller = fmt.Sprint("token:", i%500)
			add(t, l, e)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		total, lines := 0, 0
		for e, err := range Read(bytes.NewReader(read(t, path))) {
			if err != nil {
				t.Fatal(err)
			}
			total, lines = total+e.Count, lines+1
		}
		if most := 2 * (2*maxFolds + 1); total != n || lines > most {
			t.Errorf("%d denials in %d lines, want %d in at most %d", total, lines, n, most)
		}
	})
}

func TestAppendAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := openLog(t, path)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for k := range 10 {
				if err := l.Append(admin(fmt.Sprint(i, k))); err != nil {
					t.Error(err)
				}
				if i == 0 {
					if err := l.Reopen(); err != nil {
						t.Error(err)
					}
				}
				for _, err := range l.Entries() {
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if r, err := verify("", read(t, path)); err != nil || r.Lines != 80 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A file that cannot be written to any more stands for a full disk.
func TestAppendFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := openLog(t, path)
	add(t, l, admin("1"))
	f, err := os.Open(path) // not for writing
	if err != nil {
		t.Fatal(err)
	}
	l.file.Close()
	l.file = f
	for range 2 {
		if err := l.Append(admin("2")); err == nil {
			t.Fatal("appended")
		}
	}
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	add(t, l, admin("2"))
	if r, err := verify("", read(t, path)); err != nil || r.Lines != 2 {
		t.Errorf("%+v, %v", r, err)
	}

	// A new file mends it, too.
	if l.file, err = os.Open(path); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(admin("3")); err == nil {
		t.Fatal("appended")
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	add(t, l, admin("4"))
	if r, err := verify("", read(t, path+".1"), read(t, path)); err != nil || r.Lines != 4 {
		t.Errorf("in a new file: %+v, %v", r, err)
	}
}
