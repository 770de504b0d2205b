package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/engine"
)

func (a *app) logCmd() *cobra.Command {
	var o engine.HistoryOptions
	cmd := &cobra.Command{
		Use:   "log THREAD [CHECKPOINT]",
		Short: "Show the history of a thread as a tree, newest first",
		Long: `Log shows all checkpoints of a thread as a tree, or with CHECKPOINT only that one and its ancestors.
Each line shows the seq, the stored size, the step, the status, the time, the branches that end
there, and the labels.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Limit < 0 {
				return usagef("--limit %d is negative", o.Limit)
			}
			return a.with(cmd.Context(), false, func(s store) error {
				t := s.Thread(a.thread(args[0]))
				if len(args) == 2 {
					cp, err := find(cmd.Context(), t, args[1])
					if err != nil {
						return err
					}
					o.From = cp.ID
				}
				return a.log(cmd.Context(), t, o)
			})
		},
		ValidArgsFunction: a.completeThreads,
	}
	cmd.Flags().IntVarP(&o.Limit, "limit", "n", 0, "show at most `N` checkpoints")
	cmd.Flags().StringVar(&o.Branch, "branch", "", "show only the head of branch `NAME` and its ancestors")
	return cmd
}

func (a *app) log(ctx context.Context, t thread, o engine.HistoryOptions) error {
	newest, err := find(ctx, t, "")
	if err != nil {
		return err
	}
	heads, err := headNames(ctx, t)
	if err != nil {
		return err
	}
	heads[newest.Seq] = append([]string{"head"}, heads[newest.Seq]...)
	var all []*engine.Checkpoint // headers: a lane is only drawn if it leads somewhere
	g := graph{known: map[string]bool{}}
	for cp, err := range t.History(ctx, o) {
		if err != nil {
			return fmt.Errorf("thread %q: %w", t.Ref().Thread, err)
		}
		all = append(all, cp)
		g.known[cp.ID] = true
	}
	for _, cp := range all {
		if a.json {
			v := viewOf(cp)
			v.Heads = heads[cp.Seq]
			if err := a.emit(v); err != nil {
				return err
			}
			continue
		}
		rows := g.rows(cp.ID, cp.Parent)
		for _, row := range rows[:len(rows)-1] {
			a.printf("%s\n", a.paint.dim(row))
		}
		if err := a.printf("%s %s\n", a.paint.dim(rows[len(rows)-1]), a.logLine(cp, heads[cp.Seq])); err != nil {
			return err
		}
	}
	return nil
}

// headNames returns the branches that end at each seq.
func headNames(ctx context.Context, t thread) (map[uint64][]string, error) {
	branches, err := t.Branches(ctx)
	if err != nil {
		return nil, err
	}
	heads := map[uint64][]string{}
	for _, b := range branches {
		heads[b.HeadSeq] = append(heads[b.HeadSeq], b.Name)
	}
	return heads, nil
}

// stored is the size of a checkpoint on disk, which not every caller may see.
func stored(c engine.Cost) string {
	if c.Stored == 0 {
		return "?"
	}
	return size(c.Stored)
}

func (a *app) logLine(cp *engine.Checkpoint, heads []string) string {
	line := fmt.Sprintf("%s  %s  step %-4d %s  %s", a.paint.bold(pad(fmt.Sprintf("@%d", cp.Seq), 5)), a.paint.dim(fmt.Sprintf("+%8s", stored(cp.Cost))),
		cp.Step, a.paint.status(pad(printable(cp.Status), 9)), cp.Time.Local().Format("2006-01-02 15:04:05"))
	if len(heads) > 0 {
		line += "  " + a.paint.with("36", "("+printable(strings.Join(heads, ", "))+")")
	}
	if l := labelText(cp.Labels); l != "" {
		line += "  " + l
	}
	return line
}

// graph draws the lines between checkpoints, of which none comes after its parent. Each lane leads
// to the parent of a checkpoint that was drawn.
type graph struct {
	known map[string]bool // ids of the checkpoints that are drawn
	lanes []string
}

// rows returns the rows for a checkpoint. The last is its own; those before join the lanes that
// lead to it.
func (g *graph) rows(id, parent string) []string {
	at := slices.Index(g.lanes, id)
	if at < 0 {
		at = len(g.lanes)
		g.lanes = append(g.lanes, id)
	}
	var rows []string
	for i := len(g.lanes) - 1; i > at; i-- {
		if g.lanes[i] == id {
			near := i - 1 // the next lane to the left that leads there too
			for g.lanes[near] != id {
				near--
			}
			rows = append(rows, g.join(near, i))
			g.lanes = slices.Delete(g.lanes, i, i+1)
		}
	}
	cells := make([]string, len(g.lanes))
	for i := range cells {
		cells[i] = "|"
	}
	cells[at] = "*"
	rows = append(rows, strings.Join(cells, " "))
	if g.lanes[at] = parent; !g.known[parent] {
		g.lanes = slices.Delete(g.lanes, at, at+1)
	}
	return rows
}

// join draws lane from running into lane to, to its left; the lanes right of it move up.
func (g *graph) join(to, from int) string {
	row := []byte(strings.Repeat(" ", 2*len(g.lanes)-1))
	for i := range g.lanes {
		if i < from {
			row[2*i] = '|'
		} else {
			row[2*i-1] = '/'
		}
	}
	for x := 2*to + 1; x < 2*from-1; x++ {
		if row[x] == ' ' {
			row[x] = '_'
		}
	}
	return strings.TrimRight(string(row), " ")
}
