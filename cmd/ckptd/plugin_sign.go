package main

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/plugins/bundle"
)

var errSigningKey = errors.New("not a signing key")

func (a *app) pluginKeygenCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "keygen FILE",
		Short: "Generate a plugin signing key",
		Long: `Keygen writes an Ed25519 private key to FILE, which you must keep secret, and its public key to
FILE.pub, for ckptd plugin trust FILE.pub. A key from openssl genpkey -algorithm ed25519 works, too.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			_, private, err := ed25519.GenerateKey(nil)
			if err != nil {
				return err
			}
			text, err := bundle.MarshalPrivateKey(private)
			if err != nil {
				return err
			}
			public := bundle.PublicKey(private)
			if err := writeNew(args[0], text, 0o600); err != nil {
				return err
			}
			if err := writeNew(args[0]+".pub", []byte(public.String()+"\n"), 0o644); err != nil {
				return errors.Join(err, os.Remove(args[0]))
			}
			if a.json {
				return a.emit(map[string]string{"id": public.ID(), "public_key": public.String(), "private": args[0], "public": args[0] + ".pub"})
			}
			a.note("created the key %s; keep %s secret", public.ID(), args[0])
			return a.printf("%s  %s\n", a.paint.bold(public.ID()), public)
		},
	}
}

// writeNew writes a file that must not be there yet.
func writeNew(path string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s %w", path, errExists)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

func (a *app) pluginSignCmd() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:   "sign [PATH]",
		Short: "Sign a plugin",
		Long: `Sign signs all files of a plugin that a store reads. It stores the signature in the plugin's directory
as plugin.sig, or in its archive.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if key == "" {
				return usagef("--key is missing: give a private key file, created with ckptd plugin keygen")
			}
			path := pathOf(args)
			text, err := os.ReadFile(key)
			if err != nil {
				return fmt.Errorf("reading the key: %w", err)
			}
			private, err := bundle.ParsePrivateKey(text)
			if err != nil {
				return fmt.Errorf("%s: %w: %w", key, errSigningKey, err)
			}
			b, err := bundle.Open(path)
			if err != nil {
				return err
			}
			b = b.Sign(private)
			if err := writeSigned(path, b); err != nil {
				return fmt.Errorf("writing the signature: %w", err)
			}
			id := bundle.PublicKey(private).ID()
			if a.json {
				return a.emit(map[string]string{"plugin": b.Name(), "digest": fmt.Sprintf("%x", b.Digest()), "key": id})
			}
			return a.printf("signed %s with %s  %s\n", a.paint.bold(b.Name()), id, a.paint.dim(fmt.Sprintf("digest %x", b.Digest())))
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "private key `file` (PEM)")
	return cmd
}

// writeSigned writes the signature of a bundle to where the bundle is.
func writeSigned(path string, b *bundle.Bundle) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return os.WriteFile(path, b.Archive(), info.Mode().Perm())
	}
	signature, _ := b.File(bundle.SignatureFile)
	return os.WriteFile(filepath.Join(path, bundle.SignatureFile), signature, 0o666)
}

func (a *app) pluginVerifyCmd() *cobra.Command {
	var keys []string
	cmd := &cobra.Command{
		Use:   "verify [PATH]",
		Short: "Verify the signature of a plugin",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(keys) == 0 {
				return usagef("--key is missing: give a public key file")
			}
			var trusted []bundle.Key
			for _, file := range keys {
				text, err := os.ReadFile(file)
				if err != nil {
					return fmt.Errorf("reading the public key: %w", err)
				}
				some, err := bundle.ParseKeys(text)
				if err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
				trusted = append(trusted, some...)
			}
			b, err := bundle.Open(pathOf(args))
			if err != nil {
				return err
			}
			key, err := b.Verify(trusted)
			if err != nil {
				return err
			}
			if a.json {
				return a.emit(map[string]string{"plugin": b.Name(), "digest": fmt.Sprintf("%x", b.Digest()), "key": key.ID()})
			}
			return a.printf("%s is signed with %s  %s\n", a.paint.bold(b.Name()), key.ID(), a.paint.dim(fmt.Sprintf("digest %x", b.Digest())))
		},
	}
	cmd.Flags().StringArrayVar(&keys, "key", nil, "public key `file` to trust (repeatable)")
	return cmd
}
