package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/trajectory"
)

func (a *app) importCmd() *cobra.Command {
	im := importer{app: a}
	var maxMessage string
	cmd := &cobra.Command{
		Use:   "import FILE...",
		Short: "Import agent runs from trajectory files, one checkpoint per message",
		Long: `Import saves each agent run as a thread with one checkpoint per message, each durable before the next.

A FILE is a JSON array of runs, JSONL with one run per line, or a single run such as an SWE-agent
.traj; - is standard input. A run is an object with its messages in an array named traj, messages,
history or trajectory. Checkpoint n holds the first n+1 messages in the channel messages; the last
one has the status succeeded or failed if the run has a reward. The other members of the run become
the metadata (or the channel metadata if they exceed 1 MiB).

A file with many runs becomes threads named FILE/0000, FILE/0001 and so on, in file order; a single
run becomes the thread FILE. Import skips imported runs and resumes an interrupted import.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			n, err := humanize.ParseBytes(maxMessage)
			if err != nil || n == 0 || n > 1<<40 {
				return usagef("--max-message %q is not a size such as 64MiB", maxMessage)
			}
			im.maxMessage = int64(n)
			return im.run(cmd.Context(), files)
		},
	}
	f := cmd.Flags()
	f.StringVar(&im.as, "as", "", "thread `name` to use instead of the file's name")
	f.IntVar(&im.jobs, "jobs", 16, "number of `runs` to import in parallel")
	f.StringArrayVar(&im.labelPairs, "label", nil, "add the label `KEY=VALUE` to every checkpoint (repeatable)")
	f.StringVar(&im.runID, "run", "", "run `ID` of every checkpoint, for ckptd delete --run")
	f.StringVar(&im.kind, "kind", "", "`KIND` of the threads: the agent that produced them")
	f.Uint64Var(&im.schema, "schema", 0, "schema version `N` of the states")
	f.StringVar(&maxMessage, "max-message", "64MiB", "largest message `size` to accept")
	return cmd
}

type importer struct {
	*app
	as, runID  string
	kind       string
	schema     uint64
	labelPairs []string
	labels     map[string]string
	jobs       int
	maxMessage int64

	store store
	bar   *progress

	mu     sync.Mutex
	total  importTotals
	failed []error
}

// importTotals is the result of an import in JSON.
type importTotals struct {
	Runs        int     `json:"runs"`    // imported in full or in part
	Skipped     int     `json:"skipped"` // were there already
	Failed      int     `json:"failed"`
	Checkpoints int     `json:"checkpoints"`
	StateBytes  int64   `json:"state_bytes"`  // sum over the checkpoints
	StoredBytes int64   `json:"stored_bytes"` // records and parts written for them
	Seconds     float64 `json:"seconds"`
}

// job is a run and the thread it becomes.
type job struct {
	run    *trajectory.Run
	file   string
	thread string
}

func (im *importer) run(ctx context.Context, files []string) error {
	var err error
	if im.labels, err = parseLabels(im.labelPairs); err != nil {
		return err
	}
	if im.jobs < 1 || im.jobs > 4096 {
		return usagef("--jobs %d: want 1 to 4096", im.jobs)
	}
	names, err := im.threadNames(files)
	if err != nil {
		return err
	}
	var size int64
	for _, file := range files {
		if file == "-" {
			size = -1
		} else if info, err := os.Stat(file); err != nil {
			return err // before a store is made for nothing
		} else if info.IsDir() {
			return usagef("%s is a directory, want a trajectory file", file)
		} else if size >= 0 {
			size += info.Size()
		}
	}
	return im.with(ctx, true, func(s store) error {
		im.store, im.bar = s, newProgress(size, "importing", true)
		start := time.Now()
		im.files(ctx, files, names)
		im.bar.end()
		im.total.Seconds = time.Since(start).Seconds()
		return im.report(ctx)
	})
}

// threadNames returns the name that the threads of each file get.
func (im *importer) threadNames(files []string) ([]string, error) {
	if im.as != "" && len(files) > 1 {
		return nil, usagef("--as works with one file, not with %d", len(files))
	}
	var names []string
	for _, file := range files {
		name := im.as
		if name == "" && file == "-" {
			name = "stdin"
		} else if name == "" {
			name = filepath.Base(file)
			name = strings.TrimSuffix(name, filepath.Ext(name))
		}
		if slices.Contains(names, name) {
			return nil, usagef("two files would be imported as %q: import them separately with --as", name)
		}
		names = append(names, name)
	}
	return names, nil
}

// files reads the files and hands their runs to the jobs.
func (im *importer) files(ctx context.Context, files, names []string) {
	runs := make(chan job)
	var jobs sync.WaitGroup
	for range im.jobs {
		jobs.Go(func() {
			for j := range runs {
				if err := im.importRun(ctx, j); err != nil {
					im.fail(fmt.Errorf("%s: run %d (thread %q): %w", j.file, j.run.Index, j.thread, err))
				}
			}
		})
	}
	for i, file := range files {
		if err := im.read(ctx, file, names[i], runs); err != nil {
			im.fail(err)
		}
	}
	close(runs)
	jobs.Wait()
}

// read reads a file. The error is one that ended it; others are taken note of.
func (im *importer) read(ctx context.Context, file, name string, runs chan<- job) error {
	in := im.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	form := trajectory.Auto
	if ext := strings.ToLower(filepath.Ext(file)); ext == ".jsonl" || ext == ".ndjson" {
		form = trajectory.Lines
	}
	o := trajectory.Options{File: file, Form: form, MaxMessage: im.maxMessage}
	for run, err := range trajectory.Parse(im.bar.reader(in), o) {
		if err != nil {
			im.fail(err)
			continue
		}
		select {
		case runs <- job{run, file, jobName(name, run)}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// jobName returns the thread that a run of a file becomes.
func jobName(file string, run *trajectory.Run) string {
	if run.Form == trajectory.Object {
		return file
	}
	return fmt.Sprintf("%s/%04d", file, run.Index)
}

// fail takes note of an error.
func (im *importer) fail(err error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	if im.total.Failed++; len(im.failed) < mostErrors {
		im.failed = append(im.failed, err)
	}
}

// mostErrors is the number of errors that are printed one by one.
const mostErrors = 10

// importRun saves the missing part of a run.
func (im *importer) importRun(ctx context.Context, j job) error {
	t := im.store.Thread(im.thread(j.thread))
	head, have, err := im.resume(ctx, t, j.run)
	if err != nil {
		return err
	}
	steps := max(len(j.run.Messages), 1) // a run without messages is one checkpoint with an empty array
	var sum importTotals
	for i := have; i < steps; i++ {
		if err = ctx.Err(); err != nil {
			break
		}
		if head, err = spliceable(ctx, t, head); err != nil {
			break
		}
		var cp *engine.Checkpoint
		if cp, err = t.Save(ctx, im.draft(j.run, i, head)); err != nil {
			err = fmt.Errorf("message %d: %w", i, err)
			break
		}
		head = cp
		sum.Checkpoints++
		sum.StateBytes += cp.Cost.State
		sum.StoredBytes += cp.Cost.Stored
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	if have == steps {
		im.total.Skipped++
	} else if err == nil {
		im.total.Runs++
	}
	im.total.Checkpoints += sum.Checkpoints
	im.total.StateBytes += sum.StateBytes
	im.total.StoredBytes += sum.StoredBytes
	return err
}

// resume returns the head of a thread and the number of checkpoints of the run in it.
func (im *importer) resume(ctx context.Context, t thread, run *trajectory.Run) (*engine.Checkpoint, int, error) {
	head, err := t.Load(ctx, engine.Latest)
	if errors.Is(err, engine.ErrNotFound) {
		return nil, 0, nil
	} else if err != nil {
		return nil, 0, err
	}
	n := int(head.Step) + 1
	if head.Step < 0 || n > max(len(run.Messages), 1) || !holds(head, run, min(n, len(run.Messages))) {
		return nil, 0, fmt.Errorf("the thread %w with other content: import with --as NAME, or run ckptd delete first", errExists)
	}
	return head, n, nil
}

// holds reports whether a checkpoint is the result of importing the first n messages of a run.
// Content rewritten by hooks cannot be compared with the file: then only the number counts.
func holds(cp *engine.Checkpoint, run *trajectory.Run, n int) bool {
	messages, _ := cp.Channel(messagesChannel)
	if len(cp.Hooks) > 0 {
		var stored []json.RawMessage
		return json.Unmarshal(messages.Data, &stored) == nil && len(stored) == n
	}
	return string(metaOf(cp)) == string(run.Meta) && string(messages.Data) == string(trajectory.State(run.Messages[:n]))
}

// spliceable loads the messages of the head if hooks rewrote them: the next save is based on the
// stored content.
func spliceable(ctx context.Context, t thread, head *engine.Checkpoint) (*engine.Checkpoint, error) {
	if head == nil {
		return nil, nil
	}
	if ch, _ := head.Channel(messagesChannel); !ch.Rewritten {
		return head, nil
	}
	return t.Load(ctx, engine.At(head.ID), engine.LoadOptions{Channels: []string{messagesChannel}})
}

const (
	messagesChannel = "messages"
	metaChannel     = "metadata"
	maxMeta         = 1 << 20 // the limit of the engine for metadata
)

// draft is checkpoint i of a run, on the one before it: nil for the first. Only the first hands
// over everything.
func (im *importer) draft(run *trajectory.Run, i int, head *engine.Checkpoint) engine.Draft {
	d := engine.Draft{Step: int64(i), Status: engine.StatusRunning, Kind: im.kind, SchemaVersion: im.schema}
	if i >= len(run.Messages)-1 {
		d.Status = run.Status
	}
	if head == nil {
		d.Expect = engine.ExpectHead(0)
		d.RunID, d.Labels = im.runID, im.labels
		first := run.Messages[:min(i+1, len(run.Messages))]
		d.Channels = []engine.Change{{Name: messagesChannel, Type: "json", Data: trajectory.State(first)}}
		if len(run.Meta) <= maxMeta {
			d.Meta = run.Meta
		} else {
			d.Channels = append(d.Channels, engine.Change{Name: metaChannel, Type: "json", Data: run.Meta})
		}
		return d
	}
	ch, _ := head.Channel(messagesChannel)
	added := append([]byte{','}, run.Messages[i]...)
	d.Parent, d.Expect, d.Keep = head.ID, engine.ExpectHead(head.Seq), true
	d.Channels = []engine.Change{{Name: messagesChannel, Data: added, Base: ch.Version, Prefix: int(ch.Size) - 1, Suffix: 1}}
	return d
}

// metaOf returns the metadata of an imported checkpoint that was loaded with its channels.
func metaOf(cp *engine.Checkpoint) []byte {
	if ch, ok := cp.Channel(metaChannel); ok && len(cp.Meta) == 0 {
		return ch.Data
	}
	return cp.Meta
}

// report prints the summary and returns the error of the import.
func (im *importer) report(ctx context.Context) error {
	t := im.total
	if im.json {
		if err := im.emit(t); err != nil {
			return err
		}
	} else {
		each := int64(0)
		if t.Checkpoints > 0 {
			each = t.StoredBytes / int64(t.Checkpoints)
		}
		line := fmt.Sprintf("imported %s, %s in %.1f s (%s saves/s): %s of states in %s, %d B a checkpoint",
			count(t.Runs, "run"), count(t.Checkpoints, "checkpoint"), t.Seconds,
			humanize.Comma(int64(float64(t.Checkpoints)/max(t.Seconds, 1e-9))), size(t.StateBytes), size(t.StoredBytes), each)
		if t.Checkpoints == 0 {
			line = "imported nothing"
		}
		if t.Skipped > 0 {
			line += fmt.Sprintf("; %s skipped, there already", count(t.Skipped, "run"))
		}
		if err := im.printf("%s\n", line); err != nil {
			return err
		}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case t.Failed == 0:
		return nil
	case t.Failed == 1:
		return im.failed[0]
	}
	for _, err := range im.failed {
		im.note("%s", oneLine(err.Error()))
	}
	return importError{t.Failed, im.failed[0]}
}

// importError is more errors than fit a line. It is of the kind of the first.
type importError struct {
	n     int
	first error
}

func (e importError) Error() string {
	return fmt.Sprintf("%d errors; the first ones are shown above", e.n)
}
func (e importError) Unwrap() error { return e.first }
