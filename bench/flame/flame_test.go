package flame

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
)

// sample makes a profile: main calls a (30) and b (60), which calls a (10 of them).
func sample(t *testing.T) []byte {
	t.Helper()
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}}}
	for i, name := range []string{"main.main", "example.org/x.a", "example.org/x.(*T).b<script>"} {
		f := &profile.Function{ID: uint64(i + 1), Name: name}
		l := &profile.Location{ID: uint64(i + 1), Line: []profile.Line{{Function: f}}}
		p.Function, p.Location = append(p.Function, f), append(p.Location, l)
	}
	main, a, b := p.Location[0], p.Location[1], p.Location[2]
	for _, s := range []struct {
		value int64
		stack []*profile.Location // innermost first
	}{{30, []*profile.Location{a, main}}, {50, []*profile.Location{b, main}}, {10, []*profile.Location{a, b, main}}} {
		p.Sample = append(p.Sample, &profile.Sample{Location: s.stack, Value: []int64{1, s.value * 1e6}})
	}
	var data bytes.Buffer
	if err := p.Write(&data); err != nil {
		t.Fatal(err)
	}
	return data.Bytes()
}

func TestGraph(t *testing.T) {
	g, err := Parse("cpu", "cpu", sample(t))
	if err != nil {
		t.Fatal(err)
	}
	boxes, rows := g.boxes()
	if rows != 4 || len(boxes) != 5 {
		t.Fatalf("%d rows, %+v", rows, boxes)
	}
	for i, want := range []struct {
		name     string
		row      int
		x, width float64
	}{{"all", 0, 0, 100}, {"main.main", 1, 0, 100}, {"x.(*T).b<script>", 2, 0, 200. / 3}, {"x.a", 3, 0, 100. / 9}, {"x.a", 2, 200. / 3, 100. / 3}} {
		got := boxes[i]
		if got.Name != want.name || got.Row != want.row || abs(got.X-want.x) > 0.01 || abs(got.Width-want.width) > 0.01 {
			t.Errorf("box %d is %+v, want %+v", i, got, want)
		}
	}
	var page bytes.Buffer
	if err := Write(&page, "a & b", []Graph{g}); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	if !strings.Contains(text, "a &amp; b") || strings.Contains(text, "b<script>") || strings.Contains(text, "http") {
		t.Error("names are not escaped, or the page loads something")
	}
	if strings.Count(text, "<button") != 5 || !strings.Contains(text, "60.0 ms, 66.7 %") || strings.Contains(text, "ZgotmplZ") {
		t.Errorf("the page is\n%s", text)
	}
}

func TestErrors(t *testing.T) {
	if _, err := Parse("cpu", "cpu", []byte("nonsense")); err == nil {
		t.Error("nonsense is a profile")
	}
	if _, err := Parse("cpu", "delay", sample(t)); err == nil || !strings.Contains(err.Error(), "delay") {
		t.Errorf("a value that is missing: %v", err)
	}
}

func abs(f float64) float64 { return max(f, -f) }
