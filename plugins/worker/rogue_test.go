package worker

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"testing"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins"
)

// rogue is a worker that was taken over: it behaves correctly until it is called, and then sends
// arbitrary messages.
func rogue(mode string) int {
	_, _, err := readFrame(os.Stdin, expect(kindStart))
	if err != nil || mode == "exits" {
		return 2
	}
	if mode == "other-version" {
		var b builder
		b.string("ckptd-plugin-worker-0")
		writeFrame(os.Stdout, kindReady, b, nil)
		return 0
	}
	writeFrame(os.Stdout, kindReady, buildReady(nil), nil)
	for {
		k, body, err := readFrame(os.Stdin, expect(kindLoad, kindCall, kindUnload, kindCancel, kindAnswer))
		if err != nil {
			return 0
		}
		switch k {
		case kindLoad:
			number, _, s, _ := parseLoad(body)
			d := digest(s.Binary)
			if mode == "lies about the digest" {
				d[0]++
			}
			stages := []hook.Stage{hook.PreSave}
			if mode == "has a stage twice" {
				stages = []hook.Stage{hook.PreSave, hook.PreSave}
			}
			writeFrame(os.Stdout, kindLoaded, buildLoaded(number, d, stages), nil)
		case kindCall:
			c, _ := parseCall(body)
			says := rogues()[mode](c.number)
			os.Stdout.Write(says)
		}
	}
}

// rogues are the messages that a rogue may send in answer to a call with that number.
func rogues() map[string]func(number uint64) []byte {
	frame := func(k kind, fields builder, data []byte) []byte {
		var b bytes.Buffer
		writeFrame(&b, k, fields, data)
		return b.Bytes()
	}
	done := func(number uint64, change func(*plugins.Result)) []byte {
		r := &plugins.Result{Output: []byte("x")}
		change(r)
		return frame(kindDone, buildDone(number, r, nil), r.Output)
	}
	failed := func(number uint64, e *hook.Error, output string) []byte {
		return frame(kindDone, buildDone(number, &plugins.Result{}, e), []byte(output))
	}
	header := func(k kind, size uint32) []byte {
		return binary.LittleEndian.AppendUint32([]byte{byte(k)}, size)
	}
	return map[string]func(uint64) []byte{
		"no such kind":         func(n uint64) []byte { return header(200, 0) },
		"kind of the parent":   func(n uint64) []byte { return header(kindCall, 0) },
		"4 GiB":                func(n uint64) []byte { return header(kindDone, math.MaxUint32) },
		"too much failure":     func(n uint64) []byte { return header(kindPutBlob, 1<<31) },
		"nothing in it":        func(n uint64) []byte { return header(kindDone, 0) },
		"other number":         func(n uint64) []byte { return done(n+1, func(*plugins.Result) {}) },
		"loaded in a call":     func(n uint64) []byte { return frame(kindLoaded, buildLoaded(n, [32]byte{}, nil), nil) },
		"blob unasked":         func(n uint64) []byte { return frame(kindPutBlob, buildAsk(n, ""), []byte("b")) },
		"redaction unasked":    func(n uint64) []byte { return frame(kindRedact, buildAsk(n, ""), []byte("b")) },
		"output over limit":    func(n uint64) []byte { return done(n, func(r *plugins.Result) { r.Output = make([]byte, 1<<20) }) },
		"unchanged and output": func(n uint64) []byte { return done(n, func(r *plugins.Result) { r.Unchanged = true }) },
		"fuel over limit":      func(n uint64) []byte { return done(n, func(r *plugins.Result) { r.Fuel = math.MaxUint64 }) },
		"finding of nothing": func(n uint64) []byte {
			return done(n, func(r *plugins.Result) { r.Findings = []hook.Finding{{Rule: "r"}} })
		},
		"finding in lines": func(n uint64) []byte {
			return done(n, func(r *plugins.Result) { r.Findings = []hook.Finding{{Rule: "a\nb", Count: 1}} })
		},
		"findings without end": func(n uint64) []byte {
			var b builder
			b.uint(n)
			b.bool(false)
			b.bool(true)
			b.uint(0)
			b.uint(math.MaxUint32)
			return frame(kindDone, b, nil)
		},
		"log flood": func(n uint64) []byte {
			return done(n, func(r *plugins.Result) { r.Logs = make([]plugins.LogLine, 65) })
		},
		"log line not UTF-8": func(n uint64) []byte {
			return done(n, func(r *plugins.Result) { r.Logs = []plugins.LogLine{{Text: "\xff"}} })
		},
		"failure of no kind": func(n uint64) []byte { return failed(n, &hook.Error{Kind: os.ErrNotExist}, "") },
		"failure and output": func(n uint64) []byte { return failed(n, &hook.Error{Kind: hook.ErrTrap}, "x") },
		"reason in lines": func(n uint64) []byte {
			return bytes.ReplaceAll(failed(n, &hook.Error{Kind: hook.ErrTrap, Reason: "a b"}, ""), []byte("a b"), []byte("a\nb"))
		},
		"failed to load": func(n uint64) []byte { return frame(kindFailed, buildFailed(n, &hook.Error{Kind: hook.ErrTrap}), nil) },
	}
}

// If a worker sends anything that a correct one would not, the call fails and the worker is killed.
func TestRogue(t *testing.T) {
	for mode := range rogues() {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			h, replaced := open(t, Options{Processes: 1, Command: []string{"/proc/self/exe", "rogue", mode}})
			pl := load(t, h, plugins.Spec{Name: "rogue@1"})
			_, err := pl.Call(t.Context(), &plugins.Call{Stage: hook.PreSave, Payload: []byte("payload")})
			failure(t, err, hook.ErrUnavailable, "rogue@1", "broke the protocol and was killed")
			if got := len(replaced()); got != 1 {
				t.Errorf("%d workers were replaced", got)
			}
		})
	}
	for _, mode := range []string{"lies about the digest", "has a stage twice"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			h, _ := open(t, Options{Processes: 1, Command: []string{"/proc/self/exe", "rogue", mode}})
			_, err := h.Load(t.Context(), plugins.Spec{Name: "rogue@1"})
			failure(t, err, hook.ErrUnavailable, "broke the protocol")
		})
	}
}
