// Package migration runs schema migrations over a whole store: it tells how many states there are of which version, tries
// the steps on all of them without writing, migrates the heads of threads or whole histories, and takes that back.
//
// All writes are made by a job, which has a journal next to the store (docs/format.md §19). The
// journal records every intent before the job acts on it, and then the outcome. A job that was
// interrupted, even by a kill, resumes where it was: every thread is either unchanged or migrated,
// and the journal finds out which.
//
// Memory does not grow with the number of threads, but for their names. Errors and reports name threads and may quote states:
// they are for who owns these, and not for logs.
package migration
