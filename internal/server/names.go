package server

import (
	"context"
	"errors"

	"github.com/ckptd/ckptd/engine"
)

// auditNames are the names that the pseudonyms of the audit log stand for, as far as they are still
// there.
type auditNames map[string]string

// of returns the name of a pseudonym, or that itself.
func (n auditNames) of(pseudonym string) string {
	if name, ok := n[pseudonym]; ok {
		return name
	}
	return pseudonym
}

// auditNames looks the names up.
func (s *Server) auditNames(ctx context.Context) (auditNames, error) {
	names, upkeep := auditNames{}, s.store.Upkeep()
	for tenant, err := range upkeep.Tenants(ctx) {
		if err != nil {
			continue // its keys are gone, and so are the names
		}
		names[upkeep.Pseudonym("audit", tenant)] = tenant
		for user, err := range upkeep.Users(ctx, tenant) {
			if err != nil {
				continue
			}
			names[upkeep.Pseudonym("audit", tenant, user)] = user
			for info, err := range s.store.User(tenant, user).Threads(ctx, engine.ThreadOptions{}) {
				if errors.Is(err, context.Canceled) {
					return nil, err
				}
				if err != nil {
					break
				}
				names[upkeep.Pseudonym("audit", tenant, user, info.Ref.Thread)] = info.Ref.Thread
			}
		}
	}
	return names, nil
}
