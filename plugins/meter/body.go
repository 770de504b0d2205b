package meter

import "encoding/binary"

// emit returns the body as it will be written: its size, its locals and its instructions.
func (w *walker) emit(deep bool) []byte {
	out := make(code, 0, w.end-w.group0+24*len(w.plan.points)+4*len(w.edits))
	depth := uint32(w.locals) // local that holds the stack remaining below this function
	if deep {
		out = binary.AppendUvarint(out, uint64(w.groups+1))
		out = append(append(out, w.bin[w.group0:w.decls]...), 1, I32)
		out = w.m.appendSink(out, w.frame(), depth)
	} else {
		out = binary.AppendUvarint(out, uint64(w.groups))
		out = append(out, w.bin[w.group0:w.decls]...)
	}
	at := w.decls
	for _, e := range w.edits {
		if e.what == keep {
			continue
		}
		out = append(out, w.bin[at:e.from]...)
		at = e.to
		switch e.what {
		case chargeAt:
			out = w.m.appendCharge(out, w.plan.points[e.arg])
		case sinking:
			if !deep || e.arg != indirect && !w.m.deep[e.arg] {
				continue
			}
			out = out.with(opLocalGet, depth).with(opGlobalSet, w.m.stack())
		case renumber:
			out = out.with(w.bin[e.from], w.m.moved(e.arg))
		case fill:
			out = w.m.appendCall(out, helperFill)
		case copying:
			out = w.m.appendCall(out, helperCopy)
		case payBytes:
			out = append(w.m.appendCall(out, helperBytes), w.bin[e.from:e.to]...)
		case payPages:
			out = append(w.m.appendCall(out, helperPages), w.bin[e.from:e.to]...)
		}
	}
	out = append(out, w.bin[at:w.end]...)
	return append(binary.AppendUvarint(nil, uint64(len(out))), out...)
}
