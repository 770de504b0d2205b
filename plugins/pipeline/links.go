package pipeline

import (
	"crypto/sha256"
	"math"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins/bundle"
)

// redactName is the name of the built-in redactor.
const redactName = "redact"

// links returns the hooks of a binding.
func links(b *Binding, u *sharedPlugin) []link {
	switch {
	case b.Redactor != nil:
		return redactorLinks(b)
	case u == nil:
		return missingLinks(b)
	}
	m := &b.Bundle.Manifest
	// The digest is that of the bundle, because the manifest decides which items the hooks see, and
	// equal identities must imply equal results.
	id := hook.Identity{Name: b.Bundle.Name(), Digest: b.Bundle.Digest()}
	if b.Config != nil {
		id.Config = sha256.Sum256(b.Config)
	}
	var all []link
	add := func(h *bundle.Hook) {
		l := link{binding: b, stage: h.Stage, hook: h, shared: u, name: id.Name, order: h.Order, identity: id}
		if b.Order != nil {
			l.order = *b.Order
		}
		all = append(all, l)
	}
	migrates := false
	for i := range m.Hooks {
		add(&m.Hooks[i])
		migrates = migrates || m.Hooks[i].Stage == hook.Migrate
	}
	if len(m.Migrations) > 0 && !migrates {
		add(&bundle.Hook{Stage: hook.Migrate, Kinds: []hook.Kind{hook.Channel, hook.Write, hook.Meta},
			Types: []string{"*"}, Redacts: true})
	}
	return all
}

// redactorLinks puts the redactor last in every stage to which it is bound: pre_save unless the
// binding says otherwise.
func redactorLinks(b *Binding) []link {
	stages := b.Stages
	if len(stages) == 0 {
		stages = []hook.Stage{hook.PreSave}
	}
	var all []link
	for _, stage := range stages {
		all = append(all, link{binding: b, stage: stage, name: redactName, order: math.MaxInt, identity: b.Redactor.Identity()})
	}
	return all
}

func missingLinks(b *Binding) []link {
	stages := b.Stages
	if len(stages) == 0 {
		stages = []hook.Stage{hook.PreSave, hook.Load, hook.Export, hook.Migrate}
	}
	var all []link
	for _, stage := range stages {
		all = append(all, link{binding: b, stage: stage, name: b.Name})
	}
	return all
}
