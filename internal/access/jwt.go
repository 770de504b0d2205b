package access

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ckptd/ckptd/engine"
)

// JWT selects the issuer whose JSON web tokens are accepted, and the claims with the rights of the
// bearer.
type JWT struct {
	// Issuer must be the iss claim. Its keys are found by OpenID Connect discovery, or read from
	// KeyFile, a JSON web key set.
	Issuer  string `toml:"issuer"`
	KeyFile string `toml:"key-file"`
	// Audience must be among the aud claim.
	Audience string `toml:"audience"`
	// Algorithms are the only ones that may have signed: of RS256, RS384, RS512, PS256, PS384,
	// PS512, ES256, ES384, ES512 and EdDSA; RS256, ES256 and EdDSA if left out.
	Algorithms []string `toml:"algorithms"`
	// LeewaySeconds, 0 to 30, is how far the issuer's clock may be off.
	LeewaySeconds int `toml:"leeway-seconds"`

	// The claims that make a grant: the role (a text, or a list in which other texts are passed
	// over), the tenant, the user, and a prefix of threads, which may be missing. Left out they are
	// "role", "tenant", "sub" and "threads".
	RoleClaim    string `toml:"role-claim"`
	TenantClaim  string `toml:"tenant-claim"`
	UserClaim    string `toml:"user-claim"`
	ThreadsClaim string `toml:"threads-claim"`
	// Wildcards makes "*" in the claims of tenant and user mean all of them. Otherwise such a token
	// is refused, because users may be able to choose their names.
	Wildcards bool `toml:"wildcards"`
}

const (
	maxLeeway = 30
	// maxCachedJWTs and cachedFor limit the number of tokens whose verified signatures are cached,
	// and the time.
	maxCachedJWTs = 4096
	cachedFor     = 5 * time.Minute
)

// check completes the options and reports invalid ones.
func (o *JWT) check() error {
	for claim, fallback := range map[*string]string{&o.RoleClaim: "role", &o.TenantClaim: "tenant", &o.UserClaim: "sub", &o.ThreadsClaim: "threads"} {
		if *claim == "" {
			*claim = fallback
		}
	}
	if len(o.Algorithms) == 0 {
		o.Algorithms = []string{oidc.RS256, oidc.ES256, oidc.EdDSA}
	}
	known := []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA}
	for _, a := range o.Algorithms {
		if !slices.Contains(known, a) {
			return fmt.Errorf("%w: algorithm %q for JSON web tokens: want one or more of %q", engine.ErrInvalid, a, known)
		}
	}
	switch {
	case o.Issuer == "":
		return fmt.Errorf("%w: JSON web tokens need an issuer", engine.ErrInvalid)
	case o.KeyFile == "" && !trustworthy(o.Issuer):
		return fmt.Errorf("%w: issuer %s: its keys must be served over https", engine.ErrInvalid, o.Issuer)
	case o.Audience == "":
		return fmt.Errorf("%w: JSON web tokens need an audience, so that tokens for other services are refused", engine.ErrInvalid)
	case o.LeewaySeconds < 0 || o.LeewaySeconds > maxLeeway:
		return fmt.Errorf("%w: leeway of %d s, want 0 to %d", engine.ErrInvalid, o.LeewaySeconds, maxLeeway)
	}
	return nil
}

// jwtVerifier knows the bearers of JSON web tokens.
type jwtVerifier struct {
	o      JWT
	store  Store
	now    func() time.Time
	config *oidc.Config
	file   atomic.Pointer[oidc.IDTokenVerifier] // with KeyFile
	issuer *issuer                              // without

	mu     sync.Mutex
	cached map[[sha256.Size]byte]cachedJWT
	epoch  int // counts the times that the cache was emptied
}

type cachedJWT struct {
	caller *Caller
	until  time.Time
}

func newJWTVerifier(store Store, o JWT, now func() time.Time) (*jwtVerifier, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	v := &jwtVerifier{o: o, store: store, now: now, cached: map[[sha256.Size]byte]cachedJWT{},
		// Times are checked below: the library has a leeway of its own for some.
		config: &oidc.Config{ClientID: o.Audience, SupportedSigningAlgs: o.Algorithms, SkipExpiryCheck: true}}
	if o.KeyFile == "" {
		v.issuer = newIssuer(o.Issuer, v.config, now)
		return v, nil
	}
	return v, v.reload()
}

// reload reads the key file again, and drops the cache of tokens verified with the old keys.
func (v *jwtVerifier) reload() error {
	if v.o.KeyFile != "" {
		keys, err := readKeySet(v.o.KeyFile)
		if err != nil {
			return fmt.Errorf("reading the issuer's keys from %s: %w", v.o.KeyFile, err)
		}
		v.file.Store(oidc.NewVerifier(v.o.Issuer, keys, v.config))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.cached)
	v.epoch++
	return nil
}

// verify returns the bearer of a token, or why there is none.
func (v *jwtVerifier) verify(ctx context.Context, raw string) (*Caller, string) {
	if strings.Count(raw, ".") != 2 || strings.ContainsAny(raw, "{\"") { // RFC 7519 has no other form; the library reads JSON as well
		return nil, "the token is not a JSON web token in compact form"
	}
	hash, now := sha256.Sum256([]byte(raw)), v.now()
	v.mu.Lock()
	hit, epoch := v.cached[hash], v.epoch
	v.mu.Unlock()
	if hit.caller != nil && now.Before(hit.until) {
		return hit.caller, ""
	}
	verifier := v.file.Load()
	if verifier == nil {
		var err error
		if verifier, err = v.issuer.verifier(ctx); err != nil {
			return nil, "the issuer of JSON web tokens is unreachable"
		}
	}
	token, err := verifier.Verify(ctx, raw)
	if err != nil {
		return nil, "the JSON web token is malformed, for another issuer or audience, or not signed with a key of the issuer"
	}
	caller, until, why := v.callerOf(token, now)
	if caller != nil {
		v.remember(hash, epoch, cachedJWT{caller, earlier(until, now.Add(cachedFor))})
	}
	return caller, why
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// remember caches a token verified with the keys of an epoch. A full cache evicts expired tokens
// first, then an arbitrary one.
func (v *jwtVerifier) remember(hash [sha256.Size]byte, epoch int, c cachedJWT) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if epoch != v.epoch {
		return
	}
	if len(v.cached) >= maxCachedJWTs {
		for h, old := range v.cached {
			if !v.now().Before(old.until) {
				delete(v.cached, h)
			}
		}
		for h := range v.cached {
			if len(v.cached) < maxCachedJWTs {
				break
			}
			delete(v.cached, h)
		}
	}
	v.cached[hash] = c
}

// callerOf makes a caller from the claims of a token with a valid signature, and returns the expiry
// of the token.
func (v *jwtVerifier) callerOf(token *oidc.IDToken, now time.Time) (caller *Caller, until time.Time, why string) {
	var times struct {
		NotBefore float64 `json:"nbf"`
	}
	var raw json.RawMessage
	var claims map[string]json.RawMessage
	if token.Claims(&raw) != nil || !v.exact(raw) {
		return nil, until, "the JSON web token has a repeated claim, or one in two spellings"
	}
	if token.Claims(&times) != nil || token.Claims(&claims) != nil || times.NotBefore < 0 || times.NotBefore > 1<<40 {
		return nil, until, "the claims of the JSON web token are malformed"
	}
	leeway := time.Duration(v.o.LeewaySeconds) * time.Second
	until = token.Expiry.Add(leeway)
	switch {
	case token.Expiry.IsZero() || token.Expiry.Unix() <= 0:
		return nil, until, "the JSON web token has no expiry"
	case !now.Before(until):
		return nil, until, "the JSON web token has expired"
	case now.Add(leeway).Before(time.Unix(int64(times.NotBefore), 0)) || now.Add(leeway).Before(token.IssuedAt):
		return nil, until, "the JSON web token is not valid yet"
	}
	grants, ok := v.grants(claims, until)
	if !ok {
		return nil, until, "the claims of the JSON web token give no valid grant"
	}
	return &Caller{Name: "jwt:" + v.store.Pseudonym("caller", "jwt", token.Issuer, token.Subject), Grants: grants}, until, ""
}

// exact reports whether the claims that count are there once, in their own spelling. The decoder of
// the library takes the last of several, and one in other letters for the same: an issuer that lets
// people add claims would let them replace those.
func (v *jwtVerifier) exact(claims []byte) bool {
	counts := []string{"iss", "aud", "sub", "exp", "nbf", "iat", v.o.RoleClaim, v.o.TenantClaim, v.o.UserClaim, v.o.ThreadsClaim}
	d := jsontext.NewDecoder(bytes.NewReader(claims)) // which refuses names that come twice
	if open, err := d.ReadToken(); err != nil || open.Kind() != '{' {
		return false
	}
	for d.PeekKind() == '"' {
		token, err := d.ReadToken()
		if err != nil {
			return false
		}
		name := token.String()
		if slices.ContainsFunc(counts, func(c string) bool { return strings.EqualFold(name, c) && !slices.Contains(counts, name) }) {
			return false
		}
		if d.SkipValue() != nil {
			return false
		}
	}
	end, err := d.ReadToken()
	return err == nil && end.Kind() == '}'
}

func (v *jwtVerifier) grants(claims map[string]json.RawMessage, until time.Time) ([]Grant, bool) {
	tenant, ok1 := text(claims[v.o.TenantClaim])
	user, ok2 := text(claims[v.o.UserClaim])
	prefix, ok3 := "", true
	if raw, given := claims[v.o.ThreadsClaim]; given {
		prefix, ok3 = text(raw)
	}
	if !ok1 || !ok2 || !ok3 || !v.o.Wildcards && (tenant == Any || user == Any) {
		return nil, false
	}
	var grants []Grant
	for _, role := range texts(claims[v.o.RoleClaim]) {
		if slices.Contains(Roles(), Role(role)) {
			grants = append(grants, Grant{Role: Role(role), Tenant: tenant, User: user, ThreadPrefix: prefix, Expires: until})
		}
	}
	return grants, validate(grants) == nil
}

// text reads a claim that is a text.
func text(raw json.RawMessage) (string, bool) {
	var s *string
	if len(raw) == 0 || json.Unmarshal(raw, &s) != nil || s == nil {
		return "", false
	}
	return *s, true
}

// texts reads a claim that is a text or a list of texts.
func texts(raw json.RawMessage) []string {
	if s, ok := text(raw); ok {
		return []string{s}
	}
	var list []string
	if len(raw) == 0 || json.Unmarshal(raw, &list) != nil {
		return nil
	}
	return list
}
