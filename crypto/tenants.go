package crypto

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"strings"
)

// Tenants yields the ids of the tenants that have users with keys, in no particular order. It
// leaves out a tenant whose users are all destroyed: their remains do not name it. For an entry
// that cannot be read it yields an error and continues; an error of the keystore ends it.
func (k *Keyring) Tenants(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if k.domain.closed.Load() {
			yield("", ErrClosed)
			return
		}
		known := map[string]bool{}
		for name, err := range k.ks.List(ctx, "") {
			if err != nil {
				yield("", fmt.Errorf("listing tenants: %w", err))
				return
			}
			token, _, found := strings.Cut(name, "/")
			if !found || known[token] {
				continue
			}
			tenant, err := k.tenantAt(ctx, name)
			if errors.Is(err, ErrNotFound) || errors.Is(err, ErrKeyDestroyed) {
				continue
			}
			known[token] = err == nil
			if err != nil {
				err = fmt.Errorf("listing tenants: %w", err)
			}
			if !yield(tenant, err) {
				return
			}
		}
	}
}

// UserTokens returns the tokens of all users with an entry, destroyed ones included, in no
// particular order. It opens no entry, so damaged ones are among them. An error of the keystore
// ends the sequence.
func (k *Keyring) UserTokens(ctx context.Context) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		if k.domain.closed.Load() {
			yield(Token{}, ErrClosed)
			return
		}
		for name, err := range k.ks.List(ctx, "") {
			if err != nil {
				yield(Token{}, fmt.Errorf("listing users: %w", err))
				return
			}
			var token Token
			_, user, _ := strings.Cut(name, "/")
			if len(user) != hex.EncodedLen(len(token)) {
				continue // the entry of the store
			}
			if _, err := hex.Decode(token[:], []byte(user)); err != nil {
				continue
			}
			if !yield(token, nil) {
				return
			}
		}
	}
}

// tenantAt returns the id of the tenant of the user whose entry has the name.
func (k *Keyring) tenantAt(ctx context.Context, name string) (string, error) {
	raw, err := k.ks.Get(ctx, name)
	if err != nil {
		return "", err
	}
	e, err := k.openUser(name, raw)
	if err != nil {
		return "", err
	}
	defer e.wipe()
	if !strings.HasPrefix(name, k.tenantPrefix(e.tenant)) {
		return "", fmt.Errorf("opening %s: %w: it belongs to another tenant", name, ErrKeystoreEntry)
	}
	return e.tenant, nil
}
