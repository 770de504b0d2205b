// Package report presents the results of a bench run: as text for a terminal, as Markdown for
// docs/performance.md, as lines for benchstat, and as a single HTML page that loads nothing. It
// also compares two runs. It measures nothing and reads no clock: the same run gives the same
// bytes.
//
// No measurement is left out for being slow, and anything not measured is named. The goals are data
// of this package; where one is missed, every report says where and by how much. Figures of rivals
// are shown with ckptd's advantage, where more than 1 × always means that ckptd is better,
// whichever direction of the measure is better.
package report

import (
	"bufio"
	"fmt"
	"io"
	"time"

	"github.com/ckptd/ckptd/bench/result"
)

// Text writes a run for a terminal: goals, limits and the tables, without the plots and the full
// list of figures.
func Text(w io.Writer, run *result.Run) error {
	out := bufio.NewWriter(w)
	writeText(out, build(run))
	if err := out.Flush(); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// Markdown writes the same as Markdown, with a first heading of level two.
func Markdown(w io.Writer, run *result.Run) error {
	out := bufio.NewWriter(w)
	writeMarkdown(out, build(run))
	if err := out.Flush(); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// HTML writes a run as a single page: everything in Text, the plots, and every figure with its
// spread and its limit.
func HTML(w io.Writer, run *result.Run) error {
	out := bufio.NewWriter(w)
	if err := writePage(out, build(run)); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

// document is a report independent of its output format.
type document struct {
	Title    string
	Lead     string
	Sections []section
}

type section struct {
	ID, Title string
	Lines     []string // paragraphs, plain text
	Parts     []part
}

// part is a table and its plots.
type part struct {
	Title  string
	Lines  []string
	Plots  []plot
	Table  table
	Folded bool // the table is detail: folded in the page, omitted elsewhere
	Behind bool // the table repeats the plot: folded in the page
}

// table is a grid whose first column names the rows.
type table struct {
	Head []string
	Rows [][]cell
}

type cell struct {
	Text string
	Note string // shown next to the text
	Mood string // good, bad or ""
}

func words(texts ...string) []cell {
	cells := make([]cell, len(texts))
	for i, text := range texts {
		cells[i].Text = text
	}
	return cells
}

// build builds the document for a run.
func build(run *result.Run) document {
	v := newView(run)
	goals := Goals(run)
	doc := document{
		Title:    "ckptd compared with its alternatives",
		Lead:     lead(run, goals),
		Sections: []section{goalsSection(run, goals), v.glance(), machineSection(v)},
	}
	for _, t := range []struct{ id, title, text string }{
		{result.Durable, "Durable", "Each save is on disk before it returns, for every rival."},
		{result.Default, "Default settings", "Each rival with its own defaults. A rival that is durable by default appears with its figures from the first table."},
	} {
		if groups := v.groups(t.id); len(groups) > 0 {
			doc.Sections = append(doc.Sections, section{ID: t.id, Title: t.title, Lines: []string{t.text + " " + readRatios}, Parts: v.parts(t.id, groups)})
		}
	}
	if growth := v.growth(); len(growth.Parts) > 0 {
		doc.Sections = append(doc.Sections, growth)
	}
	return withoutEmpty(append(doc.Sections, rivalsSection(run), gapsSection(run)), doc)
}

const readRatios = "The × next to a rival's figure is ckptd's advantage: above 1 ckptd is better, below it is worse."

func withoutEmpty(sections []section, doc document) document {
	doc.Sections = nil
	for _, s := range sections {
		if len(s.Lines)+len(s.Parts) > 0 {
			doc.Sections = append(doc.Sections, s)
		}
	}
	return doc
}

// lead summarizes the report in a sentence or two.
func lead(run *result.Run, goals []Goal) string {
	met, missed, open := 0, 0, 0
	for _, g := range goals {
		switch of, n := g.Tally(); {
		case n == 0:
			open++
		case of == n:
			met++
		default:
			missed++
		}
	}
	s := fmt.Sprintf("%d of %d goals met, %d missed", met, len(goals), missed)
	if open > 0 {
		s += fmt.Sprintf(", %d not measured", open)
	}
	s += fmt.Sprintf(". Medians of %s, with their spread; %s; all rivals took turns in a single run of %s.",
		counted(run.Rounds, "round"), counted(run.Machine.Cores, "core"), time.Duration(run.Took*float64(time.Second)).Round(time.Second))
	return s
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return thousands(int64(n)) + " " + what + "s"
}
