package main

import (
	"slices"
	"strings"
	"testing"
)

func TestGraph(t *testing.T) {
	for _, c := range []struct {
		name, edges string // child<parent, the newest first
		want        []string
	}{
		{"line", "c<b b<a a<", []string{"* c", "* b", "* a"}},
		{"fork", "d<b c<b b<a a<", []string{"* d", "| * c", "|/", "* b", "* a"}},
		{"three ways", "e<b d<b c<b b<a a<", []string{"* e", "| * d", "| | * c", "| |/", "|/", "* b", "* a"}},
		{"crossing", "f<b e<c d<b c<b b<", []string{"* f", "| * e", "| | * d", "| * | c", "| |/", "|/", "* b"}},
		{"far lane", "e<a d<b c<a b<a a<", []string{"* e", "| * d", "| | * c", "| * | b", "| |/", "|/", "* a"}},
		{"wide join", "e<a d<b c<a a< b<", []string{"* e", "| * d", "| | * c", "|_|/", "* | a", "* b"}},
		{"pruned parent", "c<x b<x a<", []string{"* c", "* b", "* a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := graph{known: map[string]bool{}}
			for _, e := range strings.Fields(c.edges) {
				g.known[e[:1]] = true
			}
			var got []string
			for _, e := range strings.Fields(c.edges) {
				rows := g.rows(e[:1], e[2:])
				rows[len(rows)-1] += " " + e[:1]
				got = append(got, rows...)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}
