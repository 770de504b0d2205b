package migrate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/itchyny/gojq"

	"github.com/ckptd/ckptd/internal/endtest"
)

// Values that are small in memory, but endless or huge to walk. Each is a function of the program.
const bombs = `
def many: reduce range(40) as $i (1; [., .]);              # 2^40 values, shared
def names: reduce range(40) as $i (1; {a: ., b: .});       # as objects
def deep: reduce range(20000) as $i (1; [.]);              # deeper than JSON can be
def chain: reduce range(20000) as $i (1; {a: .});
def long: "x" * 30000000;                                  # a string that a step may have
def rows: [range(50000)] | [limit(2000; repeat(.))];       # rows of one array
def big: reduce range(22) as $i (7; . * .);                # a number of millions of digits
def digits: "1" * 5000000;
def list: [range(50000)];
def path: [range(20000) | "a"];
`

// hostile has, for each built-in, programs that make it use as much as it can.
var hostile = map[string][]string{
	"_add":         {`long + long + long + long + long + long + long + long + long`, `[limit(100; repeat(list))] | .[0] + .[1] | . + . | . + . | . + . | . + . | . + . | . + . | . + .`, `big + big`},
	"_alternative": {`many // 1`},
	"_assign":      {`[] | .[536870910] = 1`, `{} | .a = many | .a == (many)`, `null | getpath(path) = 1`},
	"_break":       {`label $out | many | ., break $out`},
	"_captures":    {`[limit(3000000; repeat({name: "a", string: long}))] | map(.name) | unique`},
	"_divide":      {`long / ""`, `long / "x"`, `big / (big + 1)`, `(digits | tonumber) / 3`},
	"_equal":       {`many == (many | [.[0], .[1]])`, `names == (names | {a: .a, b: .b})`, `deep == (deep | [.[0]])`},
	"_greater":     {`many > (many | [.[0], .[1]])`},
	"_greatereq":   {`many >= (many | [.[0], .[1]])`},
	"_group_by":    {`[many, many] | group_by(.)`, `[range(200000) | {a: many}] | group_by(.a)`},
	"_index":       {`list | .[list]`, `[many, many] | .[[many]]`, `rows | .[0] | .[[range(1000)]]`, `long | .[29999999:]`},
	"_less":        {`many < (many | [.[0], .[1]])`},
	"_lesseq":      {`many <= (many | [.[0], .[1]])`},
	"_match": {`long | [match("x"; "g")] | length`, `long | [match("(x*x*x*x*)*y"; "g")]`, `[range(2000)] | map("()") | add as $re | ("x" * 100000) | [match($re; "g")]`,
		`("a{1000}" * 500) as $re | "x" | test($re)`, `"x" | test("(" * 4000)`, `("x?" * 8000) as $re | ("x" * 1000000) | test($re)`,
		`reduce range(1000000) as $i (0; . + ("x" | [match("a{900}\($i)")] | length))`},
	"_max_by":        {`[many, many] | max_by(.)`},
	"_min_by":        {`[range(1000000) | {a: 1}] | min_by([., many])`},
	"_modify":        {`[] | .[536870910] |= 1`, `[list, list] | .[] |= many | . == .`, `null | getpath(path) |= 1`},
	"_modulo":        {`big % (big + 1)`, `(digits | tonumber) % 7`},
	"_multiply":      {`long * 100`, `long * 1e300`, `names * names`, `chain * chain`, `big * big * big`},
	"_negate":        {`-big | -. | -. | tostring | length`},
	"_notequal":      {`many != (many | [.[0], .[1]])`},
	"_plus":          {`+big`},
	"_range":         {`[range(0; infinite)]`, `[range(0; 1; 1e-300)]`, `reduce range(big; big + 1000000000000) as $i (0; . + 1)`},
	"_slice":         {`long | .[1:] | .[1:]`, `list | .[big:]`},
	"_sort_by":       {`[many, many] | sort_by(.)`, `[range(300000) | [., names]] | sort_by(.[1])`},
	"_subtract":      {`list - list`, `[many] - [many]`, `[range(100000)] | map(names) - map(names)`},
	"_tobase64":      {`many | @base64`, `long | @base64 | @base64 | @base64 | @base64 | @base64 | @base64`},
	"_tobase64d":     {`many | @base64d`, `long | @base64d`},
	"_tocsv":         {`[limit(1000000; repeat(long))] | @csv`},
	"_tohtml":        {`many | @html`, `("<" * 30000000) | @html | @html`},
	"_tosh":          {`[limit(1000000; repeat(long))] | @sh`, `("'" * 30000000) | @sh`},
	"_totsv":         {`[limit(1000000; repeat(long))] | @tsv`},
	"_touri":         {`many | @uri`, `("<" * 30000000) | @uri | @uri`},
	"_tourid":        {`many | @urid`},
	"_unique_by":     {`[many, many] | unique_by(.)`},
	"add":            {`[limit(1000000; repeat(long))] | add`, `[limit(1000000; repeat(list))] | add`, `[limit(1000; repeat([range(100000) | {key: "\(.)", value: 1}] | from_entries))] | add`},
	"ascii_downcase": {`long | ascii_downcase | ascii_upcase`}, "ascii_upcase": {`long | ascii_upcase`},
	"bsearch":  {`[many, many] | bsearch(many)`, `[range(1000) | names] | bsearch(names)`},
	"builtins": {`[limit(1000000; repeat(builtins))] | flatten`},
	"contains": {`many | contains(many)`, `list | contains(list)`, `names | contains(names)`, `deep | contains(deep)`, `long | contains(long)`},
	"delpaths": {`many | delpaths([[0, 0]])`, `chain | delpaths([path])`, `list | delpaths([range(1000000)] | map([.]))`, `{} | delpaths([range(1000)] | map(many))`},
	"endswith": {`long | endswith(long)`},
	"error":    {`error(many)`, `try error(many) catch tojson`, `error(deep)`, `error(long)`},
	"explode":  {`long | explode | [limit(100; repeat(.))] | map(implode) | add`},
	"flatten":  {`many | flatten`, `deep | flatten`, `[limit(1000000; repeat(list))] | flatten`},
	"format":   {`many | format("json", "text", "html", "uri", "base64")`},
	"fromjson": {`("[" * 30000000) | fromjson`, `(("[0," * 3000000) + "0" + ("]" * 3000000)) | fromjson`, `("[" + ("{}," * 5000000) + "1]") | fromjson`, `digits | fromjson | . + 1`},
	"getpath":  {`many | getpath([[many], many])`, `null | getpath(path)`, `[list] | getpath([0, list])`},
	"gmtime":   {`big | gmtime`}, "localtime": {`big | localtime`},
	"halt_error": {`many | halt_error`, `deep | halt_error(1)`},
	"has":        {`many | has(big)`},
	"implode":    {`[limit(30000000; repeat(120))] | implode`},
	"index":      {`list | index(list[25000:])`, `[many, many] | index([many])`, `long | index("x" * 1000000 + "y")`},
	"indices":    {`list | indices(list)`, `[many, many] | indices([many])`, `long | indices("x" * 1000000)`},
	"inside":     {`many | inside(many)`},
	"jn":         {`jn(1e15; 1e16)`, `jn(2000000000; 1e300)`}, "yn": {`yn(1e15; 1e16)`, `yn(2000000000; 1e300)`},
	"join":   {`[limit(1000000; repeat(1))] | join(long)`, `[limit(1000000; repeat(long))] | join("")`},
	"keys":   {`[limit(3000; repeat(list))] | map(keys)`, `rows | keys`},
	"length": {`[limit(100000; repeat(long))] | map(length) | add`, `big | length`},
	"ltrim":  {`long | ltrim`}, "rtrim": {`long | rtrim`}, "trim": {`(" " * 30000000) | trim`},
	"ltrimstr": {`long | ltrimstr("x")`}, "rtrimstr": {`long | rtrimstr("x")`}, "trimstr": {`long | trimstr("x")`},
	"max": {`[many, many] | max`, `[range(300000) | {"\(.)": 1}] | .[0] = ([range(100000) | {key: "a\(.)", value: 1}] | from_entries) | min, max`}, "min": {`[many, many] | min`},
	"mktime":        {`[limit(100000; repeat(big))] | mktime`},
	"path":          {`[path(many | ..)]`, `[many | paths]`},
	"reverse":       {`rows | map(reverse)`},
	"rindex":        {`list | rindex(list[25000:])`, `[many, many] | rindex([many])`},
	"setpath":       {`setpath([536870910]; 1)`, `setpath(path; 1)`, `[list] | setpath([0, {start: 1, end: 5}, 536870910]; 1)`, `reduce range(50000) as $i ([]; setpath([$i * 10000]; $i))`, `[limit(1000000; repeat(1))] | reduce range(1000000) as $i (.; setpath([0, 0]; 1)?)`},
	"sort":          {`[many, many] | sort`, `rows | map(sort)`, `[range(100000) | names] | sort`, `[deep, deep] | sort`},
	"split":         {`long | split("")`, `long | split("x")`, `long | split("x"; null)`},
	"splits":        {`long | [splits("x")]`},
	"startswith":    {`long | startswith(long)`},
	"strflocaltime": {`0 | strflocaltime("%1024c" * 1000000)`}, "strftime": {`0 | strftime("%1024c" * 1000000)`}, "strptime": {`long | strptime("x" * 30000000)`},
	"tojson":         {`many | tojson`, `names | tojson`, `deep | tojson`, `chain | tojson`, `rows | tojson`, `big | tojson`, `[limit(100; repeat("\u0001" * 1000000))] | tojson`},
	"tonumber":       {`digits | tonumber`, `("1e" + digits) | tonumber`},
	"tostring":       {`many | tostring`, `"\(many)"`, `big | tostring`},
	"transpose":      {`rows | transpose`, `[list, (range(3000) | [])] | transpose`},
	"unique":         {`[many, many] | unique`},
	"utf8bytelength": {`long | utf8bytelength`},

	// Those that are written in jq.
	"INDEX": {`INDEX(range(10000000); .)`}, "IN": {`many | IN(many, many)`}, "JOIN": {`JOIN({}; repeat(1); "a")`},
	"abs": {`big | abs`}, "all": {`all(repeat(true); .)`}, "any": {`any(repeat(false); .)`},
	"capture": {`long | [capture("(?<a>x)"; "g")]`}, "combinations": {`[list, list, list] | [combinations]`},
	"del": {`[list, many] | del(.[1][0][0][0])`, `list | del(.[])`}, "first": {`first(empty, repeat(empty))`}, "from_entries": {`[limit(10000000; repeat({key: "a", value: 1}))] | from_entries`},
	"fromdate": {`long | fromdate`}, "fromdateiso8601": {`long | fromdateiso8601`}, "fromstream": {`fromstream(repeat([[0], 1]))`},
	"gsub": {`long | gsub("x"; "yy")`, `("x" * 100000) | gsub("(?<a>x)"; .a * 1000)`}, "in": {`big | in(many)`}, "isempty": {`isempty(repeat(empty))`},
	"last": {`last(repeat(1))`}, "limit": {`[limit(1000000000; repeat(1))]`}, "map": {`list | map(list)`}, "map_values": {`list | map_values(list)`},
	"match": {`long | [match("x"; "g")]`}, "max_by": {`[many, many] | max_by(.)`}, "min_by": {`[many, many] | min_by(.)`},
	"nth": {`nth(1e18; repeat(1))`}, "paths": {`[many | paths]`}, "pick": {`many | pick(..)`, `[] | pick(.[536870910])`}, "range": {`[range(1e18)]`},
	"recurse": {`[recurse(.)]`, `[many | ..]`}, "repeat": {`[repeat(1)]`}, "scan": {`long | [scan("x")]`}, "select": {`[repeat(1) | select(many == (many | [.[0], .[1]]))]`},
	"skip": {`skip(1e18; repeat(1))`}, "sort_by": {`[many] | sort_by(.)`}, "sub": {`long | [sub("(?<x>x)"; .x * 10000, .x * 20000; "g")]`},
	"test": {`long | test("(x+x+)+y")`}, "to_entries": {`reduce range(3000000) as $i ({}; .["\($i)"] = 1) | to_entries`}, "todate": {`1e300 | todate`}, "todateiso8601": {`1e300 | todateiso8601`},
	"tostream": {`many | [tostream]`}, "truncate_stream": {`[1 | truncate_stream(many | tostream)]`}, "until": {`until(false; [., .])`}, "walk": {`many | walk(.)`},
	"while": {`[1 | while(true; [., .])]`}, "with_entries": {`names | [recurse(with_entries(.); true)]`}, "add/1": {`add(repeat(long))`}, "group_by": {`[many] | group_by(.)`}, "unique_by": {`[many] | unique_by(.)`},
	"finites": {`[repeat(1) | finites]`}, "values": {`[many | .. | values]`},
}

// harmless built-ins use no more than their arguments do, whatever those are.
var harmless = strings.Fields(`not arrays objects iterables booleans numbers normals strings nulls scalars empty debug env input inputs modulemeta halt type
	toboolean infinite nan isinfinite isnan isnormal isfinite isvalid now
	sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh floor round nearbyint rint ceil trunc significand fabs sqrt cbrt exp exp10 exp2
	expm1 frexp modf log log10 log1p log2 logb gamma tgamma lgamma erf erfc j0 j1 y0 y1 atan2 copysign drem fdim fmax fmin fmod hypot
	nextafter nexttoward remainder ldexp scalb scalbln pow fma`)

// leaveToOthers skips single-threaded tests that take minutes with the race detector.
func leaveToOthers(t *testing.T) {
	t.Helper()
	if raceEnabled || testing.Short() {
		t.Skip("it takes long; run without -race and -short")
	}
}

func hostileRun(t *testing.T, text string) {
	t.Helper()
	limits := Limits{Time: 100 * time.Millisecond, Memory: 128 << 20}
	step, err := JQ(1, 2, "x.jq", bombs+text, limits)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	d, err := Open(jsonState(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	began := time.Now()
	done := make(chan error, 1)
	go func() {
		_, err := step.apply(t.Context(), "k", limits, d)
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil { // no result of these is a document
			t.Errorf("%s: no error", text)
		}
		t.Logf("%v %.60s: %.140v", time.Since(began).Round(time.Millisecond), text, err)
	case <-time.After(time.Minute):
		t.Fatalf("%s does not end", text)
	}
}

// TestBuiltinsHoldTheirLimits runs each built-in of the interpreter on its worst case.
func TestBuiltinsHoldTheirLimits(t *testing.T) {
	leaveToOthers(t)
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	peak := watchMemory(t)
	for _, name := range builtinNames(t) {
		for _, text := range hostile[name] {
			hostileRun(t, text)
		}
	}
	if got := peak(); got > 1<<30 {
		t.Errorf("%d MiB at the peak, for steps that may have 128 MiB", got>>20)
	} else {
		t.Logf("%d MiB at the peak", got>>20)
	}
}

// TestEveryBuiltinHasItsPrice finds built-ins that are new in a version of the interpreter.
func TestEveryBuiltinHasItsPrice(t *testing.T) {
	for _, name := range builtinNames(t) {
		if hostile[name] == nil && !slices.Contains(harmless, name) {
			t.Errorf("%s: no program shows that it holds its limits", name)
		}
	}
	for name := range prices {
		if strings.HasPrefix(name, "_") && hostile[name] == nil && name != "_allocator" && name != "_setpath" && name != "_delpaths" {
			t.Errorf("%s: no program shows that it holds its limits", name)
		}
	}
}

// builtinNames returns the built-ins that a program can name, and those behind operators.
func builtinNames(t *testing.T) []string {
	query, err := gojq.Parse("builtins[]")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for iter := query.Run(nil); ; {
		v, ok := iter.Next()
		if !ok {
			break
		}
		name, _, _ := strings.Cut(v.(string), "/")
		names = append(names, name)
	}
	for name := range hostile {
		if strings.HasPrefix(name, "_") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// watchMemory returns a function that reports the maximum heap size.
func watchMemory(t *testing.T) func() uint64 {
	var peak atomic.Uint64
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapInuse))
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() uint64 {
		close(stop)
		<-done
		return peak.Load()
	}
}

// TestProgramsThatAreHardToCompile: compiling must not use up the stack or take forever.
func TestProgramsThatAreHardToCompile(t *testing.T) {
	leaveToOthers(t)
	for _, text := range []string{
		strings.Repeat("(", 30000) + "." + strings.Repeat(")", 30000), strings.Repeat("[", 30000) + "." + strings.Repeat("]", 30000),
		strings.Repeat(".[", 20000) + "0" + strings.Repeat("]", 20000), strings.Repeat("{a:", 15000) + "1" + strings.Repeat("}", 15000),
		strings.Repeat("-", 60000) + "1", strings.Repeat("1|", 30000) + "1", strings.Repeat("try ", 15000) + "1", strings.Repeat(".a|=", 15000) + "1",
		strings.Repeat(`"\(`, 15000) + "1" + strings.Repeat(`)"`, 15000), strings.Repeat("def f: .;", 6000) + strings.Repeat("f|", 1000) + "f",
		strings.Repeat("def f: ", 6000) + "1" + strings.Repeat("; f", 6000), strings.Repeat("1 as $x|", 7000) + "$x", strings.Repeat("1", 60000),
		strings.Repeat("if . then ", 3000) + "1" + strings.Repeat(" else 2 end", 3000), "[" + strings.Repeat("1,", 30000) + "1]", strings.Repeat("x", 70000),
	} {
		done := make(chan error, 1)
		go func() {
			_, err := JQ(1, 2, "x.jq", text, DefaultLimits())
			done <- err
		}()
		select {
		case err := <-done:
			t.Logf("%.20s: %.100v", text, err)
		case <-time.After(time.Minute):
			t.Fatalf("%.20s… does not end", text)
		}
	}
}

// TestOutcomesThatAreHardToWrite: small documents that are endless to compare or encode.
func TestOutcomesThatAreHardToWrite(t *testing.T) {
	leaveToOthers(t)
	for name, text := range map[string]string{
		"shared":          `many | {channels: {state: .}}`,
		"shared objects":  `names | {channels: {state: .}}`,
		"deep":            `deep | {channels: {state: .}}`,
		"a long number":   `big | {channels: {state: .}}`,
		"different twice": `many as $m | {channels: {state: [$m, now]}}`,
		"many channels":   `{channels: ([range(300000) | {key: "\(.)", value: 1}] | from_entries)}`,
		"meta":            `many | {channels: {}, meta: .}`,
	} {
		t.Run(name, func(t *testing.T) {
			if name == "many channels" {
				text = `.channels = ([range(100000) | {key: "n\(.)", value: [1]}] | from_entries)`
				set := mustLarge(t, text, `.`)
				channels := make([]Channel, 2000)
				for i := range channels {
					channels[i] = Channel{fmt.Sprint("c", i), "json", []byte("[1]")}
				}
				endtest.Must(t, func() { set.Migrate(t.Context(), State{Channels: channels}, 1, 3, false) })
				return
			}
			hostileRun(t, text)
		})
	}
}

func mustLarge(t *testing.T, programs ...string) *Set {
	t.Helper()
	spec := Spec{Kind: "k"}
	for i, text := range programs {
		step, err := JQ(uint64(i+1), uint64(i+2), "x.jq", text, DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		spec.Steps = append(spec.Steps, step)
	}
	set, err := NewSet(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestDeepStatesAreWritten: the old and the new state are compared at each of many levels.
func TestDeepStatesAreWritten(t *testing.T) {
	leaveToOthers(t)
	const levels = 4000
	pad := `"p":[` + strings.Repeat("1,", 100) + `1],"q":`
	text := strings.Repeat("{"+pad, levels) + "1" + strings.Repeat("}", levels)
	set := mustLarge(t, `.channels.state |= (reduce range(`+fmt.Sprint(levels)+`) as $i ([]; . + ["q"]) as $p | setpath($p; 2))`)
	endtest.Must(t, func() {
		got, _, err := set.Migrate(t.Context(), jsonState(text), 1, 2, false)
		if err != nil {
			t.Error(err)
		} else if want := strings.Replace(text, `"q":1}`, `"q":2}`, 1); string(got.Channels[0].Data) != want {
			t.Error("other members lost their bytes")
		}
	})
}

// TestFixturesEndWithTheCaller: fixtures are programs that run for the caller, too.
func TestFixturesEndWithTheCaller(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	step, err := JQ(1, 2, "x.jq", `last(repeat(.))`, Limits{Time: time.Hour, Memory: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	fixture := Fixture{Name: "f", From: 1, To: 2, Before: []byte(`{"channels":{}}`), After: []byte(`{"channels":{}}`)}
	endtest.Must(t, func() {
		_, err = NewSet(ctx, Spec{Kind: "k", Steps: []Step{step}, Fixtures: []Fixture{fixture}, Limits: Limits{Time: time.Hour}})
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
