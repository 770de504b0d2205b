package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

func TestImportDirections(t *testing.T) {
	pkgs, err := readModule(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range check(pkgs) {
		t.Error(problem)
	}
}

// readModule reads the imports of every Go file of the module at dir, so that a file which is not
// built on this machine counts too. Modules within it are none of its business.
func readModule(dir string) ([]pkg, error) {
	pkgs := map[string]*pkg{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skip(dir, path, d.Name())
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		rel, err := filepath.Rel(dir, filepath.Dir(path))
		if err != nil {
			return err
		}
		rel = strings.TrimPrefix(filepath.ToSlash(rel), ".")
		if pkgs[rel] == nil {
			pkgs[rel] = &pkg{Path: rel}
		}
		return pkgs[rel].read(path)
	})
	if err != nil {
		return nil, err
	}
	var list []pkg
	for _, p := range pkgs {
		list = append(list, *p)
	}
	return list, nil
}

func skip(dir, path, name string) error {
	if path == dir {
		return nil
	}
	if name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}

// read adds what a file imports and declares.
func (p *pkg) read(path string) error {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return err
	}
	for _, spec := range file.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, "_test.go") {
			p.TestImports = append(p.TestImports, imp)
		} else {
			p.Imports = append(p.Imports, imp)
		}
	}
	for _, decl := range file.Decls {
		fn, isFunc := decl.(*ast.FuncDecl)
		name := ""
		if isFunc {
			name = fn.Name.Name
		}
		if isFunc && fn.Recv == nil && name == "init" && !ast.IsGenerated(file) {
			p.Inits = append(p.Inits, fset.Position(fn.Pos()).String())
		}
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Seal" {
				p.Seals = append(p.Seals, call{fset.Position(sel.Pos()).String(), name})
			}
			return true
		})
	}
	return nil
}

// good is a small module that breaks no rule.
func good() map[string]pkg {
	list := []pkg{
		{Path: "backend", Imports: []string{"context"}},
		{Path: "backend/backendtest", Imports: []string{"testing", module + "/backend"}},
		{Path: "backend/badger", Imports: []string{"github.com/dgraph-io/badger/v4", module + "/backend", module + "/internal/durable"},
			TestImports: []string{module + "/backend/backendtest"}},
		{Path: "backend/mem", Imports: []string{module + "/backend"}},
		{Path: "codec", Imports: []string{"github.com/klauspost/compress/zstd", module + "/internal/alike"}, TestImports: []string{"os"}},
		{Path: "crypto", Imports: []string{"os", "crypto/aes", module + "/internal/durable"}},
		{Path: "crypto/keyfile", Imports: []string{"os", module + "/crypto"}},
		{Path: "engine", Imports: []string{module + "/backend", module + "/hook", module + "/codec", module + "/crypto"},
			TestImports: []string{module + "/backend/mem", "github.com/klauspost/compress/zstd"}},
		{Path: sealing, Imports: []string{module + "/codec", module + "/crypto"}, Seals: []call{{"kinds.go:1:1", sealer}}},
		{Path: "engine/upkeep"},
		{Path: "plugins", Imports: []string{"github.com/tetratelabs/wazero", module + "/hook"}},
		{Path: "hook"},
		{Path: "internal/alike"},
		{Path: "internal/telemetry", Imports: []string{"github.com/prometheus/client_golang/prometheus", "go.opentelemetry.io/otel/sdk/trace",
			"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"}},
		{Path: "cmd/ckptd", Imports: []string{module + "/engine", module + "/backend/badger", module + "/crypto"}},
	}
	pkgs := map[string]pkg{}
	for _, p := range list {
		pkgs[p.Path] = p
	}
	return pkgs
}

func TestCheck(t *testing.T) {
	ship := func(path string, imports ...string) func(map[string]pkg) {
		return func(pkgs map[string]pkg) {
			p := pkgs[path]
			p.Path, p.Imports = path, append(p.Imports, imports...)
			pkgs[path] = p
		}
	}
	test := func(path string, imports ...string) func(map[string]pkg) {
		return func(pkgs map[string]pkg) {
			p := pkgs[path]
			p.TestImports = append(p.TestImports, imports...)
			pkgs[path] = p
		}
	}
	for _, tt := range []struct {
		name  string
		spoil func(map[string]pkg)
		want  []string
	}{
		{"good", func(map[string]pkg) {}, nil},
		{"leaf imports engine", ship("plugins", module+"/engine"),
			[]string{"plugins: must not reach engine, and does through an import of plugins"}},
		{"test of a leaf imports engine", test("plugins", module+"/engine"),
			[]string{"plugins: must not reach engine, and does through an import of plugins"}},
		{"package below a leaf imports the server", ship("plugins/abi", module+"/internal/server"),
			[]string{"plugins/abi: must not reach internal/server, and does through an import of plugins/abi"}},
		{"leaf reaches engine through another", func(pkgs map[string]pkg) {
			ship("internal/bridge", module+"/engine")(pkgs)
			ship("plugins", module+"/internal/bridge")(pkgs)
		}, []string{"plugins: must not reach engine, and does through an import of internal/bridge"}},
		{"engine imports the command", test("engine", module+"/cmd/ckptd"),
			[]string{"engine: must not reach cmd/ckptd, and does through an import of engine"}},
		{"engine imports the host of plugins", ship("engine", module+"/plugins"),
			[]string{"engine: imports plugins, and knows only the vocabulary of hooks"}},
		{"vocabulary of hooks imports the codec", ship("hook", module+"/codec"),
			[]string{"hook: imports codec, and may import nothing of the module"}},
		{"what the engine says of upkeep imports the codec", ship("engine/upkeep", module+"/codec"),
			[]string{"engine/upkeep: imports codec, and may import nothing of the module"}},
		{"its test imports the engine", test("engine/upkeep", module+"/engine"),
			[]string{"engine/upkeep: imports engine, and may import nothing of the module"}},
		{"what the codec shares imports another", ship("internal/alike", module+"/internal/spans"),
			[]string{"internal/alike: imports internal/spans, and may import nothing of the module"}},
		{"contract imports a leaf", ship("backend", module+"/codec"),
			[]string{"backend: imports codec, and may import nothing of the module"}},
		{"driver imports a leaf", ship("backend/mem", module+"/crypto"),
			[]string{"backend/mem: imports crypto, and may import only the backend contract"}},
		{"driver in memory makes files", ship("backend/mem", module+"/internal/durable"),
			[]string{"backend/mem: imports internal/durable, and may import only the backend contract"}},
		{"codec imports crypto", ship("codec", module+"/crypto"),
			[]string{"codec: imports crypto, and may import nothing of the module"}},
		{"crypto imports codec", test("crypto", module+"/codec"),
			[]string{"crypto: imports codec, and may import nothing of the module"}},
		{"codec and crypto meet", ship("cmd/ckptd", module+"/codec"),
			[]string{"cmd/ckptd: imports codec and crypto, which meet only in engine"}},
		{"codec reads files", ship("codec", "os"),
			[]string{"codec: imports os, and turns bytes into bytes"}},
		{"badger outside its driver", ship("engine", "github.com/dgraph-io/badger/v4/options"),
			[]string{"engine: imports github.com/dgraph-io/badger, which only backend/badger may"}},
		{"zstd outside the codec", ship("cmd/ckptd", "github.com/klauspost/compress/zstd"),
			[]string{"cmd/ckptd: imports github.com/klauspost/compress/zstd, which only codec may"}},
		{"wazero outside plugins", ship("engine", "github.com/tetratelabs/wazero/api"),
			[]string{"engine: imports github.com/tetratelabs/wazero, which only plugins may"}},
		{"metrics outside telemetry", ship("engine", "github.com/prometheus/client_golang/prometheus"),
			[]string{"engine: imports github.com/prometheus, which only internal/telemetry may"}},
		{"driver without badger", func(pkgs map[string]pkg) { pkgs["backend/badger"] = pkg{Path: "backend/badger"} },
			[]string{"backend/badger: does not import github.com/dgraph-io/badger"}},
		{"package gone", func(pkgs map[string]pkg) { delete(pkgs, "codec") }, []string{"codec: no such package"}},
		{"cgo", test("crypto", "C"), []string{"crypto: uses cgo"}},
		{"vague name", ship("internal/util"), []string{"internal/util: a package named util"}},
		{"init", func(pkgs map[string]pkg) { pkgs["x"] = pkg{Path: "x", Inits: []string{"x/x.go:3:1"}} },
			[]string{"x/x.go:3:1: a func init"}},
		{"engine seals elsewhere", func(pkgs map[string]pkg) {
			p := pkgs["engine"]
			p.Seals = append(p.Seals, call{"engine/x.go:3:1", sealer})
			pkgs["engine"] = p
		}, []string{"engine/x.go:3:1: seals what nobody has tried to read; leave that to engine/internal/space"}},
		{"engine seals nowhere", func(pkgs map[string]pkg) {
			p := pkgs[sealing]
			p.Seals = nil
			pkgs[sealing] = p
		}, []string{"engine/internal/space: AppendSealed does not seal"}},
		{"engine seals in another way", func(pkgs map[string]pkg) {
			p := pkgs[sealing]
			p.Seals = append(p.Seals, call{"engine/internal/space/x.go:3:1", "Put"})
			pkgs[sealing] = p
		}, []string{"engine/internal/space/x.go:3:1: seals what nobody has tried to read; leave that to engine/internal/space"}},
	} {
		pkgs := good()
		tt.spoil(pkgs)
		var list []pkg
		for _, p := range pkgs {
			list = append(list, p)
		}
		if got := check(list); !slices.Equal(got, tt.want) {
			t.Errorf("%s:\n got %q\nwant %q", tt.name, got, tt.want)
		}
	}
}

func TestReadModule(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":             "module m",
		"a/a.go":             "package a\n\nimport \"fmt\"\n\nfunc init() { fmt.Println() }\n",
		"a/a.pb.go":          "// Code generated by a tool. DO NOT EDIT.\n\npackage a\n\nfunc init() {}\n",
		"a/a_plan9.go":       "//go:build plan9\n\npackage a\n\nimport \"C\"\n",
		"a/a_test.go":        "package a\n\nimport \"testing\"\n\nfunc f() { s.Seal() }\n",
		"a/seal.go":          "package a\n\nfunc put() {\n\ts.Seal()\n}\n\nvar seal = s.Seal\n",
		"a/testdata/t.go":    "package t\n\nimport \"os\"\n",
		"nested/go.mod":      "module nested",
		"nested/nested.go":   "package nested\n\nimport \"os\"\n",
		".hidden/hidden.go":  "package hidden\n",
		"a/method/method.go": "package method\n\ntype T int\n\nfunc (T) init() {}\n",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	pkgs, err := readModule(dir)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(pkgs, func(a, b pkg) int { return strings.Compare(a.Path, b.Path) })
	if len(pkgs) != 2 || pkgs[0].Path != "a" || pkgs[1].Path != "a/method" {
		t.Fatalf("packages: %+v", pkgs)
	}
	a := pkgs[0]
	slices.Sort(a.Imports)
	if !slices.Equal(a.Imports, []string{"C", "fmt"}) || !slices.Equal(a.TestImports, []string{"testing"}) {
		t.Errorf("imports %q, of tests %q", a.Imports, a.TestImports)
	}
	if len(a.Inits) != 1 || !strings.HasSuffix(a.Inits[0], "a.go:5:1") {
		t.Errorf("init functions: %q", a.Inits)
	}
	if len(a.Seals) != 2 || a.Seals[0].within != "put" || !strings.HasSuffix(a.Seals[0].place, "seal.go:4:2") || a.Seals[1].within != "" {
		t.Errorf("calls of Seal: %q", a.Seals)
	}
	if n := len(pkgs[1].Inits); n != 0 {
		t.Errorf("a method counts as %d init functions", n)
	}
}
