// Package torture proves the promises of the store about damage: nothing that was acknowledged is
// lost, half there, wrong, or silently old, whether the process is killed, the power goes, a bit
// flips, files are cut, removed or put back, a call fails, or the disk is full. All of it is in its
// tests.
//
// A row (row_test.go) is one way to torture. It works on directories and processes: it fills a
// store in a child process, which is this test binary started again (child_test.go), hurts it, and
// has another child (probe_test.go) read the rest, since a store that crashes its reader is a
// finding too. The row knows the acknowledged content: from a model of the random operations
// (model_test.go), or from a dump of every stored byte (image_test.go).
//
// Every run of the tests tries a slice of each row with the seeds 1, 2, …; make torture continues
// with new seeds. A seed decides the operations and the damage, but keys and nonces are random and
// processes are killed by the clock. So a store that fails is kept on disk.
//
// To extend it: a new row is a file with a function and a line in the table of rows.
package torture
