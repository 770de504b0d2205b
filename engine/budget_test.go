package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/migrate"
)

// purse is a room of some size that remembers the most that was taken of it.
type purse struct{ size, held, most int64 }

var errNoRoom = errors.New("no room")

func (p *purse) Reserve(bytes int64) error {
	if p.size > 0 && p.held+bytes > p.size {
		return errNoRoom
	}
	p.held += bytes
	p.most = max(p.most, p.held)
	return nil
}

func (p *purse) Release(bytes int64) { p.held -= bytes }

// asking is a context whose calls ask p.
func asking(t *testing.T, p *purse) context.Context { return WithBudget(t.Context(), p) }

// TestSmallValuesArePaidFor: decoded values take far more memory than their text, and it is
// reserved before they are decoded.
func TestSmallValuesArePaidFor(t *testing.T) {
	const n = 20_000
	set, err := migrate.NewSet(t.Context(), migrate.Spec{Kind: "k", Steps: []migrate.Step{
		migrate.Go(1, 2, "", func(doc map[string]any) (map[string]any, error) { return doc, nil }),
		migrate.Go(2, 3, "", func(map[string]any) (map[string]any, error) { return nil, errors.New("no") })}})
	must(t, err)
	f := newFixture(t, Options{Migrations: only(set)})
	th := f.Thread(testRef("t"))
	text := func(of string) string { return "[" + strings.Repeat(of+",", n) + "0]" }
	for i, of := range []string{"0", "1"} {
		save(t, th, Draft{Step: int64(i), Kind: "k", SchemaVersion: 1, Channels: []Change{jsonChannel("c", text(of))}})
	}
	ways := map[string]func(ctx context.Context) error{
		"migrating": func(ctx context.Context) error {
			_, err := th.Load(ctx, Latest, LoadOptions{Schema: 2})
			return err
		},
		"comparing": func(ctx context.Context) error {
			_, err := th.Diff(ctx, AtSeq(1), AtSeq(2))
			return err
		},
		"failing": func(ctx context.Context) error {
			if _, err := th.Load(ctx, Latest, LoadOptions{Schema: 3}); !errors.Is(err, migrate.ErrStep) {
				return err
			}
			return nil
		},
	}
	for _, name := range []string{"failing", "comparing", "migrating"} {
		p := &purse{size: 20 * n} // room for their texts, several times
		if err := ways[name](asking(t, p)); !errors.Is(err, errNoRoom) {
			t.Errorf("%s with no room for values: %v", name, err)
		}
		p = &purse{}
		must(t, ways[name](asking(t, p)))
		if p.most < 100*n || p.held > 10*n {
			t.Errorf("%s took room for %d bytes, and held %d at its end", name, p.most, p.held)
		}
	}
	// Cached states are copied for the caller all the same.
	p := &purse{}
	must(t, ways["migrating"](asking(t, p)))
	if p.most < 2*n || p.most > 10*n {
		t.Errorf("a cached migration reserved %d bytes", p.most)
	}
}

// TestLargeBasesArePaidFor loads a small value whose base is large and compresses to nothing.
func TestLargeBasesArePaidFor(t *testing.T) {
	const large, small = 4 << 20, 64 << 10
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	noise := bytes.Repeat([]byte("large "), large/6)
	for i := range small { // a piece that does not compress stands in it
		noise[i] = byte(i*i*i>>7) ^ byte(i*7919>>5)
	}
	save(t, th, Draft{Step: 1, Channels: []Change{{Name: "c", Data: noise}}})
	cp := save(t, th, Draft{Step: 2, Channels: []Change{{Name: "c", Data: noise[:small]}}})
	if cp.Cost.Depth < 1 {
		t.Fatal("it was not stored as a part of the large one")
	}
	f.reopen()
	p := &purse{}
	if _, err := f.Thread(testRef("t")).Load(asking(t, p), Latest); err != nil {
		t.Fatal(err)
	}
	if p.most < large {
		t.Errorf("room was taken for %d bytes, and %d were restored", p.most, large)
	}
}

// TestBlobsArePaidFor: a blob takes room for a piece of it, however little has come of it, and for
// all of a text that passes hooks.
func TestBlobsArePaidFor(t *testing.T) {
	for _, hooked := range []bool{false, true} {
		f, h := newHookFixture(t)
		if hooked {
			h.set(hook.PreSave, redacting("sk"))
		}
		text := strings.Repeat("a text ", 1<<20)
		p := &purse{}
		id, _, err := f.User("acme", "alice").PutBlob(asking(t, p), strings.NewReader(text))
		must(t, err)
		want := int64(blobStep)
		if hooked {
			want += int64(len(text))
		}
		if p.most < want || p.held != 0 {
			t.Errorf("a blob of %d bytes took room for %d, and holds %d at its end", len(text), p.most, p.held)
		}
		p = &purse{}
		_, err = f.User("acme", "alice").GetBlob(asking(t, p), id, io.Discard)
		must(t, err)
		if p.most < codec.MaxPart || p.held != 0 {
			t.Errorf("reading it took room for %d, and holds %d at its end", p.most, p.held)
		}
		p = &purse{size: blobStep / 2}
		if _, _, err := f.User("acme", "alice").PutBlob(asking(t, p), strings.NewReader("small")); !errors.Is(err, errNoRoom) || p.held != 0 {
			t.Errorf("a blob without room: %v, and %d bytes are held", err, p.held)
		}
	}
}

// TestMatchesArePaidFor: a query has a position for every match before it yields the first, however
// few are asked for.
func TestMatchesArePaidFor(t *testing.T) {
	f := newFixture(t, Options{})
	const n = 3*positionsAtOnce + 1
	for i := range n {
		save(t, f.Thread(testRef(fmt.Sprint(i%3))), Draft{Step: int64(i), Channels: []Change{jsonChannel("c", "1")}})
	}
	query := func(p *purse) (err error) {
		for _, err = range f.User("acme", "alice").Query(asking(t, p), Query{Limit: 1}) {
		}
		return err
	}
	p := &purse{}
	must(t, query(p))
	if p.most < n*bytesPerPosition || p.held > smallValues {
		t.Errorf("%d matches took room for %d bytes, and hold %d at the end", n, p.most, p.held)
	}
	if err := query(&purse{size: n * bytesPerPosition / 2}); !errors.Is(err, errNoRoom) {
		t.Errorf("with no room for them: %v", err)
	}
}
