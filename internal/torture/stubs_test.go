package torture

import "io"

type verdict struct{}

func (j *job) fill() error       { return nil }
func probe(io.Reader) error      { return nil }
func flipRound(r *round)         { r.skip("to come") }
func filesRound(r *round)        { r.skip("to come") }
func callsRound(r *round)        { r.skip("to come") }
func eraseRound(r *round)        { r.skip("to come") }
func powerRound(r *round)        { r.skip("to come") }
func fullRound(r *round)         { r.skip("to come") }
func syscallsRound(r *round)     { r.skip("to come") }
