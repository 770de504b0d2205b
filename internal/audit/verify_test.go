package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
)

func verify(expect string, files ...[]byte) (Report, error) {
	var readers []io.Reader
	for _, b := range files {
		readers = append(readers, bytes.NewReader(b))
	}
	return Verify(expect, readers...)
}

// logOf makes the bytes of a log of n lines.
func logOf(t testing.TB, n int) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	l := openLog(t, path)
	for i := range n {
		e := admin(fmt.Sprint("code-", i))
		e.Kind = []Kind{Denied, Export, Notice}[i%3] // only some wait for the disk
		if i%2 == 0 {
			e.User = ""
		}
		add(t, l, e)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return read(t, path)
}

func TestVerifyFindsEveryFlip(t *testing.T) {
	b := logOf(t, 6)
	if _, err := verify("", b); err != nil {
		t.Fatal(err)
	}
	for i := range b {
		for bit := range 8 {
			changed := bytes.Clone(b)
			changed[i] ^= 1 << bit
			_, err := verify("", changed)
			broken, ok := errors.AsType[*BrokenError](err)
			if !ok {
				t.Fatalf("byte %d, bit %d: %v", i, bit, err)
			}
			at := 1 + bytes.Count(b[:i], []byte("\n"))
			if broken.Line != at || at > 1 && broken.Number != uint64(at) {
				t.Fatalf("byte %d, bit %d is in line %d: %v", i, bit, at, err)
			}
		}
	}
}

// Whatever is done to whole lines is found, but for those at the ends: for the oldest the report
// tells where it begins, for the newest the last hash must be known.
func TestVerifyFindsMovedLines(t *testing.T) {
	whole := logOf(t, 8)
	lines := bytes.SplitAfter(whole, []byte("\n"))[:8]
	report, _ := verify("", whole)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		var b []byte
		var picked []int
		for n := rng.IntN(10); len(picked) < n; {
			i := rng.IntN(8)
			if len(picked) > 0 && rng.IntN(4) > 0 {
				i = (picked[len(picked)-1] + 1) % 8
			}
			picked = append(picked, i)
			b = append(b, lines[i]...)
		}
		row := true
		for k := 1; k < len(picked); k++ {
			row = row && picked[k] == picked[k-1]+1
		}
		r, err := verify("", b)
		if row != (err == nil) {
			t.Fatalf("lines %v: %+v, %v", picked, r, err)
		}
		if row && len(picked) > 0 && (r.First != uint64(picked[0]+1) || r.Last != uint64(picked[len(picked)-1]+1)) {
			t.Fatalf("lines %v: %+v", picked, r)
		}
		_, err = verify(report.Hash, b)
		if complete := row && len(picked) > 0 && picked[len(picked)-1] == 7; complete != (err == nil) {
			t.Fatalf("lines %v with the last hash: %v", picked, err)
		}
	}
}

// A line with a good hash of its own is found out by those around it.
func TestVerifyFindsForgedLines(t *testing.T) {
	lines := bytes.SplitAfter(logOf(t, 4), []byte("\n"))[:4]
	second, err := decode(lines[1])
	if err != nil {
		t.Fatal(err)
	}
	second.Code = "forged"
	forged, _, err := encode(second.Entry, second.prev)
	if err != nil {
		t.Fatal(err)
	}
	_, err = verify("", bytes.Join([][]byte{lines[0], forged, lines[2], lines[3]}, nil))
	if broken, ok := errors.AsType[*BrokenError](err); !ok || broken.Line != 3 {
		t.Errorf("a forged line in the middle: %v", err)
	}
	second.Number = 3
	forged, _, err = encode(second.Entry, second.prev)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = verify("", append(bytes.Clone(lines[0]), forged...)); !errors.Is(err, ErrBroken) {
		t.Errorf("a line that passes over a number: %v", err)
	}
	first := second.Entry
	first.Number = 1
	forged, _, err = encode(first, second.prev)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := verify("", forged); !errors.Is(err, ErrBroken) {
		t.Errorf("a first line that follows on another: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(vector))
	f.Add([]byte(strings.Replace(vector, `"count":3,`, "", 1)))
	f.Add([]byte(`{"n":1}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := decode(b)
		if err != nil {
			return
		}
		again, hash, err := encode(l.Entry, l.prev)
		if err != nil || hash != l.hash || !bytes.Equal(again, b) {
			t.Fatalf("%q was read as %q, %v", b, again, err)
		}
	})
}

func FuzzVerify(f *testing.F) {
	f.Add([]byte(vector), []byte(vector))
	f.Add([]byte("\n"), []byte{})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		r, err := verify("", a, b)
		if err == nil && (r.Lines != bytes.Count(a, []byte("\n"))+bytes.Count(b, []byte("\n")) || r.Last-r.First+1 != uint64(r.Lines) && r.Lines > 0) {
			t.Fatalf("%+v", r)
		}
	})
}
