package server

import (
	"context"
	"errors"
	"io"

	"connectrpc.com/connect"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/wire"
)

// blobs serves the BlobService.
type blobs struct{ *Server }

func (s blobs) PutBlob(ctx context.Context, stream *connect.ClientStream[ckptdv1.PutBlobRequest]) (*connect.Response[ckptdv1.PutBlobResponse], error) {
	if !stream.Receive() {
		return nil, errors.Join(stream.Err(), engine.ErrInvalid)
	}
	first := stream.Msg()
	user := s.store.User(first.GetTenant(), first.GetUser())
	id, size, err := user.PutBlob(ctx, &upload{stream: stream, rest: first.GetData()})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ckptdv1.PutBlobResponse{Id: id.String(), Size: size}), nil
}

// upload reads the data of a stream.
type upload struct {
	stream *connect.ClientStream[ckptdv1.PutBlobRequest]
	rest   []byte
}

func (u *upload) Read(p []byte) (int, error) {
	for len(u.rest) == 0 {
		if !u.stream.Receive() {
			if err := u.stream.Err(); err != nil {
				return 0, err
			}
			return 0, io.EOF
		}
		u.rest = u.stream.Msg().GetData()
	}
	n := copy(p, u.rest)
	u.rest = u.rest[n:]
	return n, nil
}

func (s blobs) GetBlob(ctx context.Context, req *connect.Request[ckptdv1.GetBlobRequest], stream *connect.ServerStream[ckptdv1.GetBlobResponse]) error {
	id, err := engine.ParseBlobID(req.Msg.GetId())
	if err != nil {
		return err
	}
	_, err = s.store.User(req.Msg.GetTenant(), req.Msg.GetUser()).GetBlob(ctx, id, download{stream})
	return err
}

// download sends the bytes written to it.
type download struct {
	stream *connect.ServerStream[ckptdv1.GetBlobResponse]
}

func (d download) Write(p []byte) (int, error) {
	if err := d.stream.Send(&ckptdv1.GetBlobResponse{Data: p}); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (s blobs) StatBlob(ctx context.Context, req *connect.Request[ckptdv1.StatBlobRequest]) (*connect.Response[ckptdv1.StatBlobResponse], error) {
	id, err := engine.ParseBlobID(req.Msg.GetId())
	if err != nil {
		return nil, err
	}
	info, err := s.store.User(req.Msg.GetTenant(), req.Msg.GetUser()).StatBlob(ctx, id)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ckptdv1.StatBlobResponse{Id: info.ID.String(), Size: info.Size, Created: wire.PackTime(info.Created)}), nil
}
