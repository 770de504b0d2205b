package workload

import "slices"

// State is a JSON object in memory with the positions of its channels.
type State struct {
	Doc      []byte
	Channels []Channel // ordered by name
}

// Channel is the value at Doc[Start:End].
type Channel struct {
	Name       string
	Start, End int
}

// Value returns the value of a channel, or nil if there is none. It is a slice of Doc.
func (s *State) Value(name string) []byte {
	i, ok := s.find(name)
	if !ok {
		return nil
	}
	return s.Doc[s.Channels[i].Start:s.Channels[i].End]
}

// AppendDoc appends the document for some channels, ordered by name, in the encoding of a State.
func AppendDoc(doc []byte, channels int, channel func(int) (name string, value []byte)) []byte {
	doc = append(doc, '{')
	for i := range channels {
		name, value := channel(i)
		if i > 0 {
			doc = append(doc, ',')
		}
		doc = append(doc, '"')
		doc = append(doc, name...)
		doc = append(doc, `":`...)
		doc = append(doc, value...)
	}
	return append(doc, '}')
}

func (s *State) reset() { s.Doc, s.Channels = append(s.Doc[:0], "{}"...), s.Channels[:0] }

func (s *State) find(name string) (int, bool) {
	return slices.BinarySearchFunc(s.Channels, name, func(c Channel, name string) int {
		switch {
		case c.Name < name:
			return -1
		case c.Name > name:
			return 1
		}
		return 0
	})
}

// set sets the value of a channel and reports whether the channel is new.
func (s *State) set(name string, value []byte) (fresh bool) {
	i, ok := s.find(name)
	if ok {
		s.splice(name, 0, s.Channels[i].End-s.Channels[i].Start, value)
		return false
	}
	at := len(s.Doc) - 1
	if i < len(s.Channels) {
		at = s.Channels[i].Start - len(`"":`) - len(s.Channels[i].Name)
	}
	var text []byte
	start := at
	if i == len(s.Channels) && i > 0 {
		text, start = append(text, ','), start+1
	}
	text = append(append(append(text, '"'), name...), `":`...)
	start += len(name) + len(`"":`)
	text = append(text, value...)
	if i < len(s.Channels) {
		text = append(text, ',')
	}
	s.Doc = slices.Insert(s.Doc, at, text...)
	s.move(i, len(text))
	s.Channels = slices.Insert(s.Channels, i, Channel{name, start, start + len(value)})
	return true
}

// splice replaces cut bytes of a channel after prefix, in place.
func (s *State) splice(name string, prefix, cut int, insert []byte) {
	i, ok := s.find(name)
	if !ok {
		panic("workload: no channel " + name) // a mistake of a script
	}
	c := &s.Channels[i]
	at := c.Start + prefix
	s.Doc = slices.Replace(s.Doc, at, at+cut, insert...)
	c.End += len(insert) - cut
	s.move(i+1, len(insert)-cut)
}

// move tells the channels from the i-th on that they stand n bytes further on.
func (s *State) move(i, n int) {
	for ; i < len(s.Channels); i++ {
		s.Channels[i].Start += n
		s.Channels[i].End += n
	}
}
