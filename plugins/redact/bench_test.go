package redact

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// agentJSON returns real agent runs without any findings, and the same with one finding per
// kilobyte.
func agentJSON(b *testing.B) (clean, dirty []byte) {
	path := filepath.Join("..", "..", "..", "shared", "data", "tau-bench", "gpt-4o-airline.json")
	data, err := os.ReadFile(path)
	if err != nil {
		b.Skip("the tau-bench runs are not there: ", path)
	}
	out, err := Default().Redact(b.Context(), Input{Type: "json", Data: data})
	if err != nil {
		b.Fatal(err)
	}
	var runs []json.RawMessage
	if err := json.Unmarshal(out.Data, &runs); err != nil {
		b.Fatal(err)
	}
	found := []string{`"mail bob%d@example.org now"`, `"card 4111 1111 1111 1111 or %d"`, `"call +1 415-555-%04d"`, `"from 10.2.3.%d"`,
		`"key ghp_0123456789abcdefghijABCDEFGHIJKL%04d"`}
	dirty = append(dirty, '[')
	last := 0
	for i, at := 0, 1; at < len(out.Data); i++ {
		// In text laid out in lines, an element or member can be inserted after a comma at the end
		// of a line.
		k := bytes.Index(out.Data[at:], []byte("\"content\": \""))
		if k < 0 {
			break
		}
		at += k + len("\"content\": \"")
		dirty = append(dirty, out.Data[last+1:at]...)
		last = at - 1
		text := fmt.Sprintf(found[i%len(found)], i%200)
		dirty = append(dirty, text[1:len(text)-1]...)
		dirty = append(dirty, ' ')
		at = min(len(out.Data), at+700)
	}
	dirty = append(dirty, out.Data[last+1:]...)
	if !json.Valid(dirty) {
		b.Fatal("the file of real runs is laid out in another way")
	}
	return out.Data, dirty
}

func BenchmarkRedact(b *testing.B) {
	clean, dirty := agentJSON(b)
	r := Default()
	for _, c := range []struct {
		name string
		data []byte
	}{{"clean", clean}, {"found", dirty}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.data)))
			n := 0
			for b.Loop() {
				out, err := r.Redact(b.Context(), Input{Type: "json", Data: c.data})
				if err != nil {
					b.Fatal(err)
				}
				n = 0
				for _, f := range out.Findings {
					n += f.Count
				}
			}
			b.ReportMetric(float64(len(c.data))/1e3/float64(max(n, 1)), "kB/finding")
		})
	}
}

// A state of 100 kB to which 1 kB is appended, with and without knowledge of the previous state.
func BenchmarkAppend(b *testing.B) {
	clean, _ := agentJSON(b)
	var runs []struct {
		Traj []json.RawMessage `json:"traj"`
	}
	if err := json.Unmarshal(clean, &runs); err != nil {
		b.Fatal(err)
	}
	var messages []json.RawMessage
	size := 0
	for _, run := range runs {
		for _, m := range run.Traj {
			if size += len(m); size < 100_000 {
				messages = append(messages, m)
			}
		}
	}
	state := func(m []json.RawMessage) []byte {
		data, err := json.Marshal(map[string]any{"messages": m, "step": len(m)})
		if err != nil {
			b.Fatal(err)
		}
		return data
	}
	r := Default()
	old, err := r.Redact(b.Context(), Input{Type: "json", Data: state(messages)})
	if err != nil {
		b.Fatal(err)
	}
	text := bytes.Repeat([]byte("what was said next "), 50)
	data := state(append(messages, json.RawMessage(fmt.Sprintf(`{"role":"user","content":"%s"}`, text))))
	for _, c := range []struct {
		name string
		prev []byte
	}{{"whole", nil}, {"prev", old.Data}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := r.Redact(b.Context(), Input{Type: "json", Data: data, Prev: c.prev}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
