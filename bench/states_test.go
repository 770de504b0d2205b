package bench

import (
	"math/rand/v2"
)

const (
	contentBytes = 1000
	messageHead  = `{"role":"assistant","content":"`
	messageTail  = `"}`
	messageBytes = len(messageHead) + contentBytes + len(messageTail)

	steadyMessages = 100_000 / (messageBytes + 1) // of a state of 100 kB
)

// speaker generates messages of random words.
type speaker struct {
	rng   *rand.Rand
	words []string
}

func newSpeaker(seed uint64) *speaker {
	s := &speaker{rng: rand.New(rand.NewPCG(1, 1))} // the vocabulary is the same for all
	for range 2000 {
		word := make([]byte, 3+s.rng.IntN(8))
		for i := range word {
			word[i] = byte('a' + s.rng.IntN(26))
		}
		s.words = append(s.words, string(word))
	}
	s.rng = rand.New(rand.NewPCG(seed, 2))
	return s
}

// message returns a JSON object of exactly messageBytes.
func (s *speaker) message() []byte {
	b := make([]byte, 0, messageBytes+16)
	b = append(b, messageHead...)
	for len(b) < len(messageHead)+contentBytes {
		b = append(b, s.words[s.rng.IntN(len(s.words))]...)
		b = append(b, ' ')
	}
	return append(b[:len(messageHead)+contentBytes], messageTail...)
}

// messages returns n messages, so that callers need not spend measured time on generating them.
func (s *speaker) messages(n int) [][]byte {
	list := make([][]byte, n)
	for i := range list {
		list[i] = s.message()
	}
	return list
}

// stateOf returns the JSON array of the messages.
func stateOf(messages [][]byte) []byte {
	size := 2
	for _, m := range messages {
		size += len(m) + 1
	}
	b := append(make([]byte, 0, size), '[')
	for i, m := range messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, m...)
	}
	return append(b, ']')
}

// grow returns the array with one more message, in the same memory if there is room.
func grow(state, message []byte) []byte {
	if len(state) == 0 {
		return stateOf([][]byte{message})
	}
	state = append(state[:len(state)-1], ',')
	return append(append(state, message...), ']')
}
