package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// A sync.Mutex is for memory alone: who waits for one cannot stop with a context, and a reader of a
// busy thread would wait for whatever its holder waits for. What is held across calls of the
// backend is a lock of engine/lock.go.
func TestEngineLocks(t *testing.T) {
	names, err := filepath.Glob(root + "/engine/*.go")
	if err != nil {
		t.Fatal(err)
	}
	fset, locks := token.NewFileSet(), 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		found, problems := checkLocks(fset, file)
		locks += found
		for _, p := range problems {
			t.Error(p)
		}
	}
	if locks < 20 {
		t.Errorf("%d places that take a sync.Mutex were found: is the test blind?", locks)
	}
}

func TestCheckLocks(t *testing.T) {
	for _, tt := range []struct{ name, code, want string }{
		{"memory", `s.mu.Lock(); s.n++; s.mu.Unlock(); s.be.Get(ctx, key)`, ""},
		{"deferred", `s.mu.Lock(); defer s.mu.Unlock(); s.n++`, ""},
		{"a send that may not wait", `s.mu.Lock(); defer s.mu.Unlock(); select { case s.ch <- 1: default: }`, ""},
		{"a goroutine of its own", `s.mu.Lock(); defer s.mu.Unlock(); go func() { s.be.Get(ctx, key) }()`, ""},
		{"backend", `s.mu.Lock(); s.be.Get(ctx, key); s.mu.Unlock()`, "s.be.Get"},
		{"backend, deferred", `s.mu.Lock(); defer s.mu.Unlock(); if err := s.load(ctx); err != nil { return }`, "s.load"},
		{"backend in a branch", `s.mu.Lock(); if s.n > 0 { s.be.Scan(context.Background(), r) }; s.mu.Unlock()`, "s.be.Scan"},
		{"the branch gave it up", `s.mu.Lock(); if s.n > 0 { s.mu.Unlock(); s.be.Scan(ctx, r); return }; s.mu.Unlock()`, ""},
		{"receive", `s.mu.Lock(); <-p.done; s.mu.Unlock()`, "waits for a channel"},
		{"send", `s.mu.Lock(); p.done <- 1; s.mu.Unlock()`, "waits for a channel"},
		{"select", `s.mu.Lock(); select { case <-p.done: }; s.mu.Unlock()`, "waits for a channel"},
		{"condition", `var c sync.Cond; _ = c`, "sync.Cond"},
		{"read lock", `var c sync.RWMutex; _ = c`, "sync.RWMutex"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, "x.go", "package x\nfunc f() {\n"+tt.code+"\n}\n", 0)
			if err != nil {
				t.Fatal(err)
			}
			_, problems := checkLocks(fset, file)
			got := strings.Join(problems, "; ")
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("problems %q, want %q", got, tt.want)
			}
		})
	}
}

// checkLocks returns how many times a file takes a sync.Mutex, and what it must not do.
func checkLocks(fset *token.FileSet, file *ast.File) (taken int, problems []string) {
	report := func(n ast.Node, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("%v: ", fset.Position(n.Pos()))+fmt.Sprintf(format, args...))
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if name := exprString(n); name == "sync.Cond" || name == "sync.RWMutex" {
				report(n, "%s: who waits for it cannot stop with a context; see engine/lock.go", name)
			}
		case *ast.BlockStmt:
			taken += checkBlock(n.List, report)
		case *ast.CaseClause:
			taken += checkBlock(n.Body, report)
		case *ast.CommClause:
			taken += checkBlock(n.Body, report)
		}
		return true
	})
	return taken, problems
}

// checkBlock looks at what a block does while it holds a mutex that it takes.
func checkBlock(list []ast.Stmt, report func(ast.Node, string, ...any)) (taken int) {
	for i, stmt := range list {
		mutex, ok := lockCall(stmt, "Lock")
		if !ok {
			continue
		}
		taken++
		checkHeld(mutex, list[i+1:], report)
	}
	return taken
}

// checkHeld reports what statements wait for until they give a mutex up. It returns whether they
// did.
func checkHeld(mutex string, list []ast.Stmt, report func(ast.Node, string, ...any)) (given bool) {
	for _, stmt := range list {
		if name, ok := lockCall(stmt, "Unlock"); ok && name == mutex {
			return true
		}
		waits(mutex, stmt, report)
	}
	return false
}

// waits reports what a statement waits for with a mutex held.
func waits(mutex string, stmt ast.Stmt, report func(ast.Node, string, ...any)) {
	ast.Inspect(stmt, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			return false
		case *ast.BlockStmt:
			checkHeld(mutex, n.List, report)
			return false
		case *ast.SelectStmt:
			for _, c := range n.Body.List {
				if c.(*ast.CommClause).Comm == nil {
					return false // it does not wait
				}
			}
			report(n, "waits for a channel while it holds %s", mutex)
			return false
		case *ast.SendStmt:
			report(n, "waits for a channel while it holds %s", mutex)
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				report(n, "waits for a channel while it holds %s", mutex)
			}
		case *ast.CallExpr:
			for _, arg := range n.Args {
				if name := exprString(arg); name == "ctx" || strings.HasPrefix(name, "context.") {
					report(n, "calls %s with a context while it holds %s", exprString(n.Fun), mutex)
				}
			}
		}
		return true
	})
}

// lockCall tells whether a statement calls a method without arguments of something, and of what.
func lockCall(stmt ast.Stmt, method string) (of string, ok bool) {
	expr, ok := stmt.(*ast.ExprStmt)
	if !ok {
		return "", false
	}
	call, ok := expr.X.(*ast.CallExpr)
	if !ok || len(call.Args) > 0 {
		return "", false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != method {
		return "", false
	}
	return exprString(sel.X), true
}

// exprString is a name, a selection or the function of a call as it is written; "" for other
// expressions.
func exprString(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return exprString(e.X) + "." + e.Sel.Name
	case *ast.CallExpr:
		return exprString(e.Fun)
	}
	return ""
}
