package migrate

import (
	"math/big"

	"github.com/itchyny/gojq"

	"github.com/ckptd/ckptd/internal/weight"
)

func operands(of func(l, r any) bill) price {
	return func(_ any, args []any) bill { return of(args[0], args[1]) }
}

// comparison walks two values in parallel until one ends, which may take longer than the real
// comparison.
func comparison(_ any, args []any) bill {
	left := maxSteps
	if !pair(args[0], args[1], &left, 0) {
		return bill{weight.Over, 0}
	}
	return bill{maxSteps - left, 0}
}

func pair(l, r any, left *int, depth int) bool {
	if *left -= 2; *left < 0 || depth > weight.MaxDepth {
		return false
	}
	switch l := l.(type) {
	case []any:
		r, _ := r.([]any)
		for i := range min(len(l), len(r)) {
			if !pair(l[i], r[i], left, depth+1) {
				return false
			}
		}
	case map[string]any:
		r, ok := r.(map[string]any)
		if !ok {
			return true
		}
		*left -= 4 * (len(l) + len(r)) // to sort their names
		if len(l) != len(r) {
			return *left >= 0
		}
		for k := range l {
			if !pair(l[k], r[k], left, depth+1) {
				return false
			}
		}
	default:
		*left -= weight.Flat(l) + weight.Flat(r)
	}
	return *left >= 0
}

func addition(l, r any) bill {
	return bill{weight.Plus(weight.Flat(l), weight.Flat(r), width(l), width(r)), weight.Plus(room(l), room(r))}
}

func subtraction(l, r any) bill {
	if width(l) == 0 || width(r) == 0 {
		return addition(l, r)
	}
	a, b := weight.Times(width(r), weight.Of(l, maxSteps)), weight.Times(width(l), weight.Of(r, maxSteps))
	return bill{weight.Plus(a, b), room(l)}
}

func multiplication(l, r any) bill {
	for _, two := range [][2]any{{l, r}, {r, l}} {
		s, ok := two[0].(string)
		if n, number := gojq.ToFloat64(two[1]); ok && number {
			made := float64(len(s)) * max(n, 0)
			if !(made < weight.Over/2) {
				return bill{weight.Over, weight.Over}
			}
			return bill{1 + int(made)/16, int(made)}
		}
	}
	if width(l) > 0 && width(r) > 0 {
		n := weight.Plus(weight.Of(l, maxSteps), weight.Of(r, maxSteps))
		return bill{n, weight.Times(n, inObject)}
	}
	n := weight.Times(words(l), words(r))
	return bill{weight.Plus(n, weight.Flat(l), weight.Flat(r)), weight.Times(words(l)+words(r), 8)}
}

// words returns the length of a number.
func words(v any) int {
	if n, ok := v.(*big.Int); ok {
		return 1 + n.BitLen()/64
	}
	return 1
}

func division(l, r any) bill {
	if s, ok := l.(string); ok {
		return parted(s, []any{r})
	}
	return multiplication(l, r)
}

// indexed also prices searching for an array in another.
func indexed(_ any, args []any) bill {
	if list, ok := args[1].([]any); ok {
		return search(args[0], list)
	}
	return scalars(args[0], args[1:])
}

func found(in any, args []any) bill {
	path, _ := args[0].([]any)
	steps := 1 + len(path)
	for _, p := range path {
		if list, ok := p.([]any); ok {
			return bill{weight.Times(weight.Of(in, maxSteps), weight.Of(list, maxSteps)), 0}
		}
		steps = weight.Plus(steps, weight.Flat(p))
	}
	return bill{steps, 64}
}

// replaced prices copying the values along a path.
func replaced(in any, args []any) bill {
	path, _ := args[0].([]any)
	if len(path) > weight.MaxDepth {
		return bill{weight.Over, 0}
	}
	b := bill{1, 64}
	for i, p := range path {
		b.steps = weight.Plus(b.steps, weight.Flat(p), width(in))
		b.bytes = weight.Plus(b.bytes, 2*room(in))
		switch p := p.(type) {
		case string:
			object, _ := in.(map[string]any)
			in = object[p]
		case map[string]any: // a slice
			for _, bound := range p {
				b.steps = weight.Plus(b.steps, weight.Flat(bound))
			}
			b.bytes = weight.Plus(b.bytes, 2*room(args[1]))
			if i < len(path)-1 { // it is copied as well if an index into it follows
				n := weight.Of(in, maxSteps)
				b = bill{weight.Plus(b.steps, n), weight.Plus(b.bytes, weight.Times(n, inObject))}
			}
		default:
			list, _ := in.([]any)
			in = nil
			n, _ := gojq.ToInt(p)
			if n < 0 {
				n += len(list)
			}
			switch {
			case n >= 0 && n < len(list):
				in = list[n]
			case n >= 0:
				b.bytes = weight.Plus(b.bytes, weight.Times(n, 2*inArray))
			}
		}
	}
	return b
}

// removed prices copying the values along paths, and walking the entire value.
func removed(in any, args []any) bill {
	paths, _ := args[0].([]any)
	if len(paths) == 0 {
		return bill{1, 0}
	}
	n := weight.Of(in, maxSteps)
	o := order(paths)
	return bill{weight.Plus(weight.Times(n, 4), o.steps), weight.Plus(weight.Times(n, inObject), o.bytes)}
}
