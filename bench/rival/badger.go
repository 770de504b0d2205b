package rival

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dgraph-io/badger/v4"
	"github.com/klauspost/compress/zstd"

	"github.com/ckptd/ckptd/bench/workload"
)

// errMissing means that a saved state was not found.
var errMissing = errors.New("no such state")

func rawBadger() Rival {
	return Rival{
		Name: "badger", What: "Badger alone: the whole state as a value, one Update per save",
		Durable: "SyncWrites", Default: "default: SyncWrites off", Whole: true,
		Open: func(_ context.Context, o Options) (Driver, error) { return openBadger(o) },
	}
}

func zstdBadger() Rival {
	return Rival{
		Name: "badger-zstd", What: "Badger with an afternoon's worth of code: zstd of the whole state, then AES-256-GCM",
		Durable: "SyncWrites", Default: "default: SyncWrites off", Whole: true,
		Open: func(_ context.Context, o Options) (Driver, error) { return openSealed(o) },
	}
}

// stateKey orders states by thread and step.
func stateKey(thread, step int) []byte {
	key := binary.BigEndian.AppendUint64(make([]byte, 0, 16), uint64(thread))
	return binary.BigEndian.AppendUint64(key, uint64(step))
}

type plain struct{ db *badger.DB }

func openBadger(o Options) (*plain, error) {
	opts := badger.DefaultOptions(filepath.Join(o.Dir, "data")).WithSyncWrites(o.Durable).WithLogger(nil)
	db, err := badger.Open(opts)
	if err != nil {
		return nil, err
	}
	return &plain{db}, nil
}

func (p *plain) Save(_ context.Context, s *workload.Step) error { return p.put(s, s.State.Doc) }

func (p *plain) put(s *workload.Step, value []byte) error {
	return p.db.Update(func(txn *badger.Txn) error { return txn.Set(stateKey(s.Thread, s.Number), value) })
}

func (p *plain) Load(_ context.Context, thread, step int) (state []byte, err error) {
	err = p.db.View(func(txn *badger.Txn) error {
		if step >= 0 {
			item, err := txn.Get(stateKey(thread, step))
			if err != nil {
				return err
			}
			state, err = item.ValueCopy(nil)
			return err
		}
		it := txn.NewIterator(badger.IteratorOptions{Reverse: true, Prefix: stateKey(thread, 0)[:8]})
		defer it.Close()
		if it.Seek(stateKey(thread, 1<<62)); !it.Valid() {
			return errMissing
		}
		state, err = it.Item().ValueCopy(nil)
		return err
	})
	return state, err
}

func (p *plain) Settle(context.Context) error { return nil } // Close flushes memory
func (p *plain) Process() int                 { return 0 }
func (p *plain) Close() error                 { return p.db.Close() }

// sealed is plain with compression and encryption of whole values.
type sealed struct {
	*plain
	aead cipher.AEAD
	enc  *zstd.Encoder
	dec  *zstd.Decoder
}

func openSealed(o Options) (Driver, error) {
	keyFile := filepath.Join(o.Dir, "key")
	key, err := os.ReadFile(keyFile)
	if errors.Is(err, fs.ErrNotExist) {
		key = make([]byte, 32)
		rand.Read(key)
		err = os.WriteFile(keyFile, key, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	s := &sealed{}
	if s.aead, err = cipher.NewGCM(block); err != nil {
		return nil, err
	}
	if s.enc, err = zstd.NewWriter(nil); err != nil {
		return nil, err
	}
	if s.dec, err = zstd.NewReader(nil); err != nil {
		return nil, err
	}
	if s.plain, err = openBadger(o); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *sealed) Save(_ context.Context, step *workload.Step) error {
	nonce := make([]byte, s.aead.NonceSize(), s.aead.NonceSize()+len(step.State.Doc)/2+s.aead.Overhead())
	rand.Read(nonce)
	small := s.enc.EncodeAll(step.State.Doc, nil)
	return s.put(step, s.aead.Seal(nonce, nonce, small, stateKey(step.Thread, 0)))
}

func (s *sealed) Load(ctx context.Context, thread, step int) ([]byte, error) {
	value, err := s.plain.Load(ctx, thread, step)
	if err != nil {
		return nil, err
	}
	n := s.aead.NonceSize()
	if len(value) < n+8 {
		return nil, errMissing
	}
	small, err := s.aead.Open(nil, value[:n], value[n:], stateKey(thread, 0))
	if err != nil {
		return nil, err
	}
	return s.dec.DecodeAll(small, nil)
}
