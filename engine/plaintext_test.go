package engine

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// markers are words that occur only in the data that the test stores.
type markers struct {
	r     *rand.Rand
	words []string
}

// coreLen is how many bytes at the beginning of a marker are searched for: a token's place has room
// for them.
const coreLen = 12

// plant returns a new marker for a place. It looks like an id, so it is valid anywhere.
func (m *markers) plant(where string) string {
	word := fmt.Sprintf("%0*x-%s", coreLen, m.r.Uint64()>>(64-4*coreLen), where)
	m.words = append(m.words, word)
	return word
}

// needles are the markers in all possible encodings, with their places.
func (m *markers) needles() map[string]string {
	all := map[string]string{}
	for _, w := range m.words {
		core := []byte(w[:coreLen])
		all[string(core)] = w
		all[hex.EncodeToString(core)] = w + " in hexadecimal"
		all[strings.ToUpper(hex.EncodeToString(core))] = w + " in hexadecimal"
		for before := range 3 { // bytes before it that share a group of four characters with it
			for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
				text := enc.EncodeToString(append(make([]byte, before), core...))
				all[text[(8*before+5)/6:8*(before+coreLen)/6]] = w + " in base64"
			}
		}
	}
	return all
}

// search looks for markers in every file of directories, and in all that can be decompressed in
// them.
func (m *markers) search(t testing.TB, dirs ...string) (found []string) {
	t.Helper()
	needles := m.needles()
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(4<<20), zstd.WithDecoderMaxWindow(4<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	look := func(where string, data []byte) {
		for n := range needles {
			if bytes.Contains(data, []byte(n)) {
				found = append(found, fmt.Sprintf("%s: %s", where, needles[n]))
			}
		}
	}
	files, frames := 0, 0
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			look("name of "+path, []byte(path))
			if e.IsDir() {
				return nil
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			files++
			look(path, data)
			for at := range data {
				if bytes.HasPrefix(data[at:], nothing) {
					continue
				}
				for _, raw := range frameAt(z, data[at:]) {
					frames++
					look(fmt.Sprintf("zstd frame at %d of %s", at, path), raw)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("searched %d files, %d frames, for %d forms of %d markers", files, frames, len(needles), len(m.words))
	return found
}

const zstdMagic = "\x28\xb5\x2f\xfd"

// nothing begins no frame; logs that are mapped at their full length are full of it.
var nothing = make([]byte, 9)

// frameAt decompresses the zstd frame that data begins with, if it is one, with or without its
// magic number. It returns the bytes decoded before an error, too.
func frameAt(z *zstd.Decoder, data []byte) (raws [][]byte) {
	const most = 256 << 10 // of compressed bytes
	if data = data[:min(len(data), most)]; plausible(data) {
		raws = append(raws, decompress(z, data))
	}
	if len(data) > 0 && data[0]&0x0b == 0 { // no dictionary, and no reserved bit: see plausible
		if head := slicesConcat(zstdMagic, data[:min(len(data), 32)]); plausible(head) {
			raws = append(raws, decompress(z, slicesConcat(zstdMagic, data)))
		}
	}
	return raws
}

// plausible reports whether a frame begins here whose first block may be one. This excludes nearly
// everything else.
func plausible(frame []byte) bool {
	const maxBlock = 128 << 10
	var h zstd.Header
	if !bytes.HasPrefix(frame, []byte(zstdMagic)) || h.Decode(frame) != nil || h.Skippable || h.DictionaryID != 0 {
		return false
	}
	first := h.FirstBlock
	return first.OK && first.CompressedSize > 0 && first.CompressedSize <= maxBlock && first.DecompressedSize <= maxBlock
}

func decompress(z *zstd.Decoder, frame []byte) []byte {
	var raw bytes.Buffer
	if z.Reset(bytes.NewReader(frame)) == nil {
		_, _ = z.WriteTo(limited{&raw})
	}
	return raw.Bytes()
}

// limited takes the first bytes only, and then fails.
type limited struct{ *bytes.Buffer }

func (l limited) Write(p []byte) (int, error) {
	if l.Len() > 1<<20 {
		return 0, errors.New("enough")
	}
	return l.Buffer.Write(p)
}

func slicesConcat(prefix string, data []byte) []byte { return append([]byte(prefix), data...) }

// plantAll stores markers in everything that a caller can name or store.
func (m *markers) plantAll(t *testing.T, s *Store) {
	ctx := context.Background()
	ref := Ref{Tenant: m.plant("tenant"), User: m.plant("user"), Thread: m.plant("thread")}
	sub := ref
	sub.Namespace = m.plant("namespace")
	save := func(ref Ref, d Draft) *Checkpoint {
		t.Helper()
		cp, err := s.Thread(ref).Save(ctx, d)
		if err != nil {
			t.Fatal(err)
		}
		return cp
	}
	text := func(where string, n int) []byte {
		return fmt.Appendf(nil, "%s %s %s", m.plant(where), words(m.r, n), m.plant(where+"-end"))
	}
	random := func(where string, n int) []byte {
		return slicesConcat(m.plant(where), append(noise(m.r, n), m.plant(where+"-end")...))
	}
	first := save(ref, Draft{ID: m.plant("id"), Branch: m.plant("branch"), RunID: m.plant("run"), Status: m.plant("status"),
		Labels: map[string]string{m.plant("label"): m.plant("value")}, Meta: fmt.Appendf(nil, `{%q:%q}`, m.plant("meta-key"), m.plant("meta")),
		Channels: []Change{
			{Name: m.plant("channel"), Type: m.plant("type"), Data: text("small", 10)},
			{Name: "log", Data: text("text", 5000)}, {Name: "noise", Data: random("noise", 5000)},
			{Name: "long", Data: text("long", 500<<10)}, {Name: "big", Data: random("big", 300<<10)}}})
	log, _ := first.Channel("log")
	for i := range 20 {
		d := Draft{Keep: true, Step: int64(i), Channels: []Change{{Name: "log", Base: log.Version, Prefix: 100 + i, Suffix: 10, Data: text("delta", 100)}}}
		log, _ = save(ref, d).Channel("log")
	}
	save(ref, Draft{Parent: m.plant("dangling"), AllowDangling: true, TTL: time.Hour, Channels: []Change{{Name: "x", Data: []byte(m.plant("tiny"))}}})
	save(sub, Draft{Channels: []Change{{Name: "x", Data: bytes.Repeat([]byte(m.plant("repeated")), 1000)}}})
	m.plantRest(t, s, ref, text, random)
	gone := ref
	gone.Thread = m.plant("deleted")
	save(gone, Draft{ID: m.plant("deleted-id"), Channels: []Change{{Name: "x", Data: text("deleted-state", 3000)}}})
	if _, err := s.Thread(gone).Delete(ctx); err != nil {
		t.Fatal(err)
	}
}

// plantRest stores blobs, pending writes, labels and copies.
func (m *markers) plantRest(t *testing.T, s *Store, ref Ref, text, random func(string, int) []byte) {
	t.Helper()
	ctx := context.Background()
	th, u := s.Thread(ref), s.User(ref.Tenant, ref.User)
	writes := []Write{{Channel: m.plant("write-channel"), Type: m.plant("write-type"), Data: text("write", 200)},
		{Index: 1, Channel: "x", Data: text("write-long", 90<<10)}, {Index: 2, Channel: "x", Data: random("write-noise", 90<<10)}}
	_, err := th.PutWrites(ctx, m.plant("write-checkpoint"), m.plant("task"), m.plant("path"), Upsert, writes, 0)
	for _, blob := range [][]byte{[]byte(m.plant("tiny-blob")), text("blob", 600<<10), random("noise-blob", 600<<10)} {
		if err == nil {
			_, _, err = u.PutBlob(ctx, bytes.NewReader(blob))
		}
	}
	if err == nil {
		_, err = th.SetLabels(ctx, AtSeq(3), map[string]string{m.plant("set-label"): m.plant("set-value")})
	}
	if err == nil {
		_, err = th.Fork(ctx, AtSeq(4), m.plant("forked"))
	}
	moved := ref
	moved.Thread = m.plant("copied")
	if err == nil {
		err = th.Copy(ctx, moved)
	}
	if err == nil {
		_, err = s.Thread(moved).Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 3, Erase: true})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestNothingReadableAtRest searches every byte of data and keystore for the stored plaintext.
func TestNothingReadableAtRest(t *testing.T) {
	runsAlone(t)
	dir := disk(t.TempDir())
	s, err := dir.open(nil)
	if err != nil {
		t.Fatal(err)
	}
	m := &markers{r: rand.New(rand.NewPCG(21, 22))}
	m.plantAll(t, s)
	for _, f := range m.search(t, dir.path("data"), dir.path("keys")) {
		t.Errorf("before the store was closed: %s", f)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, f := range m.search(t, dir.path("data"), dir.path("keys")) {
		t.Error(f)
	}
}

// TestSearchFindsMarkers is the negative control: the search finds a marker however it was written.
func TestSearchFindsMarkers(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 24))
	zw, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(false))
	if err != nil {
		t.Fatal(err)
	}
	defer zw.Close()
	forms := map[string]func(w string) []byte{
		"plain":  func(w string) []byte { return []byte(w) },
		"hex":    func(w string) []byte { return []byte(hex.EncodeToString([]byte("x" + w))) },
		"base64": func(w string) []byte { return []byte(base64.StdEncoding.EncodeToString([]byte("xy" + w + "z"))) },
		"url":    func(w string) []byte { return []byte(base64.URLEncoding.EncodeToString([]byte("x" + w))) },
		"zstd":   func(w string) []byte { return zw.EncodeAll(append(words(r, 3000), w...), nil) },
		"magicless zstd": func(w string) []byte {
			return zw.EncodeAll(append(words(r, 3000), w...), nil)[len(zstdMagic):]
		},
		"payload":       func(w string) []byte { return codec.NewZstd().AppendBlock(nil, append(words(r, 3000), w...)) },
		"zstd of noise": func(w string) []byte { return zw.EncodeAll(slicesConcat(string(noise(r, 3000)), []byte(w)), nil) },
	}
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			m := &markers{r: r}
			dir := t.TempDir()
			data := slicesConcat(string(noise(r, 1000)), append(form(m.plant("x")), noise(r, 1000)...))
			if err := os.WriteFile(filepath.Join(dir, "file"), data, 0o600); err != nil {
				t.Fatal(err)
			}
			if found := m.search(t, dir); len(found) == 0 {
				t.Error("not found")
			}
		})
	}
	t.Run("file name", func(t *testing.T) {
		m := &markers{r: r}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, m.plant("name")), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if found := m.search(t, dir); len(found) == 0 {
			t.Error("not found")
		}
	})
}
