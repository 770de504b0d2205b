// Package bench holds the benchmarks for the goals in docs/performance.md. The comparison of ckptd
// with its alternatives is in the packages below, and is run by make bench (cmd/bench).
//
// The benchmarks measure ckptd and its rivals in the same run and on the same disk. This is a
// separate module so that the rivals never become dependencies of the product.
//
// Every benchmark covers one or two rows of that table. Contenders alternate within a benchmark, in
// slices, so that a machine that becomes slower or faster during the run affects all of them.
// Figures are metrics that benchstat reads. Nothing is asserted: a figure that misses its target is
// still printed.
//
//	make bench BENCH=.             everything, six times, through benchstat
//	make bench BENCH=OneWriter     one benchmark
//	make table                     everything five times, as the table of docs/performance.md
//
// Stores are created below CKPTD_BENCH_DIR, which defaults to the system's temporary directory. It
// should be on a real disk: on an in-memory file system a durable save costs nothing.
//
// States are JSON arrays of messages made of random words from a vocabulary of 2,000, all seeded. A
// message has 1,000 bytes of content, 1,035 bytes in all. In benchmarks about growth, a step
// appends one message. In benchmarks about a steady state of 100 kB, a step replaces the last
// message with another of the same length.
package bench
