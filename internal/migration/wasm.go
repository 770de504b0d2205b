package migration

import (
	"context"
	"errors"
	"path"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/migrate"
	"github.com/ckptd/ckptd/plugins"
	"github.com/ckptd/ckptd/plugins/pipeline"
)

// Modules loads the WebAssembly steps of sets into the plugin runtime, for migrate.Reader.Load. The
// modules stay loaded until the runtime is closed. Their clock and random numbers are constant, so
// that a step is deterministic.
func Modules(l pipeline.Loader) func(ctx context.Context, source string, binary []byte) (migrate.Module, error) {
	return func(ctx context.Context, source string, binary []byte) (migrate.Module, error) {
		p, err := l.Load(ctx, plugins.Spec{Name: path.Base(source), Binary: binary})
		if err != nil {
			return nil, err
		}
		for _, stage := range p.Stages() {
			if stage == hook.Migrate {
				return module{p}.run, nil
			}
		}
		return nil, errors.Join(errors.New("the module exports no on_migrate"), p.Close())
	}
}

// module is a loaded module.
type module struct{ pipeline.Plugin }

func (m module) run(ctx context.Context, from, to uint64, doc []byte) ([]byte, error) {
	r, err := m.Call(ctx, &plugins.Call{Stage: hook.Migrate, Item: "state", Payload: doc, From: from, To: to})
	switch {
	case err != nil && r != nil && r.Error != "":
		return nil, errors.New(r.Error)
	case err != nil:
		return nil, err
	case r.Unchanged:
		return doc, nil
	}
	return r.Output, nil
}
