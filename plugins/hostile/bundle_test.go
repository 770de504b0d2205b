package hostile

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"

	"github.com/ckptd/ckptd/hook"
	. "github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/plugins/bundle"
)

// files returns the files of a bundle with a module, whose manifest has the digest of another
// module.
func files(module, digested []byte) []bundle.File {
	manifest := fmt.Sprintf(`name = "echo"
version = "1.0.0"
abi = 1
description = "writes what it reads"
wasm = "echo.wasm"
sha256 = "%x"

[[hooks]]
stage = "pre_save"
`, sha256.Sum256(digested))
	return []bundle.File{{Path: bundle.ManifestFile, Data: []byte(manifest)}, {Path: "echo.wasm", Data: module}}
}

// bundleRows have plugins that differ from what their authors signed.
func bundleRows() []row {
	return []row{
		{name: "digest mismatch", run: func(b *bed) {
			if _, err := bundle.Load(files(Echo(), Echo())); err != nil {
				b.errorf("a sound bundle: %v", err)
			}
			if _, err := bundle.Load(files(Upper(), Echo())); err == nil {
				b.errorf("a module of another digest was taken")
			} else {
				b.typed(err, []error{hook.ErrInvalid})
			}
		}},
		{name: "signature mismatch", run: func(b *bed) {
			mine, theirs := ed25519.NewKeyFromSeed(make([]byte, 32)), ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, 32))
			trusted := []bundle.Key{bundle.PublicKey(mine)}
			sound, err := bundle.Load(files(Echo(), Echo()))
			if err != nil {
				b.errorf("a sound bundle: %v", err)
				return
			}
			signed := sound.Sign(mine)
			if _, err := signed.Verify(trusted); err != nil {
				b.errorf("a sound signature: %v", err)
			}
			refuse := func(what string, bad *bundle.Bundle) {
				if _, err := bad.Verify(trusted); err == nil {
					b.errorf("%s was taken", what)
				} else {
					b.typed(err, []error{hook.ErrInvalid})
				}
			}
			refuse("no signature", sound)
			refuse("the signature of another", sound.Sign(theirs))
			for _, f := range signed.Files() {
				if f.Path == bundle.ManifestFile || f.Path == "echo.wasm" {
					continue
				}
				for at := range f.Data { // every bit of the signature counts
					bad := bytes.Clone(f.Data)
					bad[at] ^= 1
					other, err := bundle.Load(append(files(Echo(), Echo()), bundle.File{Path: f.Path, Data: bad}))
					if err != nil {
						b.typed(err, []error{hook.ErrInvalid})
						continue
					}
					refuse(fmt.Sprintf("a signature whose byte %d was changed", at), other)
				}
				moved, err := bundle.Load(append(files(Upper(), Upper()), f))
				if err != nil {
					b.errorf("a signature beside another module: %v", err)
					continue
				}
				refuse("the signature of another module", moved)
			}
		}},
	}
}
