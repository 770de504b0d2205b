package pipeline

import (
	"sync"
	"time"
)

// maxCircuits is the number of tenants whose failures are counted separately. Any further tenants
// share one count.
const maxCircuits = 10_000

// circuit counts consecutive failures of a plugin per tenant, because one tenant's data must not
// stop the saves of another.
type circuit struct {
	failures int // number after which it opens
	pause    time.Duration

	mu      sync.Mutex
	tenants map[string]*fuse // tenants whose last call failed
	open    int              // number of open fuses
}

type fuse struct {
	failed  int
	until   time.Time // when to try a call again
	probing bool      // a trial call is under way
}

// allow reports whether the plugin can be called and, if not, how long it stays suspended. Every
// allowed call must be followed by exactly one of succeeded, failed and dunno.
func (c *circuit) allow(tenant string, now time.Time) (wait time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.tenants[c.key(tenant)]
	switch {
	case f == nil || f.failed < c.failures:
		return 0, true
	case now.Before(f.until):
		return f.until.Sub(now), false
	case f.probing:
		return 0, false
	}
	f.probing = true
	return 0, true
}

func (c *circuit) succeeded(tenant string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := c.key(tenant)
	if f := c.tenants[key]; f != nil {
		if f.failed >= c.failures {
			c.open--
		}
		delete(c.tenants, key)
	}
}

func (c *circuit) failed(tenant string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := c.key(tenant)
	f := c.tenants[key]
	if f == nil {
		if c.tenants == nil {
			c.tenants = map[string]*fuse{}
		}
		f = &fuse{}
		c.tenants[key] = f
	}
	if f.failed++; f.failed == c.failures {
		c.open++
	}
	f.until, f.probing = now.Add(c.pause), false
}

// dunno ends a call whose outcome says nothing about the plugin.
func (c *circuit) dunno(tenant string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.tenants[c.key(tenant)]; f != nil {
		f.probing = false
	}
}

// suspended reports whether the circuit is open for any tenant.
func (c *circuit) suspended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open > 0
}

func (c *circuit) key(tenant string) string {
	if _, ok := c.tenants[tenant]; !ok && len(c.tenants) >= maxCircuits {
		return ""
	}
	return tenant
}
