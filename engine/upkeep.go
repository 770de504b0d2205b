package engine

import "github.com/ckptd/ckptd/engine/upkeep"

// What serves administration hangs on these handles, and so neither on Store nor on User nor on Thread.
type (
	storeUpkeep  struct{ *Store }
	userUpkeep   struct{ *User }
	threadUpkeep struct{ *Thread }
)

// Upkeep returns the handle for those who administer or host the store.
func (s *Store) Upkeep() upkeep.Store { return storeUpkeep{s} }

// Upkeep returns the handle for those who administer the user.
func (u *User) Upkeep() upkeep.User { return userUpkeep{u} }

// Upkeep returns the handle for those who administer the thread.
func (t *Thread) Upkeep() upkeep.Thread[*Checkpoint] { return threadUpkeep{t} }
