package crypto

import "fmt"

// UserKeys are the keys of one user. They are immutable and safe for concurrent use.
type UserKeys struct {
	domain *domain
	token  Token
	index  *secret
	keys   *dataKeys
}

// Token returns the user's token, the scope of all its backend keys.
func (u *UserKeys) Token() Token { return u.token }

// KeyNumber returns the number of the newest data key, which seals new records. The first is 1.
func (u *UserKeys) KeyNumber() uint32 { return u.keys.newest() }

// Derive returns a key for a purpose from the user's index key, which stays the same until the user
// is destroyed. After the keyring was closed it is zero.
func (u *UserKeys) Derive(purpose string, parts ...[]byte) [32]byte {
	return u.index.derive(purpose, parts...)
}

// BlindToken returns a token in place of ids, for a purpose: HMAC-SHA256 of the length-prefixed
// purpose and parts under the user's index key, truncated. It stays the same until the user is
// destroyed. After the keyring was closed it is zero.
func (u *UserKeys) BlindToken(purpose string, parts ...string) Token {
	return u.index.token(purpose, parts...)
}

// ThreadToken returns the token of a thread of the user.
func (u *UserKeys) ThreadToken(thread string) Token { return u.BlindToken("thread", thread) }

// Sealer derives the sealer of a purpose and a scope, such as a thread token, from the newest data
// key. It costs a few microseconds and counts only its own seals: keep it while it is in use.
// Errors: ErrClosed.
func (u *UserKeys) Sealer(purpose string, scope ...[]byte) (*Sealer, error) {
	if u.domain.closed.Load() {
		return nil, ErrClosed
	}
	return newSealer(u.domain, u.keys, purpose, scope...)
}

// Format hides the keys from every verb of fmt.
func (u *UserKeys) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "[keys of user %s]", u.token) }

func (u *UserKeys) wipe() {
	u.index.wipe()
	u.keys.wipe()
}

func (e *userEntry) wipe() {
	e.index.wipe()
	e.keys.wipe()
}
