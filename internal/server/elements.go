package server

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/wire"
)

// maxElements is the maximum number of fields and values in a request. An empty one takes two bytes
// of a message, and a hundred in memory: a message within the limit on its bytes could fill the
// memory, and it is decoded before its target is known. A batch of a thousand saves has a few
// thousand.
const maxElements = 1 << 17

// countedProto is the codec of binary messages. It looks at how much there is before it makes room
// for it.
type countedProto struct{}

func (countedProto) Name() string { return "proto" }

func (c countedProto) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

func (countedProto) MarshalAppend(dst []byte, message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a message", message)
	}
	return proto.MarshalOptions{}.MarshalAppend(dst, m)
}

func (countedProto) Unmarshal(b []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is not a message", message)
	}
	left := maxElements
	if err := countFields(b, m.ProtoReflect().Descriptor(), &left); err != nil {
		return err
	}
	// A field that the message does not have would be kept as long as the message is.
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, m)
}

// countFields takes the fields of a message, and of those in it, from left.
func countFields(b []byte, of protoreflect.MessageDescriptor, left *int) error {
	for len(b) > 0 {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if b, *left = b[n:], *left-1; *left < 0 {
			return tooMany()
		}
		if n = protowire.ConsumeFieldValue(number, typ, b); n < 0 {
			return protowire.ParseError(n)
		}
		field := of.Fields().ByNumber(number)
		if typ == protowire.BytesType && field != nil {
			value, _ := protowire.ConsumeBytes(b)
			if err := countValue(value, field, left); err != nil {
				return err
			}
		}
		b = b[n:]
	}
	return nil
}

func countValue(value []byte, field protoreflect.FieldDescriptor, left *int) error {
	switch {
	case field.Message() != nil:
		return countFields(value, field.Message(), left)
	case field.IsPacked():
		if *left -= len(value); *left < 0 {
			return tooMany()
		}
	}
	return nil
}

func tooMany() error {
	return wire.PackError(fmt.Errorf("%w: the request has more than %d fields and values", engine.ErrInvalid, maxElements))
}
