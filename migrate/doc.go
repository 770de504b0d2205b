// Package migrate turns the states that old code saved into those that new code expects.
//
// A thread has a kind, the agent or workflow that it is a run of; the states of a kind have integer schema versions. A
// Set is the ordered steps of one kind, each from a version to the next and perhaps back. A step is a pure function of
// the whole state (a Go function, a jq program, a WebAssembly module) and never sees a delta. What it leaves alone
// stays byte for byte as it was: only the paths that it changed are encoded again.
//
// The way of one state: Open decodes its channels into one document; every step is run twice on the document, and must
// say the same twice; Document.State compares the outcome with what the bytes said, and writes only the difference.
//
// The package turns bytes into bytes: no store, no clock but the limits of a step. Sets and registries do not change once
// they are made, and may be used by many goroutines at once. docs/migrations.md is for the authors of steps.
package migrate
