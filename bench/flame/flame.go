// Package flame draws profiles as flame graphs, on one HTML page that loads nothing.
package flame

import (
	"bytes"
	_ "embed"
	"fmt"
	"hash/fnv"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// Graph is a profile as a tree of calls.
type Graph struct {
	Name string
	Unit string // "ns" or "bytes"
	root *node
}

// node is a function as it was called by those above it.
type node struct {
	name  string
	value int64 // its own and that of all that it called
	calls map[string]*node
}

func (n *node) call(name string) *node {
	next := n.calls[name]
	if next == nil {
		next = &node{name: name, calls: map[string]*node{}}
		n.calls[name] = next
	}
	return next
}

// Parse reads a profile in the format of pprof. The value names which of its values counts, such as "cpu".
func Parse(name, value string, data []byte) (Graph, error) {
	p, err := profile.Parse(bytes.NewReader(data))
	if err != nil {
		return Graph{}, fmt.Errorf("reading the profile %s: %w", name, err)
	}
	at := slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool { return t.Type == value })
	if at < 0 {
		return Graph{}, fmt.Errorf("reading the profile %s: it has no value %s", name, value)
	}
	g := Graph{name, unit(p.SampleType[at].Unit), &node{name: "all", calls: map[string]*node{}}}
	for _, sample := range p.Sample {
		n := g.root
		n.value += sample.Value[at]
		for _, location := range slices.Backward(sample.Location) {
			for _, line := range slices.Backward(location.Line) { // inlined calls come innermost first
				if line.Function == nil {
					continue
				}
				n = n.call(line.Function.Name)
				n.value += sample.Value[at]
			}
		}
	}
	return g, nil
}

func unit(name string) string {
	if name == "nanoseconds" {
		return "ns"
	}
	return name
}

// box is a call as it is drawn, in thousandths of the width.
type box struct {
	X, Width float64 // per cent
	Row      int
	Name     string // without the path of its package
	Title    string
	Hue      uint32
}

const (
	leastWidth = 0.1 // per cent; what is narrower is not drawn
	deepest    = 120 // rows
)

// boxes lays out the tree: every call under those that called it, the widest first.
func (g Graph) boxes() (list []box, rows int) {
	total := float64(max(g.root.value, 1))
	var lay func(n *node, x float64, row int)
	lay = func(n *node, x float64, row int) {
		width := 100 * float64(n.value) / total
		if width < leastWidth || row >= deepest {
			return
		}
		rows = max(rows, row+1)
		h := fnv.New32a()
		h.Write([]byte(packageOf(n.name)))
		list = append(list, box{x, width, row, n.name[strings.LastIndexByte(n.name, '/')+1:],
			fmt.Sprintf("%s: %s, %.1f %%", n.name, g.spell(n.value), width), h.Sum32() % 360})
		calls := slices.SortedFunc(maps.Values(n.calls), func(a, b *node) int {
			if a.value != b.value {
				return int(min(1, max(-1, b.value-a.value)))
			}
			return strings.Compare(a.name, b.name)
		})
		for _, c := range calls {
			lay(c, x, row+1)
			x += 100 * float64(c.value) / total
		}
	}
	lay(g.root, 0, 0)
	return list, rows
}

// packageOf returns the package of a function's full name.
func packageOf(name string) string {
	slash := strings.LastIndexByte(name, '/') + 1
	if dot := strings.IndexByte(name[slash:], '.'); dot >= 0 {
		return name[:slash+dot]
	}
	return name
}

func (g Graph) spell(value int64) string {
	if g.Unit == "ns" {
		return fmt.Sprintf("%.1f ms", float64(value)/1e6)
	}
	return fmt.Sprintf("%.1f MB", float64(value)/1e6)
}

//go:embed flame.html
var page string

// Write writes a page with graphs.
func Write(w io.Writer, title string, graphs []Graph) error {
	type drawn struct {
		Name, Total string
		Boxes       []box
		Height      int
	}
	var list []drawn
	for _, g := range graphs {
		boxes, rows := g.boxes()
		list = append(list, drawn{g.Name, g.spell(g.root.value), boxes, rows * rowHeight})
	}
	t, err := template.New("flame").Funcs(template.FuncMap{"y": func(row int) int { return row * rowHeight }}).Parse(page)
	if err != nil {
		return fmt.Errorf("drawing the graphs: %w", err)
	}
	if err := t.Execute(w, map[string]any{"Title": title, "Graphs": list}); err != nil {
		return fmt.Errorf("drawing the graphs: %w", err)
	}
	return nil
}

const rowHeight = 18 // pixels
