package worker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins"
)

// bodies returns the answers of a correct worker to operation 7, with data after those that have
// it.
func bodies() map[kind][]byte {
	r := &plugins.Result{Output: []byte("out"), Fuel: 300, Findings: []hook.Finding{{Rule: "email", Path: "/a/0", Count: 3}},
		Logs: []plugins.LogLine{{Level: 2, Text: "ö"}}, Dropped: 3, Error: "oh"}
	return map[kind][]byte{
		kindReady:   buildReady([]string{"rlimits", "seccomp"}),
		kindLoaded:  buildLoaded(7, [32]byte{1, 2}, []hook.Stage{hook.PreSave, hook.Migrate}),
		kindDone:    append(buildDone(7, r, nil), r.Output...),
		kindFailed:  buildFailed(7, &hook.Error{Kind: hook.ErrFailed, Code: -3, Reason: "why"}),
		kindPutBlob: append(buildAsk(7, ""), "blob"...),
		kindRedact:  append(buildAsk(7, "strict"), "data"...),
	}
}

// parse parses a worker's body as the parent does, and encodes it again.
func parse(k kind, body []byte) (again []byte, err error) {
	limits := effective(plugins.Limits{})
	switch k {
	case kindReady:
		walls, err := parseReady(body)
		return buildReady([]string{walls}), err
	case kindLoaded:
		digest, stages, err := parseLoaded(body, 7)
		return buildLoaded(7, digest, stages), err
	case kindDone:
		r, failed, err := parseDone(body, 7, limits, "item")
		if err != nil {
			return nil, err
		}
		return append(buildDone(7, r, failed), r.Output...), nil
	case kindFailed:
		e, err := parseFailed(body, 7)
		if err != nil {
			return nil, err
		}
		return buildFailed(7, e), nil
	case kindPutBlob, kindRedact:
		a, err := parseAsk(body, 7)
		return append(buildAsk(7, a.set), a.data...), err
	}
	return nil, errFrame
}

func TestMessages(t *testing.T) {
	for k, body := range bodies() {
		again, err := parse(k, body)
		if err != nil || !bytes.Equal(again, body) {
			t.Errorf("kind %d: %v, %q is now %q", k, err, body, again)
		}
	}
	spec := plugins.Spec{Name: "n@1", Binary: []byte("wasm"), Config: []byte("{}"), Limits: plugins.HardLimits(),
		Capabilities: plugins.Capabilities{Pseudonym: true}}
	number, handle, got, err := parseLoad(append(buildLoad(7, 8, spec), spec.Binary...))
	if diff := cmp.Diff(spec, got); err != nil || number != 7 || handle != 8 || diff != "" {
		t.Errorf("load: %v, %d, %d, %s", err, number, handle, diff)
	}
	at := time.Date(1, 2, 3, 4, 5, 6, 7, time.UTC)
	c := call{number: 7, handle: 8, Call: plugins.Call{Stage: hook.Export, Payload: []byte("p"), Meta: []byte("m"), Time: at, From: 1, To: 1 << 63}}
	gotCall, err := parseCall(append(c.build(), c.Payload...))
	if diff := cmp.Diff(c.Call, gotCall.Call); err != nil || gotCall.number != 7 || gotCall.handle != 8 || diff != "" {
		t.Errorf("call: %v, %+v, %s", err, gotCall, diff)
	}
}

// A body that is truncated within its fields is an error.
func TestMessagesCutOff(t *testing.T) {
	dataOf := map[kind]int{kindDone: 3, kindPutBlob: 4, kindRedact: 4}
	for k, body := range bodies() {
		for n := range len(body) - dataOf[k] {
			if _, err := parse(k, body[:n]); !errors.Is(err, errFrame) {
				t.Errorf("kind %d, %d bytes of %d: %v", k, n, len(body), err)
			}
		}
	}
}

func FuzzMessages(f *testing.F) {
	for k, body := range bodies() {
		f.Add(byte(k), body)
	}
	f.Fuzz(func(t *testing.T, k byte, body []byte) {
		again, err := parse(kind(k), body)
		if err != nil {
			return
		}
		if third, err := parse(kind(k), again); err != nil || !bytes.Equal(third, again) {
			t.Errorf("%v: %q became %q and then %q", err, body, again, third)
		}
	})
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte("\x01\x02\x00\x00\x00ab"))
	f.Add([]byte("\x02\xff\xff\xff\xffab"))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, body, err := readFrame(bytes.NewReader(b), func(k kind) int64 { return 1<<32*int64(k%2) - 1 })
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := writeFrame(&again, k, body, nil); err != nil || !bytes.HasPrefix(b, again.Bytes()) {
			t.Errorf("%v: %q became %q", err, b, again.Bytes())
		}
	})
}

// A frame that claims to be large costs no more than its actual size.
func TestFrameLies(t *testing.T) {
	frame := append([]byte{byte(kindDone), 0xff, 0xff, 0xff, 0xff}, make([]byte, 100)...)
	allocated := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, _, err := readFrame(bytes.NewReader(frame), expect(kindDone)); !errors.Is(err, io.ErrUnexpectedEOF) {
				b.Fatal(err)
			}
		}
	}).AllocedBytesPerOp()
	if allocated > 3*chunk {
		t.Errorf("%d bytes for a frame of %d", allocated, len(frame))
	}
	binary.LittleEndian.PutUint32(frame[1:], 101)
	if _, _, err := readFrame(bytes.NewReader(frame), func(kind) int64 { return 100 }); !errors.Is(err, errFrame) {
		t.Errorf("over the limit: %v", err)
	}
}

func BenchmarkCall(b *testing.B) {
	h, err := New(Options{Processes: 1, Command: []string{"/proc/self/exe", "fake"}})
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	pl, err := h.Load(b.Context(), plugins.Spec{Name: "echo@1"})
	if err != nil {
		b.Fatal(err)
	}
	for _, size := range []struct {
		name string
		n    int
	}{{"1kB", 1 << 10}, {"100kB", 100 << 10}, {"1MB", 1 << 20}} {
		b.Run(size.name, func(b *testing.B) {
			payload := make([]byte, size.n)
			for b.Loop() {
				if _, err := pl.Call(b.Context(), &plugins.Call{Payload: payload}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
