package engine

import (
	"container/list"
	"sync"
	"sync/atomic"

	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// cache bounds the memory of the states of all lineages and of the users, and holds the parts read
// and the states migrated last. It evicts the least recently used first.
type cache struct {
	mu             sync.Mutex
	most           int64
	size           int64
	order          list.List // of *checkpointState, *user, *cachedPart, *cachedState; most recently used first
	users          map[userName]*list.Element
	parts          map[partName]*list.Element
	migratedStates map[migrationKey]*list.Element

	hits, misses atomic.Uint64

	// emptied are lineages that lost their last state, perhaps while idle; some is set if there are
	// any.
	emptied []*lineage
	some    atomic.Bool
}

type partName struct {
	user crypto.Token
	id   [16]byte
}

type cachedPart struct {
	name partName
	data []byte
}

type cachedState struct {
	name migrationKey
	m    *migratedState
}

func (s storeUpkeep) CacheStats() upkeep.CacheStats {
	s.cache.mu.Lock()
	size := s.cache.size
	s.cache.mu.Unlock()
	return upkeep.CacheStats{Hits: s.cache.hits.Load(), Misses: s.cache.misses.Load(), Bytes: size}
}

func newCache(most int64) *cache {
	return &cache{most: most, users: map[userName]*list.Element{}, parts: map[partName]*list.Element{}, migratedStates: map[migrationKey]*list.Element{}}
}

// used puts a state in front, with its present size, and evicts others. The caller holds the lock
// of the state's lineage.
func (c *cache) used(t *checkpointState) {
	size := t.memory()
	c.mu.Lock()
	if t.cached == nil {
		t.cached = c.order.PushFront(t)
	} else {
		c.order.MoveToFront(t.cached)
	}
	c.size += size - t.size
	t.size = size
	c.evict(t.home)
	c.mu.Unlock()
}

// drop forgets a state. The caller holds the lock of its lineage.
func (c *cache) drop(t *checkpointState) {
	c.mu.Lock()
	if t.cached != nil {
		c.remove(t)
	}
	c.mu.Unlock()
}

func (c *cache) remove(t *checkpointState) {
	c.order.Remove(t.cached)
	c.size -= t.size
	t.cached, t.size = nil, 0
	delete(t.home.states, t.seq)
}

// evict drops the least recently used until the cache is within its bound. Lineages whose lock is
// held are in use, and so are not the least recently used for long.
func (c *cache) evict(held *lineage) {
	for e := c.order.Back(); e != nil && c.size > c.most; {
		prev := e.Prev()
		switch v := e.Value.(type) {
		case *cachedPart:
			c.removePart(e, v)
		case *user:
			c.order.Remove(e)
			c.size -= userBytes
			delete(c.users, v.userName)
		case *cachedState:
			c.order.Remove(e)
			c.size -= v.m.memory()
			delete(c.migratedStates, v.name)
		case *checkpointState:
			if v.home == held {
				c.remove(v)
			} else if v.home.mu.tryLock() {
				c.remove(v)
				if len(v.home.states) == 0 {
					c.emptied = append(c.emptied, v.home)
					c.some.Store(true)
				}
				v.home.mu.unlock()
			}
		}
		e = prev
	}
}

// takeEmptied returns the lineages that lost their last state since the last call.
func (c *cache) takeEmptied() []*lineage {
	if !c.some.Load() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.emptied
	c.emptied = nil
	c.some.Store(false)
	return taken
}

func (c *cache) removePart(e *list.Element, p *cachedPart) {
	c.order.Remove(e)
	c.size -= int64(len(p.data))
	delete(c.parts, p.name)
}

// userBytes is the memory of a user with its keys, ciphers and guard, measured by the heap of
// 100,000 users.
const userBytes = 4000

// user returns a user who is in memory, or nil.
func (c *cache) user(name userName) *user {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.users[name]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*user)
}

// keepUser remembers a user, or returns the one that is remembered already.
func (c *cache) keepUser(u *user) *user {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.users[u.userName]; e != nil {
		return e.Value.(*user)
	}
	c.users[u.userName] = c.order.PushFront(u)
	c.size += userBytes
	c.evict(nil)
	return u
}

// part returns a part that was read before, or nil. It must not be modified.
func (c *cache) part(n partName) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.parts[n]
	if e == nil {
		c.misses.Add(1)
		return nil
	}
	c.hits.Add(1)
	c.order.MoveToFront(e)
	return e.Value.(*cachedPart).data
}

// keepPart remembers a part, unless it would evict much of the cache.
func (c *cache) keepPart(n partName, data []byte) {
	if int64(len(data)) > c.most/16 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parts[n] == nil {
		c.parts[n] = c.order.PushFront(&cachedPart{n, data})
		c.size += int64(len(data))
		c.evict(nil)
	}
}

// migrated returns a state that was migrated before, or nil.
func (c *cache) migrated(n migrationKey) *migratedState {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.migratedStates[n]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*cachedState).m
}

// keepMigrated remembers a migrated state, unless it would evict much of the cache.
func (c *cache) keepMigrated(n migrationKey, m *migratedState) {
	size := m.memory()
	if size > c.most/4 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.migratedStates[n] == nil {
		c.migratedStates[n] = c.order.PushFront(&cachedState{n, m})
		c.size += size
		c.evict(nil)
	}
}

// forgetParts drops all parts of a user, because some may be deleted now.
func (c *cache) forgetParts(user crypto.Token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, e := range c.parts {
		if name.user == user {
			c.removePart(e, e.Value.(*cachedPart))
		}
	}
}
