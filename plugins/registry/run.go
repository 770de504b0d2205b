package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins"
	"github.com/ckptd/ckptd/plugins/bundle"
	"github.com/ckptd/ckptd/plugins/pipeline"
	"github.com/ckptd/ckptd/plugins/redact"
	"github.com/ckptd/ckptd/plugins/trial"
)

// builtinVersion is the version of the redactor, which is part of the program.
const builtinVersion = "builtin"

// describeVersion returns the name and the version entry of a bundle.
func describeVersion(b *bundle.Bundle) (string, version, error) {
	if b == nil {
		r, err := pipeline.NewRedactor(redact.Config{})
		if err != nil {
			return "", version{}, err
		}
		return Redact, version{Version: builtinVersion, Digest: r.Identity().Digest, Description: "the built-in redactor"}, nil
	}
	m := &b.Manifest
	v := version{Version: m.Version, Digest: b.Digest(), Description: m.Description, Capabilities: m.Capabilities}
	for _, step := range m.Migrations {
		v.Migrations = append(v.Migrations, migration(step))
	}
	for _, stage := range m.Stages() {
		v.Stages = append(v.Stages, stage.String())
	}
	return m.Name, v, nil
}

// checkBindings checks the bindings of an installation and returns them in the form in which they
// are stored.
func checkBindings(in *Install, name string) ([]binding, error) {
	given := in.Bindings
	if len(given) == 0 {
		given = []Binding{{}}
	}
	if len(given) > maxBindings {
		return nil, invalidf(name, "it has %d bindings, more than the limit of %d", len(given), maxBindings)
	}
	var list []binding
	for i, g := range given {
		b := binding{Tenants: slices.Clone(g.Tenants), Prefixes: slices.Clone(g.Prefixes), Order: g.Order}
		for _, text := range slices.Concat(b.Tenants, b.Prefixes) {
			if text == "" || len(text) > maxName || !utf8.ValidString(text) {
				return nil, invalidf(name, "a tenant or thread prefix is not UTF-8 of 1 to %d bytes: omit it to match all", maxName)
			}
			if text == "*" { // grants use it for every tenant; here it would match nobody
				return nil, invalidf(name, `a binding names the tenant or thread prefix "*", which is not a wildcard here: omit it to match all`)
			}
		}
		if len(b.Tenants) > maxNames || len(b.Prefixes) > maxNames {
			return nil, invalidf(name, "a binding has more than %d tenants or prefixes", maxNames)
		}
		if in.Tenant != "" {
			if len(b.Tenants) > 1 || len(b.Tenants) == 1 && b.Tenants[0] != in.Tenant {
				return nil, invalidf(name, "it is installed for one tenant, but a binding names another: omit the tenants")
			}
			b.Tenants = []string{in.Tenant}
		}
		if b.Order != nil && in.Bundle == nil {
			return nil, invalidf(name, "it cannot have an order: it always runs last")
		}
		if len(bytes.TrimSpace(g.Config)) > 0 {
			var compact bytes.Buffer
			if err := json.Compact(&compact, g.Config); err != nil || len(g.Config) > bundle.MaxConfig {
				return nil, invalidf(name, "its configuration is not JSON of at most %d bytes", bundle.MaxConfig)
			}
			escaped := &bytes.Buffer{}
			json.HTMLEscape(escaped, compact.Bytes()) // in the form that the state file decodes to
			b.Config = escaped.Bytes()
		}
		if err := checkConfig(in.Bundle, b.Config); err != nil {
			return nil, err
		}
		for j := range list {
			if list[j].meets(&b) {
				return nil, invalidf(name, "its bindings %d and %d cover the same threads, so it would run twice: change their tenants or prefixes", j+1, i+1)
			}
		}
		list = append(list, b)
	}
	return list, nil
}

func checkConfig(b *bundle.Bundle, config []byte) error {
	if b != nil {
		_, err := b.Config(config)
		return err
	}
	_, _, err := redactorOf(config)
	return err
}

// redactorOf creates the redactor from a configuration: that of package redact, plus stages, which
// defaults to pre_save.
func redactorOf(config []byte) (*pipeline.Redactor, []hook.Stage, error) {
	var c struct {
		redact.Config
		Stages []string `json:"stages"`
	}
	if len(config) > 0 {
		d := json.NewDecoder(bytes.NewReader(config))
		d.DisallowUnknownFields()
		if err := d.Decode(&c); err != nil {
			return nil, nil, invalidf(Redact, "its configuration is invalid: %s", strings.TrimPrefix(err.Error(), "json: "))
		}
	}
	stages := []hook.Stage{hook.PreSave}
	if c.Stages != nil {
		stages = nil
	}
	for _, name := range c.Stages {
		stage, ok := hook.ParseStage(name)
		if !ok || slices.Contains(stages, stage) {
			return nil, nil, invalidf(Redact,
				"its configuration has the stage %.40q: want each of pre_save, load, export and migrate at most once", name)
		}
		stages = append(stages, stage)
	}
	if len(stages) == 0 {
		return nil, nil, invalidf(Redact, "its configuration has an empty list of stages: omit it for pre_save")
	}
	r, err := pipeline.NewRedactor(c.Config)
	return r, stages, err
}

// redactorStages returns the stages of all bindings of the redactor.
func redactorStages(bindings []binding) ([]string, error) {
	var all []hook.Stage
	for i := range bindings {
		_, stages, err := redactorOf(bindings[i].Config)
		if err != nil {
			return nil, err
		}
		all = append(all, stages...)
	}
	slices.Sort(all)
	var names []string
	for _, stage := range slices.Compact(all) {
		names = append(names, stage.String())
	}
	return names, nil
}

// running is the set of plugins that is bound in the pipeline or is about to be.
type running struct {
	bindings []pipeline.Binding
	bundles  map[digest]*bundle.Bundle
	loaded   map[loadKey]pipeline.Plugin
	fresh    []pipeline.Plugin    // the newly loaded ones of loaded
	problems map[pluginKey]string // why a plugin cannot run
}

// loadKey identifies a loaded plugin.
type loadKey struct {
	digest digest
	config string
}

// closeNew closes the newly loaded plugins of a set that will not run.
func (n *running) closeNew() {
	for _, p := range n.fresh {
		p.Close()
	}
}

// prepare loads the plugins that a state enables and reuses those already loaded. The plugin that
// the change is about must load and pass its fixtures; any other plugin that cannot be loaded is
// bound as missing.
func (r *Registry) prepare(ctx context.Context, s *state, about *plugin) (*running, error) {
	next := &running{bundles: map[digest]*bundle.Bundle{}, loaded: map[loadKey]pipeline.Plugin{}, problems: map[pluginKey]string{}}
	for i := range s.Plugins {
		p := &s.Plugins[i]
		if !p.Enabled {
			continue
		}
		bindings, err := r.bind(ctx, next, p, p == about)
		if err != nil && p == about {
			next.closeNew()
			return nil, err
		}
		if err != nil {
			bindings = missing(p, err)
			next.problems[p.key()] = bindings[0].Missing
		}
		next.bindings = append(next.bindings, bindings...)
	}
	return next, nil
}

// bind loads a plugin for each of its bindings.
func (r *Registry) bind(ctx context.Context, next *running, p *plugin, try bool) ([]pipeline.Binding, error) {
	v := p.active()
	var bindings []pipeline.Binding
	if p.Name == Redact {
		for i := range v.Bindings {
			b := &v.Bindings[i]
			redactor, stages, err := redactorOf(b.Config)
			if err != nil {
				return nil, err
			}
			bindings = append(bindings, pipeline.Binding{Redactor: redactor, Stages: stages, Tenants: b.Tenants,
				Prefixes: b.Prefixes})
		}
		return bindings, nil
	}
	unpacked := r.running.bundles[v.Digest] // avoids reading its archive again
	if unpacked == nil {
		var err error
		if unpacked, err = r.bundle(v); err != nil {
			return nil, err
		}
	}
	next.bundles[v.Digest] = unpacked
	if try {
		if err := r.try(ctx, unpacked, nil); err != nil {
			return nil, err
		}
	}
	for i := range v.Bindings {
		b := &v.Bindings[i]
		config, err := unpacked.Config(b.Config)
		if err != nil {
			return nil, err
		}
		loaded, err := r.load(ctx, next, unpacked, config)
		if err != nil {
			return nil, err
		}
		bindings = append(bindings, pipeline.Binding{Bundle: unpacked, Plugin: loaded, Config: config,
			Tenants: b.Tenants, Prefixes: b.Prefixes, Order: b.Order})
	}
	return bindings, nil
}

func (r *Registry) load(ctx context.Context, next *running, b *bundle.Bundle, config []byte) (pipeline.Plugin, error) {
	key := loadKey{b.Digest(), string(config)}
	if p := next.loaded[key]; p != nil {
		return p, nil
	}
	p := r.running.loaded[key]
	if p == nil {
		var err error
		if p, err = pipeline.Load(ctx, r.o.Loader, b, config); err != nil {
			return nil, err
		}
		next.fresh = append(next.fresh, p)
	}
	next.loaded[key] = p
	return p, nil
}

// try runs the fixtures of a bundle and loads it with the configurations of its bindings.
func (r *Registry) try(ctx context.Context, b *bundle.Bundle, bindings []binding) error {
	for i := range bindings {
		config, err := b.Config(bindings[i].Config)
		if err != nil {
			return err
		}
		p, err := pipeline.Load(ctx, r.o.Loader, b, config)
		if err != nil {
			return err
		}
		p.Close()
	}
	load := func(ctx context.Context, s plugins.Spec) (trial.Plugin, error) { return r.o.Loader.Load(ctx, s) }
	outcomes, err := trial.FixturesIn(ctx, load, b)
	if err != nil {
		return err
	}
	for _, o := range outcomes {
		if o.Problem != "" {
			return invalidf(b.Name(), "its fixture %s fails: %s; see ckptd plugin test", o.Fixture.Input, o.Problem)
		}
	}
	return nil
}

// missing binds a placeholder that fails wherever a plugin that cannot run should.
func missing(p *plugin, err error) []pipeline.Binding {
	v := p.active()
	reason := err.Error()
	if e, ok := errors.AsType[*hook.Error](err); ok {
		reason = e.Kind.Error()
		if e.Reason != "" {
			reason = e.Reason
		}
	}
	reason = fmt.Sprintf("it cannot be loaded (%s): install it again, roll it back, or disable it", reason)
	var bindings []pipeline.Binding
	for i := range v.Bindings {
		b := &v.Bindings[i]
		bindings = append(bindings, pipeline.Binding{Name: v.label(p.Name), Missing: reason, Stages: v.stages(),
			Tenants: b.Tenants, Prefixes: b.Prefixes})
	}
	return bindings
}

// run activates a prepared set.
func (r *Registry) run(next *running) {
	next.fresh = nil
	r.running = *next
	r.pipeline.Replace(next.bindings)
}

// describe returns the public view of a plugin in the active state.
func (r *Registry) describe(p *plugin) Plugin {
	v := p.active()
	d := Plugin{Tenant: p.Tenant, Name: p.Name, Version: v.Version, Digest: v.Digest, Description: v.Description,
		Stages: v.stages(), Capabilities: slices.Clone(v.Capabilities), Enabled: p.Enabled, Problem: r.running.problems[p.key()]}
	for _, b := range v.Bindings {
		d.Bindings = append(d.Bindings, Binding{slices.Clone(b.Tenants), slices.Clone(b.Prefixes), b.Order,
			slices.Clone([]byte(b.Config))})
	}
	for i := range p.Versions {
		w := &p.Versions[i]
		d.Versions = append(d.Versions, Version{w.Version, w.Digest, w.Installed, w.Signer, i == p.Active})
	}
	for _, stat := range r.pipeline.Stats() {
		if p.Enabled && stat.Plugin == v.label(p.Name) {
			d.Calls, d.Errors, d.Suspended = d.Calls+stat.Calls, d.Errors+stat.Errors, d.Suspended || stat.Suspended
		}
	}
	return d
}
