package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
	"github.com/ckptd/ckptd/internal/trajectory"
)

// thinking is the time that the demo's agent takes for each step.
const thinking = 20 * time.Millisecond

// demoAgentCmd is the process that the demo kills. It saves the run step by step and reports each
// save that was acknowledged on standard output.
func (a *app) demoAgentCmd() *cobra.Command {
	return &cobra.Command{
		Use:    "demo-agent [FILE]",
		Hidden: true,
		Args:   cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			script, err := loadScript(args)
			if err != nil {
				return err
			}
			a.tenant, a.user, a.namespace = demoName, demoName, ""
			ctx := cmd.Context()
			return a.withOwn(ctx, false, func(s *engine.Store) error {
				d := &demo{importer: &importer{app: a, store: embed(s, a.plugins)}, script: script}
				return d.saveRun(ctx, d.store.Thread(a.thread(demoName)), script.run, nil, 0, "", func(i int, cp *engine.Checkpoint, took time.Duration) error {
					a.printf("%d %d %d %d\n", i, cp.Cost.State, cp.Cost.Stored, took.Nanoseconds())
					if err := a.out.Flush(); err != nil {
						return err
					}
					time.Sleep(thinking)
					return nil
				})
			})
		},
	}
}

// saveRun saves the messages of a run from number i on, after head, and reports each save.
func (d *demo) saveRun(ctx context.Context, t thread, run *trajectory.Run, head *engine.Checkpoint, i int, branch string,
	tell func(i int, cp *engine.Checkpoint, took time.Duration) error) error {
	for ; i < len(run.Messages); i++ {
		draft := d.draft(run, i, head)
		if branch != "" { // its head is not the newest of the thread before the first save
			draft.Branch, draft.Expect = branch, engine.Expect{}
		}
		start := time.Now()
		cp, err := t.Save(ctx, draft)
		if err != nil {
			return fmt.Errorf("saving step %d: %w", i, err)
		}
		if err := tell(i, cp, time.Since(start)); err != nil {
			return err
		}
		head = cp
	}
	return nil
}

// saveAndDie lets an agent work in a process of its own, kills it half way, and returns the last
// step that was acknowledged to it.
func (d *demo) saveAndDie(ctx context.Context) (int, error) {
	c := &act{Name: "Save every step, and be killed"}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	flags := []string{"--data", d.data, "--key-file", d.keyFile, "--keystore", d.keysDir, "--cache", d.cache}
	agent := exec.CommandContext(ctx, self, append(append(flags, "demo-agent"), d.args...)...)
	agent.Args[0] = os.Args[0]
	var complaint bytes.Buffer
	agent.Stderr = &complaint
	out, err := agent.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := agent.Start(); err != nil {
		return 0, fmt.Errorf("starting the agent: %w", err)
	}
	last, doomed := -1, len(d.script.run.Messages)/2
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var step int
		var state, stored, nanos int64
		if _, err := fmt.Sscan(lines.Text(), &step, &state, &stored, &nanos); err != nil {
			continue // a line that the kill cut short
		}
		last = step
		c.saved(state, stored, time.Duration(nanos))
		if step == doomed {
			if err := agent.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return 0, fmt.Errorf("killing the agent: %w", err)
			}
		}
	}
	if agent.Wait(); last < doomed {
		return 0, fmt.Errorf("the agent did not reach step %d: %s", doomed, oneLine(complaint.String()))
	}
	c.did("an agent, process %d, saves its state after every step; a save returns once it is durable", agent.Process.Pid)
	c.did("kill -9 in the middle of the run; the last acknowledged step was %d", last)
	return last, d.tell(c)
}

// resumeRun continues where the killed process stopped.
func (d *demo) resumeRun(ctx context.Context, t thread, acknowledged int, opened time.Duration) error {
	c := &act{Name: "Resume from the last acknowledged step"}
	start := time.Now()
	head, have, err := d.resume(ctx, t, d.script.run)
	if err != nil {
		return err
	}
	loaded := time.Since(start)
	if have <= acknowledged {
		return fmt.Errorf("step %d was acknowledged, but the store ends at %d: %w", acknowledged, have-1, engine.ErrCorrupt)
	}
	c.did("opened the store in %s and loaded the head state in %s: step %d; no acknowledged save is lost", took(opened), took(loaded), head.Step)
	status := head.Status
	err = d.saveRun(ctx, t, d.script.run, head, have, "", func(_ int, cp *engine.Checkpoint, took time.Duration) error {
		status = cp.Status
		c.saved(cp.Cost.State, cp.Cost.Stored, took)
		return nil
	})
	if err != nil {
		return err
	}
	c.did("the agent continues to step %d: %s", len(d.script.run.Messages)-1, status)
	return d.tell(c)
}

// rewind loads an old state and compares it with the one that was saved.
func (d *demo) rewind(ctx context.Context, t thread) error {
	c := &act{Name: "Rewind"}
	start := time.Now()
	cp, err := t.Load(ctx, engine.AtSeq(uint64(d.script.after)+1))
	if err != nil {
		return err
	}
	c.Millis = millis(time.Since(start))
	state, _ := cp.Channel(messagesChannel)
	if !bytes.Equal(state.Data, trajectory.State(d.script.run.Messages[:d.script.after+1])) {
		return fmt.Errorf("step %d differs from its save: %w", d.script.after, engine.ErrCorrupt)
	}
	c.did("the state after step %d, %s from %s, in %.1f ms: identical byte for byte", cp.Step, size(state.Size),
		count(cp.Cost.Depth, "record"), c.Millis)
	return d.tell(c)
}

// fork continues from the old state in another way.
func (d *demo) fork(ctx context.Context, t thread) error {
	c := &act{Name: "Fork"}
	start := time.Now()
	head, err := t.Fork(ctx, engine.AtSeq(uint64(d.script.after)+1), "retry")
	if err != nil {
		return err
	}
	forked := time.Since(start)
	status := head.Status
	err = d.saveRun(ctx, t, d.script.retry, head, d.script.after+1, "retry", func(_ int, cp *engine.Checkpoint, took time.Duration) error {
		status = cp.Status
		c.saved(cp.Cost.State, cp.Cost.Stored, took)
		return nil
	})
	if err != nil {
		return err
	}
	c.did("branch retry starts at step %d after %s; nothing is copied", head.Step, took(forked))
	c.did("the agent continues differently to step %d: %s", len(d.script.retry.Messages)-1, status)
	return d.tell(c)
}

// compare shows the differences between the two branches.
func (d *demo) compare(ctx context.Context, t thread) error {
	c := &act{Name: "Diff"}
	start := time.Now()
	diff, err := t.Diff(ctx, engine.AtSeq(uint64(len(d.script.run.Messages))), engine.HeadOf("retry"))
	if err != nil {
		return err
	}
	c.Millis = millis(time.Since(start))
	c.did("step %d (%s) against step %d of retry (%s), in %.1f ms:", diff.From.Step, diff.From.Status, diff.To.Step, diff.To.Status, c.Millis)
	for _, ch := range diff.Channels {
		if ch.Kind == engine.Same {
			continue
		}
		c.did("channel %s %s, %d → %d bytes, the first %d unchanged", ch.Name, ch.Kind, ch.OldSize, ch.NewSize, ch.Prefix)
		ops, err := operations(ch.Patch)
		if err != nil {
			return err
		}
		for i, op := range ops {
			if i == 4 {
				c.did("… and %s more", count(len(ops)-i, "operation"))
				break
			}
			c.did("  %s %s", pad(op.Op, 7), cut(op.text(), 100))
		}
	}
	return d.tell(c)
}

// check verifies the thread, every state of it.
func (d *demo) check(ctx context.Context, t thread) error {
	c := &act{Name: "Verify"}
	start := time.Now()
	r, err := d.store.Verify(ctx, upkeep.VerifyOptions{Tenant: demoName, User: demoName, Thread: demoName, Deep: true})
	if err != nil {
		return err
	}
	c.Millis = millis(time.Since(start))
	if n := len(r.Problems); n > 0 {
		return fmt.Errorf("%d %w: %s", n, errProblems, problemText(r.Problems[0]))
	}
	c.did("%s restored and compared with their commitments, and every link of the hash chain checked, in %.1f ms: no problems",
		count(r.Checkpoints, "state"), c.Millis)
	st, err := d.store.Stats(ctx, demoName, demoName)
	if err != nil {
		return err
	}
	c.did("the whole history: %s of states in %s, encrypted; the last state alone is %s", size(st.StateBytes), size(st.StoredBytes+st.PartBytes),
		size(int64(len(trajectory.State(d.script.run.Messages)))))
	return d.tell(c)
}
