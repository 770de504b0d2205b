package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/hook"
)

func TestHooksOfBlobs(t *testing.T) {
	ctx := context.Background()
	f, h := newHookFixture(t)
	u := f.User("acme", "alice")
	c := redacting("sk")
	h.set(hook.PreSave, c)
	long := strings.Repeat("ß sk-1 ", 30_000)
	for _, b := range []struct{ name, in, want, typ string }{
		{"text", "a sk-1", "a <sk>", "text"}, {"json", `{"a":"sk-1"}`, `{"a":"<sk>"}`, "json"}, {"long", long, strings.ReplaceAll(long, "sk-1", "<sk>"), "text"},
		{"cut rune", strings.Repeat("x", 64<<10-1) + "ß sk-1", strings.Repeat("x", 64<<10-1) + "ß <sk>", "text"},
		{"empty", "", "", ""}, {"binary", "\x00 sk-1", "\x00 sk-1", ""}, {"not UTF-8", "\xff sk-1", "\xff sk-1", ""},
		{"binary of 64 KiB and more", "\x00" + strings.Repeat("sk-1", 1<<18), "\x00" + strings.Repeat("sk-1", 1<<18), ""},
	} {
		c.takeSeen()
		id, n, err := u.PutBlob(ctx, strings.NewReader(b.in))
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if _, err := u.GetBlob(ctx, id, &got); err != nil || got.String() != b.want || int(n) != len(b.want) {
			t.Errorf("%s: %d bytes, %v", b.name, n, err)
		}
		c.mu.Lock()
		if b.typ == "" && len(c.seen) > 0 || b.typ != "" && (len(c.seen) != 1 || c.seen[0].Items[0].Type != b.typ || c.seen[0].Items[0].Kind != hook.Blob) {
			t.Errorf("%s: the hooks saw %d calls", b.name, len(c.seen))
		}
		c.mu.Unlock()
	}
	before := allEntries(t, f.be)
	_, _, err := u.PutBlob(ctx, io.LimitReader(repeating('x'), maxTextBlob+1))
	if !errors.Is(err, ErrRejected) || !errors.Is(err, hook.ErrLimit) {
		t.Errorf("a text that is too large: %v", err)
	}
	h.set(hook.PreSave, refusing(hook.ErrTrap))
	if _, _, err = u.PutBlob(ctx, strings.NewReader("sk-1")); !errors.Is(err, ErrRejected) {
		t.Errorf("error %v, want ErrRejected", err)
	}
	if !sameEntries(before, allEntries(t, f.be)) {
		t.Error("something was stored")
	}
}

type repeating byte

func (r repeating) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r)
	}
	return len(p), nil
}

// summarising puts long values into a blob.
func summarising() *testChain {
	return &testChain{ids: identity("summary"), run: func(_ context.Context, c *hook.Call) error {
		for i := range c.Items {
			if it := &c.Items[i]; it.Kind == hook.Channel && len(it.Data) > 100 {
				id, err := c.PutBlob(it.Data)
				if err != nil {
					return err
				}
				it.Data = fmt.Appendf(nil, "blob:%x", id)
			}
		}
		return nil
	}}
}

func TestHooksPutBlobs(t *testing.T) {
	ctx := context.Background()
	f, h := newHookFixture(t)
	ref := testRef("t")
	c := summarising()
	h.set(hook.PreSave, c)
	long := []byte(strings.Repeat("long ", 200_000))
	d := Draft{ID: "a", Channels: []Change{{Name: "out", Data: long}, {Name: "x", Data: []byte("short")}}}
	cp := mustSave(t, f, ref, d)
	if len(cp.Blobs) != 1 || dataOf(t, f, ref, Latest)["out"] != fmt.Sprintf("blob:%v", cp.Blobs[0]) {
		t.Fatalf("blobs %v, state %v", cp.Blobs, dataOf(t, f, ref, Latest))
	}
	var got bytes.Buffer
	if _, err := f.User("acme", "alice").GetBlob(ctx, cp.Blobs[0], &got); err != nil || !bytes.Equal(got.Bytes(), long) {
		t.Errorf("the blob has %d bytes, %v", got.Len(), err)
	}
	if again := mustSave(t, f, ref, d); again.Seq != cp.Seq {
		t.Error("the same save is another")
	}
	next := mustSave(t, f, ref, Draft{Keep: true, Channels: []Change{{Name: "x", Data: bytes.Repeat([]byte("y"), 200)}}})
	if len(next.Blobs) != 2 {
		t.Errorf("blobs %v", next.Blobs)
	}

	before := allEntries(t, f.be)
	var late func([]byte) ([32]byte, error)
	for name, try := range map[string]struct {
		draft Draft
		err   error
	}{
		"hooks fail": {Draft{Channels: []Change{{Name: "fail", Data: long}}}, ErrRejected},
		"conflict":   {Draft{Expect: ExpectHead(1), Channels: []Change{{Name: "out", Data: long[1:]}}}, ErrConflict},
		"moved":      {Draft{Channels: []Change{{Name: "move", Data: long[2:]}}, Generation: 9}, ErrGeneration},
	} {
		h.set(hook.PreSave, &testChain{ids: identity("summary"), run: func(ctx context.Context, call *hook.Call) error {
			late = call.PutBlob
			if err := c.run(ctx, call); err != nil || call.Items[0].Name != "fail" {
				return err
			}
			return errors.New("a plain error")
		}})
		if _, err := f.Thread(ref).Save(ctx, try.draft); !errors.Is(err, try.err) {
			t.Errorf("%s: %v, want %v", name, err, try.err)
		}
		if !sameEntries(before, allEntries(t, f.be)) {
			t.Errorf("%s: something was stored", name)
		}
	}
	if _, err := late([]byte("late")); !errors.Is(err, hook.ErrInvalid) {
		t.Errorf("a blob after the hooks: %v", err)
	}
}
