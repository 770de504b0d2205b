package hostile

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ckptd/ckptd/hook"
	. "github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/plugins"
)

// refusal is a row with a binary that must not load, for a reason that contains these words: a
// refusal for another reason would test nothing.
func refusal(name string, bin func() []byte, kind error, because string) row {
	return row{name: name, run: func(b *bed) { b.refused(spec(bin()), because, kind) }}
}

// spoiled returns an echo plugin with a modification.
func spoiled(change func(p *Plugin)) func() []byte {
	return func() []byte {
		p := NewPlugin(-1)
		p.Hook("on_pre_save", I32, p.ReadAll(0), p.WriteAll(0), I32Const(Output))
		change(p)
		return p.Bytes()
	}
}

func lies(id byte) func() []byte { return spoiled(func(p *Plugin) { p.Count(id, math.MaxUint32) }) }

// sectionOf is a section with a count but no entries.
func sectionOf(id byte) func() []byte {
	return func() []byte { return []byte(Header + Section(id, U(math.MaxUint32))) }
}

func binaryRows() []row {
	counts := []struct {
		name string
		id   byte
	}{
		{"type", SecType}, {"import", SecImport}, {"function", SecFunction}, {"table", SecTable}, {"memory", SecMemory},
		{"global", SecGlobal}, {"export", SecExport}, {"element", SecElement}, {"code", SecCode}, {"data", SecData}, {"data count", SecDataCount},
	}
	var rows []row
	for _, c := range counts {
		rows = append(rows, row{name: c.name + " count 2^32-1", run: func(b *bed) {
			b.refused(spec(lies(c.id)()), "4294967295 ", hook.ErrInvalid, hook.ErrLimit)
			b.refused(spec(sectionOf(c.id)()), "4294967295 ", hook.ErrInvalid, hook.ErrLimit)
		}})
	}
	return slices.Concat(rows, sizeRows(), interfaceRows(), bundleRows())
}

func sizeRows() []row {
	locals := func(n uint64) func() []byte {
		return spoiled(func(p *Plugin) { p.FuncRaw("", Sig("", ""), U(1)+U(n)+I64+End) })
	}
	body := func(code func() Code) func() []byte {
		return spoiled(func(p *Plugin) { p.Func("", Sig("", ""), I32, code()) })
	}
	return []row{
		refusal("type parameters 2^32-1", func() []byte { return []byte(Header + Section(SecType, U(1)+"\x60"+U(math.MaxUint32))) }, hook.ErrInvalid, "4294967295 parameters"),
		refusal("element vector 2^32-1", spoiled(func(p *Plugin) { p.Table(1, 1); p.ElemRaw(U(0) + I32Const(0) + End + U(math.MaxUint32)) }), hook.ErrInvalid, "4294967295 elements"),
		refusal("locals 4G", locals(math.MaxUint32), hook.ErrLimit, "locals"),
		refusal("locals 50M", locals(50_000_000), hook.ErrLimit, "locals"),
		{name: "truncated everywhere", run: func(b *bed) {
			bin := Upper()
			for n := range len(bin) {
				b.refused(spec(bin[:n]), "", hook.ErrInvalid, hook.ErrLimit)
			}
		}},
		refusal("truncated LEB", func() []byte { return []byte(Header + Section(SecType, "\x80\x80")) }, hook.ErrInvalid, "ends too early"),
		refusal("over-long LEB", func() []byte { return []byte(Header + Section(SecType, Long(0, 11))) }, hook.ErrInvalid, "longer than its type"),
		refusal("component", func() []byte { return []byte("\x00asm\x0d\x00\x01\x00") }, hook.ErrInvalid, "component"),
		refusal("not a module", func() []byte { return []byte("#!/bin/sh\nexit 0\n") }, hook.ErrInvalid, "not a WebAssembly"),
		refusal("empty", func() []byte { return nil }, hook.ErrInvalid, "not a WebAssembly"),
		refusal("64 huge tables", spoiled(func(p *Plugin) {
			for range 64 {
				p.Table(1<<27, -1)
			}
		}), hook.ErrLimit, "table"),
		refusal("8 huge tables", spoiled(func(p *Plugin) {
			for range 8 {
				p.Table(1<<27, -1)
			}
		}), hook.ErrLimit, "entries in tables"),
		refusal("minimum memory over the limit", func() []byte {
			p := spoiled(func(p *Plugin) { p.Raw(SecMemory, U(1)+"\x00"+U(65536)) })
			return p()
		}, hook.ErrLimit, "of memory"),
		refusal("100k nesting", body(func() Code { return Repeat(100_000, "\x02"+Void) }), hook.ErrLimit, "nest"),
		refusal("br_table bomb", body(func() Code {
			return Block(Void, I32Const(0)+"\x0e"+U(99_999)+Repeat(100_000, U(0)))
		}), hook.ErrLimit, "br_table"),
		refusal("200k-function bomb", spoiled(func(p *Plugin) {
			one := "\x02\x00" + End
			t := p.Type(Sig("", ""))
			p.Raw(SecFunction, U(200_000)+Repeat(200_000, U(uint64(t))))
			p.Raw(SecCode, U(200_000)+Repeat(200_000, one))
		}), hook.ErrLimit, "200000 functions"),
		refusal("locals times branches", spoiled(func(p *Plugin) { // 8.5 s and 1.5 GB in the compiler
			p.Func("", Sig("", ""), Repeat(2000, I64), Repeat(30_000, Block(Void, LocalGet(0)+I64Eqz+BrIf(0))))
		}), hook.ErrLimit, "too complex"),
		refusal("binary over its limit", func() []byte {
			p := NewPlugin(-1)
			p.Custom("padding", strings.Repeat("x", 17<<20))
			return p.Bytes()
		}, hook.ErrLimit, "bytes"),
	}
}

func interfaceRows() []row {
	without := func(change func(m *Module)) func() []byte {
		return func() []byte {
			m := New()
			change(m)
			return m.Bytes()
		}
	}
	abi := func(m *Module, version int32) { m.Func("ckptd_abi_v1", Sig("", I32), "", I32Const(version)) }
	saves := func(m *Module) { m.Func("on_pre_save", Sig("", I32), "", I32Const(Unchanged)) }
	return []row{
		refusal("unknown import", without(func(m *Module) {
			m.Import(ABI, "host_exec", Sig(I32, I32))
			m.Memory(1, -1)
			abi(m, 1)
			saves(m)
		}), hook.ErrInvalid, "host_exec"),
		refusal("mistyped import", without(func(m *Module) {
			m.Import(ABI, "input_len", Sig(I64, I64))
			m.Memory(1, -1)
			abi(m, 1)
			saves(m)
		}), hook.ErrInvalid, "input_len"),
		{name: "duplicate import", run: func(b *bed) { // legal, and a single function
			m := New()
			for range 100 {
				m.Import(ABI, "input_len", Sig(I32, I64))
			}
			m.Memory(1, -1)
			abi(m, 1)
			saves(m)
			if pl := b.load(spec(m.Bytes())); pl != nil {
				if r, err := pl.Call(context.Background(), b.call()); err != nil || !r.Unchanged {
					b.errorf("%+v, %v", r, err)
				}
			}
		}},
		refusal("imported memory", without(func(m *Module) {
			m.ImportRaw("env", "memory", KindMemory, "\x00\x01")
			abi(m, 1)
			saves(m)
		}), hook.ErrInvalid, "only functions"),
		refusal("import of the meter", without(func(m *Module) {
			m.Import("ckptd_meter", "refill", Sig(I64, I64))
			m.Memory(1, -1)
			abi(m, 1)
			saves(m)
		}), hook.ErrInvalid, "the meter's"),
		refusal("export of the meter", spoiled(func(p *Plugin) { p.Export("ckptd_meter.fuel", KindGlobal, p.Global(I64, true, I64Const(1<<60))) }), hook.ErrInvalid, "the meter's"),
		refusal("duplicate export", spoiled(func(p *Plugin) { p.Export("on_pre_save", KindFunc, 0) }), hook.ErrInvalid, "one name"),
		refusal("missing memory", without(func(m *Module) { abi(m, 1); saves(m) }), hook.ErrInvalid, "does not export a memory"),
		refusal("missing ABI export", without(func(m *Module) { m.Memory(1, -1); saves(m) }), hook.ErrInvalid, "does not export ckptd_abi_v1"),
		refusal("missing hooks", func() []byte { return NewPlugin(-1).Bytes() }, hook.ErrInvalid, "exports none of"),
		refusal("mistyped exports", func() []byte {
			p := NewPlugin(-1)
			p.Func("on_pre_save", Sig(I32, I32), "", I32Const(Unchanged))
			return p.Bytes()
		}, hook.ErrInvalid, "on_pre_save"),
		refusal("wrong ABI", without(func(m *Module) { m.Memory(1, -1); abi(m, 2); saves(m) }), hook.ErrInvalid, "version 2 of the ABI"),
		refusal("spinning start section", spoiled(func(p *Plugin) { p.Start(p.Func("", Sig("", ""), "", Loop(Void, Br(0)))) }), hook.ErrInvalid, "start function"),
		{name: "poisoned compile cache", run: poisonedCache, only: inProcess}, // workers have no cache on disk
	}
}

// poisonedCache modifies the cache in every way open to somebody with access to the folder.
func poisonedCache(b *bed) {
	open := func() *plugins.Host {
		h, err := plugins.New(plugins.Options{Memory: memory, CacheDir: filepath.Join(b.dir, "cache"), CacheKey: [32]byte{1}})
		if err != nil {
			b.errorf("opening the cache: %v", err)
			return nil
		}
		return h
	}
	echo := func(poison string) {
		h := open()
		if h == nil {
			return
		}
		defer h.Close()
		pl, err := h.Load(context.Background(), plugins.Spec{Name: "echo@1", Binary: Echo()})
		if err != nil {
			b.errorf("%s: %v", poison, err)
			return
		}
		b.works(pl, poison)
	}
	echo("no cache yet")
	files, _ := filepath.Glob(filepath.Join(b.dir, "cache", "*.native"))
	if len(files) != 1 {
		b.errorf("the cache has %q", files)
		return
	}
	file := files[0]
	sound, _ := os.ReadFile(file)
	h := open()
	h.Load(context.Background(), plugins.Spec{Name: "upper@1", Binary: Upper()})
	h.Close()
	var other []byte
	files, _ = filepath.Glob(filepath.Join(b.dir, "cache", "*.native"))
	for _, f := range files {
		if f != file {
			other, _ = os.ReadFile(f)
		}
	}
	if len(other) == 0 {
		b.errorf("the cache has only %q", files)
	}
	os.WriteFile(file, other, 0o600)
	echo("the code of another plugin")
	for at := 0; at < len(sound); at += max(1, len(sound)/20) {
		bad := append([]byte(nil), sound...)
		bad[at] ^= 0x40
		os.WriteFile(file, bad, 0o600)
		echo("a bit that flipped")
	}
	os.WriteFile(file, sound[:len(sound)/2], 0o600)
	echo("half of it")
	os.WriteFile(file, nil, 0o600)
	echo("nothing")
}
