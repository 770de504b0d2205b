package scaffold

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

var (
	// ErrToolchain reports a program that is not installed. The text names it and says what to
	// install.
	ErrToolchain = errors.New("the toolchain is incomplete")
	// ErrBuild reports that the toolchain rejected the source. Its messages went to Build's output.
	ErrBuild = errors.New("the build failed")
	// ErrNoProject reports a directory without source in a supported language.
	ErrNoProject = errors.New("nothing to build")
)

// rustTarget is Rust's name for plain WebAssembly without an operating system.
const rustTarget = "wasm32-unknown-unknown"

// Language returns the language of the project in dir, judging by the file that its toolchain
// starts from.
func Language(dir string) (string, error) {
	for _, known := range []struct{ pattern, language string }{
		{"Cargo.toml", "rust"}, {"asconfig.json", "assemblyscript"}, {"Makefile", "c"}, {"*.go", "go"},
	} {
		if found, err := filepath.Glob(filepath.Join(dir, known.pattern)); err == nil && len(found) > 0 {
			return known.language, nil
		}
	}
	return "", fmt.Errorf("%w in %s: no Go file, asconfig.json, Cargo.toml or Makefile found", ErrNoProject, dir)
}

// Build runs the toolchain of the project's language to build the module, a path below dir. The
// toolchain's messages go to output.
func Build(ctx context.Context, dir, module string, output io.Writer) error {
	language, err := Language(dir)
	if err == nil {
		err = Toolchain(ctx, dir, language)
	}
	if err != nil {
		return err
	}
	b := build{ctx: ctx, dir: dir, output: output}
	switch language {
	case "go":
		err = b.run(output, []string{"GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0"},
			"go", "build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", module, ".")
	case "assemblyscript":
		err = b.run(output, nil, "npm", "run", "--silent", "build")
	case "c":
		err = b.run(output, nil, "make", "--silent", module)
	case "rust":
		err = b.cargo(module)
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, module)); err != nil {
		return fmt.Errorf("%w: it did not create %s, the module named in plugin.toml", ErrBuild, module)
	}
	return nil
}

// build is a single run of a toolchain.
type build struct {
	ctx    context.Context
	dir    string
	output io.Writer
}

// run runs a program in the project's directory with additional environment variables.
func (b *build) run(stdout io.Writer, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(b.ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = b.dir, append(os.Environ(), env...), stdout, b.output
	err := cmd.Run()
	if b.ctx.Err() != nil {
		return b.ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrBuild, name, err)
	}
	return nil
}

// cargo builds the module and copies it from the path that cargo reports.
func (b *build) cargo(module string) error {
	var messages bytes.Buffer
	err := b.run(&messages, nil, "cargo", "build", "--quiet", "--release", "--target", rustTarget, "--message-format", "json-render-diagnostics")
	if err != nil {
		return err
	}
	made := ""
	lines := bufio.NewScanner(&messages)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var m struct{ Filenames []string }
		if json.Unmarshal(lines.Bytes(), &m) != nil {
			continue
		}
		for _, f := range m.Filenames {
			if strings.HasSuffix(f, ".wasm") {
				made = f
			}
		}
	}
	if made == "" {
		return fmt.Errorf(`%w: cargo built no module: does Cargo.toml have crate-type = ["cdylib"]?`, ErrBuild)
	}
	data, err := os.ReadFile(made)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.dir, module), data, 0o666)
}

// Toolchain reports missing programs for building a project of a language in dir.
func Toolchain(ctx context.Context, dir, language string) error {
	for _, tool := range map[string][]struct{ program, install string }{
		"go":             {{"go", "install Go 1.24 or newer"}},
		"assemblyscript": {{"node", "install Node.js 20 or newer"}, {"npm", "install Node.js 20 or newer, with npm"}},
		"c":              {{"make", "apt-get install make"}, {"clang", "apt-get install clang lld"}, {"wasm-ld", "apt-get install lld"}},
		"rust":           {{"cargo", "install Rust"}, {"rustc", "install Rust"}},
	}[language] {
		if _, err := exec.LookPath(tool.program); err != nil {
			return fmt.Errorf("%w: %s not found: %s", ErrToolchain, tool.program, tool.install)
		}
	}
	switch {
	case language == "assemblyscript" && !findASC(dir):
		return fmt.Errorf("%w: asc, the AssemblyScript compiler, not found: run npm install in %s", ErrToolchain, dir)
	case language == "rust" && !hasTarget(ctx, dir):
		return fmt.Errorf("%w: rustc lacks the target %s: run rustup target add %[2]s, or install Debian's libstd-rust-dev-wasm32",
			ErrToolchain, rustTarget)
	}
	return nil
}

// findASC reports whether npm finds the compiler: it searches node_modules of dir and of every
// directory above it.
func findASC(dir string) bool {
	if _, err := exec.LookPath("asc"); err == nil {
		return true
	}
	dir, err := filepath.Abs(dir)
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "node_modules", ".bin", "asc")); err == nil {
			return true
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return false
}

// hasTarget reports whether rustc has the libraries for WebAssembly.
func hasTarget(ctx context.Context, dir string) bool {
	cmd := exec.CommandContext(ctx, "rustc", "--print", "target-libdir", "--target", rustTarget)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return false
	}
	core, _ := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "libcore-*"))
	return len(core) > 0
}
