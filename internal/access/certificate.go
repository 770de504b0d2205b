package access

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/engine"
)

// CertificateRule gives grants to the holder of a client certificate that the server has verified.
// Exactly one of the names is set, and must be equal to the one in the certificate.
type CertificateRule struct {
	CommonName string `toml:"common-name"` // of the subject
	DNS        string `toml:"dns"`         // these are alternative names of it
	URI        string `toml:"uri"`
	Email      string `toml:"email"`

	Grants []Grant `toml:"grant"`
}

// certificateCaller is the caller for a certificate that matches a rule.
type certificateCaller struct {
	matches func(*x509.Certificate) bool
	caller  *Caller
}

func (r CertificateRule) caller(store Store) (certificateCaller, error) {
	names := []struct {
		kind, name string
		matches    func(*x509.Certificate) bool
	}{
		{"common name", r.CommonName, func(c *x509.Certificate) bool { return c.Subject.CommonName == r.CommonName }},
		{"dns", r.DNS, func(c *x509.Certificate) bool { return slices.Contains(c.DNSNames, r.DNS) }},
		{"email", r.Email, func(c *x509.Certificate) bool { return slices.Contains(c.EmailAddresses, r.Email) }},
		{"uri", r.URI, func(c *x509.Certificate) bool {
			for _, u := range c.URIs {
				if u.String() == r.URI {
					return true
				}
			}
			return false
		}},
	}
	var out certificateCaller
	for _, n := range names {
		if n.name == "" {
			continue
		}
		if out.caller != nil {
			return out, fmt.Errorf("%w: a [[certificate]] rule has more than one name", engine.ErrInvalid)
		}
		out.matches = n.matches
		out.caller = &Caller{Name: "certificate:" + store.Pseudonym("caller", "certificate", n.kind, n.name), Grants: r.Grants}
	}
	if out.caller == nil {
		return out, fmt.Errorf("%w: a [[certificate]] rule has no name", engine.ErrInvalid)
	}
	if err := validate(r.Grants); err != nil {
		return out, fmt.Errorf("certificate rule: %w", err)
	}
	return out, nil
}

// certified returns the caller with the client certificate of a connection, or nil. If several
// rules match, the caller has the grants of all and the name of the first. A certificate that
// expired since the handshake is not valid any more.
func (a *Authenticator) certified(state *tls.ConnectionState) *Caller {
	if len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return nil
	}
	leaf, now := state.VerifiedChains[0][0], a.now()
	if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		return nil
	}
	var found *Caller
	for _, c := range a.certificates {
		switch {
		case !c.matches(leaf):
		case found == nil:
			found = c.caller
		default:
			found = &Caller{Name: found.Name, Grants: slices.Concat(found.Grants, c.caller.Grants)}
		}
	}
	return found
}
