//go:build !race

package engine

// raceEnabled lets tests that run alone do less: the race detector finds nothing in them and makes them ten times slower.
const raceEnabled = false
