package meter

// A plan decides where the code of a function is charged. It is told of the runs of instructions between control
// instructions and of the frames, and makes charge points.
//
// A point stands where the code is entered, and what it charges is known before. A run is charged at the latest point
// that dominates it if every path from there leads through the run (short of a trap): that is exact. If some path
// leaves it out, it is still charged there as long as what may be charged in vain stays within slack units a point;
// else it gets a point of its own. So joins cost nothing, short arms cost nothing, and no charge is more than slack
// too high.
type plan struct {
	points []point
	stack  []int // indexes of the points that dominate what comes next, the latest last
	frames int   // that are open; the body of the function is frame 0
}

// point is a place where fuel is taken.
type point struct {
	cost    uint32
	checked bool // whether it also looks if fuel is left
	slack   uint32
	frame   int // in which it stands
	escape  int // the outermost frame to whose end (or header) a branch after this point goes; noEscape if none is open
}

const (
	slack    = 16 // units; measured: about where redactors in C and Go run fastest
	noEscape = 1 << 30
)

// newPoint adds a point in the innermost frame.
func (p *plan) newPoint(cost uint32, checked bool) int {
	p.points = append(p.points, point{cost: cost, checked: checked, slack: slack, frame: p.frames - 1, escape: noEscape})
	p.stack = append(p.stack, len(p.points)-1)
	return len(p.points) - 1
}

func (p *plan) top() *point { return &p.points[p.stack[len(p.stack)-1]] }

// charge takes a run of instructions into account, and returns the new point that must stand before it, or -1.
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

// branch notes that control may go from here to the end or header of the frame that is depth frames out.
func (p *plan) branch(depth int) {
	t := p.top()
	t.escape = min(t.escape, p.frames-1-depth)
}

// leave forgets the points of the innermost frame, which do not dominate what follows its arm or its end.
func (p *plan) leave() {
	for p.top().frame == p.frames-1 {
		escape := p.top().escape
		p.stack = p.stack[:len(p.stack)-1]
		p.top().escape = min(p.top().escape, escape)
	}
}

// otherwise goes from the first arm of an if to the second.
func (p *plan) otherwise() {
	p.leave()
	p.branch(0)
}

// shut ends the innermost frame, which is not the function's.
func (p *plan) shut() {
	p.leave()
	p.frames--
	if t := p.top(); t.escape >= p.frames {
		t.escape = noEscape
	}
}
