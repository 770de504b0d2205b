package access

import (
	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
)

// Scope is what a method works on, and so what Caller.May is to be asked about.
type Scope uint8

// The scopes.
const (
	OnNothing Scope = iota // who has credentials may call it
	OnThread               // the thread that the request names
	OnThreads              // the threads of a user or tenant; those outside of Caller.Prefixes are left out
	OnUser                 // the user with all threads
	OnTenant               // the tenant with all users
	OnStore                // the whole store
	OnNamed                // the thread, user or tenant that the request names, or else the whole store
	OnGrants               // what the grants of a token are for: Caller.MayGive and MayTake answer
)

// Rule says what a method needs.
type Rule struct {
	Needs Permission
	On    Scope
	// Headers is enough for a request that asks for no content; 0 if there are no such requests.
	Headers Permission
}

// For returns the permission that a request needs.
func (r Rule) For(request any) Permission {
	if r.Headers != 0 && !asksForContent(request) {
		return r.Headers
	}
	return r.Needs
}

func asksForContent(request any) bool {
	switch m := request.(type) {
	case *ckptdv1.LoadRequest:
		return !m.GetHeadersOnly() || m.GetWrites()
	case *ckptdv1.LoadNewestRequest:
		return !m.GetHeadersOnly()
	case *ckptdv1.ListRequest:
		return m.GetData()
	}
	return true
}

// Administers reports whether calls go to the audit log also when they are allowed.
func (r Rule) Administers() bool { return r.Needs&(Manage|Issue|Audit) != 0 }

// RuleFor returns the rule for a procedure, such as "/ckptd.v1.CheckpointService/Save". A method without a rule must be
// refused to everyone.
func RuleFor(procedure string) (Rule, bool) {
	r, ok := rules[procedure]
	return r, ok
}

var rules = Rules()

// Rules has a rule for every method of the API.
func Rules() map[string]Rule {
	return map[string]Rule{
		ckptdv1.CheckpointServiceSaveProcedure:         {Needs: Write, On: OnThread},
		ckptdv1.CheckpointServiceSaveBatchProcedure:    {Needs: Write, On: OnThread}, // each of them
		ckptdv1.CheckpointServiceLoadProcedure:         {Needs: Read, On: OnThread, Headers: Inspect},
		ckptdv1.CheckpointServiceLoadNewestProcedure:   {Needs: Read, On: OnUser, Headers: Inspect},
		ckptdv1.CheckpointServiceListProcedure:         {Needs: Read, On: OnThread, Headers: Inspect},
		ckptdv1.CheckpointServiceGetTreeProcedure:      {Needs: Inspect, On: OnThread},
		ckptdv1.CheckpointServiceDiffProcedure:         {Needs: Read, On: OnThread},
		ckptdv1.CheckpointServiceForkProcedure:         {Needs: Annotate, On: OnThread},
		ckptdv1.CheckpointServiceListBranchesProcedure: {Needs: Inspect, On: OnThread},
		ckptdv1.CheckpointServiceSetBranchProcedure:    {Needs: Annotate, On: OnThread},
		ckptdv1.CheckpointServiceDeleteBranchProcedure: {Needs: Annotate, On: OnThread},
		ckptdv1.CheckpointServiceSetLabelsProcedure:    {Needs: Annotate, On: OnThread},
		ckptdv1.CheckpointServicePutWritesProcedure:    {Needs: Annotate, On: OnThread},
		ckptdv1.CheckpointServiceListWritesProcedure:   {Needs: Read, On: OnThread},

		ckptdv1.ThreadServiceListThreadsProcedure:    {Needs: Inspect, On: OnThreads},
		ckptdv1.ThreadServiceListNamespacesProcedure: {Needs: Inspect, On: OnThread},
		ckptdv1.ThreadServiceCopyProcedure:           {Needs: Write, On: OnThread}, // both of them
		ckptdv1.ThreadServiceDeleteProcedure:         {Needs: Write, On: OnThread},
		ckptdv1.ThreadServiceDeleteRunProcedure:      {Needs: Write, On: OnUser},
		ckptdv1.ThreadServicePruneProcedure:          {Needs: Write, On: OnThread},
		ckptdv1.ThreadServiceQueryProcedure:          {Needs: Inspect, On: OnThreads},
		ckptdv1.ThreadServiceWatchProcedure:          {Needs: Inspect, On: OnThreads},

		// A blob belongs to the user and to no thread, so a grant for some threads does not reach it.
		ckptdv1.BlobServicePutBlobProcedure:  {Needs: Write, On: OnUser},
		ckptdv1.BlobServiceGetBlobProcedure:  {Needs: Read, On: OnUser},
		ckptdv1.BlobServiceStatBlobProcedure: {Needs: Inspect, On: OnUser},

		ckptdv1.AdminServiceGetRetentionProcedure:   {Needs: Inspect, On: OnTenant},
		ckptdv1.AdminServiceSetRetentionProcedure:   {Needs: Manage, On: OnTenant},
		ckptdv1.AdminServiceCollectGarbageProcedure: {Needs: Manage, On: OnNamed},
		ckptdv1.AdminServiceVerifyProcedure:         {Needs: Inspect, On: OnNamed},
		ckptdv1.AdminServiceGetStatsProcedure:       {Needs: Inspect, On: OnUser},
		ckptdv1.AdminServiceListTenantsProcedure:    {Needs: Inspect, On: OnStore},
		ckptdv1.AdminServiceListUsersProcedure:      {Needs: Inspect, On: OnTenant},
		ckptdv1.AdminServiceCreateUserProcedure:     {Needs: Manage, On: OnUser},
		ckptdv1.AdminServiceCreateTokenProcedure:    {Needs: Issue, On: OnGrants},
		ckptdv1.AdminServiceListTokensProcedure:     {Needs: Issue, On: OnGrants},
		ckptdv1.AdminServiceRevokeTokenProcedure:    {Needs: Issue, On: OnGrants},
		ckptdv1.AdminServiceReadAuditProcedure:      {Needs: Audit, On: OnStore},
		ckptdv1.AdminServiceGetStatusProcedure:      {Needs: Inspect, On: OnStore},
		ckptdv1.AdminServiceWhoAmIProcedure:         {On: OnNothing},

		// A plugin sees the states of those that it runs for, so who manages all of these decides. A key is trusted for
		// the whole store.
		ckptdv1.PluginServiceInstallPluginProcedure:    {Needs: Manage, On: OnNamed},
		ckptdv1.PluginServiceListPluginsProcedure:      {Needs: Inspect, On: OnNamed},
		ckptdv1.PluginServiceGetPluginProcedure:        {Needs: Manage, On: OnNamed},
		ckptdv1.PluginServiceSetPluginEnabledProcedure: {Needs: Manage, On: OnNamed},
		ckptdv1.PluginServiceRollbackPluginProcedure:   {Needs: Manage, On: OnNamed},
		ckptdv1.PluginServiceRemovePluginProcedure:     {Needs: Manage, On: OnNamed},
		ckptdv1.PluginServiceTrustKeyProcedure:         {Needs: Manage, On: OnStore},
		ckptdv1.PluginServiceUntrustKeyProcedure:       {Needs: Manage, On: OnStore},
		ckptdv1.PluginServiceListKeysProcedure:         {Needs: Inspect, On: OnStore},

		// A job touches the states of a whole tenant, and its report may quote them.
		ckptdv1.MigrationServiceInstallMigrationSetsProcedure: {Needs: Manage, On: OnNamed},
		ckptdv1.MigrationServiceListMigrationSetsProcedure:    {Needs: Inspect, On: OnNamed},
		ckptdv1.MigrationServiceRemoveMigrationSetProcedure:   {Needs: Manage, On: OnNamed},
		ckptdv1.MigrationServiceGetMigrationStatusProcedure:   {Needs: Inspect, On: OnTenant},
		ckptdv1.MigrationServicePlanMigrationProcedure:        {Needs: Inspect, On: OnTenant},
		ckptdv1.MigrationServiceStartMigrationJobProcedure:    {Needs: Manage, On: OnTenant},
		ckptdv1.MigrationServiceGetMigrationJobProcedure:      {Needs: Manage, On: OnTenant},
		ckptdv1.MigrationServiceListMigrationJobsProcedure:    {Needs: Manage, On: OnTenant},
		ckptdv1.MigrationServiceWatchMigrationJobProcedure:    {Needs: Manage, On: OnTenant},
		ckptdv1.MigrationServiceCancelMigrationJobProcedure:   {Needs: Manage, On: OnTenant},
	}
}
