package telemetry

import (
	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
)

const unknown = "unknown"

// names are the values that labels and attributes may have. What a caller makes up is none of them.
type names struct {
	methods map[string]string // by path
	codes   map[string]bool
}

func newNames() names {
	n := names{map[string]string{}, map[string]bool{"ok": true}}
	pkg := ckptdv1.File_ckptd_v1_types_proto.Package()
	protoregistry.GlobalFiles.RangeFilesByPackage(pkg, func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				name := string(service.FullName()) + "/" + string(service.Methods().Get(j).Name())
				n.methods["/"+name] = name
			}
		}
		return true
	})
	for code := connect.CodeCanceled; code <= connect.CodeUnauthenticated; code++ {
		n.codes[code.String()] = true
	}
	return n
}

// method is the name of the method at a path.
func (n *names) method(path string) string {
	if name, ok := n.methods[path]; ok {
		return name
	}
	return unknown
}

// code is an RPC code that exists.
func (n *names) code(code string) string {
	if n.codes[code] {
		return code
	}
	return unknown
}

// ownFault reports whether an RPC code says that something is wrong with the server, and not with the request.
func ownFault(code string) bool {
	switch code {
	case "unknown", "deadline_exceeded", "unimplemented", "internal", "unavailable", "data_loss":
		return true
	}
	return false
}
