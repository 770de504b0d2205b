package meter

import (
	"encoding/binary"
	"fmt"
	"iter"
)

// section is a section under construction.
type section struct {
	entries int
	body    []byte
}

func (s *section) add(entry []byte) {
	s.entries++
	s.body = append(s.body, entry...)
}

// appendTo appends the section, unless it is empty.
func (s *section) appendTo(out []byte, id byte) []byte {
	if s.entries == 0 {
		return out
	}
	count := binary.AppendUvarint(nil, uint64(s.entries))
	out = binary.AppendUvarint(append(out, id), uint64(len(count)+len(s.body)))
	return append(append(out, count...), s.body...)
}

// name encodes a name.
func name(s string) []byte { return append(binary.AppendUvarint(nil, uint64(len(s))), s...) }

// emit writes the new module. It drops custom sections, because a runtime would parse some of them.
func (m *module) emit() *Module {
	res := &Module{Imports: m.imports, MinPages: m.min, MaxPages: m.max}
	for _, e := range m.exports {
		res.Exports = append(res.Exports, e.Export)
	}

	out := []byte("\x00asm\x01\x00\x00\x00")
	out = m.typesAndImports(out)
	out = m.functionSection().appendTo(out, secFunction)
	out = (&section{len(m.tables), m.rawTables}).appendTo(out, secTable)
	if m.hasMemory {
		limits := binary.AppendUvarint([]byte{1}, uint64(m.min))
		out = (&section{1, binary.AppendUvarint(limits, uint64(m.max))}).appendTo(out, secMemory)
	}

	var globals, exports, elems, codes section
	thunk := uint32(len(m.funcs) + 1 + m.helperCount())
	for _, e := range m.exports {
		index := e.index
		if e.Kind == Func {
			index = thunk
			thunk++
		}
		exports.add(binary.AppendUvarint(append(name(e.Name), byte(e.Kind)), uint64(index)))
	}
	for i, g := range m.globals {
		mutable := byte(0)
		if g.mutable {
			mutable = 1
			n := fmt.Sprintf("%sglobal.%d", Prefix, i)
			res.Globals = append(res.Globals, n)
			exports.add(binary.AppendUvarint(append(name(n), byte(Global)), uint64(i)))
		}
		globals.add(append([]byte{g.typ, mutable}, g.init...))
	}
	globals.add([]byte{I64, 1, opI64Const, 0, opEnd})
	globals.add([]byte{I32, 1, opI32Const, 0, opEnd})
	exports.add(binary.AppendUvarint(append(name(FuelExport), byte(Global)), uint64(m.fuel())))
	exports.add(binary.AppendUvarint(append(name(StackExport), byte(Global)), uint64(m.stack())))
	out = globals.appendTo(out, secGlobal)
	out = exports.appendTo(out, secExport)

	for _, e := range m.elems {
		elems.add(e)
	}
	out = elems.appendTo(out, secElement)
	if m.dataCount >= 0 {
		n := binary.AppendUvarint(nil, uint64(m.dataCount))
		out = append(append(out, secDataCount, byte(len(n))), n...)
	}
	for _, b := range m.bodies {
		codes.add(b)
	}
	for h := range m.helperCount() {
		b := m.helper(helper(h))
		codes.add(append(binary.AppendUvarint(nil, uint64(len(b))), b...))
	}
	for f := range m.exportedFuncs() {
		b := m.thunk(f)
		codes.add(append(binary.AppendUvarint(nil, uint64(len(b))), b...))
	}
	out = codes.appendTo(out, secCode)
	res.Binary = (&section{m.datas, m.rawData}).appendTo(out, secData)
	return res
}

// typesAndImports appends the first two sections, with the types of the helpers and the refill
// function.
func (m *module) typesAndImports(out []byte) []byte {
	types := section{len(m.types), append([]byte(nil), m.rawTypes...)}
	types.body = append(types.body, addedTypes...)
	types.entries += addedTypeCount
	out = types.appendTo(out, secType)

	imports := section{len(m.imports), append([]byte(nil), m.rawImport...)}
	refill := append(append(name(RefillModule), name(RefillName)...), byte(Func))
	imports.add(binary.AppendUvarint(refill, uint64(len(m.types))+uint64(helperTypes[helpers])))
	return imports.appendTo(out, secImport)
}

func (m *module) functionSection() *section {
	var s section
	for _, t := range m.funcs[len(m.imports):] {
		s.add(binary.AppendUvarint(nil, uint64(t)))
	}
	for h := range m.helperCount() {
		s.add(binary.AppendUvarint(nil, uint64(len(m.types))+uint64(helperTypes[h])))
	}
	for f := range m.exportedFuncs() {
		s.add(binary.AppendUvarint(nil, uint64(m.funcs[f])))
	}
	return &s
}

// exportedFuncs yields the function of each function export, in order.
func (m *module) exportedFuncs() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for _, e := range m.exports {
			if e.Kind == Func && !yield(e.index) {
				return
			}
		}
	}
}
