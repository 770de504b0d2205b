package meter

import "bytes"

// control reads a control-flow instruction.
func (w *walker) control(op byte) {
	switch op {
	case opUnreachable:
		w.settle()
		w.plan.branch(len(w.frames) - 1)
		w.begin()
	case 0x01: // nop
	case opBlock, opLoop, opIf:
		w.enter(op)
	case opElse:
		if w.frames[len(w.frames)-1] != opIf {
			w.invalid("else without if")
			return
		}
		w.frames[len(w.frames)-1] = opElse
		w.complex(w.vars)
		w.settle()
		w.plan.otherwise()
		w.begin()
	case opEnd:
		w.complex(w.vars)
		w.settle()
		if w.frames = w.frames[:len(w.frames)-1]; len(w.frames) > 0 {
			w.plan.shut()
			w.begin()
		}
	case opBr, opBrIf:
		w.settle()
		w.target()
		w.begin()
	case opBrTable:
		w.run += costBrTable - 1
		w.settle()
		for range w.count(1, maxBrTable, "targets of a br_table") {
			w.target()
		}
		w.target()
		w.begin()
	case opReturn:
		w.settle()
		w.plan.branch(len(w.frames) - 1)
		w.begin()
	default:
		w.unknown(w.pos-1, op)
	}
}

// target reads the label of a branch.
func (w *walker) target() {
	depth := w.index(len(w.frames), "label")
	w.plan.branch(int(depth))
	w.complex(w.vars)
}

// enter opens a frame.
func (w *walker) enter(op byte) {
	w.blockType()
	if len(w.frames) >= maxNesting {
		w.limit("blocks nest deeper than %d", maxNesting)
	}
	w.complex(w.vars)
	if op == opIf {
		w.run++
	}
	w.settle()
	w.frames = append(w.frames, op)
	w.plan.open()
	switch op {
	case opIf:
		w.plan.branch(0)
	case opLoop:
		w.loop()
	}
	w.begin()
}

// loop places a point at the header of a loop. The point checks the fuel, so the function's entry
// does not have to if it always leads here without a call.
func (w *walker) loop() {
	if entry := &w.plan.points[0]; !w.entered && len(w.plan.stack) == 1 && entry.escape == noEscape {
		entry.checked = false
	}
	w.entered = true
	w.loops++
	depth := bytes.Count(w.frames, []byte{opLoop})
	if depth > maxLoops {
		w.limit("loops nest deeper than %d", maxLoops)
	}
	w.complex(depth * w.vars) // a compiler's work grows with the depth
	p := w.plan.newPoint(costLoop, true)
	w.edits = append(w.edits, edit{from: w.pos, to: w.pos, what: chargeAt, arg: uint32(p)})
}

// blockType reads the type of a block: empty, one value, or the index of a function type.
func (w *walker) blockType() {
	b := w.byte()
	if b == 0x40 || valueNames[b] != "" {
		return
	}
	w.pos--
	at := w.pos
	i := w.signed(33)
	if w.err == nil && (i < 0 || i >= int64(len(w.m.types))) {
		w.pos = at
		w.invalid("unknown type of a block")
	}
	if w.err == nil {
		t := w.m.types[i]
		w.complex(len(t.Params) + len(t.Results))
	}
}
