package rival

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ckptd/ckptd/bench/workload"
)

func redisRival() Rival {
	return Rival{
		Name: "redis", What: "Redis on a Unix socket: one key per state and one for the newest, set together; everything is in memory",
		Durable: "AOF, appendfsync always", Default: "AOF, appendfsync everysec", Whole: true,
		Installed: func() (string, error) {
			path, err := findProgram("redis-server", "")
			if err != nil {
				return "", err
			}
			return versionOf(path)
		},
		Open: openRedis,
	}
}

type redisServer struct {
	server *server
	client *redis.Client
}

func openRedis(ctx context.Context, o Options) (Driver, error) {
	owner, err := accountOf("redis")
	if err != nil {
		return nil, err
	}
	if err := owner.own(o.Dir); err != nil {
		return nil, err
	}
	program, err := findProgram("redis-server", "")
	if err != nil {
		return nil, err
	}
	fsync := "everysec"
	if o.Durable {
		fsync = "always"
	}
	socket := filepath.Join(o.Dir, "redis.sock")
	cmd := owner.command(o.Dir, program, "--port", "0", "--unixsocket", socket, "--dir", o.Dir, "--appendonly", "yes",
		"--appendfsync", fsync, "--save", "", "--daemonize", "no")
	r := &redisServer{client: redis.NewClient(&redis.Options{Network: "unix", Addr: socket, PoolSize: max(o.Writers, 4), MaxRetries: -1,
		ReadTimeout: time.Minute, WriteTimeout: time.Minute})}
	ready := func(ctx context.Context) error { return r.client.Ping(ctx).Err() }
	if r.server, err = startServer(ctx, cmd, syscall.SIGTERM, ready); err != nil {
		return nil, errors.Join(err, r.client.Close())
	}
	return r, nil
}

func redisKey(thread, step int) string { return fmt.Sprintf("state:%d:%d", thread, step) }

func (r *redisServer) Save(ctx context.Context, s *workload.Step) error {
	key := redisKey(s.Thread, s.Number)
	_, err := r.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, key, s.State.Doc, 0)
		p.Set(ctx, fmt.Sprintf("newest:%d", s.Thread), key, 0)
		return nil
	})
	return err
}

func (r *redisServer) Load(ctx context.Context, thread, step int) ([]byte, error) {
	key := redisKey(thread, step)
	if step < 0 {
		var err error
		if key, err = r.client.Get(ctx, fmt.Sprintf("newest:%d", thread)).Result(); err != nil {
			return nil, err
		}
	}
	return r.client.Get(ctx, key).Bytes()
}

// Settle rewrites the log, as Redis itself does whenever the log has doubled.
func (r *redisServer) Settle(ctx context.Context) error {
	for {
		if err := r.awaitRewrite(ctx); err != nil { // a rewrite that it began by itself may lack recent data
			return err
		}
		err := r.client.BgRewriteAOF(ctx).Err()
		if err == nil {
			return r.awaitRewrite(ctx)
		}
		if !strings.Contains(err.Error(), "in progress") {
			return err
		}
	}
}

// awaitRewrite waits until no rewrite of the log is running.
func (r *redisServer) awaitRewrite(ctx context.Context) error {
	for {
		info, err := r.client.Info(ctx, "persistence").Result()
		if err != nil {
			return err
		}
		if strings.Contains(info, "aof_rewrite_in_progress:0") && strings.Contains(info, "aof_rewrite_scheduled:0") {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (r *redisServer) Process() int { return r.server.cmd.Process.Pid }

func (r *redisServer) Close() error { return errors.Join(r.client.Close(), r.server.stop()) }
