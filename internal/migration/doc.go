// Package migration runs schema migrations over a whole store: it counts the states by version,
// tries the steps on all of them without writing, migrates the heads of threads or whole histories,
// and undoes that.
//
// All writes are made by a job, which has a journal next to the store (docs/format.md §19). The
// journal records every intent before the job acts on it, and then the outcome. A job that was
// interrupted, even by a kill, resumes where it was: every thread is either unchanged or migrated,
// and the journal finds out which.
//
// Memory does not grow with the number of threads, except for their names. Errors and reports name
// threads and can quote states: they are for the owners of the states, not for logs.
package migration
