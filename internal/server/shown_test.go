package server

import (
	"context"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/internal/access"
)

// shownIn collects the checkpoints of a message, wherever they stand in it.
func shownIn(t *testing.T, m proto.Message) (cps []*ckptdv1.Checkpoint) {
	t.Helper()
	must(t, protorange.Range(m.ProtoReflect(), func(p protopath.Values) error {
		last := p.Index(-1)
		if field := last.Step.FieldDescriptor; last.Step.Kind() == protopath.FieldAccessStep && field().Message() == nil {
			return nil
		}
		if v, ok := last.Value.Interface().(interface{ Interface() proto.Message }); ok {
			if cp, ok := v.Interface().(*ckptdv1.Checkpoint); ok {
				cps = append(cps, cp)
			}
		}
		return nil
	}))
	return cps
}

// answers are those of all methods that show checkpoints, to the bearer of a token.
func answers(ctx context.Context, t *testing.T, b *bed, token, branch string) map[string]proto.Message {
	t.Helper()
	cps, threads, out := b.checkpoints(token), b.threads(token), map[string]proto.Message{}
	put := func(name string, m proto.Message, err error) {
		if connect.CodeOf(err) != connect.CodePermissionDenied && connect.CodeOf(err) != connect.CodeNotFound {
			must(t, err)
			out[name] = m
		}
	}
	which := &ckptdv1.Which{} // the newest
	load, err := cps.Load(ctx, connect.NewRequest(&ckptdv1.LoadRequest{Ref: ref("mine-1"), HeadersOnly: true}))
	put("Load", msg(load), err)
	newest, err := cps.LoadNewest(ctx, connect.NewRequest(&ckptdv1.LoadNewestRequest{Tenant: "acme", User: "alice", HeadersOnly: true}))
	put("LoadNewest", msg(newest), err)
	tree, err := cps.GetTree(ctx, connect.NewRequest(&ckptdv1.GetTreeRequest{Ref: ref("mine-1")}))
	put("GetTree", msg(tree), err)
	diff, err := cps.Diff(ctx, connect.NewRequest(&ckptdv1.DiffRequest{Ref: ref("mine-1"), From: which, To: which}))
	put("Diff", msg(diff), err)
	fork, err := cps.Fork(ctx, connect.NewRequest(&ckptdv1.ForkRequest{Ref: ref("mine-1"), From: which, Branch: branch}))
	put("Fork", msg(fork), err)
	labels, err := cps.SetLabels(ctx, connect.NewRequest(&ckptdv1.SetLabelsRequest{Ref: ref("mine-1"), Which: which, Labels: map[string]string{"a": "b"}}))
	put("SetLabels", msg(labels), err)
	save := &ckptdv1.SaveRequest{Ref: ref("mine-1"), Draft: draft("more")}
	save.Draft.Meta = proto.String(`{"secret":1}`)
	saved, err := cps.Save(ctx, connect.NewRequest(save))
	put("Save", msg(saved), err)
	batch, err := cps.SaveBatch(ctx, connect.NewRequest(&ckptdv1.SaveBatchRequest{Saves: []*ckptdv1.SaveRequest{save}}))
	if err == nil && batch.Msg.GetResults()[0].GetError() == nil {
		put("SaveBatch", msg(batch), err)
	}
	list, err := cps.List(ctx, connect.NewRequest(&ckptdv1.ListRequest{Ref: ref("mine-1")}))
	must(t, err)
	for list.Receive() {
		put("List", proto.Clone(list.Msg()), list.Err())
	}
	query, err := threads.Query(ctx, connect.NewRequest(&ckptdv1.QueryRequest{Tenant: "acme", User: "alice"}))
	must(t, err)
	for query.Receive() {
		put("Query", proto.Clone(query.Msg()), query.Err())
	}
	return out
}

func msg[M any](r *connect.Response[M]) proto.Message {
	if r == nil {
		return nil
	}
	return any(r.Msg).(proto.Message)
}

// Metadata is content, which who may only inspect does not see. What was stored tells what other
// threads of the user hold: only who may read them all sees that.
func TestHeadersShowNoContent(t *testing.T) {
	b := newBed(t, Limits{})
	everything := b.token(access.Grant{Role: access.Admin, Tenant: "acme", User: "alice"})
	first := draft("state")
	first.Meta = proto.String(`{"secret":1}`)
	mustSave(t, b.checkpoints(everything), ref("mine-1"), first)
	for name, c := range map[string]struct {
		grant        access.Grant
		meta, stored bool
		methods      int
	}{
		"reader":             {access.Grant{Role: access.Reader}, true, true, 6},
		"writer":             {access.Grant{Role: access.Writer}, true, true, 10},
		"auditor":            {access.Grant{Role: access.Auditor}, false, false, 5},
		"writer of threads":  {access.Grant{Role: access.Writer, ThreadPrefix: "mine-"}, true, false, 9},
		"auditor of threads": {access.Grant{Role: access.Auditor, ThreadPrefix: "mine-"}, false, false, 4},
	} {
		t.Run(name, func(t *testing.T) {
			c.grant.Tenant, c.grant.User = "acme", "alice"
			all := answers(t.Context(), t, b, b.token(c.grant), name)
			if len(all) != c.methods {
				t.Errorf("%d methods answered, want %d: %v", len(all), c.methods, all)
			}
			for method, m := range all {
				cps := shownIn(t, m)
				if len(cps) == 0 {
					t.Errorf("%s shows no checkpoint: %v", method, m)
				}
				for _, cp := range cps {
					if cp.GetId() == "" || (cp.GetMeta() != "") != c.meta || (cp.GetCost().GetStored() != 0) != c.stored {
						t.Errorf("%s shows %v", method, cp)
					}
				}
			}
		})
	}
}
