package migrate

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

// made counts the results of decoding.
func made(n *node) (values, objects int64) {
	values = 1
	if _, ok := n.value.(map[string]any); ok {
		objects++
	}
	for i := range n.kids {
		v, o := made(&n.kids[i].node)
		values, objects = values+v, objects+o
	}
	return values, objects
}

// randomMsgpack appends a value of any kind.
func randomMsgpack(r *rand.Rand, dst []byte, depth int) []byte {
	size := r.IntN(5)
	if depth == 0 {
		size = 0
	}
	body := func(n int) {
		for range n {
			dst = randomMsgpack(r, dst, depth-1)
		}
	}
	switch r.IntN(12) {
	case 0:
		dst = append(dst, 0x90|byte(size))
		body(size)
	case 1:
		dst = append(dst, 0xdd, 0, 0, 0, byte(size))
		body(size)
	case 2:
		dst = append(dst, 0x80|byte(size))
		body(2 * size)
	case 3:
		dst = append(dst, 0xde, 0, byte(size))
		body(2 * size)
	case 4: // binary that looks like values
		dst = append(dst, 0xc5, 0, 3, 0xdd, 0xff, 0xff)
	case 5:
		dst = append(dst, 0xcb, 0x7f, 0xf8, 0, 0, 0, 0, 0, 0)
	case 6:
		dst = append(dst, 0xca, 0x3f, 0x80, 0, 0)
	case 7:
		dst = append(append(dst, 0xd9, 40), strings.Repeat("a", 40)...)
	case 8: // an extension that contains values
		inner := randomMsgpack(r, nil, max(0, depth-1))
		dst = append(dst, 0xc9)
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(inner)))
		dst = append(append(dst, 5), inner...)
	case 9:
		dst = append(dst, 0xd6, 9, 0xdd, 0xff, 0xff, 0xff) // an extension that contains none
	case 10:
		dst = append(dst, 0xcf, 1, 2, 3, 4, 5, 6, 7, 8)
	default:
		dst = append(dst, byte(r.IntN(128)))
	}
	return dst
}

// TestDecodedCountsEverything: the estimate is never lower than the actual result of decoding.
func TestDecodedCountsEverything(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	most := 0
	for range 3000 {
		data := randomMsgpack(r, nil, 6)
		n, err := parseMsgpack(data)
		if err != nil {
			t.Fatalf("%x: %v", data, err)
		}
		var c counter
		c.msgpack(data, 0)
		if values, objects := made(n); c.values < values || c.objects < objects {
			t.Fatalf("%x: %d values and %d objects, counted were %d and %d", data, values, objects, c.values, c.objects)
		}
		most = max(most, len(data))
		text, err := new(comparer).appendJSON(nil, nil, nil, n.value)
		if err != nil {
			t.Fatal(err)
		}
		if n, err = parseJSON(text); err != nil {
			t.Fatal(err)
		}
		c = counter{}
		c.json(text)
		if values, objects := made(n); c.values < values || c.objects < objects {
			t.Fatalf("%s: %d values and %d objects, counted were %d and %d", text, values, objects, c.values, c.objects)
		}
	}
	if most < 300 {
		t.Errorf("the largest has %d bytes", most)
	}
	// Counting also ends on data that cannot be decoded.
	for range 3000 {
		data := make([]byte, r.IntN(40))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		State{Channels: []Channel{{Type: "msgpack", Data: data}, {Type: "json", Data: data}}}.Decoded()
	}
}

// TestTooManyValues: a state that would take all memory is not decoded.
func TestTooManyValues(t *testing.T) {
	set, err := NewSet(t.Context(), Spec{Kind: "k", Limits: Limits{Memory: 1 << 20}, Steps: []Step{
		Go(1, 2, "", func(doc map[string]any) (map[string]any, error) { return doc, nil })}})
	if err != nil {
		t.Fatal(err)
	}
	migrate := func(kind, data string) error {
		_, _, err := set.Migrate(t.Context(), State{Channels: []Channel{{Name: "c", Type: kind, Data: []byte(data)}}}, 1, 2, false)
		return err
	}
	for _, data := range []string{strings.Repeat("0,", 50_000), strings.Repeat("[],", 50_000), strings.Repeat(`{"a":0},`, 10_000)} {
		if err := migrate("json", "["+data+"0]"); !errors.Is(err, ErrStep) || !strings.Contains(err.Error(), "too many values") {
			t.Errorf("%.20s…: %.200v", data, err)
		}
	}
	for _, value := range []string{"\xc0", "\x80", "\x90", "\xd4\x05\xc0"} {
		if err := migrate("msgpack", "\xdd\x00\x00\xc3\x50"+strings.Repeat(value, 50_000)); !errors.Is(err, ErrStep) || !strings.Contains(err.Error(), "too many values") {
			t.Errorf("%x…: %.200v", value, err)
		}
	}
	many := `{"channels":{"c":[` + strings.Repeat("0,", 50_000) + `0]}}`
	_, err = NewSet(t.Context(), Spec{Kind: "k", Limits: Limits{Memory: 1 << 20}, Fixtures: []Fixture{{Name: "f", From: 1, To: 2, Before: []byte(many), After: []byte(many)}},
		Steps: []Step{Go(1, 2, "", func(doc map[string]any) (map[string]any, error) { return doc, nil })}})
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "too many values") {
		t.Errorf("a fixture: %.200v", err)
	}
	if err := migrate("json", `["`+strings.Repeat("a long text, with commas ", 20_000)+`"]`); err != nil {
		t.Error(err)
	}
}

// TestStatesWaitForMemory: while others use all the memory for it, decoding waits until its caller
// gives up.
func TestStatesWaitForMemory(t *testing.T) {
	set, err := NewSet(t.Context(), Spec{Kind: "k", Steps: []Step{
		Go(1, 2, "", func(doc map[string]any) (map[string]any, error) { return doc, nil })}})
	if err != nil {
		t.Fatal(err)
	}
	migrate := func(ctx context.Context) error {
		_, _, err := set.Migrate(ctx, State{Channels: []Channel{{Name: "c", Type: "json", Data: []byte("[0]")}}}, 1, 2, false)
		return err
	}
	if err := decoding.Acquire(t.Context(), maxDecoded); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := migrate(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with no memory left: %v", err)
	}
	waiting := make(chan error)
	go func() { waiting <- migrate(t.Context()) }()
	decoding.Release(maxDecoded)
	if err := <-waiting; err != nil {
		t.Error(err)
	}
	if !decoding.TryAcquire(maxDecoded) {
		t.Fatal("memory is not given back")
	}
	decoding.Release(maxDecoded)
}
