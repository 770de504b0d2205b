// Package jobs runs migration jobs for a daemon, in the words of the wire API. A job belongs to a tenant, which has one
// under way at a time. What is asked for is kept beside the store before it begins (docs/format.md §19), so that it goes on
// when the daemon comes back, after a kill too: runs and undos by the journals of package migration, dry runs anew.
//
// Jobs carry the names and perhaps parts of the states of those that they belong to; nothing of that is logged.
package jobs
