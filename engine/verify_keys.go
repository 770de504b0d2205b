package engine

import (
	"context"
	"fmt"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// usersWithoutKeys reports the data of users who have no entry in the keystore. All lists of users
// come from the keystore, so nothing else in a verification reads that data.
func (v *verifier) usersWithoutKeys(ctx context.Context) error {
	n, err := v.s.countWithoutKeys(ctx)
	if err != nil {
		return v.keystoreProblem(Ref{}, err)
	}
	if n == 0 {
		return nil
	}
	of := "1 user"
	if n > 1 {
		of = fmt.Sprintf("%d users", n)
	}
	return v.problem(Ref{}, corrupt("data of "+of, "no keys in the keystore; was it restored from an old copy?", ErrKeyMissing))
}

// countWithoutKeys counts the users with data who have no entry in the keystore. It reads one key
// of each scope. A user's entry is made before the data and never removed, so the keystore must be
// listed after the data.
func (s *Store) countWithoutKeys(ctx context.Context) (int, error) {
	without := map[crypto.Token]bool{}
	for r := (backend.Range{KeysOnly: true, Limit: 1}); ; {
		page, _, err := s.be.Scan(ctx, r)
		if err != nil {
			return 0, err
		}
		if len(page) == 0 {
			break
		}
		key := page[0].Key
		if user, ok := space.UserOf(key); ok {
			without[user] = true
		}
		if r.Start = space.AfterScope(key); r.Start == nil {
			break
		}
	}
	if len(without) == 0 {
		return 0, nil
	}
	for user, err := range s.keys.UserTokens(ctx) {
		if err != nil {
			return 0, err
		}
		delete(without, user)
	}
	return len(without), nil
}
