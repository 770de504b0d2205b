package wasmtest

// ABI is the name of the module that plugins import from.
const ABI = "ckptd_v1"

// Return codes of hooks.
const (
	Output    = 0
	Unchanged = 1
	Rejected  = 2
)

// Plugin is a module with the imports and exports of ABI v1, to which a test adds hooks. Its memory
// starts with one page; this package uses only the bytes from Buffer on.
type Plugin struct {
	*Module
	InputLen, InputRead, OutputWrite, ErrorSet, Log, Finding, RedactBuiltin, Pseudonym, BlobPut uint32
}

// Buffer is the address at which the predefined plugins put their input.
const Buffer = 1024

// NewPlugin returns a plugin without hooks, whose memory can grow to maximum pages (unlimited if
// negative).
func NewPlugin(maximum int64) *Plugin {
	p := &Plugin{Module: New()}
	p.InputLen = p.Import(ABI, "input_len", Sig(I32, I64))
	p.InputRead = p.Import(ABI, "input_read", Sig(I32+I64+I32+I32, I32))
	p.OutputWrite = p.Import(ABI, "output_write", Sig(I32+I32, I32))
	p.ErrorSet = p.Import(ABI, "error_set", Sig(I32+I32+I32, ""))
	p.Log = p.Import(ABI, "log", Sig(I32+I32+I32, ""))
	p.Finding = p.Import(ABI, "finding", Sig(I32+I32+I32+I32+I32, ""))
	p.RedactBuiltin = p.Import(ABI, "redact_builtin", Sig(I32+I32+I32+I32+I32+I32, I32))
	p.Pseudonym = p.Import(ABI, "pseudonym", Sig(I32+I32+I32+I32, I32))
	p.BlobPut = p.Import(ABI, "blob_put", Sig(I32+I32+I32, I32))
	p.Memory(1, maximum)
	p.Func("ckptd_abi_v1", Sig("", I32), "", I32Const(1))
	return p
}

// Hook adds an exported function ()->i32, such as "on_pre_save" or "ckptd_configure", and returns
// its index.
func (p *Plugin) Hook(name string, locals Code, body ...Code) uint32 {
	return p.Func(name, Sig("", I32), locals, body...)
}

// ReadAll reads slot 0 to Buffer, growing the memory as needed, and leaves its length in an i32
// local. It traps if the memory cannot grow.
func (p *Plugin) ReadAll(length uint32) Code {
	return I32Const(0) + Call(p.InputLen) + I32WrapI64 + LocalSet(length) +
		// Missing pages: (Buffer + length + 65535) / 65536 - memory.size, if positive.
		Block(Void, LocalGet(length)+I32Const(Buffer+65535)+I32Add+I32Const(16)+I32ShrU+MemorySize+I32Sub+
			LocalTee(length)+I32Const(0)+I32LeS+BrIf(0)+
			LocalGet(length)+MemoryGrow+I32Const(-1)+I32Ne+BrIf(0)+Unreachable) +
		I32Const(0) + Call(p.InputLen) + I32WrapI64 + LocalSet(length) +
		I32Const(0) + I64Const(0) + I32Const(Buffer) + LocalGet(length) + Call(p.InputRead) + Drop
}

// WriteAll writes as many bytes from Buffer on as a local holds, and drops the result.
func (p *Plugin) WriteAll(length uint32) Code {
	return I32Const(Buffer) + LocalGet(length) + Call(p.OutputWrite) + Drop
}

// Echo is a plugin whose on_pre_save, on_load and on_export write their input.
func Echo() []byte {
	p := NewPlugin(-1)
	for _, hook := range []string{"on_pre_save", "on_load", "on_export"} {
		p.Hook(hook, I32, p.ReadAll(0), p.WriteAll(0), I32Const(Output))
	}
	return p.Bytes()
}

// Upper is a plugin whose on_pre_save converts ASCII letters to upper case.
func Upper() []byte {
	p := NewPlugin(-1)
	const length, at = 0, 1
	p.Hook("on_pre_save", I32+I32, p.ReadAll(length),
		Block(Void, Loop(Void,
			LocalGet(at)+LocalGet(length)+I32GeU+BrIf(1),
			LocalGet(at)+load8+I32Const('a')+I32Sub+I32Const(26)+I32LtU,
			If(Void, LocalGet(at)+LocalGet(at)+load8+I32Const(32)+I32Sub+store8),
			LocalGet(at)+I32Const(1)+I32Add+LocalSet(at)+Br(0))),
		p.WriteAll(length), I32Const(Output))
	return p.Bytes()
}

// Returns is a plugin whose on_pre_save returns a code and does nothing else.
func Returns(code int32) []byte { return simple(I32Const(code)) }

// Reject is a plugin whose on_pre_save rejects everything.
func Reject() []byte { return Returns(Rejected) }

// Fail is a plugin whose on_pre_save sets the error "sorry" with a code and returns it.
func Fail(code int32) []byte {
	p := NewPlugin(-1)
	p.Data(0, "sorry")
	p.Hook("on_pre_save", "", I32Const(code)+I32Const(0)+I32Const(5)+Call(p.ErrorSet)+I32Const(code))
	return p.Bytes()
}

// Trap is a plugin whose on_pre_save executes unreachable.
func Trap() []byte { return simple(Unreachable) }

// Spin is a plugin whose on_pre_save never ends.
func Spin() []byte { return simple(Loop(Void, Br(0)), I32Const(Unchanged)) }

// Recurse is a plugin whose on_pre_save recurses without end, one call per level.
func Recurse() []byte {
	p := NewPlugin(-1)
	self := p.importedFuncs + uint32(len(p.funcs))
	p.Hook("on_pre_save", "", Call(self))
	return p.Bytes()
}

// Explode is a plugin whose on_pre_save makes 2^depth calls without a loop.
func Explode(depth int32) []byte {
	p := NewPlugin(-1)
	self := p.importedFuncs + uint32(len(p.funcs))
	deeper := LocalGet(0) + I32Const(1) + I32Sub + Call(self)
	p.Func("", Sig(I32, ""), "", LocalGet(0)+If(Void, deeper, deeper))
	p.Hook("on_pre_save", "", I32Const(depth)+Call(self)+I32Const(Unchanged))
	return p.Bytes()
}

// Fill is a plugin whose on_pre_save fills a memory of the given pages n times, in straight-line
// code.
func Fill(pages int32, n int) []byte {
	p := NewPlugin(int64(pages))
	p.Hook("on_pre_save", "", I32Const(pages-1)+MemoryGrow+Drop,
		Repeat(n, I32Const(0)+I32Const(1)+I32Const(pages*65536)+MemoryFill), I32Const(Unchanged))
	return p.Bytes()
}

// A load and a store with the offset Buffer.
const (
	load8  Code = "\x2d\x00\x80\x08"
	store8 Code = "\x3a\x00\x80\x08"
)

func simple(body ...Code) []byte {
	p := NewPlugin(-1)
	p.Hook("on_pre_save", "", body...)
	return p.Bytes()
}
