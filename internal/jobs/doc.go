// Package jobs runs migration jobs for a daemon, with the types of the wire API. A job belongs to a
// tenant, which can run one at a time. The request is stored next to the store before the job
// starts (docs/format.md §19), so that the job continues when the daemon restarts, even after a
// kill: runs and undos resume from the journals of package migration, dry runs start over.
//
// Jobs carry the names and perhaps parts of the states of those that they belong to; nothing of
// that is logged.
package jobs
