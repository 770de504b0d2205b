package bench

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
)

// The figures are meaningful only if the states are as described in doc.go.
func TestStates(t *testing.T) {
	a, b := newSpeaker(1), newSpeaker(1)
	var state []byte
	for range 20 {
		message := a.message()
		if !bytes.Equal(message, b.message()) {
			t.Fatal("a seed gives two different messages")
		}
		if len(message) != messageBytes {
			t.Fatalf("message of %d bytes, want %d", len(message), messageBytes)
		}
		state = grow(state, message)
	}
	var list []struct{ Role, Content string }
	if err := json.Unmarshal(state, &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 20 || len(list[19].Content) != contentBytes || list[0] == list[1] {
		t.Errorf("%d messages, the last of %d bytes", len(list), len(list[19].Content))
	}
	if steady := stateOf(newSpeaker(2).messages(steadyMessages)); len(steady) < 99_000 || len(steady) > 100_000 {
		t.Errorf("a steady state of %d bytes", len(steady))
	}
	if bytes.Equal(newSpeaker(1).message(), newSpeaker(2).message()) {
		t.Error("two seeds give the same message")
	}
}

func TestP50(t *testing.T) {
	for _, tt := range []struct {
		list []time.Duration
		want time.Duration
	}{{nil, 0}, {[]time.Duration{7}, 7}, {[]time.Duration{9, 1, 5}, 5}, {[]time.Duration{3, 9, 1, 5}, 5}} {
		if got := p50(tt.list); got != tt.want {
			t.Errorf("%v: %d, want %d", tt.list, got, tt.want)
		}
	}
}
