package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	_ "embed"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/trajectory"
)

//go:embed demo.json
var demoRun []byte

const demoName = "demo" // of the tenant, the user and the thread

func (a *app) demoCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "demo [FILE]",
		Short: "Run a demo: save, kill, resume, rewind, fork, diff, verify",
		Long: `Demo replays an agent run, its own or the first in a trajectory file, on the store in --data. A
process saves every step and is killed halfway; then the run is resumed, rewound, forked, compared
and verified. Demo uses the tenant, user and thread named demo and touches nothing else in the store.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			script, err := loadScript(args)
			if err != nil {
				return err
			}
			a.tenant, a.user, a.namespace = demoName, demoName, ""
			d := &demo{importer: &importer{app: a}, script: script, args: args}
			return d.play(cmd.Context())
		},
	}
}

// script is the content of the demo: a run, and an alternative continuation after one of its steps.
type script struct {
	run   *trajectory.Run
	retry *trajectory.Run // the same up to and with message after
	after int
}

func loadScript(args []string) (*script, error) {
	if len(args) == 0 {
		return ownScript()
	}
	f, err := os.Open(args[0])
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for run, err := range trajectory.Parse(f, trajectory.Options{File: args[0]}) {
		if err != nil {
			return nil, err
		}
		if len(run.Messages) < 4 {
			return nil, usagef("the first run of %s has %s, and the demo needs at least 4", args[0], count(len(run.Messages), "message"))
		}
		hint := json.RawMessage(`{"role":"user","content":"Let us try that another way."}`)
		return newScript(run, len(run.Messages)/2, []json.RawMessage{hint}, trajectory.Running), nil
	}
	return nil, usagef("%s has no runs", args[0])
}

func ownScript() (*script, error) {
	var own struct {
		Run   json.RawMessage
		After int
		Retry []json.RawMessage
	}
	var compacted bytes.Buffer
	if err := errors.Join(json.Compact(&compacted, demoRun), json.Unmarshal(compacted.Bytes(), &own)); err != nil {
		return nil, fmt.Errorf("reading the demo run: %w", err)
	}
	for run, err := range trajectory.Parse(bytes.NewReader(own.Run), trajectory.Options{File: "demo.json"}) {
		if err != nil {
			return nil, err
		}
		return newScript(run, own.After, own.Retry, trajectory.Succeeded), nil
	}
	return nil, errors.New("the demo file has no run")
}

func newScript(run *trajectory.Run, after int, other []json.RawMessage, status string) *script {
	retry := &trajectory.Run{Meta: run.Meta, Status: status}
	retry.Messages = append(append(retry.Messages, run.Messages[:after+1]...), other...)
	return &script{run: run, retry: retry, after: after}
}

type demo struct {
	*importer
	script *script
	args   []string
	acts   int
}

// act is a part of the demo, as --json prints it.
type act struct {
	Act         int      `json:"act"`
	Name        string   `json:"name"`
	Did         []string `json:"did"`
	Saves       int      `json:"saves"`
	StateBytes  int64    `json:"state_bytes"`
	StoredBytes int64    `json:"stored_bytes"`
	Millis      float64  `json:"ms"`
}

func (c *act) did(format string, args ...any) { c.Did = append(c.Did, fmt.Sprintf(format, args...)) }

// saved adds a save to the cost of the act.
func (c *act) saved(state, stored int64, d time.Duration) {
	c.Saves++
	c.StateBytes += state
	c.StoredBytes += stored
	c.Millis += millis(d)
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// tell prints a finished act.
func (d *demo) tell(c *act) error {
	d.acts++
	c.Act = d.acts
	if d.json {
		return d.emit(c)
	}
	d.printf("\n%s %s\n", d.paint.bold(fmt.Sprint(c.Act)), d.paint.bold(c.Name))
	for _, line := range c.Did {
		d.printf("  %s\n", printable(line))
	}
	if c.Saves > 0 {
		d.printf("  %s\n", d.paint.dim(fmt.Sprintf("%s: %s of states stored in %s, %d B each; %.1f ms each", count(c.Saves, "save"),
			size(c.StateBytes), size(c.StoredBytes), c.StoredBytes/int64(c.Saves), c.Millis/float64(c.Saves))))
	}
	return wroteOut(d.out.Flush()) // people watch
}

func (d *demo) play(ctx context.Context) error {
	if !d.json {
		d.printf("%s %s\n", d.paint.bold("ckptd demo"), d.paint.dim("on the store "+d.data))
	}
	if err := d.withOwn(ctx, true, func(s *engine.Store) error { return d.reset(ctx, s) }); err != nil {
		return err
	}
	acknowledged, err := d.saveAndDie(ctx)
	if err != nil {
		return err
	}
	opening := time.Now()
	return d.withOwn(ctx, false, func(s *engine.Store) error {
		d.store = embed(s, d.plugins)
		opened := time.Since(opening)
		t := d.store.Thread(d.thread(demoName))
		if err := d.resumeRun(ctx, t, acknowledged, opened); err != nil {
			return err
		}
		for _, next := range []func(context.Context, thread) error{d.rewind, d.fork, d.compare, d.check} {
			if err := next(ctx, t); err != nil {
				return err
			}
		}
		return d.farewell()
	})
}

// reset removes the data of an earlier demo.
func (d *demo) reset(ctx context.Context, s *engine.Store) error {
	t := s.Thread(d.thread(demoName))
	_, err := t.Load(ctx, engine.Latest, engine.LoadOptions{HeadersOnly: true})
	if err == nil {
		if _, err = t.Delete(ctx); err == nil {
			d.note("deleted the thread of the last demo")
		}
		return err
	}
	if errors.Is(err, engine.ErrNotFound) {
		return nil
	}
	return err
}

func (d *demo) farewell() error {
	if d.json {
		return nil
	}
	data := ""
	if d.data != "data" {
		data = " --data " + d.data
	}
	flags := fmt.Sprintf("--tenant %s --user %s%s", demoName, demoName, data)
	return d.printf("\nLook around:\n%s", strings.Join([]string{
		"  ckptd " + flags + " log " + demoName + "\n",
		"  ckptd " + flags + " show " + demoName + " retry\n"}, ""))
}
