package sim

// watching is a watch that runs beside a round.
type watching struct{}

func (w *world) beginWatch(string) {}
func (w *world) endWatch()         {}
