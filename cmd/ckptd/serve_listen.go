package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/ckptd/ckptd/internal/telemetry"
)

// listen opens the sockets of the API and for administration.
func (r *running) listen(o *serveOptions) (err error) {
	if o.cert != "" {
		if r.keys, err = loadKeyPair(o.cert, o.certKey, o.clientCA); err != nil {
			return err
		}
	}
	if n, err := strconv.Atoi(os.Getenv("LISTEN_FDS")); err == nil && n > maxPassed {
		return usagef("LISTEN_FDS is %d: at most %d sockets are supported", n, maxPassed)
	}
	passed, err := activation.Listeners()
	if err != nil {
		return fmt.Errorf("taking over sockets from systemd: %w", err)
	}
	for _, l := range passed {
		if l == nil {
			continue // something else than a listener
		}
		r.listeners = append(r.listeners, listening{l, r.keys != nil && l.Addr().Network() == "tcp"})
		if err := r.private(l, o); err != nil {
			return err
		}
	}
	if len(r.listeners) == 0 {
		if err := r.listenAt(o); err != nil {
			return err
		}
	}
	if len(r.listeners) == 0 {
		return usagef("nothing to listen on: --socket and --listen are both none")
	}
	if o.adminSocket != "" {
		l, err := listenUnix(o.adminSocket, 0o600)
		if err != nil {
			return err
		}
		r.adminOn = append(r.adminOn, l)
		r.admin = append(r.admin, &http.Server{Handler: telemetry.AdminHandler(r.metrics, r.ready), ReadHeaderTimeout: 10 * time.Second})
	}
	if o.metrics != "" {
		l, err := listenTCP(o.metrics)
		if err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
		r.adminOn = append(r.adminOn, l)
		r.admin = append(r.admin, &http.Server{Handler: telemetry.MetricsHandler(r.metrics), ReadHeaderTimeout: 10 * time.Second})
	}
	return nil
}

func (r *running) listenAt(o *serveOptions) error {
	if o.socket != "" {
		mode, err := strconv.ParseUint(o.socketMode, 8, 9)
		if err != nil {
			return usagef("--socket-mode %q is not an octal mode such as 0660", o.socketMode)
		}
		l, err := listenUnix(o.socket, fs.FileMode(mode))
		if err != nil {
			return err
		}
		r.listeners = append(r.listeners, listening{l, false})
	}
	for _, address := range o.listen {
		l, err := listenTCP(address)
		if err != nil {
			return err
		}
		r.listeners = append(r.listeners, listening{l, r.keys != nil})
		if err := r.private(l, o); err != nil {
			return err
		}
	}
	return nil
}

// listenTCP listens on a TCP address.
func listenTCP(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listening on %s: %w", address, errAddressTaken)
	}
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	return l, nil
}

// maxPassed limits the number of sockets that the environment can announce.
const maxPassed = 64

// private refuses to serve in plain beyond this machine.
func (r *running) private(l net.Listener, o *serveOptions) error {
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok || r.keys != nil || addr.IP.IsLoopback() || o.insecure {
		return nil
	}
	return usagef("%s is reachable from other machines, and without TLS tokens and states are readable: set --cert, or --insecure behind a TLS proxy", addr)
}

// maxSocketPath is the smallest limit of all platforms.
const maxSocketPath = 103

// listenUnix listens on a socket. It replaces the socket of a daemon that is gone.
func listenUnix(path string, mode fs.FileMode) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, usagef("%s is too long for a Unix socket path (at most %d bytes): choose another with --socket and --admin-socket", path, maxSocketPath)
	}
	l, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EADDRINUSE) {
		c, dialErr := net.DialTimeout("unix", path, time.Second)
		if dialErr == nil {
			c.Close()
		}
		if !errors.Is(dialErr, syscall.ECONNREFUSED) { // a daemon that is there but busy does not answer either
			return nil, fmt.Errorf("listening on %s: %w", path, errSocketTaken)
		}
		if info, statErr := os.Lstat(path); statErr != nil || info.Mode().Type() != fs.ModeSocket {
			return nil, fmt.Errorf("listening on %s: another file is in the way, remove it or choose another path", path)
		}
		if err = os.Remove(path); err == nil {
			l, err = net.Listen("unix", path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(fmt.Errorf("listening: %w", err), l.Close())
	}
	return l, nil
}

var (
	errSocketTaken  = errors.New("another server is listening there")
	errAddressTaken = errors.New("the address is in use")
)
