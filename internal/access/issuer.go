package access

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"golang.org/x/time/rate"

	"github.com/ckptd/ckptd/internal/durable"
)

const (
	issuerTimeout = 10 * time.Second
	// A token with an unknown key makes the library ask the issuer for new ones: so often at most,
	// whatever is sent.
	issuerEvery, issuerBurst = time.Second, 5
	// discoverAgain is the wait before discovery is tried again after a failure.
	discoverAgain = 5 * time.Second

	maxKeySet  = 1 << 20 // bytes
	maxKeys    = 100
	minRSABits = 2048
)

// issuer finds the keys of an issuer when they are needed first, so that a server starts without
// it.
type issuer struct {
	url    string
	config *oidc.Config
	now    func() time.Time
	client *http.Client

	turn   chan struct{} // has one element while no discovery is running
	found  *oidc.IDTokenVerifier
	failed time.Time
}

func newIssuer(url string, config *oidc.Config, now func() time.Time) *issuer {
	i := &issuer{url: url, config: config, now: now, turn: make(chan struct{}, 1),
		client: &http.Client{Timeout: issuerTimeout, Transport: &carefulTransport{
			base: http.DefaultTransport, limit: rate.NewLimiter(rate.Every(issuerEvery), issuerBurst)}}}
	i.turn <- struct{}{}
	return i
}

var errIssuer = errors.New("discovery failed recently; it is retried later")

func (i *issuer) verifier(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	select {
	case <-i.turn:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { i.turn <- struct{}{} }()
	if i.found != nil {
		return i.found, nil
	}
	if now := i.now(); !i.failed.IsZero() && now.Sub(i.failed) < discoverAgain {
		return nil, errIssuer
	}
	ctx = oidc.ClientContext(context.WithoutCancel(ctx), i.client)
	provider, err := oidc.NewProvider(ctx, i.url)
	if err != nil {
		i.failed = i.now()
		return nil, err
	}
	i.found = provider.VerifierContext(ctx, i.config)
	return i.found, nil
}

// carefulTransport asks only trustworthy addresses, not too often, and reads no more than it must.
type carefulTransport struct {
	base  http.RoundTripper
	limit *rate.Limiter
}

func (t *carefulTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !trustworthy(req.URL.String()) {
		return nil, errors.New("keys must be served over https")
	}
	if !t.limit.Allow() {
		return nil, errors.New("too many requests to the issuer")
	}
	res, err := t.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(res.Body, maxKeySet), res.Body}
	return res, nil
}

// trustworthy reports whether the answers of an address are authentic: they come over https, or
// from this machine.
func trustworthy(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Scheme == "http" && ip != nil && ip.IsLoopback()
}

// readKeySet reads a JSON web key set of public keys from a file.
func readKeySet(path string) (*oidc.StaticKeySet, error) {
	b, err := durable.ReadFile(path, maxKeySet)
	if err != nil {
		return nil, err
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(b, &set); err != nil {
		return nil, errors.New("is not a JSON web key set")
	}
	keys := &oidc.StaticKeySet{}
	for n, k := range set.Keys {
		if k.Use != "" && k.Use != "sig" {
			continue
		}
		key, err := publicKey(k)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", n+1, err)
		}
		keys.PublicKeys = append(keys.PublicKeys, key)
	}
	if n := len(keys.PublicKeys); n == 0 || n > maxKeys {
		return nil, fmt.Errorf("has %d signing keys, want 1 to %d", n, maxKeys)
	}
	return keys, nil
}

func publicKey(k jose.JSONWebKey) (crypto.PublicKey, error) {
	switch key := k.Key.(type) {
	case *rsa.PublicKey:
		if key.N.BitLen() < minRSABits {
			return nil, fmt.Errorf("an RSA key of %d bits: want at least %d", key.N.BitLen(), minRSABits)
		}
		return key, nil
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return key, nil
	}
	return nil, errors.New("is not a public RSA, ECDSA or Ed25519 key")
}
