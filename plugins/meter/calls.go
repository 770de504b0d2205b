package meter

// calls is the call graph of a module, without imports.
type calls struct {
	frames  []int
	callees [][]uint32
}

// indirect stands for an unknown callee.
const indirect = 1<<32 - 1

// deep returns which functions must account for their stack: all except those that provably need at
// most stackFree, including all their callees. A function that need not account never calls one
// that must.
func (c *calls) deep() []bool {
	const unseen, open = 0, -1
	need := make([]int, len(c.frames)) // of a function and its callees; more than stackFree if deep
	type visit struct {
		f    uint32
		next int // of its callees
	}
	for f := range need {
		if need[f] != unseen {
			continue
		}
		need[f] = open
		for path := []visit{{f: uint32(f)}}; len(path) > 0; {
			v := &path[len(path)-1]
			callees := c.callees[v.f]
			if v.next < len(callees) {
				callee := callees[v.next]
				v.next++
				if callee != indirect && need[callee] == unseen {
					need[callee] = open
					path = append(path, visit{f: callee})
				}
				continue
			}
			need[v.f] = c.need(v.f, need)
			path = path[:len(path)-1]
		}
	}
	deep := make([]bool, len(need))
	for f, n := range need {
		deep[f] = n > stackFree
	}
	return deep
}

// need returns the stack that a function needs, given the needs of its callees. A callee that is
// still open is part of a recursion.
func (c *calls) need(f uint32, need []int) int {
	most := 0
	for _, callee := range c.callees[f] {
		if callee == indirect || need[callee] < 0 {
			return stackFree + 1
		}
		most = max(most, need[callee])
	}
	return min(c.frames[f]+most, stackFree+1)
}
