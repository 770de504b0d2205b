package meter

// Opcodes that the walker or the emitter treats by name.
const (
	opUnreachable  = 0x00
	opBlock        = 0x02
	opLoop         = 0x03
	opIf           = 0x04
	opElse         = 0x05
	opEnd          = 0x0b
	opBr           = 0x0c
	opBrIf         = 0x0d
	opBrTable      = 0x0e
	opReturn       = 0x0f
	opCall         = 0x10
	opCallIndirect = 0x11
	opSelect       = 0x1b
	opSelectTyped  = 0x1c
	opLocalGet     = 0x20
	opLocalSet     = 0x21
	opLocalTee     = 0x22
	opGlobalGet    = 0x23
	opGlobalSet    = 0x24
	opTableGet     = 0x25
	opTableSet     = 0x26
	opLoadFirst    = 0x28
	opStoreLast    = 0x3e
	opMemorySize   = 0x3f
	opMemoryGrow   = 0x40
	opI32Const     = 0x41
	opI64Const     = 0x42
	opF32Const     = 0x43
	opF64Const     = 0x44
	opPlainFirst   = 0x45 // from here to opPlainLast: no immediates
	opI64GeS       = 0x59
	opI64GtU       = 0x56
	opI32Eqz       = 0x45
	opI32LtS       = 0x48
	opI32GtU       = 0x4b
	opI32LeU       = 0x4d
	opI32Add       = 0x6a
	opI32Sub       = 0x6b
	opI32Or        = 0x72
	opI32ShrU      = 0x76
	opI64Add       = 0x7c
	opI64Sub       = 0x7d
	opI64Mul       = 0x7e
	opI64Shl       = 0x86
	opI64ExtendU   = 0xad // i64.extend_i32_u
	opPlainLast    = 0xc4
	opRefNull      = 0xd0
	opRefIsNull    = 0xd1
	opRefFunc      = 0xd2
	opBulk         = 0xfc // prefix
	opVector       = 0xfd // prefix

	bulkTruncLast = 0x07 // from 0: saturating truncations
	bulkInit      = 0x08
	bulkDataDrop  = 0x09
	bulkCopy      = 0x0a
	bulkFill      = 0x0b
	bulkTableSize = 0x10

	vecMemLast   = 11 // from 0: loads and the store
	vecConst     = 12
	vecShuffle   = 13
	vecLaneFirst = 21 // extract_lane and replace_lane
	vecLaneLast  = 34
	vecMemLane   = 84 // from here to vecMemLaneEnd: loads and stores of a lane
	vecMemLaneE  = 91
	vecMemZero   = 92 // and 93: loads of 32 and 64 bits
	vecMemZeroE  = 93
	vecLast      = 255
)

// Costs of instructions in units of fuel; docs/metering.md has the table. A unit is about the time
// of an addition.
const (
	costEntry        = 2 // of a function
	costLoop         = 1 // per iteration
	costBrTable      = 2
	costCall         = 3
	costCallIndirect = 5
	costImport       = 50 // of a call to the host, in addition to the host's own charge
	costDivide       = 8
	costRoot         = 8 // square roots and floating-point divisions
	costBulk         = 10
	costGrow         = 100

	bytesShift = 4    // bulk operations: one unit per 16 bytes
	pageCost   = 4096 // one page, by the same measure
	chunk      = 64 << 10
)

// The call stack: its size, and the share of a frame. The unit is roughly a byte of the stack that
// wazero needs.
const (
	stackSize   = 16 << 20
	stackFrame  = 64
	stackLocal  = 8        // per parameter or local, at the entry and at each loop
	stackResult = 16       // per result of a call in the function
	stackFree   = 64 << 10 // calls that provably stay within this need not account
)

// plainCost is the cost of an instruction without a rule of its own.
func plainCost(op byte) uint32 {
	switch {
	case op <= opEnd || op == 0x1a || op >= opLocalGet && op <= opLocalTee || op >= opI32Const && op <= opF64Const:
		return 0 // structure, and instructions that compile to registers; an if costs 1, see walk
	case op >= 0x6d && op <= 0x70 || op >= 0x7f && op <= 0x82: // div_s, div_u, rem_s, rem_u of i32 and i64
		return costDivide
	case op == 0x91 || op == 0x95 || op == 0x9f || op == 0xa3: // sqrt and div of f32 and f64
		return costRoot
	default:
		return 1
	}
}
