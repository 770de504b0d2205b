package lint

import (
	"fmt"
	"slices"
	"strings"
)

const module = "github.com/ckptd/ckptd"

// pkg is what the rules look at: one folder of Go files, whatever their build tags.
type pkg struct {
	Path        string   // relative to the module, "" for its root
	Imports     []string // of the files that ship
	TestImports []string // of the _test.go files
	Inits       []string // places of init functions, "file:line"
	Seals       []call   // of a method Seal, in the files that ship
}

// call is where a method is called.
type call struct{ place, within string }

// sealer is the function, of the one package of the engine that seals, that reads what it sealed as
// readers do, before anything is committed.
const sealing, sealer = "engine/internal/space", "AppendSealed"

// owners are the packages that alone may import a heavy dependency. Those that are required must do
// so, or the rule has lost its object.
var owners = []struct {
	dep, owner string
	required   bool
}{
	{"github.com/dgraph-io/badger", "backend/badger", true},
	{"github.com/klauspost/compress/zstd", "codec", true},
	{"github.com/tetratelabs/wazero", "plugins", true},
	{"github.com/prometheus", "internal/telemetry", true},
	{"go.opentelemetry.io/otel/sdk", "internal/telemetry", true},
	{"go.opentelemetry.io/otel/exporters", "internal/telemetry", true},
}

var (
	// leaves know nothing of what is built from them.
	leaves = []string{"codec", "crypto", "hook", "migrate", "plugins", "backend"}
	// tops are what no leaf may reach, through whatever packages.
	tops = []string{"engine", "client", "internal/server", "cmd"}
	// aboveEngine is what the engine may not reach.
	aboveEngine = []string{"api", "client", "internal/access", "internal/audit", "internal/contract", "internal/server", "internal/telemetry", "internal/wire", "cmd", "bench"}
	// impure is what the codec has no use for: it turns bytes into bytes.
	impure = []string{"context", "io/fs", "log", "net", "os", "syscall", "time", "unsafe"}
	// withFiles are leaves that keep files, and may know how a file is made durable.
	withFiles = []string{"backend/badger", "backend/commitlog", "crypto"}
	// vague names say nothing of what a package is for.
	vague = []string{"common", "helpers", "misc", "util", "utils"}
)

// check returns what is wrong with the packages, one line each, sorted.
func check(pkgs []pkg) []string {
	c := checker{byPath: map[string]pkg{}}
	for _, p := range pkgs {
		c.byPath[p.Path] = p
	}
	for _, p := range pkgs {
		c.directions(p)
		c.dependencies(p)
		for _, at := range p.Inits {
			c.add("%s: a func init", at)
		}
		c.seals(p)
		for _, elem := range strings.Split(p.Path, "/") {
			if slices.Contains(vague, elem) {
				c.add("%s: a package named %s", p.Path, elem)
			}
		}
	}
	c.required()
	slices.Sort(c.problems)
	return slices.Compact(c.problems)
}

type checker struct {
	byPath   map[string]pkg
	problems []string
}

func (c *checker) add(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// directions checks which packages of the module a package may import.
func (c *checker) directions(p pkg) {
	all := slices.Concat(p.Imports, p.TestImports)
	if slices.ContainsFunc(leaves, func(leaf string) bool { return within(p.Path, leaf) }) {
		c.mustNotReach(p, tops)
	}
	if within(p.Path, "engine") {
		c.mustNotReach(p, aboveEngine)
	}
	for _, imp := range all {
		rel, ours := local(imp)
		switch {
		case !ours:
		case rel == "internal/durable" && slices.Contains(withFiles, p.Path):
		case rel == "internal/alike" && p.Path == "codec":
		case rel == "internal/panics" && (p.Path == "backend/badger" || p.Path == "backend/commitlog"): // whose goroutines recover
		case p.Path == "hook", p.Path == "internal/alike", p.Path == "engine/upkeep":
			c.add("%s: imports %s, and may import nothing of the module", p.Path, rel)
		case within(p.Path, "engine") && within(rel, "plugins"):
			c.add("%s: imports %s, and knows only the vocabulary of hooks", p.Path, rel)
		case p.Path == "backend":
			c.add("backend: imports %s, and may import nothing of the module", rel)
		case within(p.Path, "backend") && !within(rel, "backend"):
			c.add("%s: imports %s, and may import only the backend contract", p.Path, rel)
		case within(p.Path, "codec") && !within(rel, "codec"), within(p.Path, "crypto") && !within(rel, "crypto"):
			c.add("%s: imports %s, and may import nothing of the module", p.Path, rel)
		}
	}
	if !within(p.Path, "engine") && imports(p.Imports, module+"/codec") && imports(p.Imports, module+"/crypto") {
		c.add("%s: imports codec and crypto, which meet only in engine", p.Path)
	}
}

// seals checks that the engine seals in one place, which must be there.
func (c *checker) seals(p pkg) {
	if !within(p.Path, "engine") {
		return
	}
	for _, call := range p.Seals {
		if p.Path != sealing || call.within != sealer {
			c.add("%s: seals what nobody has tried to read; leave that to %s", call.place, sealing)
		}
	}
	if p.Path == sealing && !slices.ContainsFunc(p.Seals, func(call call) bool { return call.within == sealer }) {
		c.add("%s: %s does not seal", sealing, sealer)
	}
}

// dependencies checks what a package imports from outside the module.
func (c *checker) dependencies(p pkg) {
	for _, o := range owners {
		if p.Path != o.owner && imports(p.Imports, o.dep) {
			c.add("%s: imports %s, which only %s may", p.Path, o.dep, o.owner)
		}
	}
	if slices.Contains(slices.Concat(p.Imports, p.TestImports), "C") {
		c.add("%s: uses cgo", p.Path)
	}
	for _, imp := range impure {
		if within(p.Path, "codec") && imports(p.Imports, imp) {
			c.add("%s: imports %s, and turns bytes into bytes", p.Path, imp)
		}
	}
}

// required checks that the rules have something to be about.
func (c *checker) required() {
	for _, path := range []string{"backend", "backend/badger", "backend/mem", "codec", "crypto", "engine", "cmd/ckptd"} {
		if _, ok := c.byPath[path]; !ok {
			c.add("%s: no such package", path)
		}
	}
	for _, o := range owners {
		if p, ok := c.byPath[o.owner]; ok && o.required && !imports(p.Imports, o.dep) {
			c.add("%s: does not import %s", o.owner, o.dep)
		}
	}
}

// mustNotReach follows what ships, from all imports of p, to the packages in forbidden.
func (c *checker) mustNotReach(p pkg, forbidden []string) {
	seen := map[string]bool{}
	var follow func(path string, imports []string)
	follow = func(path string, imports []string) {
		for _, imp := range imports {
			rel, ours := local(imp)
			if !ours || seen[rel] {
				continue
			}
			seen[rel] = true
			for _, top := range forbidden {
				if within(rel, top) {
					c.add("%s: must not reach %s, and does through an import of %s", p.Path, rel, path)
				}
			}
			follow(rel, c.byPath[rel].Imports)
		}
	}
	follow(p.Path, slices.Concat(p.Imports, p.TestImports))
}

// local returns the path of a package of the module relative to it.
func local(path string) (rel string, ours bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

// within reports whether path is root or below it.
func within(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// imports reports whether a list of imports has a package or one below it.
func imports(list []string, root string) bool {
	return slices.ContainsFunc(list, func(imp string) bool { return within(imp, root) })
}
