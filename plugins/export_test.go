package plugins

// WazeroVersion is the version in the cache key.
const WazeroVersion = wazeroVersion

// Idle returns the number of idle instances.
func (p *Plugin) Idle() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle)
}
