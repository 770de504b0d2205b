// Package sim runs the engine in a simulation: many clients on one store in memory, in a bubble of testing/synctest, with
// every call of the backend held at a gate until the simulation lets it on. The seed of a plan decides all: what the
// clients do, which gate opens next, when time passes, whose context ends, which call fails, which commit is left in doubt,
// and when the process dies. The same plan makes the same run, so whatever goes wrong can be run again, and made small.
//
// A run goes by rounds. In a round all clients work at once (scheduler.go, ops_*.go). Then everything stands still, the
// store is read by an engine of its own (dump.go), and the oracle judges every answer of the round by what it found
// (facts.go, judge.go): plain maps of what was possible, given when each call began and ended. What the next round starts
// from is what is there, so doubt does not add up.
//
// To extend it: a new operation is a file with an action and a line in the table of kinds (ops.go); what it may change is
// told to the facts, and what it saw is judged by them.
package sim
