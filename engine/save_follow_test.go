package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// growing are states that get a message of 1 kB a step, each in a form of its own.
var growing = []struct {
	name   string
	places int // that change besides the message
	state  func(messages [][]byte) []byte
}{
	{"append", 0, func(messages [][]byte) []byte {
		return slices.Concat([]byte("["), bytes.Join(messages, []byte(",")), []byte("]"))
	}},
	{"msgpack array", 1, func(messages [][]byte) []byte {
		state := binary.BigEndian.AppendUint16([]byte("\x81\xa8messages\xdc"), uint16(len(messages)))
		for _, m := range messages {
			state = append(binary.BigEndian.AppendUint16(append(state, 0xda), uint16(len(m))), m...)
		}
		return state
	}},
	{"counter at the head", 1, func(messages [][]byte) []byte {
		return fmt.Appendf(nil, `{"count":%d,"messages":[%s]}`, len(messages), bytes.Join(messages, []byte(",")))
	}},
	{"five places", 5, func(messages [][]byte) []byte {
		var state []byte
		n := len(messages)
		for i := range 5 {
			state = fmt.Appendf(state, `{"part":%d,"steps":%d,"messages":[`, i, n)
			for j := i; j < n; j += 5 {
				state = append(append(state, messages[j]...), ',')
			}
			state = append(state, "]}"...)
		}
		return state
	}},
	{"inserted in the middle", 1, func(messages [][]byte) []byte {
		order := [][]byte{}
		for i, m := range messages {
			order = slices.Insert(order, i/2, m)
		}
		return fmt.Appendf(nil, `{"count":%d,"messages":[%s]}`, len(messages), bytes.Join(order, []byte(",")))
	}},
}

// follow saves a number of whole states, the first with some messages, and returns their size on
// disk and the time of each save.
func follow(tb testing.TB, g, first, steps int) (stored int64, took []time.Duration) {
	tb.Helper()
	r := rand.New(rand.NewPCG(1, 13))
	f := newFixture(tb, Options{})
	var messages [][]byte
	for n := range first + steps - 1 {
		messages = append(messages, fmt.Appendf(nil, `{"role":"user","content":"%s"}`, words(r, 970)))
		if n < first-1 {
			continue
		}
		if n == first+steps/2 {
			f.reopen() // then the state is restored from its records
		}
		state := growing[g].state(messages)
		start := time.Now()
		cp, err := f.Thread(testRef("t")).Save(context.Background(), Draft{Channels: []Change{{Name: "state", Data: state}}})
		took = append(took, time.Since(start))
		if err != nil {
			tb.Fatal(err)
		}
		stored += cp.Cost.Stored
	}
	return stored, took
}

// The size of a whole state on disk follows its changes, wherever they are: no more than the
// appended bytes, and as little for each other place. There are enough steps for a consolidating
// record, which holds the changes since the first state.
func TestBytesFollowTheChanges(t *testing.T) {
	const first, steps = 300, 270
	appended, _ := follow(t, 0, first, steps)
	for g := 1; g < len(growing); g++ {
		stored, _ := follow(t, g, first, steps)
		if places := int64(12 * growing[g].places * steps); stored > appended+appended/50+places {
			t.Errorf("%s: %d B, and %d B if only appended to", growing[g].name, stored, appended)
		}
	}
}

// BenchmarkFollow saves 1,000 whole states that get a message of 1 kB each. The median is that of
// the last 200 saves.
func BenchmarkFollow(b *testing.B) {
	for g := range growing {
		b.Run(growing[g].name, func(b *testing.B) {
			for b.Loop() {
				stored, took := follow(b, g, 1, 1000)
				last := took[800:]
				slices.Sort(last)
				b.ReportMetric(float64(last[100].Microseconds()), "p50-µs")
				b.ReportMetric(float64(stored), "B-stored")
			}
		})
	}
}
