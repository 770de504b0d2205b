package meter

import "slices"

// walker reads the body of one function, instruction by instruction, and records edits.
type walker struct {
	*reader
	m       *module
	plan    plan
	edits   []edit
	frames  []byte // the opcodes that opened them; the function's own is a block
	locals  int    // and parameters
	vars    int    // locals, parameters and mutable globals: a compiler may have to copy them at a join
	run     uint32 // cost of the instructions since slot
	slot    int    // index of the edit where a point for the run would go
	work    int
	entered bool // whether there has been a loop or call since the entry

	decls   int // where the instructions begin
	groups  int // of local declarations, and where they begin
	group0  int
	callees []uint32 // functions of the module, without imports; indirect for unknown ones
	loops   int
	results int // of all calls
}

// edit replaces the bytes from..to of the binary.
type edit struct {
	from, to int
	what     change
	arg      uint32
}

type change byte

const (
	keep     change = iota // nothing to do
	chargeAt               // insert the charge of point arg
	renumber               // a call or ref.func (the first byte stays) of function arg
	sinking                // before a call: tell the callee how much stack is left
	fill                   // memory.fill, memory.copy: a call of the helper
	copying
	payBytes // memory.init, memory.grow: call the charging helper, then the instruction
	payPages
)

// codeSection reads all bodies twice: first to learn which functions must account for their stack,
// then to keep them in their output form.
func (m *module) codeSection(r *reader) {
	n := r.count(2, maxFunctions, "bodies")
	if n != len(m.funcs)-len(m.imports) {
		r.invalid("%d functions and %d bodies", len(m.funcs)-len(m.imports), n)
	}
	mutable := 2 // the fuel and the stack
	for _, g := range m.globals {
		if g.mutable {
			mutable++
		}
	}
	w := &walker{m: m}
	calls := calls{frames: make([]int, n), callees: make([][]uint32, n)}
	from, work := r.pos, 0
	most := min(maxModuleWork, baseWork+workPerByte*r.left())
	for i := range n {
		w.function(r, i, mutable)
		if work += w.work; work > most {
			r.limit("the functions taken together are too complex: more than %d variables at joins", most)
		}
		if r.err != nil {
			return
		}
		calls.frames[i], calls.callees[i] = w.frame(), slices.Clone(w.callees)
	}
	m.deep = calls.deep()
	r.pos = from
	m.bodies = make([][]byte, n)
	for i := range n {
		w.function(r, i, mutable)
		m.bodies[i] = w.emit(m.deep[i])
	}
}

// function reads the size and the body of function i, not counting imports.
func (w *walker) function(r *reader, i, mutable int) {
	size := r.count(1, maxBody, "bytes of a function")
	if r.err != nil {
		return
	}
	body := &reader{bin: r.bin, pos: r.pos, end: r.pos + size, section: r.section}
	r.pos += size
	w.reset(body, len(w.m.types[w.m.funcs[len(w.m.imports)+i]].Params), mutable)
	w.localDecls()
	w.body()
	r.err = body.err
}

// reset prepares for a body.
func (w *walker) reset(r *reader, params, globals int) {
	*w = walker{
		reader: r, m: w.m,
		plan:  plan{points: w.plan.points[:0], stack: w.plan.stack[:0]},
		edits: w.edits[:0], frames: w.frames[:0], callees: w.callees[:0],
		locals: params, vars: params + globals,
	}
}

// localDecls reads the declarations of locals.
func (w *walker) localDecls() {
	n := w.count(2, maxLocals, "groups of locals")
	w.groups, w.group0 = n, w.pos
	sum := 0
	for range n {
		k := w.u32()
		w.valueType()
		if k > maxLocals || sum+int(k) > maxLocals {
			w.limit("more than %d locals in a function", maxLocals)
		}
		if w.err != nil {
			return
		}
		sum += int(k)
	}
	w.locals += sum
	w.vars += sum
}

// body reads the instructions up to the end of the function.
func (w *walker) body() {
	w.decls = w.pos
	w.frames = append(w.frames, opBlock)
	w.plan.open()
	w.plan.newPoint(costEntry, true)
	w.edits = append(w.edits, edit{from: w.pos, to: w.pos, what: chargeAt, arg: 0})
	w.begin()
	for w.err == nil && len(w.frames) > 0 {
		w.instruction()
	}
	if w.left() > 0 {
		w.invalid("%d bytes after the end of a function", w.left())
	}
}

// begin marks the start of a run.
func (w *walker) begin() {
	w.run = 0
	w.slot = len(w.edits)
	w.edits = append(w.edits, edit{from: w.pos, to: w.pos})
}

// settle charges for the run that ends here.
func (w *walker) settle() {
	if p := w.plan.charge(w.run); p >= 0 {
		w.edits[w.slot].what, w.edits[w.slot].arg = chargeAt, uint32(p)
	}
	w.run = 0
}

// complex adds to the work that a compiler may have with the function.
func (w *walker) complex(n int) {
	if w.work += n; w.work > maxWork {
		w.limit("a function is too complex: more than %d variables at its joins", maxWork)
	}
}

// instruction reads one instruction.
func (w *walker) instruction() {
	at := w.pos
	op := w.byte()
	w.run += plainCost(op)
	switch {
	case w.err != nil:
	case op <= opReturn:
		w.control(op)
	case op == opCall:
		f := w.index(len(w.m.funcs), "function")
		if w.run += costCall - 1; int(f) < len(w.m.imports) {
			w.run += costImport - costCall
		} else {
			w.sink(at, f-uint32(len(w.m.imports)))
		}
		w.edits = append(w.edits, edit{from: at, to: w.pos, what: renumber, arg: f})
		w.called(w.m.funcs, f)
	case op == opCallIndirect:
		t := w.index(len(w.m.types), "type")
		if i := w.index(len(w.m.tables), "table"); w.err == nil && w.m.tables[i] != FuncRef {
			w.invalid("call_indirect through a table of %s", valueNames[w.m.tables[i]])
		}
		w.run += costCallIndirect - 1
		w.sink(at, indirect)
		w.called([]uint32{t}, 0)
	case op == 0x1a || op == 0x1b: // drop, select
	case op == opSelectTyped:
		for range w.count(1, maxResults, "types of a select") {
			w.valueType()
		}
	case op >= opLocalGet && op <= opLocalTee:
		w.index(w.locals, "local")
	case op == opGlobalGet || op == opGlobalSet:
		w.index(len(w.m.globals), "global")
	case op == opTableGet:
		w.index(len(w.m.tables), "table")
	case op >= opLoadFirst && op <= opStoreLast:
		w.memarg()
	case op == opMemorySize || op == opMemoryGrow:
		w.memory()
		if op == opMemoryGrow {
			w.run += costGrow - 1
			w.edits = append(w.edits, edit{from: at, to: w.pos, what: payPages})
		}
	case op == opI32Const:
		w.signed(32)
	case op == opI64Const:
		w.signed(64)
	case op == opF32Const:
		w.bytes(4)
	case op == opF64Const:
		w.bytes(8)
	case op >= opPlainFirst && op <= opPlainLast, op == opRefIsNull:
	case op == opRefNull:
		w.refType()
	case op == opRefFunc:
		f := w.index(len(w.m.funcs), "function")
		w.edits = append(w.edits, edit{from: at, to: w.pos, what: renumber, arg: f})
	case op == opBulk:
		w.bulk(at)
	case op == opVector:
		w.vector(at)
	default:
		w.unknown(at, op)
	}
}

// unknown refuses an instruction and says how to avoid it.
func (w *walker) unknown(at int, op byte) {
	w.pos = at
	switch {
	case op == opTableSet:
		w.invalid("table.set: tables must not change, or an instance could not be reset")
	case op == 0x12 || op == 0x13 || op == 0x15:
		w.invalid("a tail call: build without it")
	case op == 0xfe:
		w.invalid("an atomic instruction: build without threads")
	default:
		w.invalid("unknown instruction 0x%02x: build without exceptions, GC and other proposals", op)
	}
}

// called accounts for the type of a call.
func (w *walker) called(types []uint32, i uint32) {
	if w.err != nil {
		return
	}
	t := w.m.types[types[i]]
	w.complex(len(t.Params) + len(t.Results) + w.globals())
	w.results += len(t.Results)
	w.entered = true
}

// sink records a call of a function of the module.
func (w *walker) sink(at int, callee uint32) {
	if w.err == nil {
		w.callees = append(w.callees, callee)
		w.edits = append(w.edits, edit{from: at, to: at, what: sinking, arg: callee})
	}
}

// frame returns the assumed stack size of a frame of this function.
func (w *walker) frame() int {
	return stackFrame + stackLocal*w.locals*(1+w.loops) + stackResult*w.results + (w.end - w.decls)
}

// globals returns the number of variables that have to be read again after a call.
func (w *walker) globals() int { return w.vars - w.locals }

// memory reads the index of the memory.
func (w *walker) memory() {
	w.zero("a memory other than the first: build without multi-memory")
	if !w.m.hasMemory {
		w.invalid("an instruction on the memory, and there is none")
	}
}

// memarg reads the alignment and offset of a load or store.
func (w *walker) memarg() {
	if align := w.u32(); align > 4 {
		w.invalid("alignment %d: build without multi-memory", align)
	}
	w.u32()
	if !w.m.hasMemory {
		w.invalid("an instruction on the memory, and there is none")
	}
}

// bulk reads an instruction with the prefix 0xfc. Its number must be a single byte, because
// runtimes could read longer forms differently.
func (w *walker) bulk(at int) {
	op := w.byte()
	if op <= bulkTruncLast {
		return
	}
	w.run += costBulk - 1
	change := keep
	switch op {
	case bulkInit:
		if w.m.dataCount < 0 {
			w.invalid("memory.init without a data count section")
		}
		w.index(w.m.dataCount, "data segment")
		w.memory()
		change = payBytes
	case bulkCopy:
		w.memory()
		w.memory()
		change = copying
	case bulkFill:
		w.memory()
		change = fill
	case bulkTableSize:
		w.index(len(w.m.tables), "table")
		return
	case bulkDataDrop:
		w.pos = at
		w.invalid("data.drop: segments must stay, or an instance could not be reset")
	case 0x0c, 0x0d, 0x0e, 0x0f, 0x11: // table.init, elem.drop, table.copy, table.grow, table.fill
		w.pos = at
		w.invalid("an instruction that changes tables (0xfc 0x%02x): they must not change, or an instance could not be reset", op)
	default:
		w.pos = at
		w.invalid("unknown instruction 0xfc 0x%02x", op)
	}
	w.edits = append(w.edits, edit{from: at, to: w.pos, what: change})
}

// vector reads an instruction with the prefix 0xfd. Its number must be in the shortest form: wazero
// reads a single byte, and would take the second byte of a longer form for a nop.
func (w *walker) vector(at int) {
	op := w.byte()
	if op >= 0x80 && w.byte() != 1 {
		w.pos = at
		w.invalid("unknown vector instruction: build without relaxed SIMD")
	}
	switch {
	case op <= vecMemLast, op == vecMemZero, op == vecMemZeroE:
		w.memarg()
	case op == vecConst, op == vecShuffle:
		w.bytes(16)
	case op >= vecLaneFirst && op <= vecLaneLast:
		w.byte()
	case op >= vecMemLane && op <= vecMemLaneE:
		w.memarg()
		w.byte()
	}
}
