//go:build race

package main

const (
	raceEnabled = true // which multiplies memory
	slower      = 8    // how much slower it makes the daemon, about
)
