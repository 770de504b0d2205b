// Package migrate converts states saved by old code to the schema that new code expects.
//
// A thread has a kind: the agent or workflow that it runs. The states of a kind have integer schema
// versions. A Set holds the ordered steps of one kind, each from one version to the next and
// optionally back. A step is a pure function of the whole state (a Go function, a jq program, a
// WebAssembly module) and never sees a delta. Everything that a step does not change stays byte for
// byte the same: only the changed paths are encoded again.
//
// To migrate a state, Open decodes its channels into a document. Every step runs twice on the
// document and must give the same result both times. Document.State compares the final document
// with the original bytes and encodes only the difference.
//
// The package turns bytes into bytes. It uses no store, and no clock except for the time limits of
// steps. Sets and registries are immutable and safe for concurrent use. docs/migrations.md is for
// authors of steps.
package migrate
