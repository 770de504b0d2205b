// Package migration runs schema migrations over a whole store: it tells how many states there are of which version, tries
// the steps on all of them without writing, migrates the heads of threads or whole histories, and takes that back.
//
// What is written is written by a job, which has a journal beside the store (docs/format.md §19). The journal says what a job
// is about to do before it does so, and what came of it. A job that was cut short, by a kill too, goes on where it was: every
// thread is as it was before, or migrated, and the journal finds out which.
//
// Memory does not grow with the number of threads, but for their names. Errors and reports name threads and may quote states:
// they are for who owns these, and not for logs.
package migration
