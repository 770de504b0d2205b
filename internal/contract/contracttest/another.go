// Package contracttest adds a method to the API, for tests that the .proto file is the only place
// to declare it.
package contracttest

import (
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
)

// Procedure is that of the method.
const Procedure = "/ckptd.v1.ThreadService/Touch"

// Another returns the ThreadService with the method Touch besides its own, whose rule is in the
// text format of protobuf; "" is none. Its request has the fields ref, other, id and brief. If it
// is endless its answer is a stream.
func Another(rule string) (protoreflect.ServiceDescriptor, error) {
	options, r := &descriptorpb.MethodOptions{}, &ckptdv1.Rule{}
	if rule != "" {
		if err := prototext.Unmarshal([]byte(rule), r); err != nil {
			return nil, err
		}
		proto.SetExtension(options, ckptdv1.E_Rule, r)
	}
	const text, flag = descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_BOOL
	ref := field("ref", 1, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE)
	ref.TypeName = proto.String(".ckptd.v1.Ref")
	file := protodesc.ToFileDescriptorProto(ckptdv1.File_ckptd_v1_thread_service_proto)
	file.MessageType = append(file.MessageType,
		&descriptorpb.DescriptorProto{Name: proto.String("TouchRequest"), Field: []*descriptorpb.FieldDescriptorProto{
			ref, field("other", 2, text), field("id", 3, text), field("brief", 4, flag)}},
		&descriptorpb.DescriptorProto{Name: proto.String("TouchResponse")})
	file.Service[0].Method = append(file.Service[0].Method, &descriptorpb.MethodDescriptorProto{Name: proto.String("Touch"), Options: options, ServerStreaming: proto.Bool(r.GetEndless()),
		InputType: proto.String(".ckptd.v1.TouchRequest"), OutputType: proto.String(".ckptd.v1.TouchResponse")})
	made, err := protodesc.NewFile(file, protoregistry.GlobalFiles)
	if err != nil {
		return nil, err
	}
	return made.Services().Get(0), nil
}

func field(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type) *descriptorpb.FieldDescriptorProto {
	return &descriptorpb.FieldDescriptorProto{Name: &name, JsonName: &name, Number: &number, Type: &kind,
		Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
}
