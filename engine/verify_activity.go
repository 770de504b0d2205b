package engine

import (
	"context"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// activity verifies that a thread has the activity entry that its record names.
func (u *verifiedUser) activity(ctx context.Context, tok crypto.Token) error {
	ref := Ref{Tenant: u.tenant, User: u.name, Thread: u.threads[tok].ID}
	for active := u.threads[tok].Active; ; {
		key := u.ActivityKey(active, tok)
		rec, entry, err := u.threadWith(ctx, tok, key)
		switch {
		case err != nil:
			return u.v.problem(ref, err)
		case rec == nil || rec.Deleted:
			return nil
		case rec.Active == 0:
			return u.v.problem(ref, corrupt(space.Place(u.ThreadKey(tok)), "belongs to a thread, and refers to no activity entry", nil))
		case rec.Active != active: // it moved since the record was listed
			active = rec.Active
			continue
		case entry.Version == "":
			return u.v.problem(ref, corrupt(space.Place(key), "missing, and its thread refers to it", nil))
		}
		_, _, err = u.openActivity(entry)
		return u.v.problem(ref, err)
	}
}

// allActivity verifies that there are no other activity entries than those that threads name.
func (u *verifiedUser) allActivity(ctx context.Context) error {
	r := u.Activity()
	r.KeysOnly = true
	return u.s.scan(ctx, r, func(e backend.Entry) error {
		ref := Ref{Tenant: u.tenant, User: u.name}
		since, tok, err := activeAt(e.Key)
		if err != nil {
			return u.v.problem(ref, err)
		}
		if rec := u.threads[tok]; rec != nil && rec.Active == since {
			return nil
		}
		rec, entry, err := u.threadWith(ctx, tok, e.Key)
		if err == nil && entry.Version != "" && (rec == nil || rec.Active != since) {
			err = corrupt(space.Place(e.Key), "is not the one that its thread refers to", nil)
		}
		return u.v.problem(ref, err)
	})
}

// threadWith reads a thread record, nil if there is none, and what stands at key at the same time.
func (u *verifiedUser) threadWith(ctx context.Context, tok crypto.Token, key []byte) (*codec.Thread, backend.Entry, error) {
	at := u.ThreadKey(tok)
	got, err := u.s.be.Get(ctx, at, key)
	if err != nil {
		return nil, backend.Entry{}, err
	}
	if got[0].Version == "" {
		return nil, got[1], nil
	}
	rec, err := u.openThread(at, got[0].Value)
	return rec, got[1], err
}
