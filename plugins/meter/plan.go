package meter

// A plan decides where to charge for the code of a function. Its input is the runs of instructions
// between control instructions, and the frames; its output is charge points.
//
// A point sits where code is entered, and its charge is known in advance. A run is charged at the
// latest point that dominates it if every path from there leads through the run (short of a trap):
// that is exact. If some path skips the run, it is still charged there as long as the possible
// overcharge stays within slack units per point; otherwise it gets a point of its own. So joins
// cost nothing, short arms cost nothing, and no charge is more than slack too high.
type plan struct {
	points []point
	stack  []int // indexes of the points that dominate the next instruction, the latest last
	frames int   // number of open frames; the body of the function is frame 0
}

// point is a position in the code where fuel is taken.
type point struct {
	cost    uint32
	checked bool // whether it also checks that fuel is left
	slack   uint32
	frame   int // the frame it is in
	escape  int // outermost frame whose end (or header) is the target of a branch after this point; noEscape if none
}

const (
	slack    = 16 // units; measured: about the value at which redactors in C and Go run fastest
	noEscape = 1 << 30
)

// newPoint adds a point in the innermost frame.
func (p *plan) newPoint(cost uint32, checked bool) int {
	p.points = append(p.points, point{cost: cost, checked: checked, slack: slack, frame: p.frames - 1, escape: noEscape})
	p.stack = append(p.stack, len(p.points)-1)
	return len(p.points) - 1
}

func (p *plan) top() *point { return &p.points[p.stack[len(p.stack)-1]] }

// charge accounts for a run of instructions. It returns the new point to place before the run, or
// -1.
func (p *plan) charge(cost uint32) int {
	t := p.top()
	switch {
	case cost == 0:
	case t.escape == noEscape:
		t.cost += cost
	case t.slack >= cost:
		t.cost += cost
		t.slack -= cost
	default:
		return p.newPoint(cost, false)
	}
	return -1
}

// open begins a frame.
func (p *plan) open() { p.frames++ }

// branch records that control may go from here to the end or header of the frame that is depth
// frames out.
func (p *plan) branch(depth int) {
	t := p.top()
	t.escape = min(t.escape, p.frames-1-depth)
}

// leave forgets the points of the innermost frame, which do not dominate the code after its arm or
// its end.
func (p *plan) leave() {
	for p.top().frame == p.frames-1 {
		escape := p.top().escape
		p.stack = p.stack[:len(p.stack)-1]
		p.top().escape = min(p.top().escape, escape)
	}
}

// otherwise switches from the first arm of an if to the second.
func (p *plan) otherwise() {
	p.leave()
	p.branch(0)
}

// shut ends the innermost frame, which isn't the function's own.
func (p *plan) shut() {
	p.leave()
	p.frames--
	if t := p.top(); t.escape >= p.frames {
		t.escape = noEscape
	}
}
