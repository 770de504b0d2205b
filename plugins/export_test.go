package plugins

// WazeroVersion is what the key of the cache says.
const WazeroVersion = wazeroVersion

// Idle returns how many instances wait for their next call.
func (p *Plugin) Idle() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle)
}
