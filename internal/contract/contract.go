// Package contract reads the rules of the API's methods: the option ckptd.v1.rule of each method in
// its .proto file. The daemon authorizes, audits and limits by it, the client retries by it, and
// the tables of docs/api.md are generated from it, so a method is described in one place.
package contract

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
)

// Method is a method of the API, with its rule.
type Method struct {
	*ckptdv1.Rule
	Procedure string // such as /ckptd.v1.CheckpointService/Save
	Name      string // such as Save
	Uploads   bool   // a request is any number of messages

	input                                  protoreflect.MessageDescriptor
	content, exports, wholeTenant, anyUser conditions
	also                                   protoreflect.FieldDescriptor // nil if no second thread is named
	id                                     path
	reasons                                []ckptdv1.Reason
}

// Table has the methods of an API.
type Table struct {
	methods     []*Method // in the order of the services and methods
	byProcedure map[string]*Method
	byInput     map[protoreflect.MessageDescriptor]*Method
}

// API is the table of the API as this program was built with it. A method without a rule ends the
// program at its start.
var API = must(Read(Services()...))

func must(t *Table, err error) *Table {
	if err != nil {
		panic(err)
	}
	return t
}

// Services returns the services of the API, in the order of their names.
func Services() []protoreflect.ServiceDescriptor {
	var all []protoreflect.ServiceDescriptor
	protoregistry.GlobalFiles.RangeFilesByPackage(Package, func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			all = append(all, file.Services().Get(i))
		}
		return true
	})
	slices.SortFunc(all, func(a, b protoreflect.ServiceDescriptor) int {
		return strings.Compare(string(a.Name()), string(b.Name()))
	})
	return all
}

// Package is the package of the API.
var Package = ckptdv1.File_ckptd_v1_types_proto.Package()

// Read makes the table of all methods of some services. A method whose rule is missing, or cannot
// be meant, is an error that says what to write.
func Read(services ...protoreflect.ServiceDescriptor) (*Table, error) {
	t := &Table{byProcedure: map[string]*Method{}, byInput: map[protoreflect.MessageDescriptor]*Method{}}
	for _, service := range services {
		for i := range service.Methods().Len() {
			m, err := read(service.Methods().Get(i))
			if err != nil {
				return nil, err
			}
			if other := t.byInput[m.input]; other != nil {
				return nil, fmt.Errorf("%s: %s also takes %s: give each method its own request message", m.Procedure, other.Procedure, m.input.Name())
			}
			t.methods = append(t.methods, m)
			t.byProcedure[m.Procedure], t.byInput[m.input] = m, m
		}
	}
	return t, nil
}

// Methods returns all methods.
func (t *Table) Methods() []*Method { return t.methods }

// Method returns the method of a procedure, such as /ckptd.v1.CheckpointService/Save, nil if there
// is none.
func (t *Table) Method(procedure string) *Method { return t.byProcedure[procedure] }

// Asked returns the method that a request is for: each has a message of its own. It is nil if there
// is none.
func (t *Table) Asked(request proto.Message) *Method {
	return t.byInput[request.ProtoReflect().Descriptor()]
}

// NeedsFor returns the right that a request needs.
func (m *Method) NeedsFor(request proto.Message) ckptdv1.Permission {
	if m.WithoutContent != 0 && !m.content.hold(request) {
		return m.WithoutContent
	}
	return m.Needs
}

// Exports reports whether a request takes states out of the store in bulk.
func (m *Method) Exports(request proto.Message) bool { return m.exports.hold(request) }

// WholeTenant reports whether a request is about all users of a tenant, whatever user it names.
func (m *Method) WholeTenant(request proto.Message) bool { return m.wholeTenant.hold(request) }

// AnyUser reports whether a request may leave out the user.
func (m *Method) AnyUser(request proto.Message) bool { return m.anyUser.hold(request) }

// Also returns the second thread that the method needs the right on, if it has one.
func (m *Method) Also(request proto.Message) (thread string, ok bool) {
	if m.also == nil {
		return "", false
	}
	return request.ProtoReflect().Get(m.also).String(), true
}

// RetryFor returns how a request may be repeated: RETRY_SAME_ID stands only in rules.
func (m *Method) RetryFor(request proto.Message) ckptdv1.Retry {
	switch {
	case m.Retry != ckptdv1.Retry_RETRY_SAME_ID:
		return m.Retry
	case m.id.everywhere(request.ProtoReflect()):
		return ckptdv1.Retry_RETRY_REPEAT
	}
	return ckptdv1.Retry_RETRY_NEVER
}

// MayAnswer reports whether the method may fail for a reason.
func (m *Method) MayAnswer(reason ckptdv1.Reason) bool { return slices.Contains(m.reasons, reason) }

// conditions are those of which one must hold.
type conditions []condition

// condition names fields that must all be set, and such that must all not be.
type condition struct {
	set, unset []protoreflect.FieldDescriptor
}

func (cs conditions) hold(request proto.Message) bool {
	if len(cs) == 0 {
		return false
	}
	r := request.ProtoReflect()
	return slices.ContainsFunc(cs, func(c condition) bool {
		for _, field := range c.set {
			if !r.Has(field) {
				return false
			}
		}
		return !slices.ContainsFunc(c.unset, r.Has)
	})
}

// path leads to a field, through messages and lists of such.
type path []protoreflect.FieldDescriptor

// everywhere reports whether the field is set in all messages that the path leads to.
func (p path) everywhere(m protoreflect.Message) bool {
	switch field := p[0]; {
	case len(p) == 1:
		return m.Has(field)
	case field.IsList():
		list := m.Get(field).List()
		for i := range list.Len() {
			if !p[1:].everywhere(list.Get(i).Message()) {
				return false
			}
		}
		return true
	default:
		return p[1:].everywhere(m.Get(field).Message())
	}
}
