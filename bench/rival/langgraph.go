package rival

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/ckptd/ckptd/bench/workload"
)

func postgresLangGraph() Rival {
	return Rival{
		Name: "postgres-langgraph", What: "PostgreSQL with the tables of LangGraph's saver: one row per checkpoint, one per version of a channel",
		Durable: "default: fsync and synchronous_commit on", Whole: true, Installed: postgresInstalled,
		Open: func(ctx context.Context, o Options) (Driver, error) {
			d, err := openPostgres(ctx, o, langGraphTables)
			if err != nil {
				return nil, err
			}
			return &langGraph{pg: d, threads: map[int]*[]channelVersions{}}, nil
		},
	}
}

// langGraph stores channels by version: an unchanged channel is not stored again.
type langGraph struct {
	*pg
	mu      sync.Mutex
	threads map[int]*[]channelVersions
}

// channelVersions are the steps that last changed each channel, as of a step.
type channelVersions struct {
	step     int
	versions map[string]int
}

const langGraphTables = `
CREATE TABLE IF NOT EXISTS checkpoints (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
	parent_checkpoint_id TEXT, type TEXT, checkpoint JSONB NOT NULL, metadata JSONB NOT NULL DEFAULT '{}',
	PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id));
CREATE TABLE IF NOT EXISTS checkpoint_blobs (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', channel TEXT NOT NULL,
	version TEXT NOT NULL, type TEXT NOT NULL, blob BYTEA, PRIMARY KEY (thread_id, checkpoint_ns, channel, version));
CREATE INDEX IF NOT EXISTS checkpoints_thread_id_idx ON checkpoints(thread_id);
CREATE INDEX IF NOT EXISTS checkpoint_blobs_thread_id_idx ON checkpoint_blobs(thread_id)`

func (l *langGraph) Save(ctx context.Context, s *workload.Step) error {
	versions := l.versions(s)
	id, batch := threadID(s.Thread), &pgx.Batch{}
	var list strings.Builder
	for i, c := range s.State.Channels {
		version := versions[c.Name]
		if version == s.Number {
			batch.Queue(`INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
				VALUES ($1, '', $2, $3, 'json', $4) ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING`,
				id, c.Name, strconv.Itoa(version), s.State.Doc[c.Start:c.End])
		}
		if i > 0 {
			list.WriteByte(',')
		}
		list.WriteString(strconv.Quote(c.Name) + `:"` + strconv.Itoa(version) + `"`)
	}
	checkpoint := `{"v":4,"id":"` + checkpointID(s.Number) + `","ts":"2026-01-01T00:00:00+00:00","channel_versions":{` + list.String() + `},"versions_seen":{}}`
	batch.Queue(`INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata)
		VALUES ($1, '', $2, $3, $4, $5) ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id)
		DO UPDATE SET checkpoint = EXCLUDED.checkpoint, metadata = EXCLUDED.metadata`,
		id, checkpointID(s.Number), checkpointID(s.Parent), checkpoint, metadata(s))
	return l.pool.SendBatch(ctx, batch).Close() // one round trip and one transaction
}

// versions returns the versions of the channels after a step: its number for channels that it
// changes, or for all if the parent's versions are unknown.
func (l *langGraph) versions(s *workload.Step) map[string]int {
	l.mu.Lock()
	known := l.threads[s.Thread]
	if known == nil {
		known = new([]channelVersions)
		l.threads[s.Thread] = known
	}
	l.mu.Unlock()
	versions := make(map[string]int, len(s.State.Channels))
	for _, c := range s.State.Channels {
		versions[c.Name] = s.Number
	}
	if s.Parent >= 0 {
		if at := s.Parent % remembered; at < len(*known) && (*known)[at].step == s.Parent {
			parent := (*known)[at]
			for name, version := range parent.versions {
				versions[name] = version
			}
			for _, e := range s.Splices {
				versions[e.Channel] = s.Number
			}
		}
	}
	for len(*known) <= s.Number%remembered {
		*known = append(*known, channelVersions{step: -1})
	}
	(*known)[s.Number%remembered] = channelVersions{s.Number, versions}
	return versions
}

const langGraphState = `SELECT b.channel, b.blob FROM (SELECT thread_id, checkpoint_ns, checkpoint FROM checkpoints
		WHERE thread_id = $1 AND checkpoint_ns = '' AND ($2 = '' OR checkpoint_id = $2) ORDER BY checkpoint_id DESC LIMIT 1) c
	CROSS JOIN LATERAL jsonb_each_text(c.checkpoint -> 'channel_versions') v
	JOIN checkpoint_blobs b ON b.thread_id = c.thread_id AND b.checkpoint_ns = c.checkpoint_ns AND b.channel = v.key AND b.version = v.value
	ORDER BY b.channel`

func (l *langGraph) Load(ctx context.Context, thread, step int) ([]byte, error) {
	rows, err := l.pool.Query(ctx, langGraphState, threadID(thread), checkpointID(step))
	if err != nil {
		return nil, err
	}
	var names []string
	var values [][]byte
	for rows.Next() {
		var name string
		var value []byte
		if err := rows.Scan(&name, &value); err != nil {
			rows.Close()
			return nil, err
		}
		names, values = append(names, name), append(values, value)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if names == nil {
		return nil, errMissing
	}
	return workload.AppendDoc(nil, len(names), func(i int) (string, []byte) { return names[i], values[i] }), nil
}
