package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/ckptd/ckptd/client"
	"github.com/ckptd/ckptd/internal/access"
)

// tokenVariable is the environment variable that holds a token itself: on a command line all could
// read it.
const tokenVariable = "CKPTD_TOKEN"

// dialer is how to reach a server.
type dialer struct {
	addr, tokenFile string
	ca, cert, key   string
	export          bool // loaded data leaves the store
	attempts        int  // 0: as many as a user at a terminal would wait for
}

// terminalAttempts is the number of attempts while a user waits: about a second.
const terminalAttempts = 6

// choose decides between a server and a local store: --data on the command line overrides a server
// in the environment.
func (a *app) choose(f *pflag.FlagSet) error {
	if !f.Changed("data") {
		return nil
	}
	if f.Changed("server") {
		return usagef("--data and --server cannot be used together: the server has its own store")
	}
	a.server.addr = ""
	return nil
}

// noticeableWait is the wait that a user at a terminal notices.
const noticeableWait = time.Second

// dial returns the client of the server. Nothing is sent yet.
func (a *app) dial() (*client.Store, error) {
	s := &a.server
	o := client.Options{Token: os.Getenv(tokenVariable), Attempts: s.attempts, Export: s.export, Waiting: func(err error, wait time.Duration) {
		if wait >= noticeableWait {
			a.note("%v; trying again", err)
		}
	}}
	if o.Attempts == 0 {
		o.Attempts = terminalAttempts
	}
	if s.tokenFile != "" {
		text, err := os.ReadFile(s.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("reading the token: %w", err)
		}
		if info, err := os.Stat(s.tokenFile); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
			a.note("token file %s is readable by others: run chmod 600 on it", s.tokenFile)
		}
		if o.Token = strings.TrimSpace(string(text)); o.Token == "" || strings.ContainsAny(o.Token, " \t\r\n") {
			return nil, usagef("%s must contain one token and nothing else", s.tokenFile)
		}
	}
	if strings.HasPrefix(o.Token, access.TokenPrefix) && !access.WellFormed(o.Token) {
		return nil, usagef("the token is mistyped or truncated: copy the whole token")
	}
	var err error
	if o.TLS, err = s.tls(); err != nil {
		return nil, err
	}
	c, err := client.Dial(s.addr, o)
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

// tls returns the configuration in the files, nil if there are none.
func (s *dialer) tls() (*tls.Config, error) {
	if s.ca == "" && s.cert == "" && s.key == "" {
		return nil, nil
	}
	if !strings.HasPrefix(s.addr, "https:") {
		return nil, usagef("--tls-ca, --tls-cert and --tls-key require a --server with https://")
	}
	if (s.cert == "") != (s.key == "") {
		return nil, usagef("--tls-cert and --tls-key must be given together")
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.ca != "" {
		pem, err := os.ReadFile(s.ca)
		if err != nil {
			return nil, fmt.Errorf("reading --tls-ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("--tls-ca %s contains no PEM certificate", s.ca)
		}
	}
	if s.cert != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return nil, fmt.Errorf("reading --tls-cert and --tls-key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
