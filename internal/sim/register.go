package sim

import "github.com/ckptd/ckptd/engine"

// register is a value that calls write and read: the head of a branch, or a pending write. "" means
// none.
type register struct {
	was    string // before the round
	writes []written
}

// written records that a call wrote a value, or may have.
type written struct {
	val  string
	span span
	sure bool
}

type writeKey struct {
	checkpoint, task string
	index            int64
}

// write records a call that writes a value. If sure is false, it may have written nothing.
func (r *register) write(c *call, val string, sure bool) {
	r.writes = append(r.writes, writing(c, val, sure))
}

func writing(c *call, val string, sure bool) written {
	w := written{val, span{c.inv, c.res}, sure && c.acked()}
	if !c.acked() {
		w.span.hi = never
	}
	return w
}

// legal reports whether a value can be read between two steps: some write of it may come before the
// end, and no other write certainly lies between that write and the beginning. Other writes are
// those to this register, and more.
func (r *register) legal(val string, lo, hi int, more []written) bool {
	all := append([]written{{r.was, span{-1, -1}, true}}, r.writes...)
	all = append(all, more...)
	for _, w := range all {
		if w.val != val && (w.val != anyID || val == "") || w.span.lo > hi {
			continue
		}
		hidden := false
		for _, o := range all {
			hidden = hidden || o.sure && o.span.lo > w.span.hi && o.span.hi < lo
		}
		if !hidden {
			return true
		}
	}
	return false
}

func (f *facts) branch(ref engine.Ref, name string) *register {
	l := f.line(ref)
	r := l.branches[name]
	if r == nil {
		r = &register{}
		if st := f.m.lines[ref]; st != nil {
			r.was = st.branches[name]
		}
		l.branches[name] = r
	}
	return r
}

func (f *facts) pendingWrite(ref engine.Ref, key writeKey) *register {
	l := f.line(ref)
	r := l.writes[key]
	if r == nil {
		r = &register{}
		if st := f.m.lines[ref]; st != nil {
			r.was = st.writes[key]
		}
		l.writes[key] = r
	}
	return r
}

// followed reports whether the branches and writes of a thread are known up to a step.
func (f *facts) followed(thread string, step int) bool {
	for _, c := range f.scramb[thread] {
		if c.inv <= step {
			return false
		}
	}
	return true
}

// scramble records a call whose changes of branches and writes are not tracked.
func (f *facts) scramble(c *call, thread string) { f.scramb[thread] = append(f.scramb[thread], c) }
