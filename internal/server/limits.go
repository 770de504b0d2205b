package server

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/ckptd/ckptd/internal/wire"
)

// Limits bound the requests of callers. A zero value means the default in its comment.
type Limits struct {
	MaxMessage           int           // bytes of a request message: 64 MiB
	InFlight             int           // requests under way: 1,024
	InFlightBytes        int64         // bytes of the bodies of requests under way: 512 MiB
	InFlightPerTenant    int           // requests under way for one tenant: as InFlight
	Streams              int           // watches: 4,096
	StreamsPerConnection int           // HTTP/2 streams of a connection: 256
	Connections          int           // 16,384
	Rate                 float64       // requests a second of one caller: 0 is any number
	Burst                int           // requests at once within Rate: as many as Rate in a second
	RequestTimeout       time.Duration // for a request that is not a stream: 30 s
	StallTimeout         time.Duration // for a caller that neither reads nor sends: 30 s
	ReadTimeout          time.Duration // for a whole message of a request, however steadily it comes: 2 min
	HeaderTimeout        time.Duration // for the headers of a request: 10 s
	IdleTimeout          time.Duration // for a connection without requests: 3 min
}

// Validate reports invalid limits.
func (l Limits) Validate() error { return l.complete() }

func (l *Limits) complete() error {
	for _, v := range []struct {
		name string
		p    *int
		most int
	}{{"in-flight", &l.InFlight, 1024}, {"watches", &l.Streams, 4096}, {"streams-per-connection", &l.StreamsPerConnection, 256},
		{"connections", &l.Connections, 16384}, {"max-message", &l.MaxMessage, 64 << 20}, {"burst", &l.Burst, int(max(1, l.Rate))}} {
		if *v.p < 0 {
			return fmt.Errorf("limit %s is negative", v.name)
		}
		if *v.p == 0 {
			*v.p = v.most
		}
	}
	for _, v := range []struct {
		name string
		p    *time.Duration
		most time.Duration
	}{{"request-timeout", &l.RequestTimeout, 30 * time.Second}, {"stall-timeout", &l.StallTimeout, 30 * time.Second},
		{"read-timeout", &l.ReadTimeout, 2 * time.Minute},
		{"header-timeout", &l.HeaderTimeout, 10 * time.Second}, {"idle-timeout", &l.IdleTimeout, 3 * time.Minute}} {
		if *v.p < 0 {
			return fmt.Errorf("limit %s is negative", v.name)
		}
		if *v.p == 0 {
			*v.p = v.most
		}
	}
	if l.InFlightBytes < 0 || l.InFlightPerTenant < 0 || l.Rate < 0 {
		return fmt.Errorf("a limit on in-flight requests or their rate is negative")
	}
	if l.InFlightBytes == 0 {
		l.InFlightBytes = 512 << 20
	}
	if l.InFlightPerTenant == 0 {
		l.InFlightPerTenant = l.InFlight
	}
	return nil
}

// SetLimits changes the limits for new requests. MaxMessage, StreamsPerConnection, HeaderTimeout
// and IdleTimeout cannot be changed after the server was created.
func (s *Server) SetLimits(l Limits) error {
	if err := l.complete(); err != nil {
		return err
	}
	if now := s.limits.Load(); now != nil {
		l.MaxMessage = now.MaxMessage // the handlers were made with it
	}
	s.limits.Store(&l)
	return nil
}

// gate counts requests in flight. A request over a limit is refused at once, before anything is
// done: the requests within the limit are the only queue.
type gate struct {
	inFlight, bytes, streams, connections atomic.Int64

	mu      sync.Mutex
	tenants map[string]int    // requests under way
	callers map[string]*share // of callers with requests in flight
	rates   map[string]*callerRate
}

type callerRate struct {
	limiter *rate.Limiter
	used    time.Time
}

// retryAfter is the wait suggested to refused callers: requests take milliseconds, so a second is
// long enough for a crowd to spread, and short enough not to be noticed after a peak.
const retryAfter = time.Second

func overloaded(what string, after time.Duration) error {
	return &wire.RetryError{Err: wire.ErrOverloaded, What: what, After: after}
}

// enter admits a request of a caller; leave ends it.
func (g *gate) enter(l *Limits, caller string) (*share, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	of := g.shareOf(caller)
	switch {
	case g.inFlight.Load() >= int64(l.InFlight):
		return nil, overloaded("requests under way", retryAfter)
	case of.requests >= int(eighths(int64(l.InFlight), callerShare)):
		return nil, overloaded("requests under way for the caller", retryAfter)
	}
	g.inFlight.Add(1)
	of.requests++
	g.callers[caller] = of
	return of, nil
}

func (g *gate) leave(caller string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight.Add(-1)
	g.callers[caller].requests--
	g.forget(caller)
}

// enterStream admits a watch of a caller; leaveStream ends it.
func (g *gate) enterStream(l *Limits, caller string) (*share, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	of := g.shareOf(caller)
	switch {
	case g.streams.Load() >= int64(l.Streams):
		return nil, overloaded("watches", retryAfter)
	case of.streams >= int(eighths(int64(l.Streams), callerShare)):
		return nil, overloaded("watches of the caller", retryAfter)
	}
	g.streams.Add(1)
	of.streams++
	g.callers[caller] = of
	return of, nil
}

func (g *gate) leaveStream(caller string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.streams.Add(-1)
	g.callers[caller].streams--
	g.forget(caller)
}

// shareOf returns the share of a caller. It must be called with g.mu held, like forget.
func (g *gate) shareOf(caller string) *share {
	if of := g.callers[caller]; of != nil {
		return of
	}
	return &share{}
}

func (g *gate) forget(caller string) {
	if of := g.callers[caller]; of.requests == 0 && of.streams == 0 {
		delete(g.callers, caller)
	}
}

// enterTenant admits a request for a tenant; leaveTenant ends it.
func (g *gate) enterTenant(l *Limits, tenant string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.tenants[tenant] >= l.InFlightPerTenant {
		return overloaded("requests under way for the tenant", retryAfter)
	}
	g.tenants[tenant]++
	return nil
}

func (g *gate) leaveTenant(tenant string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.tenants[tenant]--; g.tenants[tenant] == 0 {
		delete(g.tenants, tenant)
	}
}

// maxRates bounds the callers whose rate is remembered; those idle longest are forgotten, which
// gives them their burst.
const maxRates = 10_000

// paced admits a request of a caller within the rate.
func (g *gate) paced(l *Limits, caller string) error {
	if l.Rate == 0 {
		return nil
	}
	now := time.Now()
	g.mu.Lock()
	r := g.rates[caller]
	if r == nil {
		if len(g.rates) >= maxRates {
			g.forgetIdle(now)
		}
		r = &callerRate{limiter: rate.NewLimiter(rate.Limit(l.Rate), l.Burst)}
		g.rates[caller] = r
	}
	r.used = now
	if r.limiter.Limit() != rate.Limit(l.Rate) || r.limiter.Burst() != l.Burst { // they were changed
		r.limiter.SetLimit(rate.Limit(l.Rate))
		r.limiter.SetBurst(l.Burst)
	}
	g.mu.Unlock()
	reserved := r.limiter.ReserveN(now, 1)
	if wait := reserved.DelayFrom(now); wait > 0 {
		reserved.CancelAt(now)
		return overloaded("rate of the caller", max(wait.Round(time.Millisecond), time.Millisecond))
	}
	return nil
}

// forgetIdle forgets the callers that have not been seen for a while, or all if everybody was. The
// caller holds g.mu.
func (g *gate) forgetIdle(now time.Time) {
	for caller, r := range g.rates {
		if now.Sub(r.used) > 10*time.Second {
			delete(g.rates, caller)
		}
	}
	if len(g.rates) >= maxRates {
		clear(g.rates)
	}
}
