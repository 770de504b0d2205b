package contract

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
)

// read makes a method from its declaration in the .proto file.
func read(d protoreflect.MethodDescriptor) (*Method, error) {
	m := &Method{
		Procedure: fmt.Sprintf("/%s/%s", d.Parent().FullName(), d.Name()),
		Name:      string(d.Name()), Uploads: d.IsStreamingClient(), input: d.Input(),
	}
	if !proto.HasExtension(d.Options(), ckptdv1.E_Rule) {
		return nil, fmt.Errorf("%s has no rule: add option (ckptd.v1.rule) = {needs: … on: … retry: …} in %s", m.Procedure, d.ParentFile().Path())
	}
	m.Rule = proto.GetExtension(d.Options(), ckptdv1.E_Rule).(*ckptdv1.Rule)
	f := fields{of: d.Input()}
	m.content, m.exports = f.conditions(m.GetContent()), f.conditions(m.GetExports())
	m.wholeTenant, m.anyUser = f.conditions(m.GetWholeTenant()), f.conditions(m.GetAnyUser())
	if m.GetAlso() != "" {
		m.also = f.named(f.of, m.GetAlso())
	}
	if m.GetId() != "" {
		m.id = f.path(m.GetId())
	}
	m.reasons = m.allReasons()
	if problem := m.problem(d, f.missing); problem != "" {
		return nil, fmt.Errorf("%s: its rule in %s %s", m.Procedure, d.ParentFile().Path(), problem)
	}
	return m, nil
}

// problem describes the fault of a rule, to follow its name in a sentence.
func (m *Method) problem(d protoreflect.MethodDescriptor, missing []string) string {
	guarded := []ckptdv1.Permission{ckptdv1.Permission_PERMISSION_MANAGE, ckptdv1.Permission_PERMISSION_ISSUE, ckptdv1.Permission_PERMISSION_AUDIT}
	needs, on, retry := m.GetNeeds(), m.GetOn(), m.GetRetry()
	switch {
	case on == ckptdv1.Scope_SCOPE_UNSPECIFIED:
		return "has no scope: add on: SCOPE_…"
	case retry == ckptdv1.Retry_RETRY_UNSPECIFIED:
		return "does not say whether it may be repeated: add retry: RETRY_…"
	case (needs == 0) != (on == ckptdv1.Scope_SCOPE_NOTHING):
		return "does not say which right it takes: add needs: PERMISSION_…, or on: SCOPE_NOTHING alone"
	case (needs == ckptdv1.Permission_PERMISSION_ISSUE) != (on == ckptdv1.Scope_SCOPE_GRANTS):
		return "must have needs: PERMISSION_ISSUE and on: SCOPE_GRANTS together or not at all"
	case slices.Contains(guarded, needs) && !m.GetAudited():
		return "is about administration, which goes to the audit log: add audited: true"
	case (m.GetWithoutContent() == 0) != (len(m.content) == 0):
		return "must have without_content and content together or not at all"
	case (retry == ckptdv1.Retry_RETRY_SAME_ID) != (m.GetId() != ""):
		return "must have retry: RETRY_SAME_ID and id together or not at all"
	case m.GetEndless() && !d.IsStreamingServer():
		return "has endless: true, but the answer is not a stream"
	case readsOnly(d) && retry != ckptdv1.Retry_RETRY_READ:
		return "contradicts idempotency_level = NO_SIDE_EFFECTS: write retry: RETRY_READ"
	case len(missing) > 0:
		return "names fields that its request does not have: " + strings.Join(missing, ", ")
	}
	return ""
}

func readsOnly(d protoreflect.MethodDescriptor) bool {
	options, _ := d.Options().(*descriptorpb.MethodOptions)
	return options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}

// allReasons are those that the rule names, and those that methods like this one may answer without
// that.
func (m *Method) allReasons() []ckptdv1.Reason {
	all := slices.Clone(m.GetReasons())
	values := ckptdv1.Reason(0).Descriptor().Values()
	for i := range values.Len() {
		by, _ := proto.GetExtension(values.Get(i).Options(), ckptdv1.E_AnsweredBy).(ckptdv1.AnsweredBy)
		if by == ckptdv1.AnsweredBy_ANSWERED_BY_ALL ||
			by == ckptdv1.AnsweredBy_ANSWERED_BY_CHANGES && m.GetRetry() != ckptdv1.Retry_RETRY_READ {
			all = append(all, ckptdv1.Reason(values.Get(i).Number()))
		}
	}
	return all
}

// fields finds the fields that a rule names, and remembers those that are not there.
type fields struct {
	of      protoreflect.MessageDescriptor
	missing []string
}

func (f *fields) conditions(whens []*ckptdv1.When) conditions {
	var all conditions
	for _, when := range whens {
		var c condition
		for _, name := range when.GetSet() {
			c.set = append(c.set, f.named(f.of, name))
		}
		for _, name := range when.GetUnset() {
			c.unset = append(c.unset, f.named(f.of, name))
		}
		all = append(all, c)
	}
	return all
}

func (f *fields) named(of protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	field := of.Fields().ByName(protoreflect.Name(name))
	if field == nil {
		f.missing = append(f.missing, name)
	}
	return field
}

func (f *fields) path(names string) path {
	var p path
	of := f.of
	for name := range strings.SplitSeq(names, ".") {
		if of == nil {
			f.missing = append(f.missing, names)
			return nil
		}
		field := f.named(of, name)
		if field == nil {
			return nil
		}
		p, of = append(p, field), field.Message()
	}
	return p
}
