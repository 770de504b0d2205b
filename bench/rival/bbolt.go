package rival

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/ckptd/ckptd/bench/workload"
)

func bboltRival() Rival {
	return Rival{
		Name: "bbolt", What: "bbolt: the whole state as a value; Update for one writer, Batch for more, with a batch size equal to the number of writers",
		Durable: "default settings", Whole: true,
		Open: func(_ context.Context, o Options) (Driver, error) { return openBolt(o) },
	}
}

type bolt struct {
	db     *bbolt.DB
	update func(func(*bbolt.Tx) error) error
}

func openBolt(o Options) (Driver, error) {
	db, err := bbolt.Open(filepath.Join(o.Dir, "data.bolt"), 0o600, nil)
	if err != nil {
		return nil, err
	}
	b := &bolt{db: db}
	b.Writers(o.Writers)
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucket())
		return err
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return b, nil
}

func (b *bolt) Writers(n int) {
	b.update = b.db.Update
	if n > 1 {
		b.db.MaxBatchSize = n // otherwise a batch would wait for more writers when all are waiting already
		b.update = b.db.Batch
	}
}

func bucket() []byte { return []byte("checkpoints") }

func (b *bolt) Save(_ context.Context, s *workload.Step) error {
	return b.update(func(tx *bbolt.Tx) error { return tx.Bucket(bucket()).Put(stateKey(s.Thread, s.Number), s.State.Doc) })
}

func (b *bolt) Load(_ context.Context, thread, step int) (state []byte, err error) {
	err = b.db.View(func(tx *bbolt.Tx) error {
		if step >= 0 {
			state = bytes.Clone(tx.Bucket(bucket()).Get(stateKey(thread, step)))
		} else {
			cursor := tx.Bucket(bucket()).Cursor()
			last := cursor.Prev
			if key, _ := cursor.Seek(stateKey(thread+1, 0)); key == nil {
				last = cursor.Last
			}
			key, value := last()
			if bytes.HasPrefix(key, stateKey(thread, 0)[:8]) {
				state = bytes.Clone(value)
			}
		}
		if state == nil {
			return errMissing
		}
		return nil
	})
	return state, err
}

func (b *bolt) Settle(context.Context) error { return nil }
func (b *bolt) Process() int                 { return 0 }
func (b *bolt) Close() error                 { return b.db.Close() }
