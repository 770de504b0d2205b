package lint

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/errors.txt")

// noErrors are the folders whose errors no user meets: tests, their helpers, and the benchmarks.
var noErrors = []string{"bench", "internal/alike", "internal/certtest", "internal/endtest",
	"internal/hostile", "internal/lint", "internal/mutation", "internal/sim", "internal/tools",
	"internal/torture", "internal/wasmtest", "plugins/examples", "plugins/hostile"}

// TestErrorTexts keeps every error text of the project, and every message of the command, in one
// file, by package, so that they can be read as a whole.
func TestErrorTexts(t *testing.T) {
	texts, err := errorTexts(root)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, dir := range slices.Sorted(maps.Keys(texts)) {
		b.WriteString("## " + dir + "\n\n")
		for _, text := range slices.Sorted(maps.Keys(texts[dir])) {
			b.WriteString(text + "\n")
		}
		b.WriteString("\n")
	}
	path := filepath.Join("testdata", "errors.txt")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("%s is out of date: make generate", path)
	}
}

// errorTexts collects the error texts of every folder of the module at dir. pdk is a module of its
// own, and counts, too.
func errorTexts(dir string) (map[string]map[string]bool, error) {
	all := map[string]map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		base := d.Name()
		if path != dir && (base == "testdata" || base[0] == '.' || base[0] == '_') ||
			slices.Contains(noErrors, rel) || strings.HasSuffix(base, "test") {
			return filepath.SkipDir
		}
		texts, err := folderTexts(path)
		if len(texts) > 0 {
			all[rel] = texts
		}
		return err
	})
	return all, err
}

// folderTexts collects the error texts of the files in one folder.
func folderTexts(dir string) (map[string]bool, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		if !ast.IsGenerated(file) {
			files = append(files, file)
		}
	}
	return fileTexts(files), nil
}

// textNames are the names of parameters, fields and constants that become the text of an error.
var textNames = []string{"format", "reason", "why", "advice", "Reason", "Why", "doctorAdvice",
	"pluginAdvice", "noMigrations"}

var (
	verbs = regexp.MustCompile(`%[-+#.\[\]0-9]*[a-z]|\{[^ ]*\}`)
	words = regexp.MustCompile(`[A-Za-z]{2}`)
)

// fileTexts collects the error texts of the files of a package: the literals that are given to
// errors.New, fmt.Errorf, fmt.Sprintf, or as something of textNames, and those of methods named
// Error.
func fileTexts(files []*ast.File) map[string]bool {
	takes := map[string]int{"errors.New": 0, "fmt.Errorf": 0, "fmt.Sprintf": 0} // which argument is the text
	for _, file := range files {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok {
				if i := textField(f.Type.Params); i >= 0 {
					takes[f.Name.Name] = i
				}
			}
		}
	}
	texts := map[string]bool{}
	add := func(e ast.Expr) {
		text, ok := literal(e)
		if ok && strings.Contains(text, " ") && words.MatchString(verbs.ReplaceAllString(text, "")) {
			texts[strconv.Quote(text)] = true
		}
	}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				i, ok := takes[exprString(n.Fun)]
				if sel, method := n.Fun.(*ast.SelectorExpr); method && !ok {
					i, ok = takes[sel.Sel.Name]
				}
				if ok && i < len(n.Args) {
					add(n.Args[i])
				}
			case *ast.KeyValueExpr:
				if slices.Contains(textNames, exprString(n.Key)) {
					add(n.Value)
				}
			case *ast.CompositeLit:
				addTable(n, add)
			case *ast.ValueSpec:
				if len(n.Values) == 1 && slices.Contains(textNames, n.Names[0].Name) {
					add(n.Values[0])
				}
			case *ast.FuncDecl:
				if n.Name.Name == "Error" && n.Recv != nil {
					addAll(n.Body, add)
				}
			}
			return true
		})
	}
	return texts
}

// addTable adds the texts of a table, which is a slice of a struct type without a name.
func addTable(table *ast.CompositeLit, add func(ast.Expr)) {
	slice, ok := table.Type.(*ast.ArrayType)
	if !ok {
		return
	}
	row, ok := slice.Elt.(*ast.StructType)
	if !ok {
		return
	}
	i := textField(row.Fields)
	for _, elt := range table.Elts {
		if lit, ok := elt.(*ast.CompositeLit); ok && i >= 0 && i < len(lit.Elts) {
			add(lit.Elts[i])
		}
	}
}

// addAll adds all texts within a node.
func addAll(n ast.Node, add func(ast.Expr)) {
	ast.Inspect(n, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		_, text := literal(e)
		if text {
			add(e)
		}
		return !text
	})
}

// textField is the index of the first parameter or field of textNames, -1 if there is none.
func textField(list *ast.FieldList) int {
	at := 0
	for _, field := range list.List {
		for _, name := range field.Names {
			if slices.Contains(textNames, name.Name) && exprString(field.Type) == "string" {
				return at
			}
			at++
		}
		at += max(0, 1-len(field.Names))
	}
	return -1
}

// literal is a string as it is written in the source, with {} for the parts that are not literals.
func literal(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.ParenExpr:
		return literal(e.X)
	case *ast.CallExpr:
		if exprString(e.Fun) == "fmt.Sprintf" {
			return literal(e.Args[0])
		}
	case *ast.BinaryExpr:
		left, isLeft := literal(e.X)
		right, isRight := literal(e.Y)
		if e.Op != token.ADD || !isLeft && !isRight {
			return "", false
		}
		if !isLeft {
			left = "{" + exprString(e.X) + "}"
		}
		if !isRight {
			right = "{" + exprString(e.Y) + "}"
		}
		return left + right, true
	}
	return "", false
}

func TestFindsErrorTexts(t *testing.T) {
	const code = `package x
const doctorAdvice = "ask the doctor"
var errOne = errors.New("one error")
var table = []struct { err error; advice string }{{errOne, "do it " + again}}
func invalid(kind error, format string, args ...any) error { return fmt.Errorf(format, args...) }
func f() error { return &E{Reason: fmt.Sprintf("field %d", 1)} }
func (r *reader) g() error { r.invalid(errOne, "bad %d", 2); return fmt.Errorf("of %s: %w", "x", errOne) }
func (e *E) Error() string { if e.x { return "both " + e.one() + " and two" }; return "it is" }
func h() { log("not an error"); errors.New("%s: %w"); errors.New("word") }`
	file, err := parser.ParseFile(token.NewFileSet(), "x.go", code, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := slices.Sorted(maps.Keys(fileTexts([]*ast.File{file})))
	want := []string{`"ask the doctor"`, `"bad %d"`, `"both {e.one} and two"`, `"do it {again}"`,
		`"field %d"`, `"it is"`, `"of %s: %w"`, `"one error"`}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
