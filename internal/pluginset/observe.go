package pluginset

import (
	"github.com/ckptd/ckptd/internal/telemetry"
	"github.com/ckptd/ckptd/internal/wire"
	"github.com/ckptd/ckptd/plugins/pipeline"
)

// observer returns a counter of pipeline events. Events have the names of installed plugins and
// rules, and no text from a plugin.
func observer(m *telemetry.Metrics) func(pipeline.Event) {
	if m == nil {
		return nil
	}
	return func(e pipeline.Event) {
		outcome := "ok"
		if e.Err != nil {
			outcome = wire.PluginKind(e.Err)
		}
		m.PluginCalled(e.Plugin, e.Stage.String(), outcome, e.Fuel, e.Took)
		for rule, n := range e.Findings {
			m.PluginFound(e.Plugin, rule, n)
		}
		m.PluginSuspended(e.Plugin, e.Suspended)
	}
}
