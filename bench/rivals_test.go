package bench

import (
	"database/sql"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/dgraph-io/badger/v4"
	_ "modernc.org/sqlite"
)

// plainBadger is the store without ckptd: Badger by itself, with SyncWrites, and one Update per
// save.
type plainBadger struct {
	db *badger.DB
	n  atomic.Uint64
}

func openPlainBadger(b *testing.B, dir string) *plainBadger {
	b.Helper()
	db, err := badger.Open(badger.DefaultOptions(filepath.Join(dir, "plain")).WithSyncWrites(true).WithLogger(nil))
	check(b, err)
	return &plainBadger{db: db}
}

// save writes a value under a new key. The sequence number in it is hashed, so that writers spread
// over the keys.
func (p *plainBadger) save(value []byte) error {
	key := make([]byte, 16)
	n := p.n.Add(1)
	binary.BigEndian.PutUint64(key, n*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(key[8:], n)
	return p.db.Update(func(txn *badger.Txn) error { return txn.Set(key, value) })
}

// sqliteSaver stores a thread the way LangGraph's SqliteSaver does: its table, its pragma, its
// statements, and the whole state in every row.
type sqliteSaver struct {
	db     *sql.DB
	thread string
	last   string
	n      int
}

func openSQLiteSaver(b *testing.B, dir, thread string) *sqliteSaver {
	b.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, "saver.sqlite"))
	check(b, err)
	db.SetMaxOpenConns(1)
	for _, statement := range []string{
		`PRAGMA journal_mode=WAL`,
		`CREATE TABLE IF NOT EXISTS checkpoints (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '',
			checkpoint_id TEXT NOT NULL, parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB,
			PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id))`,
	} {
		_, err := db.Exec(statement)
		check(b, err)
	}
	return &sqliteSaver{db: db, thread: thread}
}

func (s *sqliteSaver) save(state []byte) error {
	s.n++
	id := fmt.Sprintf("1ef4f797-8335-6428-8001-%012d", s.n)
	_, err := s.db.Exec(`INSERT OR REPLACE INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id,
		parent_checkpoint_id, type, checkpoint, metadata) VALUES (?, '', ?, ?, 'msgpack', ?, ?)`,
		s.thread, id, s.last, state, fmt.Sprintf(`{"source":"loop","step":%d,"parents":{}}`, s.n))
	s.last = id
	return err
}

// load reads the newest state.
func (s *sqliteSaver) load() (state []byte, err error) {
	err = s.db.QueryRow(`SELECT checkpoint FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ''
		ORDER BY checkpoint_id DESC LIMIT 1`, s.thread).Scan(&state)
	return state, err
}

func (s *sqliteSaver) close() error { return s.db.Close() }
