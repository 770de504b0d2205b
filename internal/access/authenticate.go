package access

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/wire"
)

// Options configure the accepted credentials. The zero value accepts none.
type Options struct {
	Tokens       *Tokens           `toml:"-"`
	JWT          *JWT              `toml:"jwt"`
	Certificates []CertificateRule `toml:"certificate"`
	Peers        []PeerRule        `toml:"peer"`
	// OwnerIsAdmin makes the user that this process runs as an admin of everything when connecting
	// to the Unix socket.
	OwnerIsAdmin bool `toml:"owner-is-admin"`

	Now func() time.Time `toml:"-"` // nil is time.Now
}

// PeerRule gives grants to a user of the operating system who connects to the Unix socket. It
// replaces OwnerIsAdmin for that user.
type PeerRule struct {
	UID    int     `toml:"uid"`
	Grants []Grant `toml:"grant"`
}

// UnknownUID means that the platform does not report the uid of a peer.
const UnknownUID = -1

// maxAuthorization is the maximum length of an Authorization header.
const maxAuthorization = 16 << 10

// Credentials are the credentials of a request.
type Credentials struct {
	Authorization string               // header, "" for none
	TLS           *tls.ConnectionState // nil without TLS
	PeerUID       int                  // from PeerUID, for Unix sockets; else UnknownUID
}

// RefusedError means that the credentials are not valid. Its text is the same for every fault.
type RefusedError struct {
	Why string // for the server's own log, never for the caller
}

func (e *RefusedError) Error() string { return wire.ErrUnauthenticated.Error() }
func (e *RefusedError) Unwrap() error { return wire.ErrUnauthenticated }

// Authenticator identifies callers. It is safe for concurrent use.
type Authenticator struct {
	tokens       *Tokens
	jwt          *jwtVerifier
	certificates []certificateCaller
	peers        map[int]*Caller
	now          func() time.Time
}

// New returns an authenticator, or an error for invalid options. It reads the key set of JWT if
// that is a file, but does not contact an issuer yet.
func New(store Store, o Options) (*Authenticator, error) {
	a := &Authenticator{tokens: o.Tokens, peers: map[int]*Caller{}, now: o.Now}
	if a.now == nil {
		a.now = time.Now
	}
	if uid := os.Geteuid(); o.OwnerIsAdmin && uid >= 0 {
		a.peers[uid] = &Caller{Name: peerName(uid), Grants: []Grant{Everything()}}
	}
	named := map[int]bool{}
	for _, r := range o.Peers {
		if r.UID < 0 || named[r.UID] {
			return nil, fmt.Errorf("%w: uid %d of a [[peer]] is negative or repeated", engine.ErrInvalid, r.UID)
		}
		if err := validate(r.Grants); err != nil {
			return nil, fmt.Errorf("peer %d: %w", r.UID, err)
		}
		named[r.UID] = true
		a.peers[r.UID] = &Caller{Name: peerName(r.UID), Grants: r.Grants}
	}
	for _, r := range o.Certificates {
		c, err := r.caller(store)
		if err != nil {
			return nil, err
		}
		a.certificates = append(a.certificates, c)
	}
	if o.JWT != nil {
		v, err := newJWTVerifier(store, *o.JWT, a.now)
		if err != nil {
			return nil, err
		}
		a.jwt = v
	}
	return a, nil
}

func peerName(uid int) string { return fmt.Sprintf("peer:%d", uid) }

// Reload reads the files with tokens and keys again. Files that cannot be read leave their old
// content in force.
func (a *Authenticator) Reload() error {
	var errs []error
	if a.tokens != nil {
		errs = append(errs, a.tokens.Reload())
	}
	if a.jwt != nil {
		errs = append(errs, a.jwt.reload())
	}
	return errors.Join(errs...)
}

// Authenticate returns the caller. Every failure is a *RefusedError, which matches
// wire.ErrUnauthenticated. An Authorization header alone decides; without one the client
// certificate, and then the uid of the peer. It blocks only to fetch the keys of a JSON web token's
// issuer, until ctx ends.
func (a *Authenticator) Authenticate(ctx context.Context, c Credentials) (*Caller, error) {
	caller, why := a.find(ctx, c)
	if caller == nil {
		return nil, &RefusedError{why}
	}
	if !caller.live(a.now()) {
		return nil, &RefusedError{"all grants have expired"}
	}
	return caller, nil
}

func (a *Authenticator) find(ctx context.Context, c Credentials) (caller *Caller, why string) {
	if c.Authorization != "" {
		return a.bearer(ctx, c.Authorization)
	}
	if c.TLS != nil {
		if caller := a.certified(c.TLS); caller != nil {
			return caller, ""
		}
	}
	if caller, ok := a.peers[c.PeerUID]; ok { // UnknownUID never is
		return caller, ""
	}
	return nil, "no known credentials"
}

func (a *Authenticator) bearer(ctx context.Context, header string) (*Caller, string) {
	scheme, secret, _ := strings.Cut(header, " ")
	switch {
	case len(header) > maxAuthorization:
		return nil, "the Authorization header is too long"
	case !strings.EqualFold(scheme, "Bearer"):
		return nil, "the Authorization header is not for a bearer token"
	case strings.HasPrefix(secret, TokenPrefix):
		if a.tokens != nil {
			if caller := a.tokens.caller(secret); caller != nil {
				return caller, ""
			}
		}
		return nil, "the token is unknown or was revoked"
	case a.jwt != nil:
		return a.jwt.verify(ctx, secret)
	}
	return nil, "the token is not from ckptd, and no other issuer is configured"
}
