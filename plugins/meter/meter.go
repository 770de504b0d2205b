// Package meter makes a WebAssembly module safe to compile and meters its work. It is a bounded
// validator and a rewriter that inserts a fuel meter into the code. It turns bytes into bytes and
// knows no runtime.
//
// Rewrite refuses anything that could exhaust the host before or outside the guest's own
// instructions: counts that are larger than the bytes that follow, code that takes a compiler much
// longer than its size suggests, unbounded tables, and state that a snapshot of the memory and the
// globals would miss. It does not check operand types: the compiler does that, on a module whose
// every instruction Rewrite has visited.
//
// docs/metering.md has the rules, the costs and the test vectors. The same bytes and limits give
// the same module, and a module uses the same fuel wherever and however often it runs on the same
// input.
package meter

import (
	"fmt"

	"github.com/ckptd/ckptd/hook"
)

// Version is the version of the rules. It changes whenever Rewrite produces a different module for
// the same input, so it must be part of any cache key.
const Version = 1

// Names by which the host finds the meter. A plugin must not use the prefix or the module.
const (
	Prefix       = "ckptd_meter."   // of all exports that Rewrite adds
	FuelExport   = Prefix + "fuel"  // i64: fuel left of the slice; the host sets and reads it
	StackExport  = Prefix + "stack" // i32: negative after a trap caused by a full call stack
	RefillModule = "ckptd_meter"
	RefillName   = "refill" // (i64)->i64
)

// Limits bounds the modules that Rewrite accepts. A zero field means its default.
type Limits struct {
	Binary int    // bytes of the module; 16 MiB
	Pages  uint32 // maximum of the memory, in pages of 64 KiB; 2048
}

// Limits that apply to every module. Binaries of Go, C, Rust and AssemblyScript stay far below
// them.
const (
	defaultBinary = 16 << 20
	defaultPages  = 2048

	maxTypes      = 10_000
	maxImports    = 10_000
	maxFunctions  = 50_000
	maxGlobals    = 10_000
	maxMutable    = 256 // globals: each costs a copy at every join and call
	maxExports    = 10_000
	maxTables     = 16
	maxEntries    = 64 << 10 // of all tables
	maxSegments   = 200_000  // of data, and of elements; Go has 40,000
	maxParams     = 128
	maxResults    = 16
	maxLocals     = 2_000 // per function, without its parameters
	maxBody       = 256 << 10
	maxNesting    = 2_000 // of blocks
	maxLoops      = 32    // nested
	maxBrTable    = 8 << 10
	maxWork       = 200_000    // per function: variables to copy at its joins and calls
	maxModuleWork = 20_000_000 // of all functions, and bounded by the next two
	baseWork      = 2_000_000
	workPerByte   = 4     // of the code; Go has 2
	maxName       = 1_000 // bytes of an import or export name
)

// Module is a rewritten module with the facts that its host needs.
type Module struct {
	Binary []byte // the rewritten module

	Imports []Import // the plugin's, in order, without the meter's own; only functions can be imported
	Exports []Export // the plugin's, in order, without the meter's own

	// MinPages and MaxPages are the bounds of the memory. Both are 0 if there is none.
	MinPages, MaxPages uint32

	// Globals lists the export names of all mutable globals of the plugin. Together with the memory
	// they are the entire state of an instance. The host saves and restores them; it can set the
	// fuel as it likes.
	Globals []string
}

// Import is an imported function.
type Import struct {
	Module, Name string
	Type         FuncType
}

// Export is an export of the module.
type Export struct {
	Name string
	Kind Kind
	Type FuncType // for functions
}

// FuncType is the type of a function.
type FuncType struct{ Params, Results string }

// String returns the type as (i32,i64)->i32.
func (t FuncType) String() string {
	list := func(s string) string {
		out := ""
		for i := range len(s) {
			if i > 0 {
				out += ","
			}
			out += valueNames[s[i]]
		}
		return out
	}
	if len(t.Results) == 1 {
		return "(" + list(t.Params) + ")->" + list(t.Results)
	}
	return "(" + list(t.Params) + ")->(" + list(t.Results) + ")"
}

// Kind is the kind of an export, as numbered by the binary format.
type Kind byte

// Kinds of exports.
const (
	Func Kind = iota
	Table
	Memory
	Global
)

// String returns the name of the kind.
func (k Kind) String() string {
	if k > Global {
		return fmt.Sprintf("kind %d", byte(k))
	}
	return [...]string{"function", "table", "memory", "global"}[k]
}

// Value types, as used in FuncType.
const (
	I32       = 0x7f
	I64       = 0x7e
	F32       = 0x7d
	F64       = 0x7c
	V128      = 0x7b
	FuncRef   = 0x70
	ExternRef = 0x6f
)

var valueNames = map[byte]string{
	I32: "i32", I64: "i64", F32: "f32", F64: "f64", V128: "v128", FuncRef: "funcref", ExternRef: "externref",
}

// Error gives the reason why a module was refused, and where. Kind is hook.ErrInvalid or
// hook.ErrLimit.
type Error struct {
	Kind    error
	Section string // "code", "import", …; "" if none
	Offset  int    // in the binary, in bytes
	Reason  string
}

// Error returns a single line that contains none of the module's own text.
func (e *Error) Error() string {
	if e.Section == "" {
		return fmt.Sprintf("wasm module: %s (byte %d)", e.Reason, e.Offset)
	}
	return fmt.Sprintf("wasm module: %s (%s section, byte %d)", e.Reason, e.Section, e.Offset)
}

// Unwrap returns Kind.
func (e *Error) Unwrap() error { return e.Kind }

// Rewrite validates a module and returns it metered, or an *Error. It neither keeps nor changes
// bin. Its time and memory are a small multiple of the size of bin.
func Rewrite(bin []byte, l Limits) (*Module, error) {
	if l.Binary <= 0 {
		l.Binary = defaultBinary
	}
	if l.Pages == 0 || l.Pages > 1<<16 {
		l.Pages = defaultPages
	}
	if len(bin) > l.Binary {
		return nil, &Error{Kind: hook.ErrLimit, Reason: fmt.Sprintf("%d bytes, more than the %d that are allowed", len(bin), l.Binary)}
	}
	p, err := parse(bin, l)
	if err != nil {
		return nil, err
	}
	return p.emit(), nil
}
