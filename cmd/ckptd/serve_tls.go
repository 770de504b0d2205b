package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync/atomic"

	"github.com/ckptd/ckptd/internal/durable"
)

// keyPair is the daemon's certificate, and the authorities whose client certificates it accepts. It
// can be reloaded while in use; open connections keep the pair that they started with.
type keyPair struct {
	certFile, keyFile, clientCAFile string
	current                         atomic.Pointer[tls.Config]
}

func loadKeyPair(certFile, keyFile, clientCAFile string) (*keyPair, error) {
	k := &keyPair{certFile: certFile, keyFile: keyFile, clientCAFile: clientCAFile}
	return k, k.load()
}

// maxPEM bounds a file of certificates or a key in bytes.
const maxPEM = 16 << 20

func (k *keyPair) load() error {
	chain, err := durable.ReadFile(k.certFile, maxPEM)
	if err != nil {
		return fmt.Errorf("loading the certificate: %w", err)
	}
	key, err := durable.ReadFile(k.keyFile, maxPEM)
	if err != nil {
		return fmt.Errorf("loading the key of the certificate: %w", err)
	}
	cert, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return fmt.Errorf("loading the certificate %s: %w", k.certFile, err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}}
	if k.clientCAFile != "" {
		pem, err := durable.ReadFile(k.clientCAFile, maxPEM)
		if err != nil {
			return fmt.Errorf("loading the client CA: %w", err)
		}
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("loading the client CA: %s contains no PEM certificate", k.clientCAFile)
		}
		c.ClientAuth = tls.VerifyClientCertIfGiven // callers without one may have a token
	}
	k.current.Store(c)
	return nil
}

// config is the configuration of a server that uses the currently loaded pair.
func (k *keyPair) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return k.current.Load(), nil
		},
		// ServeTLS wants to see a certificate, or a way to one.
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &k.current.Load().Certificates[0], nil
		},
	}
}
