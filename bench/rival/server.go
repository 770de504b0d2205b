package rival

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is a database server started by the bench. It listens only on a Unix socket in its folder.
type server struct {
	cmd    *exec.Cmd
	said   bytes.Buffer
	ended  chan struct{}
	err    error // of the process, once it has ended
	signal os.Signal
}

const (
	startTime = 30 * time.Second
	stopTime  = 60 * time.Second
)

// account is the user that servers run as if the bench runs as root, because PostgreSQL refuses to
// run as root.
type account struct{ credential *syscall.Credential }

// accountOf finds the account for a server: that of its package, or nobody. If the caller isn't
// root, it is the caller's own.
func accountOf(name string) (account, error) {
	if os.Getuid() != 0 {
		return account{}, nil
	}
	found, err := user.Lookup(name)
	if err != nil {
		if found, err = user.Lookup("nobody"); err != nil {
			return account{}, fmt.Errorf("finding an account to run %s: %w", name, err)
		}
	}
	uid, err := strconv.ParseUint(found.Uid, 10, 32)
	if err != nil {
		return account{}, err
	}
	gid, err := strconv.ParseUint(found.Gid, 10, 32)
	return account{&syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, err
}

// own makes the account the owner of a folder.
func (a account) own(dir string) error {
	if a.credential == nil {
		return nil
	}
	return os.Chown(dir, int(a.credential.Uid), int(a.credential.Gid))
}

func (a account) command(dir, program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	// We pass on Ctrl-C ourselves, and a dying worker takes its server with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential, Setpgid: true, Pdeathsig: syscall.SIGINT}
	return cmd
}

// startServer starts a server and waits until ready returns nil. The signal stop ends it.
func startServer(ctx context.Context, cmd *exec.Cmd, stop os.Signal, ready func(context.Context) error) (*server, error) {
	s := &server{cmd: cmd, ended: make(chan struct{}), signal: stop}
	cmd.Stdout, cmd.Stderr = &s.said, &s.said
	name := filepath.Base(cmd.Path)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		s.err = cmd.Wait()
		close(s.ended)
	}()
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		if err := ready(ctx); err == nil {
			return s, nil
		} else if ctx.Err() != nil {
			return nil, errors.Join(fmt.Errorf("starting %s: it does not answer: %w", name, err), s.stop())
		}
		select {
		case <-s.ended:
			return nil, fmt.Errorf("starting %s: %w: %s", name, s.err, lastLines(s.said.String()))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *server) stop() error {
	s.cmd.Process.Signal(s.signal)
	select {
	case <-s.ended:
		return s.err
	case <-time.After(stopTime):
		s.cmd.Process.Kill()
		<-s.ended
		return fmt.Errorf("%s did not stop within %v and was killed", filepath.Base(s.cmd.Path), stopTime)
	}
}

func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}

// findProgram finds a program on the path or, failing that, among the matches of a pattern, the
// last by name.
func findProgram(name, pattern string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	if list, err := filepath.Glob(pattern); err == nil && len(list) > 0 {
		return slices.Max(list), nil
	}
	return "", fmt.Errorf("%s: %w: bench/rivals.sh installs it", name, ErrNotInstalled)
}

// versionOf returns the first line of a program's version output.
func versionOf(program string) (string, error) {
	out, err := exec.Command(program, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("asking %s for its version: %w", filepath.Base(program), err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line), nil
}
