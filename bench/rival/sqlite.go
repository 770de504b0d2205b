package rival

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/ckptd/ckptd/bench/workload"
)

func sqliteRival() Rival {
	return Rival{
		Name: "sqlite", What: "SQLite (modernc's, without cgo) with the table of LangGraph's saver, the whole state in a row",
		Durable: "WAL, synchronous=FULL, one connection", Default: "default: a rollback journal, synchronous=FULL", Whole: true,
		Open: openSQLite,
	}
}

type sqlite struct {
	db                   *sql.DB
	insert, newest, step *sql.Stmt
}

const sqliteTable = `CREATE TABLE IF NOT EXISTS checkpoints (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '',
	checkpoint_id TEXT NOT NULL, parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB,
	PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id))`

func openSQLite(ctx context.Context, o Options) (Driver, error) {
	pragmas := url.Values{}
	if o.Durable {
		pragmas.Add("_pragma", "journal_mode(WAL)")
	}
	pragmas.Add("_pragma", "synchronous(FULL)")
	db, err := sql.Open("sqlite", "file:"+filepath.Join(o.Dir, "data.sqlite")+"?"+pragmas.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // writers queue here, which is faster than finding the file locked
	s := &sqlite{db: db}
	if _, err := db.ExecContext(ctx, sqliteTable); err != nil {
		return nil, fmt.Errorf("making the table: %w", err)
	}
	for _, p := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&s.insert, `INSERT OR REPLACE INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type,
			checkpoint, metadata) VALUES (?, '', ?, ?, 'json', ?, ?)`},
		{&s.newest, `SELECT checkpoint FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = '' ORDER BY checkpoint_id DESC LIMIT 1`},
		{&s.step, `SELECT checkpoint FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = '' AND checkpoint_id = ?`},
	} {
		if *p.stmt, err = db.PrepareContext(ctx, p.text); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// threadID and checkpointID use LangGraph's format.
func threadID(thread int) string { return fmt.Sprintf("thread-%d", thread) }

func checkpointID(step int) string {
	if step < 0 {
		return ""
	}
	return fmt.Sprintf("1ef4f797-8335-6428-8001-%012d", step)
}

func metadata(s *workload.Step) string {
	return fmt.Sprintf(`{"source":"loop","step":%d,"parents":{}}`, s.Number)
}

func (q *sqlite) Save(ctx context.Context, s *workload.Step) error {
	_, err := q.insert.ExecContext(ctx, threadID(s.Thread), checkpointID(s.Number), checkpointID(s.Parent), s.State.Doc, metadata(s))
	return err
}

func (q *sqlite) Load(ctx context.Context, thread, step int) (state []byte, err error) {
	if step < 0 {
		err = q.newest.QueryRowContext(ctx, threadID(thread)).Scan(&state)
	} else {
		err = q.step.QueryRowContext(ctx, threadID(thread), checkpointID(step)).Scan(&state)
	}
	return state, err
}

func (q *sqlite) Settle(ctx context.Context) error {
	_, err := q.db.ExecContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`)
	return err
}

func (q *sqlite) Process() int { return 0 }
func (q *sqlite) Close() error { return q.db.Close() }
