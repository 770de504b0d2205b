package pipeline

import (
	"sync"
	"time"
)

// maxCircuits is for how many tenants failures are counted apart. Those beyond share one count.
const maxCircuits = 10_000

// circuit counts the failures of a plugin in a row, for each tenant by itself: what one tenant hands to a plugin must not
// stop the saves of another.
type circuit struct {
	failures int // after which it is open
	pause    time.Duration

	mu      sync.Mutex
	tenants map[string]*fuse // of those whose last call failed
	open    int              // how many of them are
}

type fuse struct {
	failed  int
	until   time.Time // when a call may be tried again
	probing bool      // one is being tried
}

// allow reports whether the plugin may be called, and how long it will be suspended otherwise. After a call that was
// allowed one of succeeded, failed and dunno must follow.
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

// dunno ends a call that says nothing about the plugin.
func (c *circuit) dunno(tenant string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.tenants[c.key(tenant)]; f != nil {
		f.probing = false
	}
}

// suspended reports whether it is open for any tenant.
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
