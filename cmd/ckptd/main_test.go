package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ckptd/ckptd/backend/badger"
	"github.com/ckptd/ckptd/internal/wasmtest"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "plugin-worker" { // a daemon of a test started itself
		main()
	}
	testscript.Main(m, map[string]func(){"ckptd": main})
}

// Every command has a script.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Condition: func(cond string) (bool, error) {
			if cond == "root" { // may write where nobody may
				return os.Getuid() == 0, nil
			}
			return false, errors.New("unknown condition " + cond)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"code":     cmdCode,
			"hold":     cmdHold,
			"blow":     cmdBlow,
			"head":     cmdHead,
			"wait-for": cmdWaitFor,
			"module":   cmdModule,
		},
	})
}

// cmdCode runs ckptd and wants an exit code: code 3 show nothing. What it prints on standard error
// must be one line of a kind that is fit for users.
func cmdCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec("ckptd", args[1:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	said := ts.ReadFile("stderr")
	if got != want {
		ts.Fatalf("exit code %d, want %d: %s", got, want, said)
	}
	for _, ugly := range []string{"goroutine ", "panic", "%!", "Usage:", "\\n"} {
		if strings.Contains(said, ugly) {
			ts.Fatalf("standard error has %q: %s", ugly, said)
		}
	}
	for _, line := range strings.SplitAfter(said, "\n") {
		if line != "" && (!strings.HasPrefix(line, "ckptd: ") || !strings.HasSuffix(line, "\n")) {
			ts.Fatalf("line %q on standard error", line)
		}
	}
}

// cmdHold opens a data directory, as another process would, until the script ends: hold DIR.
func cmdHold(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: hold DIR")
	}
	s, err := badger.Open(ts.MkAbs(args[0]), badger.Options{MustExist: true})
	ts.Check(err)
	ts.Defer(func() { ts.Check(s.Close()) })
}

// cmdBlow writes a file that is one run with a message of so many bytes: blow FILE N.
func cmdBlow(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: blow FILE N")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	text := `{"traj":["first","` + strings.Repeat("x", n-2) + `"]}`
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

// cmdHead cuts a file off after so many bytes: head FILE N.
func cmdHead(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: head FILE N")
	}
	n, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(args[0]), n))
}

// cmdModule writes the module of a plugin: module FILE upper.
func cmdModule(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: module FILE KIND")
	}
	migrates := wasmtest.NewPlugin(2)
	migrates.Func("on_migrate", wasmtest.Sig(wasmtest.I64+wasmtest.I64, wasmtest.I32), "", wasmtest.I32Const(wasmtest.Unchanged))
	modules := map[string][]byte{"upper": wasmtest.Upper(), "reject": wasmtest.Reject(), "spin": wasmtest.Spin(), "trap": wasmtest.Trap(), "fail": wasmtest.Fail(17),
		"fill": wasmtest.Fill(16, 100_000), "migrate": migrates.Bytes(), "nothing": wasmtest.New().Bytes(), "component": []byte("\x00asm\x0d\x00\x01\x00")}
	if modules[args[1]] == nil {
		ts.Fatalf("there is no module %s", args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), modules[args[1]], 0o600))
}

// cmdWaitFor waits until a file exists, such as the socket of a server that was started: wait-for
// FILE.
func cmdWaitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: wait-for FILE")
	}
	for range 1000 {
		if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	ts.Fatalf("%s does not appear", args[0])
}
