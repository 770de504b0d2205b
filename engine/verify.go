package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
)

func (s storeUpkeep) Verify(ctx context.Context, o upkeep.VerifyOptions) (*upkeep.VerifyReport, error) {
	v := &verifier{s: s.Store, o: &o, report: &upkeep.VerifyReport{}}
	if err := v.run(ctx); err != nil {
		return v.report, fmt.Errorf("verifying: %w", err)
	}
	return v.report, nil
}

type verifier struct {
	s           *Store
	o           *upkeep.VerifyOptions
	report      *upkeep.VerifyReport
	done, total int
}

// verifiedUser is a user whose threads are being verified.
type verifiedUser struct {
	v *verifier
	*user
	threads map[crypto.Token]*codec.Thread // nil for one whose record is damaged
	order   []crypto.Token
	parts   map[codec.PartID]partState
	blobs   map[BlobID]error // named by a checkpoint
}

func (v *verifier) run(ctx context.Context) error {
	switch {
	case v.o.Thread != "" && v.o.User == "", v.o.User != "" && v.o.Tenant == "":
		return fmt.Errorf("%w: a thread needs a user, and a user needs a tenant", ErrInvalid)
	}
	if err := v.s.ready(ctx); err != nil {
		return err
	}
	tenants, err := v.tenants(ctx)
	if err != nil {
		return err
	}
	users := make([][]*verifiedUser, len(tenants))
	for i, tenant := range tenants {
		if users[i], err = v.users(ctx, tenant); err != nil {
			return err
		}
		for _, u := range users[i] {
			v.total += len(u.order)
		}
	}
	for i, tenant := range tenants {
		for _, u := range users[i] {
			if err := u.verify(ctx); err != nil {
				return err
			}
		}
		if err := v.tenant(ctx, tenant, users[i]); err != nil {
			return err
		}
	}
	if v.o.Tenant != "" {
		return nil // the keystore alone tells which tenant a user is of
	}
	return v.usersWithoutKeys(ctx)
}

func (v *verifier) tenants(ctx context.Context) ([]string, error) {
	if v.o.Tenant != "" {
		return []string{v.o.Tenant}, checkName("tenant", v.o.Tenant, false)
	}
	var tenants []string
	for tenant, err := range v.s.keys.Tenants(ctx) {
		if err == nil {
			tenants = append(tenants, tenant)
		} else if err := v.keystoreProblem(Ref{}, err); err != nil {
			return nil, err
		}
	}
	return tenants, nil
}

// users opens the users of a tenant that are in scope, and lists their threads.
func (v *verifier) users(ctx context.Context, tenant string) ([]*verifiedUser, error) {
	var names []string
	if v.o.User != "" {
		names = []string{v.o.User}
	} else {
		for name, err := range v.s.keys.Users(ctx, tenant) {
			if err == nil {
				names = append(names, name)
			} else if err := v.keystoreProblem(Ref{Tenant: tenant}, err); err != nil {
				return nil, err
			}
		}
	}
	var users []*verifiedUser
	for _, name := range names {
		k, err := v.s.User(tenant, name).keys(ctx, false)
		if errors.Is(err, ErrNotFound) && v.o.User == "" || errors.Is(err, ErrKeyDestroyed) {
			continue // meanwhile
		}
		if err != nil {
			return nil, err
		}
		u := &verifiedUser{v: v, user: k, threads: map[crypto.Token]*codec.Thread{}, parts: map[codec.PartID]partState{}, blobs: map[BlobID]error{}}
		if err := u.list(ctx); err != nil {
			return nil, err
		}
		users = append(users, u)
	}
	return users, nil
}

// list reads the thread records in scope.
func (u *verifiedUser) list(ctx context.Context) error {
	r := u.Threads()
	if u.v.o.Thread != "" {
		r = space.Under(u.ThreadKey(u.ThreadToken(u.v.o.Thread)))
	}
	err := u.s.scan(ctx, r, func(e backend.Entry) error {
		tok, ok := space.ListedThread(e.Key)
		if !ok {
			return u.v.problem(Ref{Tenant: u.tenant, User: u.name}, corrupt(space.Describe(e.Key), "key has the wrong length", nil))
		}
		u.threads[tok] = nil
		rec, err := u.openThread(e.Key, e.Value)
		ref := Ref{Tenant: u.tenant, User: u.name}
		if err == nil {
			ref.Thread = rec.ID
			switch {
			case u.ThreadToken(rec.ID) != tok:
				err = corrupt(space.Describe(e.Key), "is for another thread", nil)
			case rec.Epoch == 0 || rec.Generation == 0 || rec.Generation > rec.Epoch:
				err = corrupt(space.Describe(e.Key), fmt.Sprintf("has generation %d in epoch %d", rec.Generation, rec.Epoch), nil)
			}
		}
		if err != nil {
			return u.v.problem(ref, err)
		}
		u.threads[tok] = rec
		u.order = append(u.order, tok)
		return nil
	})
	if err == nil && u.v.o.Thread != "" && len(u.threads) == 0 {
		err = fmt.Errorf("%w: thread %q", ErrNotFound, u.v.o.Thread)
	}
	return err
}

func (u *verifiedUser) verify(ctx context.Context) error {
	u.v.report.Users++
	for _, tok := range u.order {
		if err := u.thread(ctx, u.threads[tok].ID); err != nil {
			return err
		}
		if err := u.activity(ctx, tok); err != nil {
			return err
		}
		u.v.done++
		if u.v.o.Progress != nil {
			u.v.o.Progress(u.v.done, u.v.total)
		}
	}
	if u.v.o.Thread != "" {
		return nil
	}
	if err := u.allActivity(ctx); err != nil {
		return err
	}
	if err := u.allBlobs(ctx); err != nil {
		return err
	}
	if err := u.allParts(ctx); err != nil {
		return err
	}
	return u.orphans(ctx)
}

// thread verifies the lineages of a thread, even of an expired one.
func (u *verifiedUser) thread(ctx context.Context, id string) error {
	u.v.report.Threads++
	ref := Ref{Tenant: u.tenant, User: u.name, Thread: id}
	var names []string
	err := u.s.withLineage(ctx, ref, func(l *lineage) (err error) {
		rec, _ := l.th.record()
		names, err = u.namespaces(ctx, &l.th.storedThread, &rec)
		return err
	})
	if err != nil {
		return u.v.problem(ref, err)
	}
	for _, ref.Namespace = range names {
		if err := u.v.problem(ref, u.lineage(ctx, ref)); err != nil {
			return err
		}
	}
	ref.Namespace = ""
	err = u.s.withLineage(ctx, ref, func(l *lineage) error { return u.kept(ctx, l.th) })
	return u.v.problem(ref, err)
}

// kept verifies the lineages of the epoch that a thread keeps, if any. The caller holds the
// thread's mu.
func (u *verifiedUser) kept(ctx context.Context, th *thread) error {
	rec, _ := th.record()
	if rec.Kept == 0 {
		return nil
	}
	at := th.in(uint32(rec.Kept))
	names, err := u.namespaces(ctx, at, &rec)
	if err != nil {
		return err
	}
	for _, name := range names {
		c := &lineageCheck{u: u, l: at.lineage(name)}
		if err := u.v.problem(c.l.ref, u.count(c, c.run(ctx))); err != nil {
			return err
		}
	}
	return nil
}

// namespaces lists the recorded namespaces, and looks for records in others. rec is the record of
// the thread, none of whose deletions of namespaces is unfinished.
func (u *verifiedUser) namespaces(ctx context.Context, t *storedThread, rec *codec.Thread) ([]string, error) {
	ref, used := Ref{Tenant: u.tenant, User: u.name, Thread: t.id}, map[crypto.Token]bool{}
	r := t.Records() // before the namespaces are read: both are written in one batch
	r.KeysOnly, r.Limit = true, 1
	for {
		page, _, err := u.s.be.Scan(ctx, r)
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			break
		}
		ns, ok := space.NamespaceOf(page[0].Key)
		if !ok {
			break
		}
		used[ns] = true
		of := space.Lineage{Thread: t.Thread, NS: ns}
		if r.Start = of.Records().End; bytes.Compare(r.Start, r.End) >= 0 {
			break
		}
	}
	names := []string{""}
	delete(used, space.None)
	err := u.s.scan(ctx, t.Namespaces(), func(e backend.Entry) error {
		n, err := t.openNamespace(e)
		tok := crypto.Token{}
		copy(tok[:], space.Tail(e.Key))
		delete(used, tok)
		switch {
		case err != nil:
		case t.Namespace(n.Name).NS != tok:
			err = corrupt(space.Describe(e.Key), "is for another namespace", nil)
		case n.Deleted:
			err = corrupt(space.Describe(e.Key), "is deleted, but the thread record says that no deletion is unfinished", nil)
		case n.Life > rec.Cuts:
			err = corrupt(space.Describe(e.Key), fmt.Sprintf("began after %d deletions of namespaces, but the thread counts %d", n.Life, rec.Cuts), nil)
		}
		if err != nil {
			return u.v.problem(ref, err)
		}
		names = append(names, n.Name)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for ns := range used {
		u.v.problem(ref, corrupt(space.Describe(t.NamespaceKey(ns)), "missing, but it has checkpoints", nil))
	}
	return names, nil
}

// problem lists an error that reports damage. It returns any other, which ends the verification.
func (v *verifier) problem(ref Ref, err error) error {
	if err == nil {
		return nil
	}
	var c *CorruptError
	if !errors.As(err, &c) {
		if !errors.Is(err, ErrKeyDestroyed) && !errors.Is(err, ErrNewerFormat) && !errors.Is(err, backend.ErrCorrupt) {
			return err
		}
		c = &CorruptError{Record: "record", Reason: "cannot be read", Err: err}
	}
	v.list(problemIn(ref, c))
	return nil
}

func (v *verifier) list(p upkeep.Problem) {
	if len(v.report.Problems) == upkeep.MaxProblems {
		v.report.Unlisted++
		return
	}
	v.report.Problems = append(v.report.Problems, p)
}

func problemIn(ref Ref, err *CorruptError) upkeep.Problem {
	return upkeep.Problem{Tenant: ref.Tenant, User: ref.User, Thread: ref.Thread, Namespace: ref.Namespace, Err: err}
}

// keystoreProblem lists a damaged entry of the keystore. Any other error ends the verification.
func (v *verifier) keystoreProblem(ref Ref, err error) error {
	if errors.Is(err, crypto.ErrKeystoreEntry) || errors.Is(err, crypto.ErrNewerFormat) {
		err = corrupt("entry of the keystore", "cannot be read", err)
	}
	return v.problem(ref, ofKeys(err))
}

// tenant verifies the data of a tenant.
func (v *verifier) tenant(ctx context.Context, tenant string, users []*verifiedUser) error {
	key := v.s.space.RetentionKey(tenant)
	if v.o.User == "" {
		got, err := v.s.be.Get(ctx, key)
		if err != nil {
			return err
		}
		if got[0].Version != "" {
			_, err := unseal(v.s.space, space.Retention, key, got[0].Value)
			if err := v.problem(Ref{Tenant: tenant}, err); err != nil {
				return err
			}
		}
	}
	return v.index(ctx, tenant, users)
}

// orphans counts keys that no thread record covers: of old epochs and of missing threads.
func (u *verifiedUser) orphans(ctx context.Context) error {
	r := u.InThreads()
	r.KeysOnly = true
	var at crypto.Token // the unlisted thread whose keys are being read
	known, reported := false, false
	return u.s.scan(ctx, r, func(e backend.Entry) error {
		tok, epoch := space.ThreadOf(e.Key), space.EpochOf(e.Key)
		rec, listed := u.threads[tok]
		if listed {
			if rec != nil && uint64(epoch) != rec.Epoch && uint64(epoch) != rec.Kept {
				u.v.report.Orphans++
			}
			return nil
		}
		if at != tok {
			got, err := u.s.be.Get(ctx, u.ThreadKey(tok))
			if err != nil {
				return err
			}
			at, known, reported = tok, got[0].Version != "", false // known: it is new
		}
		switch {
		case known || reported:
			return nil
		case epoch == 1 && space.KindOf(e.Key) == space.KindRecord: // an interrupted copy begins with epoch 2
			reported = true
			return u.v.problem(Ref{Tenant: u.tenant, User: u.name}, corrupt(space.Describe(e.Key), "its thread record is missing", nil))
		}
		u.v.report.Orphans++
		return nil
	})
}
