package main

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/ckptd/ckptd/client"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
	"github.com/ckptd/ckptd/internal/pluginset"
)

// The methods of a store that the commands need. The store is opened here (embedded) or on a server
// (remote), and the commands cannot tell which.

type store interface {
	Thread(engine.Ref) thread
	User(tenant, name string) user
	QueryTenant(ctx context.Context, tenant string, q engine.Query) iter.Seq2[*engine.Checkpoint, error]
	Watch(context.Context, engine.WatchScope, engine.Cursor) iter.Seq2[engine.Event, error]
	storeKeeper
	Close() error
}

// The client of a daemon has the methods of keepers itself; the engine has them on separate
// handles.

type storeKeeper interface {
	Users(ctx context.Context, tenant string) iter.Seq2[string, error]
	Retention(ctx context.Context, tenant string) (upkeep.RetentionPolicy, error)
	SetRetention(ctx context.Context, tenant string, p upkeep.RetentionPolicy) error
	GC(ctx context.Context, tenant string, o upkeep.GCOptions) (*upkeep.GCReport, error)
	Verify(context.Context, upkeep.VerifyOptions) (*upkeep.VerifyReport, error)
	Stats(ctx context.Context, tenant, user string) (*upkeep.Stats, error)
}

type thread interface {
	Ref() engine.Ref
	Save(context.Context, engine.Draft) (*engine.Checkpoint, error)
	Load(context.Context, engine.Which, ...engine.LoadOptions) (*engine.Checkpoint, error)
	History(context.Context, engine.HistoryOptions) iter.Seq2[*engine.Checkpoint, error]
	Diff(ctx context.Context, from, to engine.Which) (*engine.Diff, error)
	Fork(ctx context.Context, from engine.Which, branch string) (*engine.Checkpoint, error)
	Branches(context.Context) ([]engine.Branch, error)
	SetBranch(ctx context.Context, name string, to engine.Which) error
	DeleteBranch(ctx context.Context, name string) error
	SetLabels(context.Context, engine.Which, map[string]string) (*engine.Checkpoint, error)
	Copy(ctx context.Context, to engine.Ref) error
	Delete(context.Context) (uint64, error)
	threadKeeper
}

type threadKeeper interface {
	Prune(context.Context, upkeep.PruneOptions) (*upkeep.PruneReport, error)
}

type user interface {
	Threads(context.Context, engine.ThreadOptions) iter.Seq2[engine.ThreadInfo, error]
	Query(context.Context, engine.Query) iter.Seq2[*engine.Checkpoint, error]
	ListByID(context.Context, engine.ListByIDOptions) iter.Seq2[*engine.Entry, error]
	PutBlob(context.Context, io.Reader) (engine.BlobID, int64, error)
	GetBlob(context.Context, engine.BlobID, io.Writer) (int64, error)
	StatBlob(context.Context, engine.BlobID) (engine.BlobInfo, error)
	userKeeper
}

type userKeeper interface {
	DeleteRun(ctx context.Context, run string) (int, []upkeep.LostHistory, error)
}

type embedded struct {
	*engine.Store
	storeKeeper
	plugins *pluginset.Set
}

func embed(s *engine.Store, plugins *pluginset.Set) embedded {
	return embedded{s, s.Upkeep(), plugins}
}

func (s embedded) Close() error { return errors.Join(s.Store.Close(), s.plugins.Close()) }

func (s embedded) Thread(ref engine.Ref) thread {
	t := s.Store.Thread(ref)
	return embeddedThread{t, t.Upkeep()}
}

func (s embedded) User(tenant, name string) user {
	u := s.Store.User(tenant, name)
	return embeddedUser{u, u.Upkeep()}
}

type embeddedThread struct {
	*engine.Thread
	threadKeeper
}

type embeddedUser struct {
	*engine.User
	userKeeper
}

type remote struct{ *client.Store }

func (s remote) Thread(ref engine.Ref) thread  { return s.Store.Thread(ref) }
func (s remote) User(tenant, name string) user { return s.Store.User(tenant, name) }
