package workload

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// reader is a rival that sees only splices: it rebuilds the states of a thread from them.
type reader struct {
	steps []map[string][]byte // by step number
}

func (r *reader) take(t *testing.T, s *Step) {
	t.Helper()
	state := map[string][]byte{}
	if s.Number == 0 {
		r.steps = nil
		if s.Parent != -1 || len(s.Splices) != 0 {
			t.Fatalf("a first step has parent %d and %d splices", s.Parent, len(s.Splices))
		}
		for _, c := range s.State.Channels {
			state[c.Name] = bytes.Clone(s.State.Value(c.Name))
		}
	} else {
		for name, value := range r.steps[s.Parent] {
			state[name] = value
		}
		for _, e := range s.Splices {
			old, ok := state[e.Channel]
			if ok == e.New {
				t.Fatalf("step %d: channel %s exists: %v, is new: %v", s.Number, e.Channel, ok, e.New)
			}
			var value []byte
			value = append(value, old[:e.Prefix]...)
			value = append(value, e.Insert...)
			state[e.Channel] = append(value, old[len(old)-e.Suffix:]...)
		}
	}
	if s.Number != len(r.steps) {
		t.Fatalf("step %d comes after %d steps", s.Number, len(r.steps))
	}
	r.steps = append(r.steps, state)
	doc := AppendDoc(nil, len(s.State.Channels), func(i int) (string, []byte) {
		return s.State.Channels[i].Name, state[s.State.Channels[i].Name]
	})
	if !bytes.Equal(doc, s.State.Doc) {
		t.Fatalf("thread %d, step %d: splices make another state", s.Thread, s.Number)
	}
	if len(state) != len(s.State.Channels) || !json.Valid(doc) {
		t.Fatalf("step %d: %d channels for %d, or no JSON", s.Number, len(state), len(s.State.Channels))
	}
}

// Splices reproduce the states, states are JSON, sizes are kept, and a seed gives the same steps
// again.
func TestWorkloads(t *testing.T) {
	runs := filepath.Join(t.TempDir(), "runs.json")
	text := `[{"reward":1,"traj":[{"role":"system","content":"a"},{"role":"user","content":"b"}]},{"traj":[{"role":"user"}]}]`
	if err := os.WriteFile(runs, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	input, err := Input("real", runs)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range append(All(), input) {
		for _, filled := range []bool{false, true} {
			o := Options{Seed: 7, Thread: 3, Threads: 4, Filled: filled}
			a, b := w.Player(o), w.Player(o)
			var r reader
			forks, changed := 0, 0
			steps := 150
			if w.Size > 500_000 {
				steps = 25
			}
			for range steps {
				s := a.Next()
				r.take(t, s)
				if again := b.Next(); !bytes.Equal(again.State.Doc, s.State.Doc) {
					t.Fatalf("%s: a seed gives two states for step %d", w.Name, s.Number)
				}
				if s.Number > 0 && s.Parent != s.Number-1 {
					forks++
				}
				changed += s.Changed
			}
			size := len(a.Next().State.Doc)
			if filled && w.Name != "real" && w.Name != "summariser" && (size < w.Size/2-messageBytes || size > w.Size*8/5) && w.Name != "multimodal" {
				t.Errorf("%s: filled states are to have %d bytes, one has %d", w.Name, w.Size, size)
			}
			if (forks > 0) != (w.Name == "branchy") {
				t.Errorf("%s: %d forks", w.Name, forks)
			}
			o.Thread++
			if w.Name != "real" && bytes.Equal(w.Player(o).Next().State.Doc, w.Player(Options{Seed: 7, Thread: 3, Filled: filled}).Next().State.Doc) {
				t.Errorf("%s: two threads have the same state", w.Name)
			}
		}
	}
}

// A filled chat has its size on average, whatever that is, and nearly all of its steps only add a
// message.
func TestSize(t *testing.T) {
	w, err := Lookup("chat")
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1000, 10_000, 100_000, 1_000_000} {
		cycle := max(2*size/messageBytes, 10)
		for thread := range 3 {
			p := w.Player(Options{Size: size, Filled: true, Thread: thread})
			sum, before, drops := 0, 0, 0
			for n := range cycle {
				s := p.Next()
				got := len(s.State.Doc)
				if got < size/2-messageBytes || got > size*3/2+messageBytes {
					t.Fatalf("step %d of a chat of %d bytes has %d", n, size, got)
				}
				switch {
				case n == 0:
				case s.Splices[0].Prefix == len("["):
					drops++
				case s.Changed > messageBytes*11/10 || got != before+s.Changed || s.Splices[0].Suffix != len("]"):
					t.Fatalf("step %d changes %d bytes, from %d to %d, but adds no message at the end", n, s.Changed, before, got)
				}
				sum, before = sum+got, got
			}
			if mean := sum / cycle; size >= 100_000 && (mean < size*9/10 || mean > size*11/10 || drops != 2) {
				t.Errorf("thread %d of %d bytes: it has %d on average, and dropped messages %d times", thread, size, mean, drops)
			}
		}
	}
}

// Real runs end, and their player continues with the next thread.
func TestInputGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.jsonl")
	if err := os.WriteFile(path, []byte("{\"messages\":[{\"a\":1},{\"a\":2}]}\n{\"messages\":[{\"b\":1}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := Input("real", path)
	if err != nil {
		t.Fatal(err)
	}
	p := w.Player(Options{Thread: 0, Threads: 3})
	var got []string
	for range 4 {
		s := p.Next()
		got = append(got, string(rune('0'+s.Thread))+":"+string(s.State.Doc))
	}
	want := []string{`0:{"messages":[{"a":1}]}`, `0:{"messages":[{"a":1},{"a":2}]}`, `3:{"messages":[{"b":1}]}`, `6:{"messages":[{"a":1}]}`}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("step %d is %s, want %s", i, got[i], want[i])
		}
	}
	if _, err := Lookup("nonsense"); !errors.Is(err, ErrUnknown) {
		t.Errorf("looking up a workload that is none: %v", err)
	}
}

func BenchmarkChat(b *testing.B) {
	w, err := Lookup("chat")
	if err != nil {
		b.Fatal(err)
	}
	p := w.Player(Options{Filled: true})
	b.ReportAllocs()
	for b.Loop() {
		p.Next()
	}
}
