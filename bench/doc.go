// Package bench holds the benchmarks of the goals in docs/performance.md; what compares ckptd with everything that users would pick
// instead is in the packages below, and run by make bench (cmd/bench).
//
// The benchmarks measure ckptd beside its rivals, in the same run and on the same disk. It is a module of its own, so
// that the rivals never enter the product's dependencies.
//
// Every benchmark is one row or two of that table. Contenders take turns within a benchmark, in slices, so
// that a machine that gets slower or faster while it runs does so for all of them; figures are metrics that benchstat
// reads. Nothing is asserted: a figure that misses its target is printed all the same.
//
//	make bench BENCH=.             everything, six times, through benchstat
//	make bench BENCH=OneWriter     one benchmark
//	make table                     everything five times, as the table of docs/performance.md
//
// Stores are made below CKPTD_BENCH_DIR, by default the system's folder for temporary files. It should be on a real
// disk: on a file system in memory a durable save costs nothing.
//
// States are JSON arrays of messages of random words, out of a vocabulary of 2,000 made of letters, all seeded. A message
// has 1,000 bytes of content, 1,035 bytes in all. Where a benchmark is about growth, a step appends one message; where it
// is about a steady state of 100 kB, a step replaces the last message by another of the same length.
package bench
