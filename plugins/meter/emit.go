package meter

import "encoding/binary"

// helper is a function that the rewriter appends to the plugin's own.
type helper int

const (
	helperRefill helper = iota // ()->(): asks the host for fuel, or does not return
	helperBytes                // (n i32)->i32: charges n bytes and returns n
	helperPages                // (n i32)->i32: charges min(n, maximum) pages and returns n
	helperFill                 // (d, v, n i32)->(): memory.fill, in chunks
	helperCopy                 // (d, s, n i32)->(): memory.copy, in chunks
	helpers
)

// helperTypes maps each helper, and finally the refill function, to its type, as an index into the
// added types.
var helperTypes = [helpers + 1]uint32{helperRefill: 0, helperBytes: 1, helperPages: 1, helperFill: 2, helperCopy: 2, helpers: 3}

// addedTypes are the encoded types of the helpers.
const addedTypeCount = 4
const addedTypes = "\x60\x00\x00" + "\x60\x01\x7f\x01\x7f" + "\x60\x03\x7f\x7f\x7f\x00" + "\x60\x01\x7e\x01\x7e"

// helperCount returns the number of helpers in the module: without a memory, only the first.
func (m *module) helperCount() int {
	if m.hasMemory {
		return int(helpers)
	}
	return 1
}

// fuel is the index of the global that holds the remaining fuel.
func (m *module) fuel() uint32 { return uint32(len(m.globals)) }

// stack is the index of the global that tells a function how much stack it has left.
func (m *module) stack() uint32 { return uint32(len(m.globals)) + 1 }

// code is a piece of a body under construction.
type code []byte

func (c code) op(ops ...byte) code { return append(c, ops...) }

// raw appends an encoded instruction.
func (c code) raw(instruction string) code { return append(c, instruction...) }

// with appends an instruction with an index.
func (c code) with(op byte, index uint32) code {
	return binary.AppendUvarint(append(c, op), uint64(index))
}

// constant appends an i32.const or i64.const.
func (c code) constant(op byte, v int64) code {
	c = append(c, op)
	for ; v < -0x40 || v >= 0x40; v >>= 7 {
		c = append(c, byte(v)|0x80)
	}
	return append(c, byte(v)&0x7f)
}

// appendCall appends a call of a helper.
func (m *module) appendCall(out code, h helper) code {
	return out.with(opCall, uint32(len(m.funcs)+1+int(h)))
}

// appendCharge appends the code of a point: take fuel, and ask the host for more if none is left.
func (m *module) appendCharge(out code, p point) code {
	out = out.with(opGlobalGet, m.fuel()).constant(opI64Const, int64(p.cost)).op(opI64Sub).with(opGlobalSet, m.fuel())
	if p.checked {
		out = m.appendCheck(out)
	}
	return out
}

// appendCheck appends "if fuel >= 0 {} else { refill }". The empty arm is for wazero: it keeps
// variables in the registers that the first arm uses, and for a br_if that jumps to a join it would
// compare in four instructions instead of one.
func (m *module) appendCheck(out code) code {
	out = out.with(opGlobalGet, m.fuel()).constant(opI64Const, 0).op(opI64GeS, opIf, 0x40, opElse)
	return m.appendCall(out, helperRefill).op(opEnd)
}

// appendSink appends the prologue of a function that calls others: it subtracts its frame from the
// remaining stack and traps if too little is left. Callers set the global before each call, so
// nothing has to be given back.
func (m *module) appendSink(out code, frame int, depth uint32) code {
	out = out.with(opGlobalGet, m.stack()).constant(opI32Const, int64(frame)).op(opI32Sub).with(opLocalTee, depth)
	out = out.constant(opI32Const, 0).op(opI32LtS, opIf, 0x40)
	return out.constant(opI32Const, -1).with(opGlobalSet, m.stack()).op(opUnreachable, opEnd)
}

// thunk returns the body of the function that is exported in place of f: it gives f the entire
// stack.
func (m *module) thunk(f uint32) code {
	c := code{0}.constant(opI32Const, stackSize).with(opGlobalSet, m.stack())
	for i := range m.types[m.funcs[f]].Params {
		c = c.with(opLocalGet, uint32(i))
	}
	return c.with(opCall, m.moved(f)).op(opEnd)
}

// appendTake appends a charge and a check. The amount is code that leaves an i64 on the stack.
func (m *module) appendTake(out code, amount func(code) code) code {
	out = amount(out.with(opGlobalGet, m.fuel())).op(opI64Sub).with(opGlobalSet, m.fuel())
	return m.appendCheck(out)
}

// helper returns the body of a helper.
func (m *module) helper(h helper) code {
	var c code
	none := code{0}
	switch h {
	case helperRefill:
		c = none.with(opGlobalGet, m.fuel()).with(opCall, uint32(len(m.imports))).with(opGlobalSet, m.fuel())
	case helperBytes:
		c = m.appendTake(none, bytesOf(0)).with(opLocalGet, 0)
	case helperPages:
		c = m.appendTake(none, func(c code) code {
			// min(n, max) pages: no more could be granted.
			c = c.with(opLocalGet, 0).constant(opI32Const, int64(m.max)).
				with(opLocalGet, 0).constant(opI32Const, int64(m.max)).op(opI32LeU, opSelect)
			return c.op(opI64ExtendU).constant(opI64Const, pageCost).op(opI64Mul)
		}).with(opLocalGet, 0)
	case helperFill:
		c = m.fillBody()
	case helperCopy:
		c = m.copyBody()
	}
	return c.op(opEnd)
}

// bytesOf returns code for the cost of as many bytes as a local holds.
func bytesOf(local uint32) func(code) code {
	return func(c code) code {
		return c.with(opLocalGet, local).constant(opI32Const, bytesShift).op(opI32ShrU, opI64ExtendU)
	}
}

// operands appends the three parameters d, s or v, and n.
func (c code) operands() code { return c.with(opLocalGet, 0).with(opLocalGet, 1).with(opLocalGet, 2) }

// memory.fill and memory.copy.
const (
	fillOp = "\xfc\x0b\x00"
	copyOp = "\xfc\x0a\x00\x00"
)

// outside appends code that leaves whether local + n exceeds the memory.
func (c code) outside(local uint32) code {
	c = c.with(opLocalGet, local).op(opI64ExtendU).with(opLocalGet, 2).op(opI64ExtendU, opI64Add)
	return c.op(opMemorySize, 0, opI64ExtendU).constant(opI64Const, 16).op(opI64Shl, opI64GtU)
}

// large appends "if n > chunk".
func (c code) large() code {
	return c.with(opLocalGet, 2).constant(opI32Const, chunk).op(opI32GtU)
}

// addTo appends local += by, or -= with opI32Sub.
func (c code) addTo(local uint32, op byte, by int64) code {
	return c.with(opLocalGet, local).constant(opI32Const, by).op(op).with(opLocalSet, local)
}

// fillBody is the body of helperFill, without its end:
//
//	if n > chunk { if d+n > size { memory.fill(d, v, n) }   // traps, before anything is written
//	    do { take(chunk); memory.fill(d, v, chunk); d += chunk; n -= chunk } while n > chunk }
//	take(n); memory.fill(d, v, n)
func (m *module) fillBody() code {
	c := code{0}.large().op(opIf, 0x40)
	c = c.outside(0).op(opIf, 0x40).operands().raw(fillOp).op(opEnd)
	c = m.appendTake(c.op(opLoop, 0x40), chunkCost)
	c = c.with(opLocalGet, 0).with(opLocalGet, 1).constant(opI32Const, chunk).raw(fillOp)
	c = c.addTo(0, opI32Add, chunk).addTo(2, opI32Sub, chunk)
	c = c.large().with(opBrIf, 0).op(opEnd, opEnd)
	return m.appendTake(c, bytesOf(2)).operands().raw(fillOp)
}

func chunkCost(c code) code { return c.constant(opI64Const, chunk>>bytesShift) }

// copyBody is the body of helperCopy, without its end:
//
//	if n > chunk { if d+n > size || s+n > size { memory.copy(d, s, n) }   // traps, before anything is written
//	    if d <= s { do { take(chunk); memory.copy(d, s, chunk); d += chunk; s += chunk; n -= chunk } while n > chunk }
//	    else      { do { take(chunk); n -= chunk; memory.copy(d+n, s+n, chunk) } while n > chunk } }
//	take(n); memory.copy(d, s, n)
func (m *module) copyBody() code {
	c := code{0}.large().op(opIf, 0x40)
	c = c.outside(0).outside(1).op(opI32Or).op(opIf, 0x40).operands().raw(copyOp).op(opEnd)
	c = c.with(opLocalGet, 0).with(opLocalGet, 1).op(opI32LeU, opIf, 0x40)

	c = m.appendTake(c.op(opLoop, 0x40), chunkCost)
	c = c.with(opLocalGet, 0).with(opLocalGet, 1).constant(opI32Const, chunk).raw(copyOp)
	c = c.addTo(0, opI32Add, chunk).addTo(1, opI32Add, chunk).addTo(2, opI32Sub, chunk)
	c = c.large().with(opBrIf, 0).op(opEnd, opElse)

	c = m.appendTake(c.op(opLoop, 0x40), chunkCost).addTo(2, opI32Sub, chunk)
	c = c.with(opLocalGet, 0).with(opLocalGet, 2).op(opI32Add)
	c = c.with(opLocalGet, 1).with(opLocalGet, 2).op(opI32Add)
	c = c.constant(opI32Const, chunk).raw(copyOp)
	c = c.large().with(opBrIf, 0).op(opEnd, opEnd, opEnd)
	return m.appendTake(c, bytesOf(2)).operands().raw(copyOp)
}
