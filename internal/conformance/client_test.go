package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/client"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/wire"
)

// TestGoClient runs the scripts with the Go client.
func TestGoClient(t *testing.T) {
	scripts, err := Scripts()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scripts {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			replay := NewReplay(s)
			server := httptest.NewServer(replay)
			defer server.Close()
			for _, problem := range append(s.Check(play(t, server.URL, s)), replay.End()...) {
				t.Errorf("%s\n%s", s.About, problem)
			}
		})
	}
}

// play makes the calls of a script, and returns what came of them.
func play(t *testing.T, address string, s *Script) (results []Result) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	store, err := client.Dial(address, client.Options{Attempts: s.Client.Attempts, EngineIDs: s.Client.NoIDs,
		Backoff: time.Millisecond, MaxBackoff: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	d := driver{store: store, sessions: map[engine.Ref]*client.Session{}}
	for _, c := range s.Calls {
		ids, err := d.make(ctx, &c)
		if err != nil {
			t.Logf("%s: %v", c.Method, err)
		}
		results = append(results, Result{Reason: reasonOf(err), IDs: ids})
	}
	return results
}

// TestServe runs the scripts as a client in another language would: over two pipes.
func TestServe(t *testing.T) {
	toClient, toServer := pipe(), pipe()
	problems := make(chan int, 1)
	go func() {
		n, err := Serve(toServer, toClient, io.Discard, nil)
		if err != nil {
			t.Error(err)
		}
		toClient.Close()
		problems <- n
	}()
	lines, answers := json.NewDecoder(toClient), json.NewEncoder(toServer)
	played := 0
	for ; ; played++ {
		var task Task
		if err := lines.Decode(&task); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		results := play(t, task.Address, &task.Script)
		if played == 0 { // a wrong one is noticed
			results[0].Reason = "DENIED"
		}
		if err := answers.Encode(results); err != nil {
			t.Fatal(err)
		}
	}
	if scripts, _ := Scripts(); played != len(scripts) {
		t.Errorf("%d scripts were played, want %d", played, len(scripts))
	}
	if n := <-problems; n != 1 {
		t.Errorf("%d problems were found, want 1", n)
	}
}

// pipe is io.Pipe as one value.
func pipe() *pipes {
	r, w := io.Pipe()
	return &pipes{r, w}
}

type pipes struct {
	*io.PipeReader
	w *io.PipeWriter
}

func (p *pipes) Write(b []byte) (int, error) { return p.w.Write(b) }
func (p *pipes) Close() error                { return p.w.Close() }

// reasonOf says in the words of the API what an error is.
func reasonOf(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, engine.ErrAmbiguous): // whatever it is besides
		return "AMBIGUOUS"
	case errors.Is(err, client.ErrUnreachable):
		return "UNREACHABLE"
	}
	for _, row := range wire.Table() {
		if errors.Is(err, row.Err) {
			return strings.TrimPrefix(row.Reason.String(), "REASON_")
		}
	}
	return "another"
}

// driver makes calls with the Go client.
type driver struct {
	store    *client.Store
	sessions map[engine.Ref]*client.Session
}

// make makes a call, and returns the ids of the checkpoints or events that it gives.
func (d *driver) make(ctx context.Context, c *Call) ([]string, error) {
	switch c.Method {
	case "CheckpointService/Save":
		m, err := read(c.Request, &ckptdv1.SaveRequest{})
		if err != nil {
			return nil, err
		}
		return d.save(ctx, m, c.Session)
	case "CheckpointService/SaveBatch":
		m, err := read(c.Request, &ckptdv1.SaveBatchRequest{})
		if err != nil {
			return nil, err
		}
		return d.saveBatch(ctx, m)
	case "CheckpointService/Load":
		m, err := read(c.Request, &ckptdv1.LoadRequest{})
		if err != nil {
			return nil, err
		}
		return idOf(d.store.Thread(wire.UnpackRef(m.GetRef())).Load(ctx, wire.UnpackWhich(m.GetWhich())))
	case "CheckpointService/List":
		m, err := read(c.Request, &ckptdv1.ListRequest{})
		if err != nil {
			return nil, err
		}
		return d.list(ctx, m)
	case "ThreadService/Delete":
		m, err := read(c.Request, &ckptdv1.DeleteRequest{})
		if err != nil {
			return nil, err
		}
		_, err = d.store.Thread(wire.UnpackRef(m.GetRef())).Delete(ctx)
		return nil, err
	case "ThreadService/Watch":
		m, err := read(c.Request, &ckptdv1.WatchRequest{})
		if err != nil {
			return nil, err
		}
		return d.watch(ctx, m, c.Take)
	}
	return nil, fmt.Errorf("the driver does not know %s", c.Method)
}

func read[M proto.Message](text json.RawMessage, m M) (M, error) {
	return m, protojson.Unmarshal(text, m)
}

func idOf(cp *engine.Checkpoint, err error) ([]string, error) {
	if err != nil {
		return nil, err
	}
	return []string{cp.ID}, nil
}

func (d *driver) save(ctx context.Context, m *ckptdv1.SaveRequest, session bool) ([]string, error) {
	draft, err := wire.UnpackDraft(m.GetDraft())
	if err != nil {
		return nil, err
	}
	ref := wire.UnpackRef(m.GetRef())
	if !session {
		return idOf(d.store.Thread(ref).Save(ctx, draft))
	}
	if d.sessions[ref] == nil {
		d.sessions[ref] = d.store.Thread(ref).Session()
	}
	return idOf(d.sessions[ref].Save(ctx, draft))
}

func (d *driver) saveBatch(ctx context.Context, m *ckptdv1.SaveBatchRequest) (ids []string, err error) {
	var saves []client.BatchSave
	for _, s := range m.GetSaves() {
		draft, err := wire.UnpackDraft(s.GetDraft())
		if err != nil {
			return nil, err
		}
		saves = append(saves, client.BatchSave{Ref: wire.UnpackRef(s.GetRef()), Draft: draft})
	}
	results, err := d.store.SaveBatch(ctx, saves)
	for _, r := range results {
		id, failed := idOf(r.Checkpoint, r.Err)
		ids, err = append(ids, id...), errors.Join(err, failed)
	}
	return ids, err
}

func (d *driver) list(ctx context.Context, m *ckptdv1.ListRequest) (ids []string, err error) {
	for cp, err := range d.store.Thread(wire.UnpackRef(m.GetRef())).History(ctx, engine.HistoryOptions{}) {
		if err != nil {
			return ids, err
		}
		ids = append(ids, cp.ID)
	}
	return ids, nil
}

func (d *driver) watch(ctx context.Context, m *ckptdv1.WatchRequest, take int) (ids []string, err error) {
	for e, err := range d.store.Watch(ctx, engine.WatchScope{Tenant: m.GetTenant(), User: m.GetUser(), Thread: m.GetThread()}, engine.Cursor(m.GetCursor())) {
		if err != nil {
			return ids, err
		}
		if ids = append(ids, e.ID); len(ids) == take {
			break
		}
	}
	return ids, nil
}
