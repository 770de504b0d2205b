package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/badger"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine"
)

const channel = "messages"

// keys are the files that a store needs in addition to its data. The key file and the keystore
// count as its disk space.
type keys struct {
	root  crypto.RootKey
	store crypto.Keystore
}

// newKeys creates a root key file and a keystore in dir.
func newKeys(b *testing.B, dir string) keys {
	b.Helper()
	root, err := crypto.GenerateRootKey()
	check(b, err)
	check(b, crypto.WriteKeyFile(filepath.Join(dir, "data.key"), root))
	store, err := crypto.OpenFileKeystore(filepath.Join(dir, "data.keys"), true)
	check(b, err)
	return keys{root, store}
}

// openDriver opens a durable backend in dir.
func openDriver(b *testing.B, dir string) backend.Backend {
	b.Helper()
	be, err := badger.Open(filepath.Join(dir, "data"), badger.Options{})
	check(b, err)
	return be
}

// openStore opens a store on a backend, with a cache of the given size (0: the default).
func openStore(b *testing.B, be backend.Backend, k keys, cache int64) *engine.Store {
	b.Helper()
	st, err := engine.Open(context.Background(), be, engine.Options{
		Root: k.root, Keystore: k.store, Create: true, CacheBytes: cache,
	})
	check(b, err)
	return st
}

// newStore creates a durable store in dir.
func newStore(b *testing.B, dir string, cache int64) *engine.Store {
	b.Helper()
	return openStore(b, openDriver(b, dir), newKeys(b, dir), cache)
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// benchDir returns a new folder that is removed at the end of the benchmark.
func benchDir(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp(os.Getenv("CKPTD_BENCH_DIR"), "ckptd-bench-")
	check(b, err)
	b.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// agent is the host's side of one thread: the data it holds between two saves.
type agent struct {
	thread  saver
	state   []byte
	last    int            // offset of the last message in state
	version engine.Version // of the channel as last saved
	step    int64
}

// saver is a thread, of the engine or of the client.
type saver interface {
	Save(ctx context.Context, d engine.Draft) (*engine.Checkpoint, error)
	Load(ctx context.Context, w engine.Which, opts ...engine.LoadOptions) (*engine.Checkpoint, error)
}

func newAgent(st *engine.Store, n int) *agent { return &agent{thread: st.Thread(threadRef(n))} }

func threadRef(n int) engine.Ref {
	return engine.Ref{Tenant: "bench", User: "user", Thread: fmt.Sprintf("thread-%d", n)}
}

// begin saves a first state, whole.
func (a *agent) begin(state []byte) error {
	a.state = state
	a.last = len(state) - 1 - messageBytes
	return a.save(engine.Change{Name: channel, Type: "json", Data: a.state}, false)
}

// appendSpliced saves the state with one more message, passing in only the message.
func (a *agent) appendSpliced(message []byte) error {
	if a.version == 0 {
		return a.begin(stateOf([][]byte{message}))
	}
	prefix := len(a.state) - 1
	a.state = grow(a.state, message)
	return a.save(engine.Change{Name: channel, Data: a.state[prefix : len(a.state)-1],
		Base: a.version, Prefix: prefix, Suffix: 1}, true)
}

// appendWhole is appendSpliced with the whole state passed in.
func (a *agent) appendWhole(message []byte) error {
	a.state = grow(a.state, message)
	return a.save(engine.Change{Name: channel, Type: "json", Data: a.state}, false)
}

// replaceSpliced saves the state with a different last message, passing in only the message.
func (a *agent) replaceSpliced(message []byte) error {
	copy(a.state[a.last:], message)
	return a.save(engine.Change{Name: channel, Data: message, Base: a.version, Prefix: a.last, Suffix: 1}, true)
}

// replaceWhole is replaceSpliced with the whole state passed in.
func (a *agent) replaceWhole(message []byte) error {
	copy(a.state[a.last:], message)
	return a.save(engine.Change{Name: channel, Type: "json", Data: a.state}, false)
}

func (a *agent) save(c engine.Change, keep bool) error {
	cp, err := a.thread.Save(context.Background(), engine.Draft{
		Step: a.step, Channels: []engine.Change{c}, Keep: keep,
	})
	if err != nil {
		return err
	}
	saved, ok := cp.Channel(channel)
	if !ok {
		return fmt.Errorf("checkpoint %s has no channel %s", cp.ID, channel)
	}
	a.version = saved.Version
	a.step++
	return nil
}
