package worker

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins"
)

// TestMain lets the test binary act as a worker: a correct one, one whose plugins are fakes, or a
// rogue.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 {
		os.Exit(m.Run())
	}
	switch mode := os.Args[1]; mode {
	case "plugin-worker":
		os.Exit(Main(os.Stdin, os.Stdout))
	case "fake":
		os.Exit(fakeWorker())
	case "rogue":
		os.Exit(rogue(os.Args[2]))
	default:
		os.Exit(m.Run())
	}
}

// fakeWorker is a confined worker in which the name of a plugin selects its behavior.
func fakeWorker() int {
	in := pollable(os.Stdin)
	_, body, err := readFrame(in, expect(kindStart))
	if err != nil {
		return 2
	}
	s, err := parseStart(body)
	if err != nil {
		return 2
	}
	walls, err := confine(s.memory + overhead)
	if err != nil {
		return 2
	}
	if err := serve(endOfParent{in}, os.Stdout, walls, loadFake); err != nil {
		return 1
	}
	return 0
}

type fake struct{ plugins.Spec }

func loadFake(ctx context.Context, s plugins.Spec) (plugin, error) {
	switch {
	case s.Name == "bad@1":
		return nil, &hook.Error{Kind: hook.ErrInvalid, Reason: "a fake\nin two lines, \xff"}
	case s.Name == "deadly-load@1":
		os.Exit(3)
	case s.Name == "slow-load@1":
		<-ctx.Done()
		return nil, &hook.Error{Kind: hook.ErrTimeout}
	}
	return &fake{s}, nil
}

func (f *fake) Stages() []hook.Stage { return []hook.Stage{hook.PreSave, hook.Load} }
func (f *fake) Digest() [32]byte     { return digest(f.Binary) }
func (f *fake) Close() error         { return nil }

func (f *fake) Call(ctx context.Context, c *plugins.Call) (*plugins.Result, error) {
	name, _, _ := strings.Cut(f.Name, "@")
	switch name {
	case "echo":
		return &plugins.Result{Output: c.Payload, Fuel: 7}, nil
	case "mirror": // echoes all of its input
		all := strings.Join([]string{c.Stage.String(), string(c.Meta), string(f.Config), c.Time.Format(time.RFC3339Nano),
			string(c.Seed[:]), string(c.PseudonymKey[:]), string(c.Payload)}, "|")
		return &plugins.Result{Output: []byte(all), Fuel: c.From + c.To,
			Findings: []hook.Finding{{Rule: "email", Path: "/a", Count: 2}}, Logs: []plugins.LogLine{{Text: "hello"}}}, nil
	case "unchanged":
		return &plugins.Result{Unchanged: true}, nil
	case "fails":
		return &plugins.Result{Fuel: 9, Error: "so sorry"}, &hook.Error{Kind: hook.ErrFailed, Code: 42, Reason: "sorry"}
	case "odd":
		return &plugins.Result{}, errors.New("an error with what the payload says: " + string(c.Payload))
	case "blob":
		id, err := c.PutBlob(c.Payload)
		if err != nil {
			return &plugins.Result{Fuel: 9, Error: "so sorry"}, &hook.Error{Kind: hook.ErrFailed, Code: 16, Reason: err.Error()}
		}
		return &plugins.Result{Output: id[:]}, nil
	case "redact":
		out, err := c.Redact(ctx, "strict", c.Payload)
		if err != nil {
			return &plugins.Result{Fuel: 9, Error: "so sorry"}, &hook.Error{Kind: hook.ErrFailed, Code: 16, Reason: err.Error()}
		}
		return &plugins.Result{Output: out}, nil
	case "stubborn":
		c.Redact(ctx, "", nil)
		return &plugins.Result{Output: []byte("whatever")}, nil
	case "steals": // asks although it is not allowed to
		os.Stdout.Write([]byte{byte(kindPutBlob), 0, 0, 0, 0})
		select {}
	case "waits":
		<-ctx.Done()
		return &plugins.Result{}, &hook.Error{Kind: hook.ErrTimeout, Reason: "given up"}
	case "deaf":
		time.Sleep(time.Hour)
	case "dies":
		if string(c.Payload) == "die" {
			os.Exit(3)
		}
		return &plugins.Result{Output: c.Payload}, nil
	case "bomb":
		var held [][]byte
		for {
			b := make([]byte, 64<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			held = append(held, b)
			runtime.KeepAlive(held)
		}
	case "escape":
		return &plugins.Result{Output: []byte(strings.Join(escapes(), ", "))}, nil
	}
	panic("a fake without behaviour")
}
