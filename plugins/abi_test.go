package plugins_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/hook"
	. "github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/plugins"
)

var all = plugins.Capabilities{RedactBuiltin: true, Pseudonym: true, PutBlob: true}

// full is a call with which every host function has work to do.
func full() *plugins.Call {
	return &plugins.Call{
		Stage: hook.PreSave, Item: "channel x", Payload: []byte("payload"), Meta: []byte(`{"abi":1}`), PseudonymKey: [32]byte{1},
		Redact:  func(context.Context, string, []byte) ([]byte, error) { return []byte("redacted"), nil },
		PutBlob: func([]byte) ([32]byte, error) { return [32]byte{7}, nil },
	}
}

// Any pointer and length outside the memory of 64 KiB ends the call, whatever the other arguments
// are.
func TestRangesOutsideOfMemory(t *testing.T) {
	h := newHost(t, plugins.Options{})
	good := I32Const(0) + I32Const(0)
	functions := map[string]func(p *Plugin, bad Code) Code{
		"input_read":         func(p *Plugin, bad Code) Code { return I32Const(0) + I64Const(0) + bad + Call(p.InputRead) + Drop },
		"input_read at end":  func(p *Plugin, bad Code) Code { return I32Const(0) + I64Const(99) + bad + Call(p.InputRead) + Drop },
		"input_read no slot": func(p *Plugin, bad Code) Code { return I32Const(9) + I64Const(0) + bad + Call(p.InputRead) + Drop },
		"output_write":       func(p *Plugin, bad Code) Code { return bad + Call(p.OutputWrite) + Drop },
		"error_set":          func(p *Plugin, bad Code) Code { return I32Const(1) + bad + Call(p.ErrorSet) },
		"log":                func(p *Plugin, bad Code) Code { return I32Const(1) + bad + Call(p.Log) },
		"finding 1":          func(p *Plugin, bad Code) Code { return bad + good + I32Const(1) + Call(p.Finding) },
		"finding 2":          func(p *Plugin, bad Code) Code { return good + bad + I32Const(1) + Call(p.Finding) },
		"redact_builtin 1":   func(p *Plugin, bad Code) Code { return bad + good + good + Call(p.RedactBuiltin) + Drop },
		"redact_builtin 2":   func(p *Plugin, bad Code) Code { return good + bad + good + Call(p.RedactBuiltin) + Drop },
		"redact_builtin 3":   func(p *Plugin, bad Code) Code { return good + good + bad + Call(p.RedactBuiltin) + Drop },
		"pseudonym":          func(p *Plugin, bad Code) Code { return I32Const(0) + bad + I32Const(0) + Call(p.Pseudonym) + Drop },
		"blob_put":           func(p *Plugin, bad Code) Code { return bad + I32Const(0) + Call(p.BlobPut) + Drop },
	}
	for name, call := range functions {
		for _, r := range [][2]int32{{0, 65537}, {65536, 1}, {65535, 2}, {1, -1}, {-1, 1}, {-1, -1}, {-65536, 65536}, {math.MinInt32, math.MinInt32}} {
			bin := saver("", func(p *Plugin) Code { return call(p, I32Const(r[0])+I32Const(r[1])) + I32Const(1) })
			p := load(t, h, plugins.Spec{Binary: bin, Capabilities: all})
			_, err := p.Call(context.Background(), full())
			wantError(t, err, hook.ErrTrap, "outside its memory", strings.Fields(name)[0])
		}
	}
	for name, call := range map[string]func(p *Plugin) Code{
		"pseudonym": func(p *Plugin) Code { return I32Const(0) + good + I32Const(65505) + Call(p.Pseudonym) + Drop },
		"blob_put":  func(p *Plugin) Code { return good + I32Const(-1) + Call(p.BlobPut) + Drop },
	} {
		p := load(t, h, plugins.Spec{Binary: saver("", func(p *Plugin) Code { return call(p) + I32Const(1) }), Capabilities: all})
		_, err := p.Call(context.Background(), full())
		wantError(t, err, hook.ErrTrap, "outside its memory", name)
	}
}

// answers returns a plugin that returns the result of a host function plus 100.
func answers(call func(p *Plugin) Code) []byte {
	return saver("", func(p *Plugin) Code { return call(p) + I32Const(100) + I32Add })
}

// answer returns the result of a host function.
func answer(t *testing.T, h *plugins.Host, caps plugins.Capabilities, c *plugins.Call, call func(p *Plugin) Code) int32 {
	t.Helper()
	p := load(t, h, plugins.Spec{Binary: answers(call), Capabilities: caps, Config: []byte(`{}`)})
	_, err := p.Call(context.Background(), c)
	var he *hook.Error
	if !errors.As(err, &he) || he.Kind != hook.ErrFailed {
		t.Fatal(err)
	}
	return he.Code - 100
}

func TestAnswers(t *testing.T) {
	h := newHost(t, plugins.Options{})
	length := func(slot int32) func(*Plugin) Code {
		return func(p *Plugin) Code { return I32Const(slot) + Call(p.InputLen) + I32WrapI64 }
	}
	read := func(slot int32, off int64, n int32) func(*Plugin) Code {
		return func(p *Plugin) Code {
			return I32Const(slot) + I64Const(off) + I32Const(0) + I32Const(n) + Call(p.InputRead)
		}
	}
	redact := func(room int32) func(*Plugin) Code {
		return func(p *Plugin) Code {
			return I32Const(0) + I32Const(0) + I32Const(0) + I32Const(5) + I32Const(8) + I32Const(room) + Call(p.RedactBuiltin)
		}
	}
	redactMuch := func(n int32) func(*Plugin) Code {
		return func(p *Plugin) Code {
			return I32Const(80) + MemoryGrow + Drop +
				I32Const(0) + I32Const(0) + I32Const(0) + I32Const(n) + I32Const(0) + I32Const(8) + Call(p.RedactBuiltin)
		}
	}
	pseudonym := func(p *Plugin) Code { return I32Const(0) + I32Const(0) + I32Const(5) + I32Const(8) + Call(p.Pseudonym) }
	blob := func(p *Plugin) Code { return I32Const(0) + I32Const(5) + I32Const(8) + Call(p.BlobPut) }
	none, nothing := plugins.Capabilities{}, preSave("payload")
	long := full()
	long.Redact = func(context.Context, string, []byte) ([]byte, error) { return make([]byte, 1000), nil }
	over := full()
	over.PutBlob = func([]byte) ([32]byte, error) { return [32]byte{}, &hook.Error{Kind: hook.ErrLimit} }
	for name, test := range map[string]struct {
		caps plugins.Capabilities
		call *plugins.Call
		code func(*Plugin) Code
		want int32
	}{
		"length of the payload":       {none, full(), length(0), 7},
		"length of the meta data":     {none, full(), length(1), 9},
		"length of the configuration": {none, full(), length(2), 2},
		"length of no slot":           {none, full(), length(3), -2},
		"length of slot -1":           {none, full(), length(-1), -2},
		"read all":                    {none, full(), read(0, 0, 100), 7},
		"read some":                   {none, full(), read(0, 0, 3), 3},
		"read the rest":               {none, full(), read(0, 5, 3), 2},
		"read from the end":           {none, full(), read(0, 7, 3), 0},
		"read far away":               {none, full(), read(0, math.MaxInt64, 3), 0},
		"read before":                 {none, full(), read(0, -1, 3), 0},
		"read no slot":                {none, full(), read(3, 0, 3), -2},
		"redact":                      {all, full(), redact(100), 8},
		"redact, just enough":         {all, full(), redact(8), 8},
		"redact, little room":         {all, full(), redact(7), -16},
		"redact, far too little room": {all, long, redact(7), -1000},
		"redact, the most at once":    {all, full(), redactMuch(4 << 20), 8},
		"redact, too much at once":    {all, full(), redactMuch(4<<20 + 1), -3},
		"redact, not allowed":         {none, full(), redact(100), -1},
		"redact, not there":           {all, nothing, redact(100), -5},
		"pseudonym":                   {all, full(), pseudonym, 0},
		"pseudonym, not allowed":      {none, full(), pseudonym, -1},
		"pseudonym, no key":           {all, nothing, pseudonym, -5},
		"blob":                        {all, full(), blob, 0},
		"blob, not allowed":           {none, full(), blob, -1},
		"blob, not there":             {all, nothing, blob, -5},
		"blob, over a limit":          {all, over, blob, -3},
	} {
		if got := answer(t, h, test.caps, test.call, test.code); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// The guest cannot ignore the refusal of a callback.
func TestCallbackFails(t *testing.T) {
	h := newHost(t, plugins.Options{})
	rejection := &hook.Error{Kind: hook.ErrRejected, Plugin: "redact", Reason: "a key"}
	redact := saver("", func(p *Plugin) Code { return Repeat(6, I32Const(0)) + Call(p.RedactBuiltin) + Drop + I32Const(1) })
	p := load(t, h, plugins.Spec{Binary: redact, Capabilities: all})
	c := full()
	c.Redact = func(context.Context, string, []byte) ([]byte, error) { return nil, rejection }
	if _, err := p.Call(context.Background(), c); !errors.Is(err, rejection) {
		t.Errorf("got %v", err)
	}
	put := saver("", func(p *Plugin) Code { return Repeat(3, I32Const(0)) + Call(p.BlobPut) + Drop + I32Const(1) })
	p = load(t, h, plugins.Spec{Binary: put, Capabilities: all})
	disk := errors.New("disk full")
	c.PutBlob = func([]byte) ([32]byte, error) { return [32]byte{}, disk }
	_, err := p.Call(context.Background(), c)
	if wantError(t, err, hook.ErrFailed, "blob_put"); !errors.Is(err, disk) {
		t.Errorf("got %v", err)
	}
}

// A redaction requested by a guest ends at the deadline of its call.
func TestRedactEndsWithTheCall(t *testing.T) {
	h := newHost(t, plugins.Options{})
	redact := saver("", func(p *Plugin) Code { return Repeat(6, I32Const(0)) + Call(p.RedactBuiltin) + Drop + I32Const(1) })
	p := load(t, h, plugins.Spec{Binary: redact, Capabilities: all, Limits: plugins.Limits{Call: 50 * time.Millisecond}})
	c := full()
	c.Redact = func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
		<-ctx.Done()
		return nil, &hook.Error{Kind: hook.ErrTimeout, Plugin: "redact"}
	}
	_, err := p.Call(context.Background(), c)
	wantError(t, err, hook.ErrTimeout, "it reached its time limit")
}

func TestPseudonyms(t *testing.T) {
	h := newHost(t, plugins.Options{})
	p := load(t, h, plugins.Spec{Capabilities: all, Binary: saver(I32, func(p *Plugin) Code {
		// The first byte of the payload is the kind, the rest is the data.
		return p.ReadAll(0) +
			I32Const(Buffer) + I32Load8U + I32Const(Buffer+1) + LocalGet(0) + I32Const(1) + I32Sub + I32Const(0) + Call(p.Pseudonym) + Drop +
			I32Const(0) + I32Const(32) + Call(p.OutputWrite)
	})})
	make := func(payload string, key byte) string {
		c := preSave(payload)
		c.PseudonymKey = [32]byte{key}
		r, err := p.Call(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		return string(r.Output)
	}
	one := make("\x01alice", 1)
	if len(one) != 32 || one != make("\x01alice", 1) {
		t.Error("not the same for the same")
	}
	for _, other := range []string{make("\x02alice", 1), make("\x01alicf", 1), make("\x01alice", 2)} {
		if other == one {
			t.Error("the same for another kind, text or user")
		}
	}
}

func TestFindings(t *testing.T) {
	h := newHost(t, plugins.Options{})
	p := load(t, h, plugins.Spec{Binary: saver("", func(p *Plugin) Code {
		p.Data(0, "email/a/b\n\xff")
		find := func(rule, path [2]int32, count int32) Code {
			return I32Const(rule[0]) + I32Const(rule[1]) + I32Const(path[0]) + I32Const(path[1]) + I32Const(count) + Call(p.Finding)
		}
		email, ab := [2]int32{0, 5}, [2]int32{5, 4}
		return find(email, ab, 2) + find(email, ab, 3) + find(email, [2]int32{}, 1) + find(email, ab, 0) + find(email, ab, -1) +
			find(email, [2]int32{6, 3}, 1) + find([2]int32{8, 3}, ab, 1) + I32Const(1)
	})})
	r, err := p.Call(context.Background(), preSave("x"))
	if err != nil {
		t.Fatal(err)
	}
	want := []hook.Finding{{Rule: "email", Path: "/a/b", Count: 5}, {Rule: "email", Count: 2}, {Rule: "b \ufffd", Path: "/a/b", Count: 1}}
	if diff := cmp.Diff(want, r.Findings); diff != "" {
		t.Error(diff)
	}
}

func TestFloodsAreBounded(t *testing.T) {
	h := newHost(t, plugins.Options{})
	times := func(n int32, body Code) Code {
		return Loop(Void, body, LocalGet(0)+I32Const(1)+I32Add+LocalTee(0)+I32Const(n)+I32LtU+BrIf(0))
	}
	p := load(t, h, plugins.Spec{Limits: plugins.Limits{LogLines: 5, LogLine: 10}, Binary: saver(I32, func(p *Plugin) Code {
		p.Data(0, strings.Repeat("0123456789", 200))
		return times(10_000,
			I32Const(9)+I32Const(0)+I32Const(2000)+Call(p.Log)+
				I32Const(1)+I32Const(0)+I32Const(2000)+Call(p.ErrorSet)+
				I32Const(2000)+LocalGet(0)+I32Store+
				I32Const(0)+I32Const(1000)+I32Const(0)+I32Const(0)+I32Const(1)+Call(p.Finding)+
				I32Const(2000)+I32Const(4)+I32Const(0)+I32Const(0)+I32Const(1)+Call(p.Finding)) + I32Const(1)
	})})
	r, err := p.Call(context.Background(), preSave("x"))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Logs) != 5 || r.Dropped != 9_995 || r.Logs[0] != (plugins.LogLine{Level: 3, Text: "0123456789"}) {
		t.Errorf("%d lines, such as %v, and %d dropped", len(r.Logs), r.Logs[0], r.Dropped)
	}
	if len(r.Error) != 1024 {
		t.Errorf("%d bytes of error", len(r.Error))
	}
	sum := 0
	for _, f := range r.Findings {
		sum += f.Count
		if len(f.Rule) > 64 {
			t.Errorf("a rule of %d bytes", len(f.Rule))
		}
	}
	if len(r.Findings) > 256 || sum != 20_000 {
		t.Errorf("%d findings for %d matches", len(r.Findings), sum)
	}
}

func TestMigrationIsToldItsVersions(t *testing.T) {
	p := NewPlugin(-1)
	p.Func("on_migrate", Sig(I64+I64, I32), "",
		I32Const(8)+LocalGet(0)+I64Store+I32Const(16)+LocalGet(1)+I64Store+I32Const(8)+I32Const(16)+Call(p.OutputWrite))
	plugin := load(t, newHost(t, plugins.Options{}), plugins.Spec{Binary: p.Bytes()})
	if got := fmt.Sprint(plugin.Stages()); got != "[migrate]" {
		t.Errorf("stages %s", got)
	}
	r, err := plugin.Call(context.Background(), &plugins.Call{Stage: hook.Migrate, From: 3, To: math.MaxUint64})
	if err != nil {
		t.Fatal(err)
	}
	if want := "\x03\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff"; string(r.Output) != want {
		t.Errorf("got %x", r.Output)
	}
}
