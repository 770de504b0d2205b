package engine

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend/mem"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// A clock with a time that no record can hold stops all writes that store it, and no reads.
func TestClockOutOfRange(t *testing.T) {
	ctx := context.Background()
	for _, wrong := range []time.Time{time.UnixMilli(-1), time.Date(1969, 12, 31, 0, 0, 0, 0, time.UTC), time.UnixMilli(codec.MaxTime + 1),
		time.Date(11000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(300_000_000, 1, 1, 0, 0, 0, 0, time.UTC), {}} {
		now := time.UnixMilli(1_700_000_000_000)
		clock := func() time.Time { return now }
		f := newFixture(t, Options{Now: clock})
		u, old, fresh := f.User("acme", "alice"), f.Thread(testRef("t")), f.Thread(testRef("new"))
		mustSave(t, f, testRef("t"), Draft{ID: "a", Channels: []Change{{Name: "m", Data: []byte("1")}}})
		before := allEntries(t, f.be)
		ops := map[string]func() error{
			"save":        func() error { _, err := old.Save(ctx, Draft{ID: "b", Keep: true}); return err },
			"replacement": func() error { _, err := old.Save(ctx, Draft{ID: "a", Step: 1, Keep: true}); return err },
			"first save":  func() error { _, err := fresh.Save(ctx, Draft{}); return err },
			"labels":      func() error { _, err := old.SetLabels(ctx, Latest, map[string]string{"k": "v"}); return err },
			"writes": func() error {
				_, err := f.Thread(testRef("writes")).PutWrites(ctx, "a", "task", "", Upsert, []Write{{Channel: "m"}}, 0)
				return err
			},
			"blob": func() error { _, _, err := u.PutBlob(ctx, strings.NewReader("blob")); return err },
			"copy": func() error { return old.Copy(ctx, testRef("copy")) },
			"store": func() error {
				root, err := crypto.GenerateRootKey()
				if err == nil {
					_, err = Open(ctx, mem.Open(), Options{Now: clock, Root: root, Keystore: crypto.NewMemKeystore(), Create: true})
				}
				return err
			},
		}
		now = wrong
		for name, op := range ops {
			if err := op(); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), wrong.UTC().Format(time.DateTime)) {
				t.Errorf("%v: %s: %v", wrong, name, err)
			}
		}
		if !sameEntries(allEntries(t, f.be), before) {
			t.Errorf("%v: something was written", wrong)
		}
		if cp, err := old.Load(ctx, Latest); err != nil || cp.ID != "a" {
			t.Errorf("%v: load: %v", wrong, err)
		}
		now = time.UnixMilli(1_700_000_000_001)
		for name, op := range ops {
			if err := op(); err != nil {
				t.Errorf("after %v: %s: %v", wrong, name, err)
			}
		}
		mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
	}
}

// Checkpoints saved at the first and the last time that a record can hold exist, whatever their
// time to live.
func TestClockAtItsEnds(t *testing.T) {
	for _, ms := range []int64{0, 1, codec.MaxTime - 1, codec.MaxTime} {
		f := newFixture(t, Options{Now: (&testClock{ms}).now})
		cp := mustSave(t, f, testRef("t"), Draft{ID: "a", TTL: math.MaxInt64, Labels: map[string]string{"k": "v"}})
		f.reopen()
		got, err := f.Thread(testRef("t")).Load(context.Background(), At("a"))
		if ms == codec.MaxTime && errors.Is(err, ErrNotFound) {
			continue // expired
		}
		if err != nil || !got.Time.Equal(time.UnixMilli(ms)) || got.Hash != cp.Hash {
			t.Errorf("%d: loads as %+v, %v", ms, got, err)
		}
		mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
	}
}
