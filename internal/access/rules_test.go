package access

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
)

// services are all services of the API.
func services() []protoreflect.ServiceDescriptor {
	var all []protoreflect.ServiceDescriptor
	for _, file := range []protoreflect.FileDescriptor{ckptdv1.File_ckptd_v1_admin_service_proto, ckptdv1.File_ckptd_v1_blob_service_proto,
		ckptdv1.File_ckptd_v1_checkpoint_service_proto, ckptdv1.File_ckptd_v1_thread_service_proto,
		ckptdv1.File_ckptd_v1_plugin_service_proto, ckptdv1.File_ckptd_v1_migration_service_proto} {
		for i := range file.Services().Len() {
			all = append(all, file.Services().Get(i))
		}
	}
	return all
}

func TestEveryMethodHasARule(t *testing.T) {
	left := Rules()
	for _, s := range services() {
		for i := range s.Methods().Len() {
			procedure := "/" + string(s.FullName()) + "/" + string(s.Methods().Get(i).Name())
			rule, ok := RuleFor(procedure)
			if !ok {
				t.Errorf("%s has no rule", procedure)
			}
			if rule.Needs == 0 && procedure != ckptdv1.AdminServiceWhoAmIProcedure {
				t.Errorf("%s needs no permission", procedure)
			}
			if (rule.On == OnNothing) != (rule.Needs == 0) || (rule.On == OnGrants) != (rule.Needs == Issue) {
				t.Errorf("%s: %+v", procedure, rule)
			}
			delete(left, procedure)
		}
	}
	for procedure := range left {
		t.Errorf("%s is no method of the API", procedure)
	}
	if _, ok := RuleFor("/ckptd.v1.AdminService/Nothing"); ok {
		t.Error("a method that does not exist has a rule")
	}
}

func TestContentNeedsRead(t *testing.T) {
	for _, tt := range []struct {
		procedure string
		request   any
		want      Permission
	}{
		{ckptdv1.CheckpointServiceLoadProcedure, &ckptdv1.LoadRequest{}, Read},
		{ckptdv1.CheckpointServiceLoadProcedure, &ckptdv1.LoadRequest{Channels: []string{"a"}}, Read},
		{ckptdv1.CheckpointServiceLoadProcedure, &ckptdv1.LoadRequest{HeadersOnly: true}, Inspect},
		{ckptdv1.CheckpointServiceLoadProcedure, &ckptdv1.LoadRequest{HeadersOnly: true, Writes: true}, Read},
		{ckptdv1.CheckpointServiceLoadNewestProcedure, &ckptdv1.LoadNewestRequest{}, Read},
		{ckptdv1.CheckpointServiceLoadNewestProcedure, &ckptdv1.LoadNewestRequest{HeadersOnly: true}, Inspect},
		{ckptdv1.CheckpointServiceListProcedure, &ckptdv1.ListRequest{}, Inspect},
		{ckptdv1.CheckpointServiceListProcedure, &ckptdv1.ListRequest{Data: true}, Read},
		{ckptdv1.CheckpointServiceListProcedure, nil, Read},
		{ckptdv1.CheckpointServiceDiffProcedure, &ckptdv1.DiffRequest{}, Read},
		{ckptdv1.CheckpointServiceGetTreeProcedure, &ckptdv1.GetTreeRequest{}, Inspect},
	} {
		rule, _ := RuleFor(tt.procedure)
		if got := rule.For(tt.request); got != tt.want {
			t.Errorf("%s %v needs %b, want %b", tt.procedure, tt.request, got, tt.want)
		}
	}
}
