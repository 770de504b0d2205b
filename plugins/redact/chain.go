package redact

// chains is to come.
type chains struct{}

func newChains() chains              { return chains{} }
func (c *chains) reset()             {}
func (c *chains) hold() chains       { return *c }
func (c *chains) release(old chains) { *c = old }

type region struct{ prefix, suffix int }

func regionOf(data, prev []byte, r *Redactor) region { return region{0, len(data) + 1} }
func (r region) has(start, end int) bool             { return false }

func (w *walker) join()                                            {}
func (w *walker) chain(start, end int, escaped bool, edits []edit) {}
