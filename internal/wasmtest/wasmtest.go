// Package wasmtest builds small WebAssembly modules as bytes for tests: well-formed, hostile and
// malformed ones. Only tests may import it.
//
// A Module collects sections; Bytes writes them. Code is a string of bytes, so bodies are
// concatenated with +:
//
//	m := wasmtest.New()
//	m.Memory(1, 1)
//	m.Func("sum", wasmtest.Sig(wasmtest.I32+wasmtest.I32, wasmtest.I32), "",
//		wasmtest.LocalGet(0)+wasmtest.LocalGet(1)+wasmtest.I32Add)
//	bin := m.Bytes()
//
// To corrupt a module, replace a section (Raw), add one anywhere (Append), or lie about a count
// (Count).
package wasmtest

import "slices"

// Code is a piece of a binary: value types, instructions, whole bodies.
type Code string

// Signature is the type of a function.
type Signature struct{ Params, Results Code }

// Sig returns a signature: Sig(I32+I64, F64) takes two values and returns one.
func Sig(params, results Code) Signature { return Signature{params, results} }

// Kind is the kind of an import or export.
type Kind byte

// Kinds of imports and exports.
const (
	KindFunc Kind = iota
	KindTable
	KindMemory
	KindGlobal
)

// Section ids.
const (
	SecCustom byte = iota
	SecType
	SecImport
	SecFunction
	SecTable
	SecMemory
	SecGlobal
	SecExport
	SecStart
	SecElement
	SecCode
	SecData
	SecDataCount
)

// Header is the magic number and version of a core module.
const Header Code = "\x00asm\x01\x00\x00\x00"

// Module is a module under construction. Functions, globals and so on are numbered in the order in
// which they are added. Imports must come before everything else of their kind.
type Module struct {
	types    []Signature
	imports  []Code
	funcs    []Code // type indexes
	tables   []Code
	memories []Code
	globals  []Code
	exports  []Code
	start    Code
	elems    []Code
	bodies   []Code
	datas    []Code

	importedFuncs, importedGlobals uint32

	customs []Code
	raw     map[byte]Code
	counts  map[byte]uint64
	after   map[byte][]Code
}

// New returns an empty module.
func New() *Module {
	return &Module{raw: map[byte]Code{}, counts: map[byte]uint64{}, after: map[byte][]Code{}}
}

// Type returns the index of a signature, adding it if it is new.
func (m *Module) Type(s Signature) uint32 {
	i := slices.Index(m.types, s)
	if i < 0 {
		i = len(m.types)
		m.types = append(m.types, s)
	}
	return uint32(i)
}

// Import adds an imported function and returns its index.
func (m *Module) Import(module, name string, s Signature) uint32 {
	if len(m.funcs) > 0 {
		panic("wasmtest: imports come before functions")
	}
	m.ImportRaw(module, name, KindFunc, U(uint64(m.Type(s))))
	m.importedFuncs++
	return m.importedFuncs - 1
}

// ImportRaw adds an import of any kind by its description and does not count it.
func (m *Module) ImportRaw(module, name string, k Kind, desc Code) {
	m.imports = append(m.imports, Name(module)+Name(name)+Code(k)+desc)
}

// Func adds a function, exported under a name unless that is "", and returns its index. Locals are
// value types in addition to the parameters. The final end is added.
func (m *Module) Func(export string, s Signature, locals Code, body ...Code) uint32 {
	var l Code
	for i := range len(locals) {
		l += U(1) + locals[i:i+1]
	}
	return m.FuncRaw(export, s, U(uint64(len(locals)))+l+join(body)+End)
}

// FuncRaw adds a function. Entry is its entire code section entry without the size.
func (m *Module) FuncRaw(export string, s Signature, entry Code) uint32 {
	index := m.importedFuncs + uint32(len(m.funcs))
	m.funcs = append(m.funcs, U(uint64(m.Type(s))))
	m.bodies = append(m.bodies, sized(entry))
	if export != "" {
		m.Export(export, KindFunc, index)
	}
	return index
}

// Memory adds a memory, exported as "memory" if it is the first. Sizes are in pages; there is no
// maximum if maximum < 0.
func (m *Module) Memory(minimum, maximum int64) {
	if len(m.memories) == 0 {
		m.Export("memory", KindMemory, 0)
	}
	m.memories = append(m.memories, limits(minimum, maximum))
}

// MemoryRaw adds a memory by its description.
func (m *Module) MemoryRaw(desc Code) { m.memories = append(m.memories, desc) }

// Table adds a table of functions and returns its index. There is no maximum if maximum < 0.
func (m *Module) Table(minimum, maximum int64) uint32 {
	m.tables = append(m.tables, FuncRef+limits(minimum, maximum))
	return uint32(len(m.tables) - 1)
}

// Global adds a global with an initial value, which is an expression without its end, and returns
// its index.
func (m *Module) Global(t Code, mutable bool, init Code) uint32 {
	mut := Code("\x00")
	if mutable {
		mut = "\x01"
	}
	m.globals = append(m.globals, t+mut+init+End)
	return m.importedGlobals + uint32(len(m.globals)-1)
}

// Export adds an export.
func (m *Module) Export(name string, k Kind, index uint32) {
	m.exports = append(m.exports, Name(name)+Code(k)+U(uint64(index)))
}

// Start sets the start function.
func (m *Module) Start(index uint32) { m.start = U(uint64(index)) }

// Elem adds an active segment of functions to table 0.
func (m *Module) Elem(offset int32, funcs ...uint32) {
	c := U(0) + I32Const(offset) + End + U(uint64(len(funcs)))
	for _, f := range funcs {
		c += U(uint64(f))
	}
	m.elems = append(m.elems, c)
}

// ElemRaw adds an encoded segment.
func (m *Module) ElemRaw(c Code) { m.elems = append(m.elems, c) }

// Data adds an active segment to memory 0.
func (m *Module) Data(offset int32, data string) {
	m.datas = append(m.datas, U(0)+I32Const(offset)+End+Name(data))
}

// PassiveData adds a passive segment and returns its index. The caller must add the data count
// section with Count or Raw.
func (m *Module) PassiveData(data string) uint32 {
	m.datas = append(m.datas, U(1)+Name(data))
	m.raw[SecDataCount] = U(uint64(len(m.datas)))
	return uint32(len(m.datas) - 1)
}

// Custom adds a custom section at the end.
func (m *Module) Custom(name, data string) { m.customs = append(m.customs, Name(name)+Code(data)) }

// Raw replaces the contents of a section.
func (m *Module) Raw(id byte, contents Code) { m.raw[id] = contents }

// Append inserts bytes, such as a Section, right after the position of a section, present or not.
func (m *Module) Append(id byte, c Code) { m.after[id] = append(m.after[id], c) }

// Count lies about the number of entries of a section.
func (m *Module) Count(id byte, n uint64) { m.counts[id] = n }

// Bytes returns the module.
func (m *Module) Bytes() []byte {
	var types []Code
	for _, s := range m.types {
		types = append(types, "\x60"+U(uint64(len(s.Params)))+s.Params+U(uint64(len(s.Results)))+s.Results)
	}
	lists := map[byte][]Code{
		SecType: types, SecImport: m.imports, SecFunction: m.funcs, SecTable: m.tables, SecMemory: m.memories,
		SecGlobal: m.globals, SecExport: m.exports, SecElement: m.elems, SecCode: m.bodies, SecData: m.datas,
	}
	out := Header
	for _, id := range []byte{SecType, SecImport, SecFunction, SecTable, SecMemory, SecGlobal, SecExport, SecStart,
		SecElement, SecDataCount, SecCode, SecData} {
		raw, isRaw := m.raw[id]
		n, lies := m.counts[id]
		switch list := lists[id]; {
		case isRaw:
			out += Section(id, raw)
		case lies:
			out += Section(id, U(n)+join(list))
		case len(list) > 0:
			out += Section(id, U(uint64(len(list)))+join(list))
		case id == SecStart && m.start != "":
			out += Section(id, m.start)
		}
		out += join(m.after[id])
	}
	for _, c := range m.customs {
		out += Section(SecCustom, c)
	}
	return []byte(out)
}

// Section returns a section: its id, its size, its contents.
func Section(id byte, contents Code) Code { return Code(id) + sized(contents) }

// Name returns a name, or other bytes, preceded by the length.
func Name(s string) Code { return sized(Code(s)) }

// U encodes an unsigned integer as LEB128.
func U(v uint64) Code {
	var b []byte
	for ; v >= 0x80; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return Code(append(b, byte(v)))
}

// S encodes a signed integer as LEB128.
func S(v int64) Code {
	var b []byte
	for ; v < -0x40 || v >= 0x40; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return Code(append(b, byte(v)&0x7f))
}

// Long encodes an unsigned integer as LEB128 in exactly n bytes, however few would do.
func Long(v uint64, n int) Code {
	var b []byte
	for range n - 1 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return Code(append(b, byte(v)&0x7f))
}

func sized(c Code) Code { return U(uint64(len(c))) + c }

func join(cs []Code) Code {
	n := 0
	for _, c := range cs {
		n += len(c)
	}
	b := make([]byte, 0, n)
	for _, c := range cs {
		b = append(b, c...)
	}
	return Code(b)
}

func limits(minimum, maximum int64) Code {
	if maximum < 0 {
		return "\x00" + U(uint64(minimum))
	}
	return "\x01" + U(uint64(minimum)) + U(uint64(maximum))
}
