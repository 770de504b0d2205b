package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/badger"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/pluginset"
)

// app is the state shared by all commands.
type app struct {
	data, keyFile, keysDir  string
	tenant, user, namespace string
	cache                   string
	cacheBytes              int64
	json                    bool
	base                    string             // prefix of the paths next to the data directory
	backend                 badger.Options     // for open
	positioner              backend.Positioner // of the store that open opened
	server                  dialer
	pluginOptions           pluginset.Options // for open, but for where they are
	plugins                 *pluginset.Set    // of the store that open opened
	migrations              migrations

	in      io.Reader
	out     *bufio.Writer
	errOut  io.Writer
	paint   paint
	running bool // a command has begun: the command line was right
}

func newApp() *app {
	return &app{in: os.Stdin, out: bufio.NewWriterSize(os.Stdout, 64<<10), errOut: os.Stderr,
		paint: paint(isTerminal(os.Stdout) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")}
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// flags declares the flags that all commands have. The environment gives their defaults.
func (a *app) flags(f *pflag.FlagSet) {
	text := func(to *string, name, fallback, usage string) {
		value, ok := os.LookupEnv(envName(name))
		if !ok || value == "" {
			value = fallback
		}
		f.StringVar(to, name, value, usage)
	}
	text(&a.data, "data", "./data", "store `directory`")
	text(&a.keyFile, "key-file", "", "root key `file` (default: DATA.key, next to --data)")
	text(&a.keysDir, "keystore", "", "keystore `directory`, with the sealed user keys (default: DATA.keys)")
	text(&a.tenant, "tenant", "default", "tenant `name`")
	text(&a.user, "user", "local", "user `name`: the owner of the threads")
	text(&a.namespace, "namespace", "", "namespace `name` within the thread")
	text(&a.cache, "cache", "64MiB", "memory `size` for caching recent states, such as 512MiB or 2GB")
	text(&a.migrations.dir, "migrations", "", "`directory` of migration sets to use instead of the installed ones")
	text(&a.server.addr, "server", "", "connect to the server at `URL` instead of opening --data: unix:PATH, http://… or https://…")
	text(&a.server.tokenFile, "token-file", "", "`file` with the server token (or set CKPTD_TOKEN to the token itself)")
	text(&a.server.ca, "tls-ca", "", "CA certificate `file` to verify the server with (PEM; default: the system's CAs)")
	text(&a.server.cert, "tls-cert", "", "client certificate `file` (PEM)")
	text(&a.server.key, "tls-key", "", "private key `file` of the client certificate (PEM)")
	f.BoolVar(&a.json, "json", false, "print JSON")
}

// envName is the environment variable that sets a flag.
func envName(flag string) string {
	return "CKPTD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// prepare completes the flags.
func (a *app) prepare() error {
	size, err := humanize.ParseBytes(a.cache)
	if err != nil || size == 0 || size > 1<<46 {
		return usagef("--cache %q is not a size such as 64MiB", a.cache)
	}
	a.cacheBytes = int64(size)
	if a.data == "" {
		return usagef("--data is empty, want a directory")
	}
	a.data = filepath.Clean(a.data)
	base := a.data
	if name := filepath.Base(base); name == "." || name == ".." {
		if base, err = filepath.Abs(base); err != nil {
			return err
		}
	}
	if filepath.Dir(base) == base {
		return usagef("--data %s: the root directory cannot be a store", a.data)
	}
	a.base = base
	if a.keyFile == "" {
		a.keyFile = base + ".key"
	}
	if a.keysDir == "" {
		a.keysDir = base + ".keys"
	}
	for _, beside := range []string{a.keyFile, a.keysDir} {
		if inside(beside, base) {
			return usagef("%s is in the data directory: keep keys outside of %s", beside, a.data)
		}
	}
	return nil
}

// inside reports whether path is dir or below it.
func inside(path, dir string) bool {
	p, err1 := filepath.Abs(path)
	d, err2 := filepath.Abs(dir)
	rel, err3 := filepath.Rel(d, p)
	return err1 == nil && err2 == nil && err3 == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// thread returns the reference of a thread that the command line names.
func (a *app) thread(name string) engine.Ref {
	return engine.Ref{Tenant: a.tenant, User: a.user, Thread: name, Namespace: a.namespace}
}

// note prints a message to standard error, apart from the output.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.errOut, "ckptd: "+format+"\n", args...)
}

// plainNumber says without the names of Go functions that the value of a flag is not a number.
func plainNumber(err error) error {
	e, invalid := errors.AsType[*pflag.InvalidValueError](err)
	if _, number := errors.AsType[*strconv.NumError](err); !invalid || !number {
		return err
	}
	want := "a number"
	if kind := e.GetFlag().Value.Type(); strings.HasPrefix(kind, "int") {
		want = "a whole number"
	} else if strings.HasPrefix(kind, "uint") {
		want = "a whole number from 0"
	}
	return fmt.Errorf("--%s %q is not %s, or too large", e.GetFlag().Name, e.GetValue(), want)
}

// usagef is the error of a command line that cannot be meant.
func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// completeThreads completes a first argument that is the name of a thread.
func (a *app) completeThreads(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 || a.choose(cmd.Flags()) != nil || a.prepare() != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	s, err := a.reach(cmd.Context(), false)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer s.Close()
	var names []string
	for info, err := range s.User(a.tenant, a.user).Threads(cmd.Context(), engine.ThreadOptions{Prefix: prefix}) {
		if err != nil {
			return names, cobra.ShellCompDirectiveError
		}
		names = append(names, info.Ref.Thread)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
