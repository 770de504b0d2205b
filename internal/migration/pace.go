package migration

import (
	"context"
	"sync"

	"golang.org/x/time/rate"
)

// pace slows work down to a throttle, and reports its progress.
type pace struct {
	limit    *rate.Limiter
	progress func(done, total int)

	mu       sync.Mutex // guards the fields below; held while progress is reported
	n, total int
}

func newPace(o RunOptions, total int) *pace {
	p := &pace{progress: o.Progress, total: total}
	if o.Throttle > 0 {
		p.limit = rate.NewLimiter(rate.Limit(o.Throttle), max(1, int(o.Throttle/10)))
	}
	return p
}

// done adds n states to the progress, and waits until the next ones may start.
func (p *pace) done(ctx context.Context, n int) error {
	if p.progress != nil {
		p.mu.Lock()
		p.n += n
		p.progress(p.n, p.total)
		p.mu.Unlock()
	}
	for ; p.limit != nil && n > 0; n-- {
		if err := p.limit.Wait(ctx); err != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}
