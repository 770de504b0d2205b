package meter

import (
	"bytes"
	"strings"

	"github.com/ckptd/ckptd/hook"
)

// Section ids.
const (
	secCustom = iota
	secType
	secImport
	secFunction
	secTable
	secMemory
	secGlobal
	secExport
	secStart
	secElement
	secCode
	secData
	secDataCount
)

var sectionNames = [...]string{"custom", "type", "import", "function", "table", "memory", "global", "export", "start",
	"element", "code", "data", "data count"}

// order gives the position of each section by id: the data count comes before the code.
var order = [...]int{secType: 1, secImport: 2, secFunction: 3, secTable: 4, secMemory: 5, secGlobal: 6, secExport: 7,
	secStart: 8, secElement: 9, secDataCount: 10, secCode: 11, secData: 12}

// module is the result of parsing. Lists that the rewriter only appends to are kept as the bytes of
// their entries.
type module struct {
	limits Limits

	types     []FuncType
	rawTypes  []byte
	imports   []Import
	rawImport []byte
	funcs     []uint32 // type indexes of imports, followed by functions with bodies
	tables    []byte   // value types
	rawTables []byte
	hasMemory bool
	min, max  uint32 // pages
	globals   []global
	exports   []export
	elems     [][]byte // in their output form
	dataCount int      // -1 if there is no such section
	datas     int
	rawData   []byte
	deep      []bool   // for functions with bodies: whether they account for their stack
	bodies    [][]byte // in their output form, with their sizes
}

type global struct {
	typ     byte
	mutable bool
	init    []byte // in its output form
}

type export struct {
	Export
	index uint32
}

// parse reads the entire binary once.
func parse(bin []byte, l Limits) (*module, error) {
	r := &reader{bin: bin, end: len(bin)}
	switch magic := r.bytes(8); {
	case r.err != nil || !bytes.Equal(magic[:4], []byte("\x00asm")):
		return nil, &Error{Kind: hook.ErrInvalid, Reason: "not a WebAssembly binary"}
	case magic[6] == 1: // component model
		return nil, &Error{Kind: hook.ErrInvalid, Reason: "a component: rebuild it as a core module for wasip1"}
	case !bytes.Equal(magic[4:], []byte{1, 0, 0, 0}):
		return nil, &Error{Kind: hook.ErrInvalid, Offset: 4, Reason: "not version 1 of the binary format"}
	}

	m := &module{limits: l, dataCount: -1}
	last := 0
	for r.left() > 0 {
		id := r.byte()
		size := r.count(1, len(bin), "bytes of a section")
		if r.err == nil && int(id) >= len(sectionNames) {
			r.invalid("unknown section %d: build without exceptions and other proposals", id)
		}
		if r.err != nil {
			break
		}
		s := &reader{bin: bin, pos: r.pos, end: r.pos + size, section: sectionNames[id]}
		r.pos += size
		if id != secCustom {
			if order[id] <= last {
				s.invalid("the section comes twice or out of order")
			}
			last = order[id]
			m.section(id, s)
			if s.left() > 0 {
				s.invalid("%d bytes too many", s.left())
			}
		} else {
			s.name() // the rest of the section is dropped
		}
		if s.err != nil {
			return nil, s.err
		}
	}
	if r.err == nil {
		m.complete(r)
	}
	if r.err != nil {
		return nil, r.err
	}
	return m, nil
}

// complete checks facts that several sections must agree on.
func (m *module) complete(r *reader) {
	if n := len(m.funcs) - len(m.imports); n != len(m.bodies) {
		r.invalid("%d functions and %d bodies", n, len(m.bodies))
	}
	if m.dataCount >= 0 && m.dataCount != m.datas {
		r.invalid("%d data segments announced and %d there", m.dataCount, m.datas)
	}
}

func (m *module) section(id byte, r *reader) {
	switch id {
	case secType:
		m.typeSection(r)
	case secImport:
		m.importSection(r)
	case secFunction:
		n := r.count(1, maxFunctions, "functions")
		for range n {
			m.funcs = append(m.funcs, r.index(len(m.types), "type"))
		}
	case secTable:
		m.tableSection(r)
	case secMemory:
		m.memorySection(r)
	case secGlobal:
		m.globalSection(r)
	case secExport:
		m.exportSection(r)
	case secStart:
		r.invalid("a start function: export _initialize instead")
	case secElement:
		m.elementSection(r)
	case secDataCount:
		n := r.u32()
		if n > maxSegments {
			r.limit("%d data segments, more than %d", n, maxSegments)
		}
		m.dataCount = int(n)
	case secCode:
		m.codeSection(r)
	case secData:
		m.dataSection(r)
	}
}

func (m *module) typeSection(r *reader) {
	n := r.count(3, maxTypes, "types")
	from := r.pos
	for range n {
		if r.byte() != 0x60 && r.err == nil {
			r.pos--
			r.invalid("a type that is not a function's: build without GC")
		}
		var t FuncType
		list := func(most int, what string) string {
			n := r.count(1, most, what)
			b := make([]byte, n)
			for i := range b {
				b[i] = r.valueType()
			}
			return string(b)
		}
		t.Params = list(maxParams, "parameters")
		t.Results = list(maxResults, "results")
		if r.err != nil {
			return
		}
		m.types = append(m.types, t)
	}
	m.rawTypes = r.bin[from:r.pos]
}

func (m *module) importSection(r *reader) {
	n := r.count(4, maxImports, "imports")
	from := r.pos
	for range n {
		im := Import{Module: r.name(), Name: r.name()}
		if kind := r.byte(); kind != byte(Func) {
			r.invalid("only functions can be imported: a plugin has its own memory, tables and globals")
		}
		t := r.index(len(m.types), "type")
		if im.Module == RefillModule {
			r.invalid("an import of %q, which is the meter's", RefillModule)
		}
		if r.err != nil {
			return
		}
		im.Type = m.types[t]
		m.imports = append(m.imports, im)
		m.funcs = append(m.funcs, t)
	}
	m.rawImport = r.bin[from:r.pos]
}

// bounds reads the minimum and maximum of a table or memory.
func (m *module) bounds(r *reader) (minimum, maximum uint32, bounded bool) {
	switch flag := r.byte(); flag {
	case 0:
		return r.u32(), 0, false
	case 1:
		minimum, maximum = r.u32(), r.u32()
		if maximum < minimum {
			r.invalid("a maximum below the minimum")
		}
		return minimum, maximum, true
	default:
		r.invalid("unknown kind 0x%02x of limits: build without threads and memory64", flag)
		return 0, 0, false
	}
}

func (m *module) tableSection(r *reader) {
	n := r.count(3, maxTables, "tables")
	from, total := r.pos, 0
	for range n {
		t := r.refType()
		least, _, _ := m.bounds(r)
		if total += int(least); total > maxEntries {
			r.limit("%d entries in tables, more than %d", total, maxEntries)
		}
		if r.err != nil {
			return
		}
		m.tables = append(m.tables, t)
	}
	m.rawTables = r.bin[from:r.pos]
}

func (m *module) memorySection(r *reader) {
	n := r.count(2, len(r.bin), "memories")
	if n > 1 {
		r.invalid("%d memories: a plugin has one", n)
	}
	if n == 0 || r.err != nil {
		return
	}
	least, most, bounded := m.bounds(r)
	if least > m.limits.Pages {
		r.limit("a memory of %d pages at least, and %d are allowed", least, m.limits.Pages)
	}
	if !bounded || most > m.limits.Pages {
		most = m.limits.Pages
	}
	m.hasMemory, m.min, m.max = true, least, most
}

func (m *module) globalSection(r *reader) {
	n := r.count(4, maxGlobals, "globals")
	mutable := 0
	for range n {
		g := global{typ: r.valueType()}
		switch r.byte() {
		case 0:
		case 1:
			g.mutable = true
			mutable++
			if g.typ == V128 || g.typ == FuncRef || g.typ == ExternRef {
				r.invalid("a mutable global of type %s, which could not be reset between calls", valueNames[g.typ])
			}
			if mutable > maxMutable {
				r.limit("more than %d mutable globals", maxMutable)
			}
		default:
			r.invalid("a global that is neither constant nor mutable")
		}
		g.init = m.constant(r)
		if r.err != nil {
			return
		}
		m.globals = append(m.globals, g)
	}
}

func (m *module) exportSection(r *reader) {
	n := r.count(3, maxExports, "exports")
	seen := make(map[string]bool, n)
	for range n {
		e := export{Export: Export{Name: r.name(), Kind: Kind(r.byte())}}
		switch e.Kind {
		case Func:
			e.index = r.index(len(m.funcs), "function")
			if r.err == nil {
				e.Type = m.types[m.funcs[e.index]]
			}
		case Table:
			e.index = r.index(len(m.tables), "table")
		case Memory:
			e.index = r.index(m.memories(), "memory")
		case Global:
			e.index = r.index(len(m.globals), "global")
		default:
			r.invalid("an export of kind %d: build without exceptions", e.Kind)
		}
		if seen[e.Name] {
			r.invalid("two exports have one name")
		}
		if strings.HasPrefix(e.Name, Prefix) {
			r.invalid("the name of an export begins with %q, which is the meter's", Prefix)
		}
		if r.err != nil {
			return
		}
		seen[e.Name] = true
		m.exports = append(m.exports, e)
	}
}

func (m *module) memories() int {
	if m.hasMemory {
		return 1
	}
	return 0
}

func (m *module) dataSection(r *reader) {
	n := r.count(2, maxSegments, "data segments")
	from := r.pos
	for range n {
		switch flag := r.u32(); flag {
		case 0:
			m.constant(r)
		case 1:
		default:
			r.invalid("unknown kind %d of a data segment: a plugin has one memory", flag)
		}
		if m.datas++; !m.hasMemory {
			r.invalid("data without a memory")
		}
		r.bytes(r.count(1, len(r.bin), "bytes of data"))
		if r.err != nil {
			return
		}
	}
	m.rawData = r.bin[from:r.pos]
}
