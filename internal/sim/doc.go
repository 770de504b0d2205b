// Package sim runs the engine in a simulation: many clients on one store in memory, in a bubble of
// testing/synctest, where every call of the backend waits at a gate until the simulation releases
// it. The seed of a plan decides everything: what the clients do, which gate opens next, when time
// passes, whose context ends, which call fails, which commit is left in doubt, and when the process
// dies. The same plan gives the same run, so any failure can be reproduced and reduced.
//
// A run consists of rounds. In a round all clients work at once (scheduler.go, ops_*.go). Then
// everything stops, a separate engine reads the store (dump.go), and the oracle judges every answer
// of the round by the result (facts.go, judge.go). The oracle uses plain maps of what was possible,
// given when each call began and ended. The next round starts from the contents of the store, so
// doubt does not accumulate.
//
// To add an operation, write a file with an action, and add a line to the table of kinds (ops.go).
// The action reports possible changes to the facts, and uses the facts to judge its answer.
package sim
