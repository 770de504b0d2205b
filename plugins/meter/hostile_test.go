package meter_test

import (
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/hook"
	wt "github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/plugins/meter"
)

// body returns a module with a memory, a table, globals and one function ()->().
func body(code ...wt.Code) []byte {
	return withFunc(wt.U(0) + wt.Code(strings.Join(parts(code), "")) + wt.End)
}

func parts(code []wt.Code) (s []string) {
	for _, c := range code {
		s = append(s, string(c))
	}
	return s
}

// withFunc returns the same with a given entry of the code section.
func withFunc(entry wt.Code) []byte {
	m := wt.New()
	m.Memory(1, 2)
	m.Table(1, 1)
	m.Global(wt.I32, true, wt.I32Const(0))
	m.FuncRaw("f", wt.Sig("", ""), entry)
	return m.Bytes()
}

// build returns what edit makes of an empty module.
func build(edit func(m *wt.Module)) []byte {
	m := wt.New()
	edit(m)
	return m.Bytes()
}

// section returns a module that is a header and one section.
func section(id byte, contents wt.Code) []byte { return []byte(wt.Header + wt.Section(id, contents)) }

const many = 1<<32 - 1

func TestHostile(t *testing.T) {
	none := wt.Sig("", "")
	for _, c := range []struct {
		name string
		bin  []byte
		kind error
		want string
	}{
		{"empty", nil, hook.ErrInvalid, "not a WebAssembly binary"},
		{"text", []byte("(module (memory 1))"), hook.ErrInvalid, "not a WebAssembly binary"},
		{"version 2", []byte("\x00asm\x02\x00\x00\x00"), hook.ErrInvalid, "not version 1"},
		{"component", []byte("\x00asm\x0d\x00\x01\x00"), hook.ErrInvalid, "rebuild it as a core module for wasip1"},

		// Counts.
		{"types", section(wt.SecType, wt.U(many)), hook.ErrInvalid, "4294967295 types announced"},
		{"parameters", section(wt.SecType, wt.U(1)+"\x60"+wt.U(many)+"\x00"), hook.ErrInvalid, "4294967295 parameters announced"},
		{"results", section(wt.SecType, wt.U(1)+"\x60\x00"+wt.U(many)), hook.ErrInvalid, "results announced"},
		{"imports", section(wt.SecImport, wt.U(many)), hook.ErrInvalid, "imports announced"},
		{"name of an import", section(wt.SecImport, wt.U(1)+wt.U(many)+"abc"), hook.ErrInvalid, "bytes of a name announced"},
		{"functions", section(wt.SecFunction, wt.U(many)), hook.ErrInvalid, "functions announced"},
		{"tables", section(wt.SecTable, wt.U(many)), hook.ErrInvalid, "tables announced"},
		{"memories", section(wt.SecMemory, wt.U(many)), hook.ErrInvalid, "memories announced"},
		{"globals", section(wt.SecGlobal, wt.U(many)), hook.ErrInvalid, "globals announced"},
		{"exports", section(wt.SecExport, wt.U(many)), hook.ErrInvalid, "exports announced"},
		{"element segments", section(wt.SecElement, wt.U(many)), hook.ErrInvalid, "element segments announced"},
		{"elements", section(wt.SecElement, wt.U(1)+wt.U(1)+"\x00"+wt.U(many)), hook.ErrInvalid, "elements announced"},
		{"data count", section(wt.SecDataCount, wt.U(many)), hook.ErrLimit, "4294967295 data segments"},
		{"data count that is wrong", section(wt.SecDataCount, wt.U(7)), hook.ErrInvalid, "7 data segments announced and 0 there"},
		{"bodies", section(wt.SecCode, wt.U(many)), hook.ErrInvalid, "bodies announced"},
		{"size of a body", build(func(m *wt.Module) {
			m.Func("", none, "")
			m.Raw(wt.SecCode, wt.U(1)+wt.U(many)+"\x00\x0b")
		}), hook.ErrInvalid, "bytes of a function announced"},
		{"data segments", section(wt.SecData, wt.U(many)), hook.ErrInvalid, "data segments announced"},
		{"bytes of data", build(func(m *wt.Module) {
			m.Memory(1, 1)
			m.Raw(wt.SecData, wt.U(1)+wt.U(1)+wt.U(many))
		}), hook.ErrInvalid, "bytes of data announced"},
		{"size of a section", []byte(wt.Header + "\x01" + wt.U(many)), hook.ErrInvalid, "bytes of a section announced"},
		{"groups of locals", withFunc(wt.U(many) + wt.End), hook.ErrInvalid, "groups of locals announced"},
		{"4G locals", withFunc(wt.U(1) + wt.U(many) + wt.I64 + wt.End), hook.ErrLimit, "more than 2000 locals"},
		{"50M locals", withFunc(wt.U(1) + wt.U(50_000_000) + wt.I64 + wt.End), hook.ErrLimit, "more than 2000 locals"},
		{"locals that overflow", withFunc(wt.U(2) + wt.U(2000) + wt.I64 + wt.U(many) + wt.I64 + wt.End), hook.ErrLimit, "more than 2000 locals"},
		{"targets of a br_table", body(wt.I32Const(0) + "\x0e" + wt.U(many)), hook.ErrInvalid, "targets of a br_table announced"},
		{"types of a select", body("\x1c" + wt.U(many)), hook.ErrInvalid, "types of a select announced"},

		// Numbers.
		{"long", section(wt.SecType, wt.Long(0, 6)), hook.ErrInvalid, "longer than its type"},
		{"too large", section(wt.SecType, "\xff\xff\xff\xff\x1f"), hook.ErrInvalid, "longer than its type"},
		{"cut off", section(wt.SecType, "\x80"), hook.ErrInvalid, "ends too early"},
		{"long i32", body("\x41\x80\x80\x80\x80\x80\x00" + wt.Drop), hook.ErrInvalid, "longer than its type"},
		{"i32 with other bits", body("\x41\xff\xff\xff\xff\x4f" + wt.Drop), hook.ErrInvalid, "longer than its type"},
		{"long i64", body("\x42" + wt.Repeat(10, "\x80") + "\x00" + wt.Drop), hook.ErrInvalid, "longer than its type"},
		{"i64 with other bits", body("\x42" + wt.Repeat(9, "\xff") + "\x3f" + wt.Drop), hook.ErrInvalid, "longer than its type"},

		// Sections.
		{"unknown section", section(13, ""), hook.ErrInvalid, "unknown section 13"},
		{"section twice", build(func(m *wt.Module) { m.Memory(1, 1); m.Append(wt.SecMemory, wt.Section(wt.SecMemory, wt.U(0))) }),
			hook.ErrInvalid, "twice or out of order"},
		{"out of order", build(func(m *wt.Module) { m.Memory(1, 1); m.Append(wt.SecExport, wt.Section(wt.SecType, wt.U(0))) }),
			hook.ErrInvalid, "twice or out of order"},
		{"bytes too many", section(wt.SecType, wt.U(0)+"\x00"), hook.ErrInvalid, "1 bytes too many"},
		{"start", build(func(m *wt.Module) { m.Start(m.Func("", none, "", wt.Loop(wt.Void, wt.Br(0)))) }), hook.ErrInvalid, "a start function"},
		{"function without a body", section(wt.SecType, wt.U(1)+"\x60\x00\x00"+wt.Section(wt.SecFunction, wt.U(1)+"\x00")), hook.ErrInvalid, "too many"},
		{"no code section", build(func(m *wt.Module) {
			m.Type(none)
			m.Raw(wt.SecFunction, wt.U(1)+wt.U(0))
		}), hook.ErrInvalid, "1 functions and 0 bodies"},
		{"custom section without a name", section(wt.SecCustom, wt.U(many)), hook.ErrInvalid, "bytes of a name announced"},

		// Types, imports and exports.
		{"GC type", section(wt.SecType, wt.U(1)+"\x5f\x00\x00"), hook.ErrInvalid, "without GC"},
		{"many parameters", build(func(m *wt.Module) { m.Type(wt.Sig(wt.Repeat(129, wt.I32), "")) }), hook.ErrLimit, "129 parameters"},
		{"many results", build(func(m *wt.Module) { m.Type(wt.Sig("", wt.Repeat(17, wt.I32))) }), hook.ErrLimit, "17 results"},
		{"imported memory", build(func(m *wt.Module) { m.ImportRaw("env", "memory", wt.KindMemory, "\x00\x01") }), hook.ErrInvalid, "only functions can be imported"},
		{"imported global", build(func(m *wt.Module) { m.ImportRaw("env", "g", wt.KindGlobal, wt.I32+"\x01") }), hook.ErrInvalid, "only functions can be imported"},
		{"import of the meter", build(func(m *wt.Module) { m.Import(meter.RefillModule, meter.RefillName, wt.Sig(wt.I64, wt.I64)) }), hook.ErrInvalid, "which is the meter's"},
		{"import of a type that is not there", build(func(m *wt.Module) { m.ImportRaw("a", "b", wt.KindFunc, wt.U(3)) }), hook.ErrInvalid, "type 3 of 0"},
		{"name that is not UTF-8", build(func(m *wt.Module) { m.Import("\xff", "b", none) }), hook.ErrInvalid, "not UTF-8"},
		{"exports of one name", build(func(m *wt.Module) { m.Memory(1, 1); m.Export("memory", wt.KindMemory, 0) }), hook.ErrInvalid, "two exports have one name"},
		{"export of the meter", build(func(m *wt.Module) { m.Func(meter.FuelExport, none, "") }), hook.ErrInvalid, "which is the meter's"},
		{"export of what is not there", build(func(m *wt.Module) { m.Export("f", wt.KindFunc, 0) }), hook.ErrInvalid, "function 0 of 0"},
		{"export of a helper", build(func(m *wt.Module) { m.Func("", none, ""); m.Export("f", wt.KindFunc, 2) }), hook.ErrInvalid, "function 2 of 1"},

		// Memory, tables, globals.
		{"minimum of the memory", build(func(m *wt.Module) { m.Memory(2049, -1) }), hook.ErrLimit, "2049 pages at least"},
		{"maximum below the minimum", build(func(m *wt.Module) { m.Memory(2, 1) }), hook.ErrInvalid, "below the minimum"},
		{"two memories", build(func(m *wt.Module) { m.Memory(1, 1); m.Memory(1, 1) }), hook.ErrInvalid, "2 memories"},
		{"shared memory", build(func(m *wt.Module) { m.MemoryRaw("\x03\x01\x02") }), hook.ErrInvalid, "without threads"},
		{"64-bit memory", build(func(m *wt.Module) { m.MemoryRaw("\x04\x01") }), hook.ErrInvalid, "memory64"},
		{"huge table", build(func(m *wt.Module) { m.Table(1<<27, -1) }), hook.ErrLimit, "entries in tables"},
		{"many tables", build(func(m *wt.Module) {
			for range 64 {
				m.Table(1, -1)
			}
		}), hook.ErrLimit, "64 tables"},
		{"tables that are large together", build(func(m *wt.Module) { m.Table(40_000, -1); m.Table(40_000, -1) }), hook.ErrLimit, "80000 entries"},
		{"mutable reference", build(func(m *wt.Module) { m.Global(wt.FuncRef, true, "\xd0"+wt.FuncRef) }), hook.ErrInvalid, "could not be reset"},
		{"mutable vector", build(func(m *wt.Module) { m.Global(wt.V128, true, "\xfd\x0c"+wt.Repeat(16, "\x00")) }), hook.ErrInvalid, "could not be reset"},
		{"many mutable globals", build(func(m *wt.Module) {
			for range 257 {
				m.Global(wt.I32, true, wt.I32Const(0))
			}
		}), hook.ErrLimit, "more than 256 mutable globals"},
		{"extended constant", build(func(m *wt.Module) { m.Global(wt.I32, false, wt.I32Const(0)+wt.I32Const(0)+wt.I32Add) }), hook.ErrInvalid, "extended constant"},
		{"global from a global", build(func(m *wt.Module) { m.Global(wt.I32, false, wt.GlobalGet(0)) }), hook.ErrInvalid, "not a constant"},

		// Instructions.
		{"tail call", body("\x12\x00"), hook.ErrInvalid, "tail call"},
		{"exception", body("\x06\x40" + wt.End), hook.ErrInvalid, "unknown instruction 0x06"},
		{"atomic", body("\xfe\x03\x00"), hook.ErrInvalid, "without threads"},
		{"unknown", body("\xff"), hook.ErrInvalid, "unknown instruction 0xff"},
		{"relaxed SIMD", body("\xfd\x80\x02"), hook.ErrInvalid, "relaxed SIMD"},
		{"vector number in a long form", body("\xfd\x8c\x00"), hook.ErrInvalid, "vector instruction"},
		{"bulk number in a long form", body("\xfc\x8b\x00\x00"), hook.ErrInvalid, "unknown instruction 0xfc 0x8b"},
		{"bulk number beyond a byte", body("\xfc\x8b\x02\x00"), hook.ErrInvalid, "unknown instruction 0xfc 0x8b"},
		{"table.set", body("\x26\x00"), hook.ErrInvalid, "table.set"},
		{"table.init", body("\xfc\x0c\x00\x00"), hook.ErrInvalid, "changes tables"},
		{"elem.drop", body("\xfc\x0d\x00"), hook.ErrInvalid, "changes tables"},
		{"table.copy", body("\xfc\x0e\x00\x00"), hook.ErrInvalid, "changes tables"},
		{"table.grow", body("\xfc\x0f\x00"), hook.ErrInvalid, "changes tables"},
		{"table.fill", body("\xfc\x11\x00"), hook.ErrInvalid, "changes tables"},
		{"data.drop", body("\xfc\x09\x00"), hook.ErrInvalid, "data.drop"},
		{"memory.init without segments", body("\xfc\x08\x00\x00"), hook.ErrInvalid, "data count"},
		{"second memory", body("\x3f\x01"), hook.ErrInvalid, "multi-memory"},
		{"load of a second memory", body(wt.I32Const(0) + "\x28\x42\x01\x00"), hook.ErrInvalid, "multi-memory"},
		{"load without memory", build(func(m *wt.Module) { m.Func("", none, "", wt.I32Const(0)+wt.I32Load+wt.Drop) }), hook.ErrInvalid, "there is none"},
		{"call of a helper", body(wt.Call(1)), hook.ErrInvalid, "function 1 of 1"},
		{"global of the meter", body(wt.I64Const(1) + wt.GlobalSet(1)), hook.ErrInvalid, "global 1 of 1"},
		{"local of the meter", body(wt.I32Const(1) + wt.LocalSet(0)), hook.ErrInvalid, "local 0 of 0"},
		{"type of the meter", body(wt.I32Const(0) + wt.CallIndirect(1)), hook.ErrInvalid, "type 1 of 1"},
		{"label", body(wt.Br(1)), hook.ErrInvalid, "label 1 of 1"},
		{"type of a block", body(wt.Block("\x01")), hook.ErrInvalid, "unknown type of a block"},
		{"type of a block in a long form", body(wt.Block("\xff\x7f")), hook.ErrInvalid, "unknown type of a block"},
		{"else without if", body(wt.Block(wt.Void, wt.Else)), hook.ErrInvalid, "else without if"},
		{"two elses", body(wt.I32Const(0) + wt.If(wt.Void, wt.Else, wt.Else)), hook.ErrInvalid, "else without if"},
		{"no end", withFunc(wt.U(0) + wt.Nop), hook.ErrInvalid, "ends too early"},
		{"after the end", withFunc(wt.U(0) + wt.End + wt.Nop), hook.ErrInvalid, "1 bytes after the end"},

		// What takes a compiler long.
		{"100k blocks deep", body(wt.Repeat(100_000, "\x02\x40"), wt.Repeat(100_000, wt.End)), hook.ErrLimit, "bytes of a function"},
		{"2,001 blocks deep", body(wt.Repeat(2001, "\x02\x40"), wt.Repeat(2001, wt.End)), hook.ErrLimit, "nest deeper than 2000"},
		{"33 loops deep", body(wt.Repeat(33, "\x03\x40"), wt.Repeat(33, wt.End)), hook.ErrLimit, "nest deeper than 32"},
		{"loops and locals", withFunc(wt.U(1) + wt.U(2000) + wt.I64 + wt.Repeat(20, "\x03\x40") + wt.Repeat(21, wt.End)), hook.ErrLimit, "too complex"},
		{"br_table", body(wt.I32Const(0) + wt.BrTable(make([]uint32, 8194)...)), hook.ErrLimit, "targets of a br_table"},
		{"br_tables and locals", withFunc(wt.U(1) + wt.U(100) + wt.I64 + wt.I32Const(0) + wt.BrTable(make([]uint32, 8000)...) + wt.End), hook.ErrLimit, "too complex"},
		{"200k functions", build(func(m *wt.Module) {
			m.Type(none)
			m.Raw(wt.SecFunction, wt.U(200_000)+wt.Repeat(200_000, "\x00"))
		}), hook.ErrLimit, "200000 functions"},
		{"complex functions", build(func(m *wt.Module) {
			for range 100 {
				m.Func("", none, wt.Repeat(400, wt.I32), wt.Repeat(15, "\x03\x40"), wt.Repeat(15, wt.End))
			}
		}), hook.ErrLimit, "taken together"},
		{"large binary", make([]byte, 16<<20+1), hook.ErrLimit, "more than the 16777216"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := meter.Rewrite(c.bin, meter.Limits{})
			runtime.ReadMemStats(&after)

			var e *meter.Error
			if !errors.As(err, &e) || !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %v: … %s …", err, c.kind, c.want)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20+64*uint64(len(c.bin)) {
				t.Errorf("%d bytes of module made it allocate %d", len(c.bin), n)
			}
		})
	}
}

// Every prefix of a module is refused, but for those that end with the header, the types or the
// imports, which are modules themselves.
func TestTruncated(t *testing.T) {
	bin := wt.Upper()
	whole := map[int]bool{8: true}
	for at := 8; bin[at] <= wt.SecImport; {
		size, n := binary.Uvarint(bin[at+1:])
		at += 1 + n + int(size)
		whole[at] = true
	}
	if len(whole) != 3 {
		t.Fatalf("%d sections", len(whole))
	}
	for n := range bin {
		if _, err := meter.Rewrite(bin[:n], meter.Limits{}); (err == nil) != whole[n] {
			t.Errorf("the first %d of %d bytes: %v", n, len(bin), err)
		}
	}
}

func TestLimits(t *testing.T) {
	bin := build(func(m *wt.Module) { m.Memory(2, 100) })
	out, err := meter.Rewrite(bin, meter.Limits{Pages: 10})
	if err != nil || out.MinPages != 2 || out.MaxPages != 10 {
		t.Errorf("pages %d to %d and error %v, want 2 to 10", out.MinPages, out.MaxPages, err)
	}
	out, err = meter.Rewrite(build(func(m *wt.Module) { m.Memory(2, -1) }), meter.Limits{})
	if err != nil || out.MaxPages != 2048 {
		t.Errorf("at most %d pages and error %v, want 2048", out.MaxPages, err)
	}
	if _, err := meter.Rewrite(bin, meter.Limits{Pages: 1}); !errors.Is(err, hook.ErrLimit) {
		t.Errorf("error %v, want %v", err, hook.ErrLimit)
	}
	if _, err := meter.Rewrite(bin, meter.Limits{Binary: len(bin) - 1}); !errors.Is(err, hook.ErrLimit) {
		t.Errorf("error %v, want %v", err, hook.ErrLimit)
	}
}
