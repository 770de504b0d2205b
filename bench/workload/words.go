package workload

import "math/rand/v2"

const (
	vocabulary     = 1 << vocabularyBits
	vocabularyBits = 11
	longestWord    = 11 // with a trailing space
)

type word struct {
	text [longestWord]byte
	n    uint8
}

// lexicon is the vocabulary of all agents: random words of three to ten letters.
var lexicon = func() (list [vocabulary]word) {
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range list {
		w := &list[i]
		w.n = uint8(4 + rng.IntN(longestWord-3))
		for k := range w.n - 1 {
			w.text[k] = byte('a' + rng.IntN(26))
		}
		w.text[w.n-1] = ' '
	}
	return list
}()

// speaker generates text of random words. That takes less than a microsecond per 1 kB, which is
// negligible compared with a save.
type speaker struct{ rng *rand.Rand }

// text appends exactly n bytes of words.
func (s speaker) text(b []byte, n int) []byte {
	end := len(b) + n
	for {
		bits := s.rng.Uint64()
		for range 64 / vocabularyBits {
			w := &lexicon[bits%vocabulary]
			bits >>= vocabularyBits
			if rest := end - len(b); rest <= int(w.n) {
				return append(b, w.text[:rest]...)
			}
			b = append(b, w.text[:w.n]...)
		}
	}
}

// message appends a chat message with n bytes of content.
func (s speaker) message(b []byte, role string, n int) []byte {
	b = append(b, `{"role":"`...)
	b = append(b, role...)
	b = append(b, `","content":"`...)
	return append(s.text(b, n), `"}`...)
}
