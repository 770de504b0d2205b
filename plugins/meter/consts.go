package meter

import "encoding/binary"

// constant reads a constant expression and returns it as it will be written. It may not read
// globals: a plugin imports none, and its own are not constant yet.
func (m *module) constant(r *reader) []byte {
	from := r.pos
	var out []byte
	switch op := r.byte(); op {
	case opI32Const:
		r.signed(32)
	case opI64Const:
		r.signed(64)
	case opF32Const:
		r.bytes(4)
	case opF64Const:
		r.bytes(8)
	case opRefNull:
		r.refType()
	case opRefFunc:
		f := r.index(len(m.funcs), "function")
		out = binary.AppendUvarint([]byte{opRefFunc}, uint64(m.moved(f)))
	case opVector:
		if r.byte() != vecConst {
			r.invalid("an initial value that is not a constant")
		}
		r.bytes(16)
	default:
		r.invalid("an initial value that is not a constant")
	}
	if r.byte() != opEnd {
		r.invalid("an initial value that is not one constant: build without extended constant expressions")
	}
	if out != nil {
		return append(out, opEnd)
	}
	return r.bin[from:r.pos]
}

// moved returns a function's index in the new module, where the refill function follows the
// plugin's imports.
func (m *module) moved(f uint32) uint32 {
	if int(f) < len(m.imports) {
		return f
	}
	return f + 1
}

// elementSection reads element segments and keeps them in their output form. The flag bits mean:
// passive or declarative; explicit table (or, if passive, declarative); expressions instead of
// indexes.
func (m *module) elementSection(r *reader) {
	const inactive, explicit, expressions = 1, 2, 4
	n := r.count(3, maxSegments, "element segments")
	for range n {
		flag := r.u32()
		if flag > 7 {
			r.invalid("unknown kind %d of an element segment", flag)
		}
		out := []byte{byte(flag)}
		if flag&inactive == 0 {
			table := uint32(0)
			if flag&explicit != 0 {
				table = r.u32()
				out = binary.AppendUvarint(out, uint64(table))
			}
			if int64(table) >= int64(len(m.tables)) {
				r.invalid("table %d of %d", table, len(m.tables))
			}
			out = append(out, m.constant(r)...)
		}
		if flag&(inactive|explicit) != 0 {
			if flag&expressions != 0 {
				out = append(out, r.refType())
			} else {
				out = append(out, 0)
				r.zero("an element segment of something else than functions")
			}
		}
		entries := r.count(1, len(r.bin), "elements")
		out = binary.AppendUvarint(out, uint64(entries))
		for range entries {
			if flag&expressions != 0 {
				out = append(out, m.constant(r)...)
			} else {
				out = binary.AppendUvarint(out, uint64(m.moved(r.index(len(m.funcs), "function"))))
			}
			if r.err != nil {
				return
			}
		}
		if r.err != nil {
			return
		}
		m.elems = append(m.elems, out)
	}
}
