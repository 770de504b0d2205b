package engine

import "github.com/ckptd/ckptd/engine/upkeep"

// Administration uses these handles, to keep its methods off Store, User and Thread.
type (
	storeUpkeep  struct{ *Store }
	userUpkeep   struct{ *User }
	threadUpkeep struct{ *Thread }
)

// Upkeep returns the handle for administering or hosting the store.
func (s *Store) Upkeep() upkeep.Store { return storeUpkeep{s} }

// Upkeep returns the handle for administering the user.
func (u *User) Upkeep() upkeep.User { return userUpkeep{u} }

// Upkeep returns the handle for administering the thread.
func (t *Thread) Upkeep() upkeep.Thread[*Checkpoint] { return threadUpkeep{t} }
