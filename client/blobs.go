package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/wire"
)

// blobPiece is the number of bytes of a blob in one message.
const blobPiece = 256 << 10

// PutBlob stores the content of r, and returns its digest and size once it is durable. If the
// connection breaks, it starts over if r is an io.Seeker, and otherwise returns the error.
func (u *User) PutBlob(ctx context.Context, r io.Reader) (id engine.BlobID, size int64, err error) {
	start := int64(0)
	seeker, seekable := r.(io.Seeker)
	if seekable {
		if start, err = seeker.Seek(0, io.SeekCurrent); err != nil {
			seekable = false // a pipe, say
		}
	}
	up, request := &upload{r: r}, &ckptdv1.PutBlobRequest{Tenant: u.tenant, User: u.name}
	err = u.s.retry(ctx, request, func(ctx context.Context) (bool, error) {
		if up.n > 0 {
			if _, err := seeker.Seek(start, io.SeekStart); err != nil {
				return false, fmt.Errorf("reading the blob again: %w", err)
			}
			up.n = 0
		}
		m, err := u.putBlob(ctx, request, up)
		if err == nil {
			size = m.GetSize()
			id, err = engine.ParseBlobID(m.GetId())
		}
		if err != nil && up.n > 0 && !seekable {
			err = unrepeatable{u.s.judge(ctx, u.s.mayRepeat(request), err).err}
		}
		return false, err
	})
	if gone, ok := err.(unrepeatable); ok {
		err = gone.error
	}
	return id, size, err
}

// unrepeatable is an error after which there is nothing left to send again.
type unrepeatable struct{ error }

// upload counts the bytes that it reads.
type upload struct {
	r io.Reader
	n int64
}

func (u *upload) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	u.n += int64(n)
	return n, err
}

func (u *User) putBlob(ctx context.Context, first *ckptdv1.PutBlobRequest, r io.Reader) (*ckptdv1.PutBlobResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(u.s.life, cancel)()
	stream := u.s.blobs.PutBlob(ctx)
	if u.s.o.Token != "" {
		stream.RequestHeader().Set("Authorization", "Bearer "+u.s.o.Token)
	}
	err := stream.Send(first)
	piece := make([]byte, blobPiece)
	for err == nil {
		n, readErr := io.ReadFull(r, piece)
		if n > 0 {
			err = stream.Send(&ckptdv1.PutBlobRequest{Data: piece[:n]})
		}
		if readErr == io.EOF || readErr == io.ErrUnexpectedEOF {
			break
		} else if readErr != nil {
			cancel() // so that the server does not take this for the end
			stream.CloseAndReceive()
			return nil, fmt.Errorf("reading the blob: %w", readErr)
		}
	}
	if err != nil && !errors.Is(err, io.EOF) { // at EOF the answer says why
		return nil, err
	}
	res, err := stream.CloseAndReceive()
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

// GetBlob writes the content of a blob to w, and returns the number of bytes written. The error is
// nil only if the content is complete. If the connection breaks, it resumes at the same offset.
func (u *User) GetBlob(ctx context.Context, id engine.BlobID, w io.Writer) (written int64, err error) {
	req := &ckptdv1.GetBlobRequest{Tenant: u.tenant, User: u.name, Id: id.String()}
	err = u.s.retry(ctx, req, func(ctx context.Context) (progress bool, err error) {
		skip := written
		err = receive(ctx, u.s, u.s.blobs.GetBlob, req, func(m *ckptdv1.GetBlobResponse) error {
			had := min(skip, int64(len(m.GetData())))
			skip -= had
			n, err := w.Write(m.GetData()[had:])
			written += int64(n)
			progress = progress || n > 0
			return err
		})
		return progress, err
	})
	return written, err
}

// StatBlob describes a blob without reading it.
func (u *User) StatBlob(ctx context.Context, id engine.BlobID) (engine.BlobInfo, error) {
	m, err := call(ctx, u.s, u.s.blobs.StatBlob, &ckptdv1.StatBlobRequest{Tenant: u.tenant, User: u.name, Id: id.String()})
	if err != nil {
		return engine.BlobInfo{}, err
	}
	got, err := engine.ParseBlobID(m.GetId())
	return engine.BlobInfo{ID: got, Size: m.GetSize(), Created: wire.UnpackTime(m.GetCreated())}, err
}
