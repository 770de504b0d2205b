package server

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/internal/access"
)

// right is a request of the matrix and who may make it. ask makes the request for a place; n is
// another number each time.
//
// Each word has a letter for the reader, the approver, the writer, the auditor and the admin, in
// this order: + it is done; d permission_denied, which a caller is told who has some right there; n
// not_found, which is what others are told, as if nothing were there. The words are for a grant and
// a place:
type right struct {
	name string
	ask  func(x place, n int) proto.Message

	own     string // of the user alice; about her thread mine-1
	mine    string // of her threads that begin with mine-; about mine-1
	outside string // of her threads that begin with mine-; about her thread other-1
	user    string // of alice; about bob, of her tenant
	tenant  string // of alice of acme; about alice of umbrella
	team    string // of every user of acme; about alice
	store   string // of everything; about alice
}

// place is what a request is about.
type place struct{ tenant, user, thread string }

func (x place) ref() *ckptdv1.Ref {
	return &ckptdv1.Ref{Tenant: x.tenant, User: x.user, Thread: x.thread}
}

const (
	all   = "+++++"
	none  = "nnnnn"
	never = "ddddd"
)

func rights() []right {
	seq := func(n uint64) *ckptdv1.Which { return &ckptdv1.Which{Which: &ckptdv1.Which_Seq{Seq: n}} }
	return slices.Concat(checkpointRights(seq), threadRights(), adminRights(), migrationRights())
}

func checkpointRights(seq func(uint64) *ckptdv1.Which) []right {
	return []right{
		{"Save", func(x place, n int) proto.Message {
			return &ckptdv1.SaveRequest{Ref: x.ref(), Draft: draft(fmt.Sprint(n))}
		},
			"dd+d+", "dd+d+", none, none, none, "dd+d+", "dd+d+"},
		{"SaveBatch", func(x place, n int) proto.Message {
			return &ckptdv1.SaveBatchRequest{Saves: []*ckptdv1.SaveRequest{{Ref: x.ref(), Draft: draft(fmt.Sprint(n))}}}
		}, "dd+d+", "dd+d+", none, none, none, "dd+d+", "dd+d+"},
		{"Load", func(x place, _ int) proto.Message { return &ckptdv1.LoadRequest{Ref: x.ref()} },
			"+++d+", "+++d+", none, none, none, "+++d+", "+++d+"},
		{"Load some channels", func(x place, _ int) proto.Message { return &ckptdv1.LoadRequest{Ref: x.ref(), Channels: []string{"x"}} },
			"+++d+", "+++d+", none, none, none, "+++d+", "+++d+"},
		{"Load headers", func(x place, _ int) proto.Message { return &ckptdv1.LoadRequest{Ref: x.ref(), HeadersOnly: true} },
			all, all, none, none, none, all, all},
		{"Load headers and writes", func(x place, _ int) proto.Message {
			return &ckptdv1.LoadRequest{Ref: x.ref(), HeadersOnly: true, Writes: true}
		},
			"+++d+", "+++d+", none, none, none, "+++d+", "+++d+"},
		{"LoadNewest", func(x place, _ int) proto.Message { return &ckptdv1.LoadNewestRequest{Tenant: x.tenant, User: x.user} },
			"+++d+", none, none, none, none, "+++d+", "+++d+"},
		{"LoadNewest headers", func(x place, _ int) proto.Message {
			return &ckptdv1.LoadNewestRequest{Tenant: x.tenant, User: x.user, HeadersOnly: true}
		}, all, none, none, none, none, all, all},
		{"List", func(x place, _ int) proto.Message { return &ckptdv1.ListRequest{Ref: x.ref()} },
			all, all, none, none, none, all, all},
		{"List with data", func(x place, _ int) proto.Message { return &ckptdv1.ListRequest{Ref: x.ref(), Data: true} },
			"+++d+", "+++d+", none, none, none, "+++d+", "+++d+"},
		{"ListByID", func(x place, _ int) proto.Message {
			return &ckptdv1.ListByIDRequest{Tenant: x.tenant, User: x.user, Thread: x.thread}
		},
			all, all, none, none, none, all, all},
		{"ListByID of a user", func(x place, _ int) proto.Message { return &ckptdv1.ListByIDRequest{Tenant: x.tenant, User: x.user} },
			all, all, all, none, none, all, all},
		{"ListByID with data", func(x place, _ int) proto.Message {
			return &ckptdv1.ListByIDRequest{Tenant: x.tenant, User: x.user, Thread: x.thread, Data: true}
		},
			"+++d+", "+++d+", none, none, none, "+++d+", "+++d+"},
		{"ListByID with writes", func(x place, _ int) proto.Message {
			return &ckptdv1.ListByIDRequest{Tenant: x.tenant, User: x.user, Thread: x.thread, Writes: true}
		},
			"+++d+", "+++d+", none, none, none, "+++d+", "+++d+"},
		{"ListByID by metadata", func(x place, _ int) proto.Message {
			return &ckptdv1.ListByIDRequest{Tenant: x.tenant, User: x.user, Thread: x.thread, Meta: "{}"}
		},
			"+++d+", "+++d+", none, none, none, "+++d+", "+++d+"},
		{"GetTree", func(x place, _ int) proto.Message { return &ckptdv1.GetTreeRequest{Ref: x.ref()} },
			all, all, none, none, none, all, all},
		{"Diff", func(x place, _ int) proto.Message {
			return &ckptdv1.DiffRequest{Ref: x.ref(), From: seq(1), To: seq(1)}
		},
			"+++d+", "+++d+", none, none, none, "+++d+", "+++d+"},
		{"Fork", func(x place, n int) proto.Message {
			return &ckptdv1.ForkRequest{Ref: x.ref(), From: seq(1), Branch: fmt.Sprint("fork", n)}
		}, "d++d+", "d++d+", none, none, none, "d++d+", "d++d+"},
		{"ListBranches", func(x place, _ int) proto.Message { return &ckptdv1.ListBranchesRequest{Ref: x.ref()} },
			all, all, none, none, none, all, all},
		{"SetBranch", func(x place, _ int) proto.Message {
			return &ckptdv1.SetBranchRequest{Ref: x.ref(), Branch: "b", To: seq(1)}
		},
			"d++d+", "d++d+", none, none, none, "d++d+", "d++d+"},
		{"DeleteBranch", func(x place, _ int) proto.Message { return &ckptdv1.DeleteBranchRequest{Ref: x.ref(), Branch: "gone"} },
			"d++d+", "d++d+", none, none, none, "d++d+", "d++d+"},
		{"SetLabels", func(x place, n int) proto.Message {
			return &ckptdv1.SetLabelsRequest{Ref: x.ref(), Labels: map[string]string{"n": fmt.Sprint(n)}}
		}, "d++d+", "d++d+", none, none, none, "d++d+", "d++d+"},
		{"PutWrites", func(x place, n int) proto.Message {
			return &ckptdv1.PutWritesRequest{Ref: x.ref(), CheckpointId: "c", Task: fmt.Sprint(n), Writes: []*ckptdv1.Write{{Channel: "x"}}}
		}, "d++d+", "d++d+", none, none, none, "d++d+", "d++d+"},
		{"ListWrites", func(x place, _ int) proto.Message { return &ckptdv1.ListWritesRequest{Ref: x.ref(), CheckpointId: "c"} },
			"+++d+", "+++d+", none, none, none, "+++d+", "+++d+"},
	}
}

func threadRights() []right {
	return []right{
		// What a grant of some threads leaves out is left out of the answer.
		{"ListThreads", func(x place, _ int) proto.Message { return &ckptdv1.ListThreadsRequest{Tenant: x.tenant, User: x.user} },
			all, all, all, none, none, all, all},
		{"ListNamespaces", func(x place, _ int) proto.Message { return &ckptdv1.ListNamespacesRequest{Ref: x.ref()} },
			all, all, none, none, none, all, all},
		{"Copy", func(x place, n int) proto.Message {
			return &ckptdv1.CopyRequest{Ref: x.ref(), To: fmt.Sprint("mine-copy", n)}
		},
			"dd+d+", "dd+d+", none, none, none, "dd+d+", "dd+d+"},
		{"Copy to another place", func(x place, n int) proto.Message {
			return &ckptdv1.CopyRequest{Ref: place{x.tenant, x.user, "mine-1"}.ref(), To: fmt.Sprint(x.thread, "-copy", n)}
		}, "dd+d+", "dd+d+", "ddndn", none, none, "dd+d+", "dd+d+"},
		{"Delete", func(x place, _ int) proto.Message { return &ckptdv1.DeleteRequest{Ref: x.ref()} },
			"dd+d+", "dd+d+", none, none, none, "dd+d+", "dd+d+"},
		{"DeleteRun", func(x place, _ int) proto.Message {
			return &ckptdv1.DeleteRunRequest{Tenant: x.tenant, User: x.user, RunId: "none"}
		}, "dd+d+", none, none, none, none, "dd+d+", "dd+d+"},
		{"Prune", func(x place, _ int) proto.Message { return &ckptdv1.PruneRequest{Ref: x.ref(), KeepLast: 1} },
			"dd+d+", "dd+d+", none, none, none, "dd+d+", "dd+d+"},
		{"Query", func(x place, _ int) proto.Message { return &ckptdv1.QueryRequest{Tenant: x.tenant, User: x.user} },
			all, all, all, none, none, all, all},
		{"Query a tenant", func(x place, _ int) proto.Message {
			return &ckptdv1.QueryRequest{Tenant: x.tenant, User: x.user, WholeTenant: true}
		},
			none, none, none, none, none, all, all},
		{"Watch", func(x place, _ int) proto.Message {
			return &ckptdv1.WatchRequest{Tenant: x.tenant, User: x.user, Thread: x.thread}
		}, all, all, none, none, none, all, all},
		{"Watch a user", func(x place, _ int) proto.Message { return &ckptdv1.WatchRequest{Tenant: x.tenant, User: x.user} },
			all, all, all, none, none, all, all},

		{"PutBlob", func(x place, n int) proto.Message {
			return &ckptdv1.PutBlobRequest{Tenant: x.tenant, User: x.user, Data: fmt.Append(nil, n)}
		}, "dd+d+", none, none, none, none, "dd+d+", "dd+d+"},
		{"GetBlob", func(x place, _ int) proto.Message {
			return &ckptdv1.GetBlobRequest{Tenant: x.tenant, User: x.user, Id: blobOf(x)}
		},
			"+++d+", none, none, none, none, "+++d+", "+++d+"},
		{"StatBlob", func(x place, _ int) proto.Message {
			return &ckptdv1.StatBlobRequest{Tenant: x.tenant, User: x.user, Id: blobOf(x)}
		},
			all, none, none, none, none, all, all},
	}
}

func adminRights() []right {
	return []right{
		{"GetRetention", func(x place, _ int) proto.Message { return &ckptdv1.GetRetentionRequest{Tenant: x.tenant} },
			none, none, none, none, none, all, all},
		{"SetRetention", func(x place, _ int) proto.Message { return &ckptdv1.SetRetentionRequest{Tenant: x.tenant} },
			none, none, none, none, none, "dddd+", "dddd+"},
		{"CollectGarbage of a user", func(x place, _ int) proto.Message {
			return &ckptdv1.CollectGarbageRequest{Tenant: x.tenant, User: x.user, DryRun: true}
		}, "dddd+", none, none, none, none, "dddd+", "dddd+"},
		{"CollectGarbage of a tenant", func(x place, _ int) proto.Message {
			return &ckptdv1.CollectGarbageRequest{Tenant: x.tenant, DryRun: true}
		},
			none, none, none, none, none, "dddd+", "dddd+"},
		{"Verify a thread", func(x place, _ int) proto.Message {
			return &ckptdv1.VerifyRequest{Tenant: x.tenant, User: x.user, Thread: x.thread}
		}, all, all, none, none, none, all, all},
		{"Verify a user", func(x place, _ int) proto.Message { return &ckptdv1.VerifyRequest{Tenant: x.tenant, User: x.user} },
			all, none, none, none, none, all, all},
		{"Verify a tenant", func(x place, _ int) proto.Message { return &ckptdv1.VerifyRequest{Tenant: x.tenant} },
			none, none, none, none, none, all, all},
		{"Verify the store", func(place, int) proto.Message { return &ckptdv1.VerifyRequest{} },
			never, never, never, never, never, never, all},
		{"GetStats", func(x place, _ int) proto.Message { return &ckptdv1.GetStatsRequest{Tenant: x.tenant, User: x.user} },
			all, none, none, none, none, all, all},
		{"ListTenants", func(place, int) proto.Message { return &ckptdv1.ListTenantsRequest{} },
			never, never, never, never, never, never, all},
		{"ListUsers", func(x place, _ int) proto.Message { return &ckptdv1.ListUsersRequest{Tenant: x.tenant} },
			none, none, none, none, none, all, all},
		{"CreateUser", func(x place, _ int) proto.Message { return &ckptdv1.CreateUserRequest{Tenant: x.tenant, User: x.user} },
			"dddd+", none, none, none, none, "dddd+", "dddd+"},
		{"CreateToken", func(x place, _ int) proto.Message {
			return &ckptdv1.CreateTokenRequest{Grants: []*ckptdv1.Grant{{Role: "reader", Tenant: x.tenant, User: x.user, ThreadPrefix: x.thread}}}
		}, "dddd+", "dddd+", never, never, never, "dddd+", "dddd+"},
		{"CreateToken for a user", func(x place, _ int) proto.Message {
			return &ckptdv1.CreateTokenRequest{Grants: []*ckptdv1.Grant{{Role: "admin", Tenant: x.tenant, User: x.user}}}
		}, "dddd+", never, never, never, never, "dddd+", "dddd+"},
		{"CreateToken for a tenant", func(x place, _ int) proto.Message {
			return &ckptdv1.CreateTokenRequest{Grants: []*ckptdv1.Grant{{Role: "reader", Tenant: x.tenant, User: "*"}}}
		}, never, never, never, never, never, "dddd+", "dddd+"},
		{"CreateToken for everything", func(place, int) proto.Message {
			return &ckptdv1.CreateTokenRequest{Grants: []*ckptdv1.Grant{{Role: "reader", Tenant: "*", User: "*"}}}
		}, never, never, never, never, never, never, "dddd+"},
		// It answers with the tokens that the caller could have made.
		{"ListTokens", func(place, int) proto.Message { return &ckptdv1.ListTokensRequest{} },
			"dddd+", "dddd+", "dddd+", "dddd+", "dddd+", "dddd+", "dddd+"},
		{"RevokeToken", func(place, int) proto.Message { return &ckptdv1.RevokeTokenRequest{Id: "TOKEN"} }, // one for the place
			"dddd+", "dddd+", "ddddn", "ddddn", "ddddn", "dddd+", "dddd+"},
		{"ReadAudit", func(place, int) proto.Message { return &ckptdv1.ReadAuditRequest{} },
			never, never, never, never, never, never, "ddd++"},
		{"GetStatus", func(place, int) proto.Message { return &ckptdv1.GetStatusRequest{} },
			never, never, never, never, never, never, all},
		{"InstallPlugin for a tenant", func(x place, _ int) proto.Message {
			return &ckptdv1.InstallPluginRequest{Tenant: x.tenant, Builtin: "redact"}
		}, none, none, none, none, none, "dddd+", "dddd+"},
		{"InstallPlugin for the store", func(place, int) proto.Message { return &ckptdv1.InstallPluginRequest{Builtin: "redact"} },
			never, never, never, never, never, never, "dddd+"},
		{"ListPlugins of a tenant", func(x place, _ int) proto.Message { return &ckptdv1.ListPluginsRequest{Tenant: x.tenant} },
			none, none, none, none, none, all, all},
		{"ListPlugins of the store", func(place, int) proto.Message { return &ckptdv1.ListPluginsRequest{} },
			never, never, never, never, never, never, all},
		{"GetPlugin of a tenant", func(x place, _ int) proto.Message {
			return &ckptdv1.GetPluginRequest{Tenant: x.tenant, Name: "redact"}
		}, none, none, none, none, none, "dddd+", "dddd+"},
		{"GetPlugin of the store", func(place, int) proto.Message { return &ckptdv1.GetPluginRequest{Name: "redact"} },
			never, never, never, never, never, never, "dddd+"},
		{"SetPluginEnabled of a tenant", func(x place, n int) proto.Message {
			return &ckptdv1.SetPluginEnabledRequest{Tenant: x.tenant, Name: "redact", Enabled: n%2 == 0}
		}, none, none, none, none, none, "dddd+", "dddd+"},
		{"SetPluginEnabled of the store", func(place, int) proto.Message { return &ckptdv1.SetPluginEnabledRequest{Name: "redact"} },
			never, never, never, never, never, never, "dddd+"},
		{"RollbackPlugin of a tenant", func(x place, _ int) proto.Message {
			return &ckptdv1.RollbackPluginRequest{Tenant: x.tenant, Name: "redact"}
		}, none, none, none, none, none, "dddd+", "dddd+"},
		{"RollbackPlugin of the store", func(place, int) proto.Message { return &ckptdv1.RollbackPluginRequest{Name: "redact"} },
			never, never, never, never, never, never, "dddd+"},
		{"RemovePlugin of a tenant", func(x place, _ int) proto.Message {
			return &ckptdv1.RemovePluginRequest{Tenant: x.tenant, Name: "redact"}
		}, none, none, none, none, none, "dddd+", "dddd+"},
		{"RemovePlugin of the store", func(place, int) proto.Message { return &ckptdv1.RemovePluginRequest{Name: "redact"} },
			never, never, never, never, never, never, "dddd+"},
		{"TrustKey", func(place, int) proto.Message { return &ckptdv1.TrustKeyRequest{PublicKey: make([]byte, 32)} },
			never, never, never, never, never, never, "dddd+"},
		{"UntrustKey", func(place, int) proto.Message { return &ckptdv1.UntrustKeyRequest{Id: "KEY"} },
			never, never, never, never, never, never, "dddd+"},
		{"ListKeys", func(place, int) proto.Message { return &ckptdv1.ListKeysRequest{} },
			never, never, never, never, never, never, all},
		{"WhoAmI", func(place, int) proto.Message { return &ckptdv1.WhoAmIRequest{} },
			all, all, all, all, all, all, all},
	}
}

func migrationRights() []right {
	return []right{
		{"InstallMigrationSets for a tenant", func(x place, _ int) proto.Message {
			return &ckptdv1.InstallMigrationSetsRequest{Tenant: x.tenant, Files: setFiles("support")}
		}, none, none, none, none, none, "dddd+", "dddd+"},
		{"InstallMigrationSets for the store", func(place, int) proto.Message {
			return &ckptdv1.InstallMigrationSetsRequest{Files: setFiles("support")}
		}, never, never, never, never, never, never, "dddd+"},
		{"ListMigrationSets of a tenant", func(x place, _ int) proto.Message { return &ckptdv1.ListMigrationSetsRequest{Tenant: x.tenant} },
			none, none, none, none, none, all, all},
		{"ListMigrationSets of the store", func(place, int) proto.Message { return &ckptdv1.ListMigrationSetsRequest{} },
			never, never, never, never, never, never, all},
		{"RemoveMigrationSet of a tenant", func(x place, _ int) proto.Message {
			return &ckptdv1.RemoveMigrationSetRequest{Tenant: x.tenant, Kind: "support"}
		}, none, none, none, none, none, "dddd+", "dddd+"},
		{"RemoveMigrationSet of the store", func(place, int) proto.Message { return &ckptdv1.RemoveMigrationSetRequest{Kind: "support"} },
			never, never, never, never, never, never, "dddd+"},
		{"GetMigrationStatus", func(x place, _ int) proto.Message { return &ckptdv1.GetMigrationStatusRequest{Tenant: x.tenant} },
			none, none, none, none, none, all, all},
		{"PlanMigration", func(x place, _ int) proto.Message { return &ckptdv1.PlanMigrationRequest{Tenant: x.tenant} },
			none, none, none, none, none, all, all},
		{"StartMigrationJob", func(x place, _ int) proto.Message {
			return &ckptdv1.StartMigrationJobRequest{Tenant: x.tenant, Action: ckptdv1.MigrationAction_MIGRATION_ACTION_DRY_RUN,
				Spec: &ckptdv1.MigrationSpec{User: x.user}}
		}, none, none, none, none, none, "dddd+", "dddd+"},
		{"GetMigrationJob", func(x place, _ int) proto.Message {
			return &ckptdv1.GetMigrationJobRequest{Tenant: x.tenant, Id: "JOB"}
		},
			none, none, none, none, none, "dddd+", "dddd+"},
		{"ListMigrationJobs", func(x place, _ int) proto.Message { return &ckptdv1.ListMigrationJobsRequest{Tenant: x.tenant} },
			none, none, none, none, none, "dddd+", "dddd+"},
		{"WatchMigrationJob", func(x place, _ int) proto.Message {
			return &ckptdv1.WatchMigrationJobRequest{Tenant: x.tenant, Id: "JOB"}
		}, none, none, none, none, none, "dddd+", "dddd+"},
		{"CancelMigrationJob", func(x place, _ int) proto.Message {
			return &ckptdv1.CancelMigrationJobRequest{Tenant: x.tenant, Id: "JOB"}
		}, none, none, none, none, none, "dddd+", "dddd+"},
	}
}

// blobOf stands for the id of the blob of a user, which the server of a test gives. It is not known
// for every user.
func blobOf(x place) string { return "BLOB " + x.tenant + " " + x.user }

var roles = []access.Role{access.Reader, access.Approver, access.Writer, access.Auditor, access.Admin}
