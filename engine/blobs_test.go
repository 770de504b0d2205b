package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/backendtest"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// blobReader yields n bytes that do not repeat.
func blobReader(seed uint64, n int) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}), int64(n))
}

func blobBytes(t *testing.T, seed uint64, n int) []byte {
	t.Helper()
	b, err := io.ReadAll(blobReader(seed, n))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustPutBlob(t *testing.T, u *User, content []byte) BlobID {
	t.Helper()
	id, n, err := u.PutBlob(context.Background(), bytes.NewReader(content))
	if err != nil || n != int64(len(content)) {
		t.Fatalf("putting %d bytes: %d, %v", len(content), n, err)
	}
	return id
}

func wantBlob(t *testing.T, u *User, id BlobID, want []byte) {
	t.Helper()
	var got bytes.Buffer
	n, err := u.GetBlob(context.Background(), id, &got)
	if err != nil || n != int64(len(want)) || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("blob %v of %d bytes came as %d, %v", id, len(want), n, err)
	}
}

// countKind counts the entries of a kind that the user has.
func countRange(t *testing.T, f *fixture, of func(*user) backend.Range) (n int) {
	t.Helper()
	u, err := f.user(context.Background(), userName{"acme", "alice"}, false)
	if err != nil {
		t.Fatal(err)
	}
	err = f.scan(context.Background(), of(u), func(backend.Entry) error { n++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestBlobs(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	u := f.User("acme", "alice")
	if _, err := u.GetBlob(ctx, BlobID{1}, io.Discard); !errors.Is(err, ErrNotFound) {
		t.Errorf("a blob of a user that does not exist: %v", err)
	}
	blobs := map[BlobID][]byte{}
	for i, n := range []int{0, 1, codec.MaxPart - 1, codec.MaxPart, codec.MaxPart + 1, blobStep, blobStep + 1, 5*codec.MaxPart + 7} {
		content := blobBytes(t, uint64(i), n)
		blobs[mustPutBlob(t, u, content)] = content
	}
	for range 2 {
		u = f.User("acme", "alice")
		for id, want := range blobs {
			wantBlob(t, u, id, want)
			info, err := u.StatBlob(ctx, id)
			if err != nil || info.ID != id || info.Size != int64(len(want)) || time.Since(info.Created) > 2*time.Hour {
				t.Errorf("blob %v is %+v, %v", id, info, err)
			}
		}
		f.reopen()
	}
	u = f.User("acme", "alice")
	if _, err := u.StatBlob(ctx, BlobID{1}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a blob that does not exist: %v", err)
	}
	// However it is read, the same content is the same blob, and is stored once.
	parts, manifests := countRange(t, f, (*user).Parts), countRange(t, f, (*user).Blobs)
	for id, content := range blobs {
		again, _, err := u.PutBlob(ctx, iotest.HalfReader(bytes.NewReader(content)))
		if err != nil || again != id {
			t.Errorf("%d bytes again are %v, %v", len(content), again, err)
		}
	}
	longer := append(blobBytes(t, 7, 5*codec.MaxPart+7)[:5*codec.MaxPart], 1)
	mustPutBlob(t, u, longer)
	if p, m := countRange(t, f, (*user).Parts), countRange(t, f, (*user).Blobs); p != parts+1 || m != manifests+1 {
		t.Errorf("%d parts and %d manifests became %d and %d", parts, manifests, p, m)
	}
	// Another user's are his own, under another digest.
	other := f.User("acme", "bob")
	if id := mustPutBlob(t, other, longer); blobs[id] != nil {
		t.Errorf("users share digest %v", id)
	}
	for id := range blobs {
		if _, err := other.GetBlob(ctx, id, io.Discard); !errors.Is(err, ErrNotFound) {
			t.Errorf("another user's blob: %v", err)
		}
	}
}

func TestBlobsOfCheckpoints(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	content := blobBytes(t, 1, codec.MaxPart+1)
	id := mustPutBlob(t, f.User("acme", "alice"), content)
	th := f.Thread(testRef("t"))
	if _, err := th.Save(ctx, Draft{Blobs: []BlobID{{1}}}); !errors.Is(err, ErrNotFound) {
		t.Errorf("saving a blob that does not exist: %v", err)
	}
	cp := save(t, th, Draft{Blobs: []BlobID{id}})
	if got := mustLoad(t, th, At(cp.ID)); len(got.Blobs) != 1 || got.Blobs[0] != id {
		t.Errorf("got %v", got.Blobs)
	}
}

// A blob that is put again counts as young, since a save may be about to name it.
func TestBlobPutAgainIsYoung(t *testing.T) {
	ctx := context.Background()
	now := time.Unix(1_800_000_000, 0)
	f := newFixture(t, Options{Now: func() time.Time { return now }})
	u := f.User("acme", "alice")
	content := blobBytes(t, 1, codec.MaxPart+1)
	id := mustPutBlob(t, u, content)
	for _, d := range []time.Duration{0, time.Hour, 90 * 24 * time.Hour} {
		now = now.Add(d)
		mustPutBlob(t, u, content)
		if info, err := u.StatBlob(ctx, id); err != nil || !info.Created.Equal(now.Truncate(time.Hour)) {
			t.Errorf("after %v: created %v, %v", d, info.Created, err)
		}
	}
	wantBlob(t, u, id, content)
}

func TestBlobLimit(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	mustPutBlob(t, f.User("acme", "alice"), nil)
	us, err := f.user(ctx, userName{"acme", "alice"}, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		n  int
		ok bool
	}{{blobStep, true}, {blobStep + 1, false}, {2*blobStep + 5, false}} {
		p := newBlobPut(us, blobStep)
		_, err := p.put(ctx, blobReader(9, c.n))
		var limit *LimitError
		if c.ok != (err == nil) || !c.ok && (!errors.As(err, &limit) || limit.Most != blobStep || !errors.Is(err, ErrTooLarge)) {
			t.Errorf("%d bytes: %v", c.n, err)
		}
	}
	// The manifest of the largest blob fits into a batch.
	m := codec.Blob{Hour: 1 << 40, Size: MaxBlob, Parts: make([]codec.PartID, MaxBlob/codec.MaxPart)}
	key := us.BlobKey(BlobID{})
	value, err := partSealer(t, us).Seal(nil, space.KindBlob, key, codec.AppendBlob(nil, &m))
	if err != nil {
		t.Fatal(err)
	}
	if mut := (backend.Mut{Key: key, Value: value, Version: space.Once}); mutSize(&mut) > backend.MaxBatchBytes {
		t.Errorf("its manifest takes %d bytes", mutSize(&mut))
	}
}

// Memory stays the same however large a blob is.
func TestBlobMemory(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	u := f.User("acme", "alice")
	mustPutBlob(t, u, make([]byte, blobStep)) // one part, over and over
	const size = 48 << 20
	w := &heapWatch{}
	id, _, err := u.PutBlob(ctx, io.LimitReader(w, size))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := u.GetBlob(ctx, id, w); err != nil || n != size {
		t.Fatal(n, err)
	}
	if grown := w.most - w.least; grown > size/8 {
		t.Errorf("a blob of %d bytes takes %d bytes of memory", size, grown)
	}
	if n := countRange(t, f, (*user).Parts); n != 1 {
		t.Errorf("%d parts hold nothing but zeros", n)
	}
}

// heapWatch reads zeros, takes everything, and measures the live heap in the meantime.
type heapWatch struct {
	calls       int
	least, most int64
}

func (w *heapWatch) look() {
	if w.calls++; w.calls%8 != 1 {
		return
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	if w.most = max(w.most, int64(m.HeapAlloc)); w.least == 0 {
		w.least = int64(m.HeapAlloc)
	}
}

func (w *heapWatch) Read(p []byte) (int, error)  { w.look(); clear(p); return len(p), nil }
func (w *heapWatch) Write(p []byte) (int, error) { w.look(); return len(p), nil }

type failingWriter struct{ left int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return len(p) + w.left, io.ErrShortWrite
	}
	return len(p), nil
}

func TestBlobBadIO(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	u := f.User("acme", "alice")
	broken := errors.New("broken pipe")
	if _, _, err := u.PutBlob(ctx, io.MultiReader(blobReader(1, blobStep+5), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("a reader that fails: %v", err)
	}
	if n := countRange(t, f, (*user).Blobs); n != 0 {
		t.Errorf("it left %d manifests", n)
	}
	id := mustPutBlob(t, u, blobBytes(t, 1, blobStep+5))
	if n, err := u.GetBlob(ctx, id, &failingWriter{left: codec.MaxPart + 10}); !errors.Is(err, io.ErrShortWrite) || n != codec.MaxPart+10 {
		t.Errorf("a writer that fails: %d, %v", n, err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, _, err := u.PutBlob(gone, blobReader(2, 10)); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that ended: %v", err)
	}
	for _, bad := range []*User{f.User("", "alice"), f.User("acme", ""), f.User("acme", "\xff")} {
		if _, _, err := bad.PutBlob(ctx, blobReader(2, 10)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", bad.name, err)
		}
	}
}

// Content stored under a digest must match the digest.
func TestBlobDamage(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	f.broken = true
	u := f.User("acme", "alice")
	us, err := u.keys(ctx, true)
	if err != nil {
		t.Fatal(err)
	}
	content, other := blobBytes(t, 1, 2*codec.MaxPart), blobBytes(t, 2, 2*codec.MaxPart)
	id, second := mustPutBlob(t, u, content), mustPutBlob(t, u, other)
	write := func(key []byte, kind byte, plain []byte) {
		t.Helper()
		value, err := partSealer(t, us).Seal(nil, kind, key, plain)
		if err == nil {
			err = f.commit(ctx, []backend.Mut{{Key: key, Value: value, Version: space.Once}}, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	read := func(what string, wantBytes int64) {
		t.Helper()
		var out bytes.Buffer
		n, err := u.GetBlob(ctx, id, &out)
		if !errors.Is(err, ErrCorrupt) || n != wantBytes || !bytes.Equal(out.Bytes(), content[:n]) {
			t.Errorf("%s: %d bytes, %v", what, n, err)
		}
	}
	m, err := us.manifest(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	write(us.PartKey(m.Parts[1]), space.KindPart, codec.AppendPart(nil, 1, other[:codec.MaxPart]))
	read("a part with another content", codec.MaxPart)
	if err := f.commit(ctx, []backend.Mut{{Key: us.PartKey(m.Parts[1]), Delete: true}}, nil); err != nil {
		t.Fatal(err)
	}
	read("a part that is missing", codec.MaxPart)
	mustPutBlob(t, u, content)
	wantBlob(t, u, id, content)

	n, err := us.manifest(ctx, second)
	if err != nil {
		t.Fatal(err)
	}
	swapped := *m
	swapped.Parts = []codec.PartID{m.Parts[0], n.Parts[0]}
	write(us.BlobKey(id), space.KindBlob, codec.AppendBlob(nil, &swapped))
	out := bytes.Buffer{}
	if _, err := u.GetBlob(ctx, id, &out); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a manifest with a part of another blob: %v", err)
	}
	if err := f.commit(ctx, []backend.Mut{{Key: us.BlobKey(id), Value: []byte("no envelope"), Version: "x"}}, nil); err != nil {
		t.Fatal(err)
	}
	read("a manifest that is not sealed", 0)
	if _, err := u.StatBlob(ctx, id); !errors.Is(err, ErrCorrupt) {
		t.Errorf("stat of a damaged manifest: %v", err)
	}
	mustPutBlob(t, u, content) // writes the manifest again
	wantBlob(t, u, id, content)
}

// Uploads of the same content at once, and a failure anywhere, leave whole blobs or none.
func TestBlobRaceAndFaults(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	fault := backendtest.NewFault(f.be)
	f.be = fault.Backend()
	f.reopen()
	var wg sync.WaitGroup
	shared := blobBytes(t, 3, blobStep+9)
	for g := range 4 {
		wg.Go(func() {
			for i := range 4 {
				content := shared
				if i%2 == 0 {
					content = append([]byte(fmt.Sprint(g, i)), shared...)
				}
				u := f.User("acme", "alice")
				id, _, err := u.PutBlob(ctx, bytes.NewReader(content))
				if err != nil {
					t.Error(err)
				}
				var out bytes.Buffer
				if _, err := u.GetBlob(ctx, id, &out); err != nil || !bytes.Equal(out.Bytes(), content) {
					t.Errorf("got %d bytes, %v", out.Len(), err)
				}
			}
		})
	}
	wg.Wait()
	u := f.User("acme", "alice")
	for k := 0; ; k++ {
		content := blobBytes(t, uint64(100+k), blobStep+9)
		manifests := countRange(t, f, (*user).Blobs)
		fault.Arm(backendtest.Plan{Ops: backendtest.OpAny, After: k, Err: backend.ErrUnavailable})
		id, _, err := u.PutBlob(ctx, bytes.NewReader(content))
		fault.Disarm()
		if fault.Fired() == 0 {
			if err != nil {
				t.Error(err)
			}
			wantBlob(t, u, id, content)
			break
		}
		if !errors.Is(err, ErrUnavailable) || id != (BlobID{}) || countRange(t, f, (*user).Blobs) != manifests {
			t.Errorf("fault %d: %v, %v", k, id, err)
		}
		wantBlob(t, u, mustPutBlob(t, u, content), content)
	}
}

// A blob that is on its way in, or was just put again, is not collected, however hard GC tries.
func TestBlobsAndGC(t *testing.T) {
	ctx := context.Background()
	now := time.Unix(1_800_000_000, 0)
	f := newFixture(t, Options{Now: func() time.Time { return now }})
	u := f.User("acme", "alice")
	content := blobBytes(t, 5, 3*blobStep+1)
	collect := func(grace time.Duration) {
		t.Helper()
		if _, err := u.Upkeep().GC(ctx, upkeep.GCOptions{Grace: grace}); err != nil {
			t.Fatal(err)
		}
	}
	// Its first half is there from an upload that failed long ago, and is collected at each chance.
	if _, _, err := u.PutBlob(ctx, io.MultiReader(bytes.NewReader(content[:2*blobStep]), iotest.ErrReader(io.ErrClosedPipe))); err == nil {
		t.Fatal("the upload did not fail")
	}
	now = now.Add(90 * 24 * time.Hour)
	id, _, err := u.PutBlob(ctx, &callingReader{r: bytes.NewReader(content), call: func() { collect(-1) }})
	if err != nil {
		t.Fatal(err)
	}
	wantBlob(t, u, id, content)
	now = now.Add(90 * 24 * time.Hour)
	if again := mustPutBlob(t, u, content); again != id {
		t.Errorf("%v became %v", id, again)
	}
	collect(0)
	save(t, f.Thread(testRef("t")), Draft{Blobs: []BlobID{id}})
	now = now.Add(90 * 24 * time.Hour)
	collect(-1)
	wantBlob(t, u, id, content)
	if _, err := f.Thread(testRef("t")).Delete(ctx); err != nil {
		t.Fatal(err)
	}
	collect(0)
	if _, err := u.GetBlob(ctx, id, io.Discard); !errors.Is(err, ErrNotFound) {
		t.Errorf("a blob that nothing names is still there: %v", err)
	}
	if n := countRange(t, f, (*user).Parts); n != 0 {
		t.Errorf("%d parts are left", n)
	}
}

// callingReader calls before every read.
type callingReader struct {
	r    io.Reader
	call func()
}

func (c *callingReader) Read(p []byte) (int, error) {
	c.call()
	return c.r.Read(p[:min(len(p), blobStep/2)])
}
