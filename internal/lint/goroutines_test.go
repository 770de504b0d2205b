package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// serving are the folders whose code a daemon runs for its callers. A panic in a goroutine there
// that does not recover would end the daemon for all of them.
var serving = []string{"backend", "codec", "crypto", "engine", "internal/access", "internal/audit", "internal/pluginset", "internal/jobs",
	"internal/migration", "internal/server", "internal/telemetry", "internal/wire", "migrate", "plugins", "cmd/ckptd"}

// apart are files in these folders that no daemon runs, and those that run nothing of a caller's.
var apart = map[string]string{
	"backend/backendtest/concurrent.go": "a test suite",
	"backend/badger/ballast.go":         "makes a file, and recovers by its own means",
	"crypto/commitment.go":              "hashes bytes, and crypto imports nothing of the module",
	"cmd/ckptd/main.go":                 "ends the process at a second signal",
	"cmd/ckptd/top.go":                  "a client",
	"cmd/ckptd/top_screen.go":           "a client",
	"cmd/ckptd/import.go":               "a client",
	"cmd/ckptd/serve.go":                "tells systemd that the daemon is alive",
	"cmd/ckptd/serve_start.go":          "net/http, which recovers for each connection",
}

// Every goroutine that serves a caller recovers: it begins with a deferred panics.To, or calls a
// function that does.
func TestGoroutinesRecover(t *testing.T) {
	var starts int
	used := map[string]bool{}
	for _, folder := range serving {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			if skip(root, path, d.Name()) != nil {
				return filepath.SkipDir
			}
			n, problems, err := unrecovered(path, used)
			starts += n
			for _, p := range problems {
				t.Error(p)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if starts < 10 {
		t.Errorf("%d goroutines are started: is the test blind?", starts)
	}
	for file := range apart {
		if !used[file] {
			t.Errorf("%s starts no goroutine any more: take it out of the list", file)
		}
	}
}

// unrecovered looks at the files of a folder: how many goroutines they start, and which of these do
// not recover.
func unrecovered(dir string, used map[string]bool) (starts int, problems []string, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return 0, nil, err
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			return 0, nil, err
		}
		files = append(files, file)
	}
	recovering := map[string]bool{} // names of functions and methods
	for _, file := range files {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil && recovers(f.Body) {
				recovering[f.Name.Name] = true
			}
		}
	}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool { // and those of functions in variables
			if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == 1 {
				if f, ok := a.Rhs[0].(*ast.FuncLit); ok && recovers(f.Body) {
					recovering[exprString(a.Lhs[0])] = true
				}
			}
			return true
		})
		name, err := filepath.Rel(root, fset.Position(file.Pos()).Filename)
		if err != nil {
			return 0, nil, err
		}
		for _, start := range started(file) {
			if apart[filepath.ToSlash(name)] != "" {
				used[filepath.ToSlash(name)] = true
				continue
			}
			if starts++; !runsRecovered(start.runs, recovering) {
				problems = append(problems, fmt.Sprintf("%v: a goroutine that does not recover: begin it with defer panics.To(...)", fset.Position(start.at)))
			}
		}
	}
	return starts, problems, nil
}

// start is where a goroutine starts, and what it runs.
type start struct {
	at   token.Pos
	runs ast.Expr
}

// started finds go statements, and calls of methods Go with one function, as those of
// sync.WaitGroup and errgroup.Group.
func started(file *ast.File) (all []start) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			all = append(all, start{n.Pos(), n.Call.Fun})
		case *ast.CallExpr:
			if sel, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Go", "TryGo", "AfterFunc"}, sel.Sel.Name) && len(n.Args) > 0 {
				if last := n.Args[len(n.Args)-1]; len(n.Args) == 1 || sel.Sel.Name == "AfterFunc" {
					all = append(all, start{n.Pos(), last})
				}
			}
		}
		return true
	})
	return all
}

func runsRecovered(f ast.Expr, recovering map[string]bool) bool {
	switch f := f.(type) {
	case *ast.FuncLit:
		return recovers(f.Body) || onlyCalls(f.Body, recovering)
	case *ast.Ident:
		return recovering[f.Name]
	case *ast.SelectorExpr:
		return recovering[f.Sel.Name] || exprString(f) == "runtime.GC"
	}
	return false
}

// onlyCalls reports whether a function does nothing but call one that recovers.
func onlyCalls(body *ast.BlockStmt, recovering map[string]bool) bool {
	if len(body.List) != 1 {
		return false
	}
	stmt, ok := body.List[0].(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := stmt.X.(*ast.CallExpr)
	if !ok || slices.ContainsFunc(call.Args, func(arg ast.Expr) bool { _, ok := arg.(*ast.CallExpr); return ok }) {
		return false
	}
	return runsRecovered(call.Fun, recovering)
}

// recovers reports whether a function recovers whatever comes: among its first statements, which do
// no more than defer, is a deferred panics.To.
func recovers(body *ast.BlockStmt) bool {
	for _, stmt := range body.List {
		d, ok := stmt.(*ast.DeferStmt)
		if !ok {
			return false
		}
		if exprString(d.Call.Fun) == "panics.To" {
			return true
		}
	}
	return false
}

func TestFindsGoroutines(t *testing.T) {
	for _, tt := range []struct {
		name, code string
		good       bool
	}{
		{"bare", `go func() { work() }()`, false},
		{"recovers", `go func() { defer panics.To(fail); work() }()`, true},
		{"recovers behind another defer", `go func() { defer close(c); defer panics.To(fail); work() }()`, true},
		{"too late", `go func() { work(); defer panics.To(fail) }()`, false},
		{"a group", `wg.Go(func() { work() })`, false},
		{"a group that recovers", `wg.Go(func() { defer panics.To(fail); work() })`, true},
		{"a function that recovers", `go careful(1)`, true},
		{"a method that recovers", `go x.careful(1)`, true},
		{"a function that does not", `go careless()`, false},
		{"a function that calls no other", `wg.Go(func() { careful(1) })`, true},
		{"what is called first panics", `wg.Go(func() { careful(work()) })`, false},
		{"a timer", `time.AfterFunc(time.Second, func() { work() })`, false},
		{"the end of a context", `context.AfterFunc(ctx, careless)`, false},
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nfunc f() {\n"+tt.code+"\n}\n", 0)
		if err != nil {
			t.Fatal(err)
		}
		all := started(file)
		if len(all) != 1 {
			t.Errorf("%s: %d goroutines are found", tt.name, len(all))
			continue
		}
		if good := runsRecovered(all[0].runs, map[string]bool{"careful": true}); good != tt.good {
			t.Errorf("%s: %t, want %t", tt.name, good, tt.good)
		}
	}
}
