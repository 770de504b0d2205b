// Package engine is ckptd embedded in a process: an encrypted, versioned store of agent states.
//
// A Store sits on one backend. A Thread is a handle on one lineage of a user. Save adds a
// checkpoint to it and returns when the checkpoint is as durable as the backend makes it; Load
// returns it byte for byte, or fails with an error that callers can branch on. A checkpoint never
// changes, unless a save replaces it under its own id. It names its parent, so a thread can be
// rewound and branched at any step.
//
// The cost of a save follows the size of the change: each channel is stored as a delta against its
// value in an earlier checkpoint, and reading any of them takes a bounded number of records and
// bytes (save_encode.go). Nothing that belongs to a user reaches the backend unsealed
// (docs/format.md).
//
// A Store and all its handles can be used by many goroutines at once. Saves of one lineage take
// effect one after the other, but do not wait for each other's disk writes. Only one process at a
// time can have a store open.
//
// Administration has its own handles (Store.Upkeep, package upkeep).
package engine
