package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// pluginMetrics count the work of plugins and built-in rules. Their labels are names of plugins and
// rules that an administrator installed, never text from a plugin, which could contain a state.
type pluginMetrics struct {
	calls     *prometheus.CounterVec   // by plugin, stage, outcome
	seconds   *prometheus.HistogramVec // by plugin
	fuel      *prometheus.CounterVec   // by plugin
	findings  *prometheus.CounterVec   // by plugin, rule
	suspended *prometheus.GaugeVec     // by plugin
	restarts  prometheus.Counter
}

func (m *Metrics) makePlugins() {
	p := &m.plugins
	p.calls = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ckptd_plugin_calls_total",
		Help: "Calls of plugins by outcome: ok, or the kind of the error."}, []string{"outcome", "plugin", "stage"})
	p.seconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "ckptd_plugin_seconds", Help: "Time that calls of a plugin took.",
		Buckets: pluginBounds()}, []string{"plugin"})
	p.fuel = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ckptd_plugin_fuel_total", Help: "Fuel that calls of a plugin used."}, []string{"plugin"})
	p.findings = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ckptd_plugin_findings_total",
		Help: "What plugins and the built-in rules found; of plugins all rules together."}, []string{"plugin", "rule"})
	p.suspended = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "ckptd_plugin_suspended",
		Help: "1 while a plugin is not called because it failed too often."}, []string{"plugin"})
	m.registry.MustRegister(p.calls, p.seconds, p.fuel, p.findings, p.suspended)
	p.restarts = m.counter("ckptd_plugin_restarts_total", "Plugin workers that ended and were replaced.")
}

// pluginBounds begin where the calls of small plugins are, in seconds.
func pluginBounds() []float64 { return append([]float64{2e-6, 5e-6, 1e-5, 2e-5}, latencyBounds()...) }

// PluginCalled counts a call of a plugin, which is named as NAME@VERSION. The outcome is ok or the
// kind of an error.
func (m *Metrics) PluginCalled(plugin, stage, outcome string, fuel uint64, took time.Duration) {
	m.plugins.calls.WithLabelValues(outcome, plugin, stage).Inc()
	m.plugins.seconds.WithLabelValues(plugin).Observe(took.Seconds())
	m.plugins.fuel.WithLabelValues(plugin).Add(float64(fuel))
}

// PluginFound counts the findings of a plugin; rule is a rule of the built-in redactor, "" for a
// plugin.
func (m *Metrics) PluginFound(plugin, rule string, n int) {
	m.plugins.findings.WithLabelValues(plugin, rule).Add(float64(max(0, n)))
}

// PluginSuspended records whether a plugin is suspended after repeated failures.
func (m *Metrics) PluginSuspended(plugin string, is bool) {
	value := 0.0
	if is {
		value = 1
	}
	m.plugins.suspended.WithLabelValues(plugin).Set(value)
}

// PluginRestarted counts a process of plugins that was replaced.
func (m *Metrics) PluginRestarted() { m.plugins.restarts.Inc() }
