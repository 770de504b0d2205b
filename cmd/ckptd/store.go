package main

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/ckptd/ckptd/client"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/installed"
)

// What the commands need of a store. It is opened here (embedded) or behind a server (remote), and the commands cannot
// tell which.

type store interface {
	Thread(engine.Ref) thread
	User(tenant, name string) user
	Users(ctx context.Context, tenant string) iter.Seq2[string, error]
	QueryTenant(ctx context.Context, tenant string, q engine.Query) iter.Seq2[*engine.Checkpoint, error]
	Watch(context.Context, engine.WatchScope, engine.Cursor) iter.Seq2[engine.Event, error]
	Retention(ctx context.Context, tenant string) (engine.RetentionPolicy, error)
	SetRetention(ctx context.Context, tenant string, p engine.RetentionPolicy) error
	GC(ctx context.Context, tenant string, o engine.GCOptions) (*engine.GCReport, error)
	Verify(context.Context, engine.VerifyOptions) (*engine.VerifyReport, error)
	Stats(ctx context.Context, tenant, name string) (*engine.Stats, error)
	Close() error
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
	Prune(context.Context, engine.PruneOptions) (*engine.PruneReport, error)
	Delete(context.Context) (uint64, error)
}

type user interface {
	Threads(context.Context, engine.ThreadOptions) iter.Seq2[engine.ThreadInfo, error]
	Query(context.Context, engine.Query) iter.Seq2[*engine.Checkpoint, error]
	DeleteRun(ctx context.Context, run string) (int, error)
	PutBlob(context.Context, io.Reader) (engine.BlobID, int64, error)
	GetBlob(context.Context, engine.BlobID, io.Writer) (int64, error)
	StatBlob(context.Context, engine.BlobID) (engine.BlobInfo, error)
}

type embedded struct {
	*engine.Store
	plugins *installed.Set
}

func (s embedded) Close() error { return errors.Join(s.Store.Close(), s.plugins.Close()) }

func (s embedded) Thread(ref engine.Ref) thread  { return s.Store.Thread(ref) }
func (s embedded) User(tenant, name string) user { return s.Store.User(tenant, name) }

type remote struct{ *client.Store }

func (s remote) Thread(ref engine.Ref) thread  { return s.Store.Thread(ref) }
func (s remote) User(tenant, name string) user { return s.Store.User(tenant, name) }
