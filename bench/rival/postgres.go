package rival

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ckptd/ckptd/bench/workload"
)

func postgres() Rival {
	return Rival{
		Name: "postgres", What: "PostgreSQL on a Unix socket: one table, the whole state as JSONB in a row, one connection per writer",
		Durable: "default: fsync and synchronous_commit on", Whole: true, Respells: true, Installed: postgresInstalled,
		Open: func(ctx context.Context, o Options) (Driver, error) {
			d, err := openPostgres(ctx, o, statesTable)
			if err != nil {
				return nil, err
			}
			return &states{d}, nil
		},
	}
}

// postgresProgram finds a program of the server. Debian does not put them on the path.
func postgresProgram(name string) (string, error) {
	return findProgram(name, "/usr/lib/postgresql/*/bin/"+name)
}

func postgresInstalled() (string, error) {
	if _, err := postgresProgram("initdb"); err != nil {
		return "", err
	}
	path, err := postgresProgram("postgres")
	if err != nil {
		return "", err
	}
	return versionOf(path)
}

// pg is a server with its connections.
type pg struct {
	server *server
	pool   *pgxpool.Pool
}

func openPostgres(ctx context.Context, o Options, tables string) (*pg, error) {
	owner, err := accountOf("postgres")
	if err != nil {
		return nil, err
	}
	if err := owner.own(o.Dir); err != nil {
		return nil, err
	}
	data := filepath.Join(o.Dir, "data")
	if _, err := os.Stat(data); errors.Is(err, fs.ErrNotExist) {
		if err := initDB(owner, o.Dir, data); err != nil {
			return nil, err
		}
	}
	program, err := postgresProgram("postgres")
	if err != nil {
		return nil, err
	}
	cmd := owner.command(o.Dir, program, "-D", data, "-k", o.Dir, "-c", "listen_addresses=", "-c", "max_connections="+strconv.Itoa(o.Writers+20))
	config, err := pgxpool.ParseConfig(fmt.Sprintf("host=%s user=bench dbname=postgres pool_max_conns=%d", o.Dir, max(o.Writers, 1)))
	if err != nil {
		return nil, fmt.Errorf("describing the connection: %w", err)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	p := &pg{pool: pool}
	// an interrupt means a fast shutdown, which does not wait for clients
	if p.server, err = startServer(ctx, cmd, syscall.SIGINT, pool.Ping); err != nil {
		pool.Close()
		return nil, err
	}
	if _, err := pool.Exec(ctx, tables); err != nil {
		return nil, errors.Join(fmt.Errorf("making the tables: %w", err), p.Close())
	}
	return p, nil
}

func initDB(owner account, dir, data string) error {
	program, err := postgresProgram("initdb")
	if err != nil {
		return err
	}
	out, err := owner.command(dir, program, "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync").CombinedOutput()
	if err != nil {
		return fmt.Errorf("making a database: %w: %s", err, lastLines(string(out)))
	}
	return nil
}

func (p *pg) Settle(ctx context.Context) error {
	for _, text := range []string{"VACUUM", "CHECKPOINT"} {
		if _, err := p.pool.Exec(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

func (p *pg) Process() int { return p.server.cmd.Process.Pid }

func (p *pg) Close() error {
	p.pool.Close()
	return p.server.stop()
}

// states uses the single table that articles usually show.
type states struct{ *pg }

const statesTable = `CREATE TABLE IF NOT EXISTS checkpoints (thread_id TEXT NOT NULL, step BIGINT NOT NULL, parent BIGINT,
	state JSONB NOT NULL, created_at TIMESTAMPTZ NOT NULL DEFAULT now(), PRIMARY KEY (thread_id, step))`

func (p *states) Save(ctx context.Context, s *workload.Step) error {
	_, err := p.pool.Exec(ctx, `INSERT INTO checkpoints (thread_id, step, parent, state) VALUES ($1, $2, $3, $4)
		ON CONFLICT (thread_id, step) DO UPDATE SET parent = EXCLUDED.parent, state = EXCLUDED.state`,
		threadID(s.Thread), s.Number, s.Parent, s.State.Doc)
	return err
}

func (p *states) Load(ctx context.Context, thread, step int) (state []byte, err error) {
	if step < 0 {
		err = p.pool.QueryRow(ctx, `SELECT state FROM checkpoints WHERE thread_id = $1 ORDER BY step DESC LIMIT 1`, threadID(thread)).Scan(&state)
	} else {
		err = p.pool.QueryRow(ctx, `SELECT state FROM checkpoints WHERE thread_id = $1 AND step = $2`, threadID(thread), step).Scan(&state)
	}
	return state, err
}
