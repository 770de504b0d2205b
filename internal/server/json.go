package server

import (
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ckptd/ckptd/internal/weight"
)

// strictJSON reads JSON like the codec of the RPC library, but for members that the message does
// not have: those are refused. A misspelt expectHead would be no condition at all.
type strictJSON struct{ name string }

// withCodecs makes handlers count the values in a message, and read JSON strictly, under both of
// its names.
func withCodecs() connect.HandlerOption {
	return connect.WithHandlerOptions(connect.WithCodec(countedProto{}), connect.WithCodec(strictJSON{"json"}), connect.WithCodec(strictJSON{"json; charset=utf-8"}))
}

func (c strictJSON) Name() string { return c.name }

func (c strictJSON) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

func (c strictJSON) MarshalAppend(dst []byte, message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a message", message)
	}
	return protojson.MarshalOptions{}.MarshalAppend(dst, m)
}

func (c strictJSON) Unmarshal(text []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is not a message", message)
	}
	if len(text) == 0 {
		return errors.New("the JSON is empty: want at least {}")
	}
	if values, _ := weight.JSON(text); values > maxElements {
		return tooMany()
	}
	if err := protojson.Unmarshal(text, m); err != nil {
		return fmt.Errorf("the JSON is not a valid request: %s", strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: "))
	}
	return nil
}
