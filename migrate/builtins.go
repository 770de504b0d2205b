package migrate

import (
	"math"
	"math/bits"
	"strings"
	"unicode/utf8"

	"github.com/itchyny/gojq"

	"github.com/ckptd/ckptd/internal/weight"
)

// bill is the maximum cost of one call of a built-in: steps of work, each far below a microsecond,
// and bytes of memory.
type bill struct{ steps, bytes int }

// Memory of a value in an array, and of one in an object.
const (
	inArray  = 16
	inObject = 64
)

// price computes the bill of a call of a built-in from its input and arguments. It visits values as
// the built-in itself would, but no more than maxSteps of them.
type price func(in any, args []any) bill

// prices has all built-ins of the interpreter, including those that its own jq functions and its
// operators are made of. A built-in without a price does not run, so a new version of the
// interpreter cannot introduce unconsidered ones.
var prices = func() map[string]price {
	all := map[string]price{
		"length": scalars, "utf8bytelength": scalars, "has": scalars, "type": scalars, "now": scalars, "halt": scalars, "env": scalars,
		"builtins": constant(4096), "modulemeta": scalars, "error": told, "halt_error": told,
		"_allocator": scalars, "_break": scalars, "_alternative": scalars, "_plus": scalars, "_negate": text(16, 16), "_range": scalars,

		"toboolean": scalars, "tonumber": digits, "tostring": deep(6), "tojson": deep(6), "fromjson": parsed, "format": deep(18),
		"_tohtml": deep(12), "_touri": deep(18), "_tourid": deep(12), "_tobase64": deep(8), "_tobase64d": deep(6),
		"_tocsv": listed(8), "_totsv": listed(8), "_tosh": listed(8),

		"startswith": scalars, "endswith": scalars, "ltrimstr": scalars, "rtrimstr": scalars, "trimstr": scalars,
		"ltrim": scalars, "rtrim": scalars, "trim": scalars, "ascii_downcase": text(1, 16), "ascii_upcase": text(1, 16),
		"explode": text(24, 1), "implode": listed(1), "split": parted, "join": joined,

		"keys": wide, "reverse": wide, "add": summed, "flatten": deep(4), "transpose": transposed, "_captures": wide,
		"contains": everyPair, "inside": everyPair, "indices": searched, "index": searched, "rindex": searched, "bsearch": compared,

		"min": least, "max": least, "_min_by": least, "_max_by": least,
		"sort": sorted, "unique": sorted,
		"_sort_by": sorted, "_group_by": sorted, "_unique_by": sorted,

		"_equal": comparison, "_notequal": comparison, "_greater": comparison, "_less": comparison, "_greatereq": comparison, "_lesseq": comparison,
		"_add": operands(addition), "_subtract": operands(subtraction), "_multiply": operands(multiplication),
		"_divide": operands(division), "_modulo": operands(division),

		"_index": indexed, "_slice": scalars, "getpath": found, "setpath": replaced, "_setpath": replaced,
		"delpaths": removed, "_delpaths": removed,

		"_match": nil, // handled by the program itself
		"gmtime": scalars, "localtime": scalars, "mktime": listed(1), "strptime": scalars,
		"strftime": formatted, "strflocaltime": formatted,
		"jn": recurrence, "yn": recurrence, "infinite": scalars, "nan": scalars,
	}
	for _, name := range strings.Fields(`sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh floor round nearbyint rint ceil trunc
		significand fabs sqrt cbrt exp exp10 exp2 expm1 frexp modf log log10 log1p log2 logb gamma tgamma lgamma erf erfc j0 j1 y0 y1
		atan2 copysign drem fdim fmax fmin fmod hypot nextafter nexttoward remainder ldexp scalb scalbln pow fma
		isfinite isinfinite isnan isnormal`) {
		all[name] = scalars
	}
	return all
}()

// maxSteps bounds one call to about half a second.
const maxSteps = 1 << 25

func constant(bytes int) price { return func(any, []any) bill { return bill{1, bytes} } }

// scalars prices built-ins that look at numbers and strings, and at other values without looking
// inside.
func scalars(in any, args []any) bill {
	n := weight.Flat(in)
	for _, arg := range args {
		n = weight.Plus(n, weight.Flat(arg))
	}
	return bill{n, 64}
}

// text prices built-ins that produce the given bytes, or steps, per 16 bytes of a string.
func text(bytes, steps int) price {
	return func(in any, args []any) bill {
		n := weight.Flat(in)
		return bill{weight.Times(n, steps), weight.Times(n*inArray, bytes)}
	}
}

// digits prices built-ins that parse a number from a string.
func digits(in any, _ []any) bill {
	s, _ := in.(string)
	n := weight.Times(len(s), len(s)) / 256
	return bill{weight.Plus(1, n), 64 + len(s)}
}

// deep prices built-ins that walk an entire value and produce the given bytes per 16.
func deep(bytes int) price {
	return func(in any, args []any) bill {
		n := weight.Of(in, maxSteps)
		return bill{n, weight.Times(n, bytes*inArray)}
	}
}

// told prices built-ins that format the value of an error as a message.
func told(in any, args []any) bill {
	n := weight.Of(in, maxSteps)
	for _, arg := range args {
		n = weight.Plus(n, weight.Of(arg, maxSteps))
	}
	return bill{n, weight.Times(n, 6*inArray)}
}

// parsed prices parsing JSON text, whose numbers stay text.
func parsed(in any, _ []any) bill {
	s, _ := in.(string)
	values := strings.Count(s, ",") + strings.Count(s, "[") + strings.Count(s, ":") + 1
	return bill{len(s), 2*len(s) + 2*inObject*values + 400*strings.Count(s, "{")}
}

// width returns the number of values directly inside a value.
func width(v any) int {
	switch v := v.(type) {
	case []any:
		return len(v)
	case map[string]any:
		return len(v)
	}
	return 0
}

// room returns the memory of a shallow copy of a value.
func room(v any) int {
	switch v := v.(type) {
	case []any:
		return len(v) * inArray
	case map[string]any:
		return len(v) * inObject
	case string:
		return len(v)
	}
	return weight.Times(weight.Flat(v), inArray)
}

func wide(in any, _ []any) bill {
	n := width(in)
	return bill{weight.Times(1+n, 1+bits.Len(uint(n))), weight.Times(n, inObject)}
}

// elements returns the flat weight and the memory of the values in an array or object.
func elements(v any) (steps, bytes int) {
	each := func(e any) { steps, bytes = weight.Plus(steps, weight.Flat(e), width(e)), weight.Plus(bytes, room(e)) }
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			each(e)
		}
	case map[string]any:
		for _, e := range v {
			each(e)
		}
	}
	return steps, bytes
}

// listed prices built-ins that produce the given bytes for each byte of the strings and numbers in
// an array.
func listed(bytes int) price {
	return func(in any, _ []any) bill {
		if s, ok := in.(string); ok {
			in = []any{s}
		}
		steps, _ := elements(in)
		return bill{steps, weight.Times(steps, bytes*inArray)}
	}
}

func summed(in any, _ []any) bill {
	steps, bytes := elements(in)
	return bill{weight.Plus(width(in), steps), bytes}
}

func joined(in any, args []any) bill {
	steps, bytes := elements(in)
	between := weight.Times(width(in), room(args[0]))
	return bill{weight.Plus(steps, between/16), weight.Plus(bytes, weight.Times(steps, inArray), between)}
}

// parted prices splitting a string at another.
func parted(in any, args []any) bill {
	s, _ := in.(string)
	sep, _ := args[0].(string)
	n := utf8.RuneCountInString(s)
	if sep != "" {
		n = strings.Count(s, sep) + 1
	}
	return bill{1 + len(s)/16 + n, n * 48}
}

func transposed(in any, _ []any) bill {
	rows, _ := in.([]any)
	columns := 0
	for _, row := range rows {
		columns = max(columns, width(row))
	}
	n := weight.Times(len(rows), columns)
	return bill{n, weight.Times(n, inArray)}
}

// everyPair prices comparing every part of one value with every part of another.
func everyPair(in any, args []any) bill {
	a, aok := in.(string)
	b, bok := args[0].(string)
	if aok && bok {
		return bill{2 + (len(a)+len(b))/16, 0}
	}
	return bill{weight.Times(weight.Of(in, maxSteps), weight.Of(args[0], maxSteps)), 0}
}

// searched prices searching for an array, or a string, at every position of another.
func searched(in any, args []any) bill { return search(in, args[0]) }

func search(in, wanted any) bill {
	if s, ok := in.(string); ok {
		w, _ := wanted.(string)
		return bill{weight.Times(1+len(s), 1+len(w)), (len(s) + len(w)) * 24}
	}
	each := weight.Of(wanted, maxSteps)
	if each < maxSteps && names(wanted) > 0 {
		each = weight.Plus(each, names(in))
	}
	return bill{weight.Times(1+width(in), each), width(in) * inArray}
}

// names returns the number of members of all objects in a value. Comparing two objects looks at the
// names of both, even if one has few.
func names(v any) int {
	left := maxSteps
	n := countNames(v, &left)
	if left < 0 {
		return weight.Over
	}
	return n
}

func countNames(v any, left *int) int {
	n := 0
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if *left--; *left < 0 {
				return n
			}
			n += countNames(e, left)
		}
	case map[string]any:
		n = len(v)
		for _, e := range v {
			if *left--; *left < 0 {
				return n
			}
			n += countNames(e, left)
		}
	}
	return n
}

func compared(in any, args []any) bill {
	b := search(in, args[0])
	if width(in) > 0 {
		b.steps = weight.Times(b.steps/width(in)+1, 1+bits.Len(uint(width(in))))
	}
	return b
}

// keysOf returns the values by which an array is sorted: its own, or the given ones.
func keysOf(in any, args []any) []any {
	if len(args) > 0 {
		in = args[0]
	}
	keys, _ := in.([]any)
	return keys
}

// least prices comparing each element with the minimum, or maximum, so far.
func least(in any, args []any) bill {
	keys := keysOf(in, args)
	total, most := comparable(keys)
	return bill{weight.Plus(weight.Times(total, 2), weight.Times(len(keys), most)), 64}
}

func sorted(in any, args []any) bill { return order(keysOf(in, args)) }

func order(keys []any) bill {
	log := bits.Len(uint(len(keys)))
	total, most := comparable(keys)
	return bill{weight.Plus(weight.Times(total, 4+2*log), weight.Times(most, 20+log*log)), len(keys) * 4 * inObject}
}

// comparable returns the total weight of keys and the largest number of names in one of them.
func comparable(keys []any) (total, most int) {
	for _, key := range keys {
		if total = weight.Plus(total, weight.Of(key, maxSteps)); total > maxSteps {
			return weight.Over, 0
		}
		most = max(most, names(key))
	}
	return total, most
}

func recurrence(_ any, args []any) bill {
	n, _ := gojq.ToFloat64(args[0])
	if n = math.Abs(n); !(n < math.MaxInt32) {
		return bill{weight.Over, 0}
	}
	return bill{1 + int(n), 64}
}

// formatted prices time formatting, where each part can be padded to a width of up to 1024.
func formatted(in any, args []any) bill {
	format, _ := args[0].(string)
	steps, _ := elements(in)
	return bill{weight.Plus(steps, 1+len(format)), 512 * len(format)}
}
