package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/trajectory"
)

func (a *app) exportCmd() *cobra.Command {
	var x exporter
	var form string
	cmd := &cobra.Command{
		Use:   "export [THREAD...]",
		Short: "Export threads as trajectory files, in the form they were imported from",
		Long: `Export writes the head states of threads as agent runs, in the form of the file they were imported
from. A THREAD that does not exist means all threads named THREAD/…: the runs of an imported file.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if x.form, err = trajectory.ParseForm(form); err != nil {
				return usageError{err}
			}
			x.app, a.server.export = a, true
			return x.run(cmd.Context(), args)
		},
		ValidArgsFunction: a.completeThreads,
	}
	f := cmd.Flags()
	f.BoolVar(&x.all, "all", false, "all threads of the user")
	f.StringVar(&x.prefix, "prefix", "", "only threads whose names begin with `TEXT`")
	f.StringVar(&x.at, "at", "", "export the state at `CHECKPOINT` instead of the head")
	f.StringVarP(&x.output, "output", "o", "", "write to `FILE` instead of standard output")
	f.StringVar(&form, "form", "auto", "output `form`: array, jsonl, object or auto")
	return cmd
}

type exporter struct {
	*app
	all                bool
	prefix, at, output string
	form               trajectory.Form
}

func (x *exporter) run(ctx context.Context, args []string) error {
	ways := 0
	for _, chosen := range []bool{len(args) > 0, x.all, x.prefix != ""} {
		if chosen {
			ways++
		}
	}
	if ways != 1 {
		return usagef("no threads given: name them or use --prefix or --all")
	}
	return x.with(ctx, false, func(s store) error {
		names, err := x.threadNames(ctx, s, args)
		if err != nil {
			return err
		}
		form, err := x.formOf(ctx, s, names)
		if err != nil {
			return err
		}
		return x.to(x.output, func(w io.Writer) error { return x.write(ctx, s, names, trajectory.NewWriter(w, form)) })
	})
}

// threadNames returns the threads that are meant, in the order of the file they came from.
func (x *exporter) threadNames(ctx context.Context, s store, args []string) ([]string, error) {
	if len(args) == 0 {
		names, err := x.below(ctx, s, x.prefix)
		if err == nil && len(names) == 0 && x.prefix != "" {
			err = fmt.Errorf("threads beginning with %q: %w", x.prefix, engine.ErrNotFound)
		}
		return names, err
	}
	var names []string
	for _, arg := range args {
		_, err := s.Thread(x.thread(arg)).Load(ctx, engine.Latest, engine.LoadOptions{HeadersOnly: true})
		if err == nil {
			names = append(names, arg)
			continue
		} else if !errors.Is(err, engine.ErrNotFound) {
			return nil, err
		}
		runs, err := x.below(ctx, s, arg+"/")
		if err != nil {
			return nil, err
		}
		if len(runs) == 0 {
			return nil, fmt.Errorf("thread %q: %w", arg, engine.ErrNotFound)
		}
		names = append(names, runs...)
	}
	return names, nil
}

// below returns the threads whose names begin with prefix, those that end in a number in its order.
func (x *exporter) below(ctx context.Context, s store, prefix string) ([]string, error) {
	var names []string
	for info, err := range s.User(x.tenant, x.user).Threads(ctx, engine.ThreadOptions{Prefix: prefix}) {
		if err != nil {
			return nil, err
		}
		names = append(names, info.Ref.Thread)
	}
	slices.SortFunc(names, byNumber)
	return names, nil
}

func byNumber(a, b string) int {
	stemA, nA := cutNumber(a)
	stemB, nB := cutNumber(b)
	return cmp.Or(cmp.Compare(stemA, stemB), cmp.Compare(nA, nB), cmp.Compare(a, b))
}

func cutNumber(s string) (string, int) {
	stem := strings.TrimRight(s, "0123456789")
	n, err := strconv.Atoi(s[len(stem):])
	if err != nil {
		return s, -1
	}
	return stem, n
}

// formOf returns the form to write: that of the files the threads came from, JSONL if they differ.
func (x *exporter) formOf(ctx context.Context, s store, names []string) (trajectory.Form, error) {
	if x.form != trajectory.Auto {
		if x.form == trajectory.Object && len(names) > 1 {
			return 0, usagef("--form object holds one thread, not %d: use array or jsonl", len(names))
		}
		return x.form, nil
	}
	form := trajectory.Auto
	for _, name := range names {
		cp, err := x.load(ctx, s, name, metaChannel)
		if err != nil {
			return 0, err
		}
		f, ok := trajectory.FormOf(metaOf(cp))
		if !ok || form != trajectory.Auto && f != form || f == trajectory.Object && len(names) > 1 {
			return trajectory.Lines, nil
		}
		form = f
	}
	if form == trajectory.Auto {
		return trajectory.Array, nil
	}
	return form, nil
}

func (x *exporter) load(ctx context.Context, s store, name string, channels ...string) (*engine.Checkpoint, error) {
	t := s.Thread(x.thread(name))
	which := engine.Latest
	if x.at != "" {
		cp, err := find(ctx, t, x.at)
		if err != nil {
			return nil, err
		}
		which = engine.AtSeq(cp.Seq)
	}
	return t.Load(ctx, which, engine.LoadOptions{Channels: channels, Export: true})
}

// write writes the threads to w.
func (x *exporter) write(ctx context.Context, s store, names []string, w *trajectory.Writer) error {
	bar := newProgress(int64(len(names)), "exporting", false)
	defer bar.end()
	for _, name := range names {
		cp, err := x.load(ctx, s, name, messagesChannel, metaChannel)
		if err != nil {
			return err
		}
		messages, ok := cp.Channel(messagesChannel)
		if !ok {
			return fmt.Errorf("thread %q has no channel %s; print other channels with ckptd show --raw: %w", name, messagesChannel, engine.ErrNotFound)
		}
		if err := w.Write(metaOf(cp), messages.Data); err != nil {
			return fmt.Errorf("exporting thread %q: %w", name, err)
		}
		bar.add(1)
	}
	return wroteOut(w.Close())
}

// to calls f with the output: standard output, or a file that appears once it is complete, readable
// by its owner only. An existing path that is not a regular file (a device, a pipe, a link) is
// written to directly.
func (a *app) to(output string, f func(io.Writer) error) error {
	if output == "" || output == "-" {
		return f(a.out)
	}
	if info, err := os.Lstat(output); err == nil && !info.Mode().IsRegular() {
		there, err := os.OpenFile(output, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return outputError{err}
		}
		return errors.Join(f(there), wroteOut(there.Close()))
	}
	tmp, err := os.CreateTemp(filepath.Dir(output), ".ckptd-export-*")
	if err != nil {
		return outputError{err}
	}
	defer os.Remove(tmp.Name()) // no longer there when all went well
	err = f(tmp)
	if err == nil {
		err = wroteOut(tmp.Sync())
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return wroteOut(os.Rename(tmp.Name(), output))
}
