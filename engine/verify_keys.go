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
	// A user's entry is made before the data and never removed, so the keystore is listed after the
	// data.
	without, err := v.s.usersWithData(ctx)
	if err != nil {
		return v.problem(Ref{}, err)
	}
	if len(without) == 0 {
		return nil
	}
	for user, err := range v.s.keys.UserTokens(ctx) {
		if err != nil {
			return v.keystoreProblem(Ref{}, err)
		}
		delete(without, user)
	}
	n := len(without)
	if n == 0 {
		return nil
	}
	of := "1 user"
	if n > 1 {
		of = fmt.Sprintf("%d users", n)
	}
	return v.problem(Ref{}, corrupt("data of "+of, "no keys in the keystore; was it restored from an old copy?", ErrKeyMissing))
}

// usersWithData finds the users with data. It reads one key of each scope.
func (s *Store) usersWithData(ctx context.Context) (map[crypto.Token]bool, error) {
	users := map[crypto.Token]bool{}
	for r := (backend.Range{KeysOnly: true, Limit: 1}); ; {
		page, _, err := s.be.Scan(ctx, r)
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			return users, nil
		}
		key := page[0].Key
		if user, ok := space.UserOf(key); ok {
			users[user] = true
		}
		if r.Start = space.AfterScope(key); r.Start == nil {
			return users, nil
		}
	}
}
