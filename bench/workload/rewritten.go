package workload

import (
	"bytes"
	"slices"
	"strconv"
)

// rewritten is a chat whose channel is rewritten at each step, in a format that changes at more
// places than where the message was added. It describes a step as a single splice, from the first
// change to the last.
type rewritten struct {
	transcript
	fill   int // initial bytes
	form   form
	items  [][]byte // messages
	bytes  int      // of items
	step   int
	former []byte
}

type form struct {
	inserts bool // insert new messages in the middle
	write   func(r *rewritten, p *Player, b []byte) []byte
}

func rewriting(f form) func(Options) script {
	return func(o Options) script { return &rewritten{transcript: around(o.Size), fill: o.first(), form: f} }
}

func (r *rewritten) first(p *Player) {
	for r.take(p); r.bytes < r.fill-messageBytes; {
		r.take(p)
	}
	r.buffer = r.form.write(r, p, r.buffer[:0])
	p.set(messages, r.buffer)
}

func (r *rewritten) next(p *Player) {
	r.step++
	r.take(p)
	if r.bytes >= r.most {
		for len(r.items) > 1 && r.bytes > r.keep {
			r.bytes -= len(r.items[0]) + len(",")
			r.items = slices.Delete(r.items, 0, 1)
		}
	}
	r.former = append(r.former[:0], p.state.Value(messages)...)
	r.buffer = r.form.write(r, p, r.buffer[:0])
	prefix, suffix := common(r.former, r.buffer)
	p.splice(messages, prefix, len(r.former)-suffix-prefix, r.buffer[prefix:len(r.buffer)-suffix])
}

// take creates one more message.
func (r *rewritten) take(p *Player) {
	m := p.words.message(nil, "assistant", messageBytes)
	at := len(r.items)
	if r.form.inserts {
		at /= 2
	}
	r.items = slices.Insert(r.items, at, m)
	r.bytes += len(m) + len(",")
}

// number returns the permanent number of the i-th message.
func (r *rewritten) number(i int) int { return r.step - len(r.items) + i }

// common returns the lengths of the common prefix and suffix of a and b, without overlap.
func common(a, b []byte) (prefix, suffix int) {
	n := min(len(a), len(b))
	for prefix < n && a[prefix] == b[prefix] {
		prefix++
	}
	for suffix < n-prefix && a[len(a)-1-suffix] == b[len(b)-1-suffix] {
		suffix++
	}
	return prefix, suffix
}

// counted is an array that begins with the number of its messages, like an array in msgpack.
func counted(r *rewritten, _ *Player, b []byte) []byte {
	b = strconv.AppendInt(append(b, '['), int64(len(r.items)), 10)
	b = append(append(b, ','), bytes.Join(r.items, []byte(","))...)
	return append(b, ']')
}

// stepped has the number of the step before the messages.
func stepped(r *rewritten, _ *Player, b []byte) []byte {
	b = strconv.AppendInt(append(b, `{"step":`...), int64(r.step), 10)
	b = append(append(b, `,"messages":[`...), bytes.Join(r.items, []byte(","))...)
	return append(b, "]}"...)
}

// moving has a field that follows a different message at each step.
func moving(r *rewritten, _ *Player, b []byte) []byte {
	b = append(b, '{')
	for i, m := range r.items {
		b = append(append(strconv.AppendInt(append(b, '"'), int64(r.number(i)), 10), `":`...), m...)
		if i == r.step*7%len(r.items) {
			b = append(strconv.AppendInt(append(b, `,"focus":{"step":`...), int64(r.step), 10), '}')
		}
		b = append(b, ',')
	}
	b[len(b)-1] = '}'
	return b
}

// reordered has keys that are written in another order at each step.
func reordered(r *rewritten, p *Player, b []byte) []byte {
	const keys = 8
	b = append(b, '{')
	for _, k := range p.rng.Perm(keys) {
		b = append(strconv.AppendInt(append(b, `"part-`...), int64(k), 10), `":[`...)
		part := b
		for i := range r.items {
			if r.number(i)&(keys-1) == k {
				b = append(append(b, r.items[i]...), ',')
			}
		}
		if len(b) > len(part) {
			b = b[:len(b)-1]
		}
		b = append(b, "],"...)
	}
	b[len(b)-1] = '}'
	return b
}
