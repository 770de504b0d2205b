package wasmtest

import (
	"encoding/binary"
	"math"
	"strings"
)

// Value types, and the type of a block without a result.
const (
	I32       Code = "\x7f"
	I64       Code = "\x7e"
	F32       Code = "\x7d"
	F64       Code = "\x7c"
	V128      Code = "\x7b"
	FuncRef   Code = "\x70"
	ExternRef Code = "\x6f"
	Void      Code = "\x40"
)

// Instructions without immediates, and those whose immediates rarely vary.
const (
	Unreachable Code = "\x00"
	Nop         Code = "\x01"
	Else        Code = "\x05"
	End         Code = "\x0b"
	Return      Code = "\x0f"
	Drop        Code = "\x1a"
	Select      Code = "\x1b"

	I32Load    Code = "\x28\x02\x00"
	I64Load    Code = "\x29\x03\x00"
	I32Load8U  Code = "\x2d\x00\x00"
	I32Store   Code = "\x36\x02\x00"
	I64Store   Code = "\x37\x03\x00"
	I32Store8  Code = "\x3a\x00\x00"
	MemorySize Code = "\x3f\x00"
	MemoryGrow Code = "\x40\x00"

	I32Eqz  Code = "\x45"
	I32Eq   Code = "\x46"
	I32Ne   Code = "\x47"
	I32LtS  Code = "\x48"
	I32LtU  Code = "\x49"
	I32GtU  Code = "\x4b"
	I32LeS  Code = "\x4c"
	I32GeU  Code = "\x4f"
	I64Eqz  Code = "\x50"
	I64Ne   Code = "\x52"
	I32Add  Code = "\x6a"
	I32Sub  Code = "\x6b"
	I32Mul  Code = "\x6c"
	I32Div  Code = "\x6d" // signed
	I32And  Code = "\x71"
	I32ShrU Code = "\x76"
	I64Add  Code = "\x7c"
	I64Sub  Code = "\x7d"
	I64Mul  Code = "\x7e"
	I64Xor  Code = "\x85"

	I32WrapI64    Code = "\xa7"
	I64ExtendI32U Code = "\xad"

	MemoryCopy Code = "\xfc\x0a\x00\x00"
	MemoryFill Code = "\xfc\x0b\x00"
)

// Block returns a block of a result type around a body.
func Block(result Code, body ...Code) Code { return "\x02" + result + join(body) + End }

// Loop returns a loop.
func Loop(result Code, body ...Code) Code { return "\x03" + result + join(body) + End }

// If returns an if, whose body may have an Else.
func If(result Code, body ...Code) Code { return "\x04" + result + join(body) + End }

// Br branches to the label that is depth frames out.
func Br(depth uint32) Code { return "\x0c" + U(uint64(depth)) }

// BrIf branches if the operand is not zero.
func BrIf(depth uint32) Code { return "\x0d" + U(uint64(depth)) }

// BrTable branches to one of the labels, or to the last.
func BrTable(depths ...uint32) Code {
	c := "\x0e" + U(uint64(len(depths)-1))
	for _, d := range depths {
		c += U(uint64(d))
	}
	return c
}

// Call calls a function.
func Call(f uint32) Code { return "\x10" + U(uint64(f)) }

// CallIndirect calls a function of table 0 by its type.
func CallIndirect(typ uint32) Code { return "\x11" + U(uint64(typ)) + "\x00" }

// LocalGet reads a local or parameter.
func LocalGet(i uint32) Code { return "\x20" + U(uint64(i)) }

// LocalSet writes one.
func LocalSet(i uint32) Code { return "\x21" + U(uint64(i)) }

// LocalTee writes one and leaves the value.
func LocalTee(i uint32) Code { return "\x22" + U(uint64(i)) }

// GlobalGet reads a global.
func GlobalGet(i uint32) Code { return "\x23" + U(uint64(i)) }

// GlobalSet writes a global.
func GlobalSet(i uint32) Code { return "\x24" + U(uint64(i)) }

// I32Const is a constant.
func I32Const(v int32) Code { return "\x41" + S(int64(v)) }

// I64Const is a constant.
func I64Const(v int64) Code { return "\x42" + S(v) }

// F64Const is a constant.
func F64Const(v float64) Code {
	return "\x44" + Code(binary.LittleEndian.AppendUint64(nil, math.Float64bits(v)))
}

// MemoryInit copies from a passive segment.
func MemoryInit(segment uint32) Code { return "\xfc\x08" + U(uint64(segment)) + "\x00" }

// DataDrop drops a passive segment.
func DataDrop(segment uint32) Code { return "\xfc\x09" + U(uint64(segment)) }

// RefFunc is a reference to a function.
func RefFunc(f uint32) Code { return "\xd2" + U(uint64(f)) }

// Repeat returns a piece of code repeated n times.
func Repeat(n int, c Code) Code { return Code(strings.Repeat(string(c), n)) }
