package main

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/engine"
)

func (a *app) blobCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "blob",
		Short: "Store and read large values",
		Long: `A blob is a large value that checkpoints refer to by its digest. It is kept while a checkpoint refers
to it (ckptd save --blob ID), and for an hour after it was stored: save the checkpoint within that time.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return usagef("missing command: put, get or stat") },
	}
	var output string
	get := &cobra.Command{
		Use:   "get ID",
		Short: "Print a blob, or write it to a file",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withBlob(cmd.Context(), args[0], func(u user, id engine.BlobID) error {
				return a.to(output, func(w io.Writer) error {
					_, err := u.GetBlob(cmd.Context(), id, outputWriter{w})
					return err
				})
			})
		},
	}
	get.Flags().StringVarP(&output, "output", "o", "", "write to `FILE` instead of standard output")
	cmd.AddCommand(&cobra.Command{
		Use:   "put FILE",
		Short: "Store a file (- for standard input) and print its blob ID",
		Args:  cobra.ExactArgs(1),
		RunE:  func(cmd *cobra.Command, args []string) error { return a.putBlob(cmd.Context(), args[0]) },
	}, get, &cobra.Command{
		Use:   "stat ID",
		Short: "Show the size of a blob and when it was stored",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withBlob(cmd.Context(), args[0], func(u user, id engine.BlobID) error {
				info, err := u.StatBlob(cmd.Context(), id)
				if err != nil {
					return err
				}
				if a.json {
					return a.emit(blobView{info.ID.String(), info.Size, info.Created.UTC().Format(time.RFC3339)})
				}
				return a.printf("%s  %d bytes, put %s\n", info.ID, info.Size, info.Created.Local().Format("2006-01-02 15:04"))
			})
		},
	})
	return cmd
}

// blobView is a blob as --json prints it.
type blobView struct {
	ID      string `json:"id"`
	Size    int64  `json:"size"`
	Created string `json:"created,omitempty"` // to the hour
}

func (a *app) putBlob(ctx context.Context, file string) error {
	in := a.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	return a.with(ctx, true, func(s store) error {
		id, size, err := s.User(a.tenant, a.user).PutBlob(ctx, in)
		if err != nil {
			return err
		}
		if a.json {
			return a.emit(blobView{ID: id.String(), Size: size})
		}
		return a.printf("%s\n", id)
	})
}

func (a *app) withBlob(ctx context.Context, name string, f func(user, engine.BlobID) error) error {
	id, err := engine.ParseBlobID(name)
	if err != nil {
		return usagef("%q is not a blob ID: want 64 hexadecimal digits", name)
	}
	return a.with(ctx, false, func(s store) error { return f(s.User(a.tenant, a.user), id) })
}

// outputWriter marks errors of writing output.
type outputWriter struct{ io.Writer }

func (w outputWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	return n, wroteOut(err)
}
