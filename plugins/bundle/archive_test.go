package bundle

import (
	"archive/tar"
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/hook"
)

func TestArchive(t *testing.T) {
	b := load(t, good())
	archive := b.Archive()
	if !bytes.Equal(archive, load(t, good()).Archive()) {
		t.Error("the same files make two archives")
	}
	again, err := LoadArchive(archive)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.Files(), again.Files()); diff != "" || again.Digest() != b.Digest() {
		t.Error(diff)
	}
}

// TestDamagedArchives: anything that isn't exactly an archive of ours is an error, without side
// effects.
func TestDamagedArchives(t *testing.T) {
	small := map[string]string{ManifestFile: "name = \"a\"\nversion = \"0.0.1\"\nabi = 1\nwasm = \"a.wasm\"\n[[hooks]]\nstage = \"load\"\n", "a.wasm": "\x00asm"}
	archive := load(t, small).Archive()
	for i := range archive {
		if _, err := LoadArchive(archive[:i]); !errors.Is(err, hook.ErrInvalid) {
			t.Fatalf("cut to %d of %d bytes: %v", i, len(archive), err)
		}
	}
	digest := load(t, small).Digest()
	for i := range archive {
		flipped := bytes.Clone(archive)
		flipped[i] ^= 1 << (i % 8)
		if b, err := LoadArchive(flipped); err == nil && b.Digest() == digest {
			t.Fatalf("byte %d does not matter", i)
		}
	}
	if _, err := LoadArchive(append(bytes.Clone(archive), 0)); err == nil {
		t.Error("a byte more does not matter")
	}
}

func TestForeignArchives(t *testing.T) {
	write := func(headers ...*tar.Header) []byte {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		for _, h := range headers {
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(make([]byte, h.Size)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	plain := func(name string) *tar.Header { return &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644} }
	for name, archive := range map[string][]byte{
		"empty":     {},
		"gzip":      []byte("\x1f\x8b\x08\x00"),
		"link":      write(&tar.Header{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}),
		"folder":    write(&tar.Header{Name: "a/", Typeflag: tar.TypeDir}),
		"absolute":  write(plain("/a")),
		"upwards":   write(plain("../a")),
		"unordered": write(plain("b"), plain("a")),
		"twice":     write(plain("a"), plain("a")),
		"owner":     write(&tar.Header{Name: "a", Typeflag: tar.TypeReg, Mode: 0o644, Uid: 7}),
		"mode":      write(&tar.Header{Name: "a", Typeflag: tar.TypeReg, Mode: 0o755}),
		"pax":       write(&tar.Header{Name: "a", Typeflag: tar.TypeReg, Format: tar.FormatPAX, PAXRecords: map[string]string{"X.y": "z"}}),
	} {
		if _, err := LoadArchive(archive); !errors.Is(err, hook.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func keyOf(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

func TestSignatures(t *testing.T) {
	mine, other := keyOf(1), keyOf(2)
	b := load(t, good())
	signed := b.Sign(mine)
	if signed.Digest() != b.Digest() {
		t.Error("signing changes the digest")
	}
	signed, err := LoadArchive(signed.Archive())
	if err != nil {
		t.Fatal(err)
	}
	if key, err := signed.Verify([]Key{PublicKey(other), PublicKey(mine)}); err != nil || key != PublicKey(mine) {
		t.Errorf("verifying: %v, %v", key, err)
	}
	if id, ok := signed.Signed(); !ok || id != PublicKey(mine).ID() {
		t.Errorf("signed with %q, %v", id, ok)
	}
	if _, err := b.Verify([]Key{PublicKey(mine)}); err == nil || !strings.Contains(err.Error(), "is not signed") {
		t.Errorf("not signed: %v", err)
	}
	if _, err := signed.Verify([]Key{PublicKey(other)}); err == nil || !strings.Contains(err.Error(), PublicKey(mine).ID()+", which is not trusted") {
		t.Errorf("another key: %v", err)
	}
	if again := signed.Sign(other); len(again.Files()) != len(signed.Files()) {
		t.Error("a second signature stands beside the first")
	}

	line, _ := signed.File(SignatureFile)
	moved := good()
	moved[SignatureFile], moved["README.md"] = string(line), "another text"
	if _, err := load(t, moved).Verify([]Key{PublicKey(mine)}); err == nil || !strings.Contains(err.Error(), "changed after signing") {
		t.Errorf("signed for another plugin: %v", err)
	}
	for i := range line {
		spoilt := good()
		flipped := bytes.Clone(line)
		flipped[i] ^= 1
		spoilt[SignatureFile] = string(flipped)
		if _, err := load(t, spoilt).Verify([]Key{PublicKey(mine)}); !errors.Is(err, hook.ErrInvalid) {
			t.Fatalf("byte %d of the signature does not matter: %v", i, err)
		}
	}
}

func TestKeys(t *testing.T) {
	a, b := PublicKey(keyOf(1)), PublicKey(keyOf(2))
	public := func(k Key) string {
		der, err := x509.MarshalPKIXPublicKey(ed25519.PublicKey(k[:]))
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	}
	private, err := MarshalPrivateKey(keyOf(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{a.String() + "\n# of b\n\n" + b.String() + " # b\n", public(a) + public(b)} {
		if got, err := ParseKeys([]byte(text)); err != nil || cmp.Diff([]Key{a, b}, got) != "" {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "# none", "AAAA", a.String() + " b", string(private), strings.Replace(public(a), "PUBLIC", "STRANGE", 2)[:60]} {
		if got, err := ParseKeys([]byte(text)); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
	if got, err := ParsePrivateKey(private); err != nil || !got.Equal(keyOf(1)) {
		t.Errorf("a private key becomes another: %v", err)
	}
	if _, err := ParsePrivateKey([]byte(public(a))); err == nil {
		t.Error("a public key is taken for a private one")
	}
}

// FuzzLoadArchive: an accepted archive round-trips.
func FuzzLoadArchive(f *testing.F) {
	b, err := Load(files(good()))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b.Archive())
	f.Add(b.Sign(keyOf(1)).Archive())
	f.Fuzz(func(t *testing.T, archive []byte) {
		b, err := LoadArchive(archive)
		if err != nil {
			if !errors.Is(err, hook.ErrInvalid) && !errors.Is(err, hook.ErrLimit) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v", err)
			}
			return
		}
		if !bytes.Equal(b.Archive(), archive) {
			t.Error("the archive changed")
		}
	})
}

// FuzzManifest: a manifest is accepted, or refused in one line.
func FuzzManifest(f *testing.F) {
	f.Add(manifest)
	f.Fuzz(func(t *testing.T, text string) {
		contents := good()
		contents[ManifestFile] = text
		if _, err := Load(files(contents)); err != nil && (!errors.Is(err, hook.ErrInvalid) && !errors.Is(err, hook.ErrLimit) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%v", err)
		}
	})
}
