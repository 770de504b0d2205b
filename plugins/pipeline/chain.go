package pipeline

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins/bundle"
)

// chain implements hook.Chain. It keeps its set from being released.
type chain struct {
	pipeline *Pipeline
	set      *bindingSet
	stage    hook.Stage
	links    []*link
}

// Identities lists the hooks that are bound here, whichever items they see. A plugin with several
// consecutive hooks appears once.
func (c *chain) Identities() []hook.Identity {
	ids := make([]hook.Identity, 0, len(c.links))
	for _, l := range c.links {
		ids = append(ids, l.identity)
	}
	return slices.Compact(ids)
}

// Run passes the items through every hook.
func (c *chain) Run(ctx context.Context, call *hook.Call) error {
	defer runtime.KeepAlive(c.set)
	r := chainRun{ctx: ctx, chain: c, call: call, links: c.links}
	if c.stage == hook.Migrate {
		step := bundle.Migration{Kind: call.Migrate.Kind, From: call.Migrate.From, To: call.Migrate.To}
		r.links = c.migrating(step)
		if len(r.links) == 0 {
			return &hook.Error{Kind: hook.ErrUnavailable, Stage: c.stage,
				Reason: fmt.Sprintf("no plugin migrates %.80q from %d to %d: install one that does",
					step.Kind, step.From, step.To)}
		}
	}
	if c.stage == hook.PreSave {
		if err := r.names(); err != nil {
			return err
		}
	}
	for i := range call.Items {
		if err := r.item(&call.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// migrating returns the hooks of the first plugin that implements a step, plus the redactor if it
// is bound here.
func (c *chain) migrating(step bundle.Migration) []*link {
	var plugin *Binding
	var found []*link
	for _, l := range c.links {
		if l.shared != nil && plugin == nil && slices.Contains(l.binding.Bundle.Manifest.Migrations, step) {
			plugin = l.binding
		}
		if plugin != nil && (l.shared == nil || l.binding == plugin) {
			found = append(found, l)
		}
	}
	return found
}

// chainRun is a single run of a chain.
type chainRun struct {
	ctx   context.Context
	chain *chain
	call  *hook.Call
	links []*link
	meta  metas
}

// names passes the names of items, which are stored unchanged, to every redactor.
func (r *chainRun) names() error {
	if r.redactor() == nil {
		return nil
	}
	names := r.call.Names
	for i := range r.call.Items {
		if it := &r.call.Items[i]; it.Kind == hook.Channel || it.Kind == hook.Write {
			names = append(names, hook.Name{What: "name of a " + it.Kind.String(), Text: it.Name}, hook.Name{What: "type of a " + it.Kind.String(), Text: it.Type})
		}
	}
	for _, l := range r.links {
		if l.binding.Redactor == nil {
			continue
		}
		if e, ok := errors.AsType[*hook.Error](l.binding.Redactor.all.Names(r.ctx, names)); ok {
			e.Stage = r.chain.stage
			return e
		}
	}
	return nil
}

// item passes an item through the hooks.
func (r *chainRun) item(it *hook.Item) error {
	r.meta.of(it)
	for _, l := range r.links {
		if it.Dropped {
			return nil
		}
		if err := r.ctx.Err(); err != nil {
			return r.fail(l, it, &hook.Error{Kind: hook.ErrTimeout, Reason: err.Error()})
		}
		var err error
		switch {
		case l.binding.Redactor != nil:
			err = r.redact(l, it)
		case l.hook.Takes(it.Kind, it.Name, payloadType(it)):
			err = r.plugin(l, it)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ended is a timeout caused by the caller's context.
type ended struct {
	timeout *hook.Error
	cause   error
}

func (e *ended) Error() string   { return e.timeout.Error() }
func (e *ended) Unwrap() []error { return []error{e.timeout, e.cause} }

// redact runs the built-in redactor on an item.
func (r *chainRun) redact(l *link, it *hook.Item) error {
	start := time.Now()
	findings, err := l.binding.Redactor.redactItem(r.ctx, it, r.call.PseudonymKey)
	if err != nil {
		err = r.fail(l, it, err)
	}
	r.call.Findings = append(r.call.Findings, findings...)
	p := r.chain.pipeline
	p.redacts.count(err)
	r.observe(Event{Plugin: redactName, Kind: it.Kind, Err: kindOf(err), Took: time.Since(start), Findings: countByRule(findings)})
	return err
}

// plugin runs a plugin on an item, unless it is suspended.
func (r *chainRun) plugin(l *link, it *hook.Item) error {
	p := r.chain.pipeline
	tenant := r.call.Place.Tenant
	circuit := &l.shared.circuit
	if wait, ok := circuit.allow(tenant, p.o.Now()); !ok {
		if l.hook.FailOpen {
			return nil
		}
		return r.fail(l, it, &hook.Error{Kind: hook.ErrUnavailable, Reason: fmt.Sprintf(
			"it failed %d times in a row and is suspended for %v: repair or disable it",
			circuit.failures, wait.Round(time.Millisecond))})
	}
	before := *it
	i := invocation{run: r, link: l, item: it}
	start := time.Now()
	err := i.do()
	took := time.Since(start)
	if err != nil {
		err = r.fail(l, it, err)
	}
	l.shared.count(err)
	switch {
	case err == nil, errors.Is(err, hook.ErrRejected):
		circuit.succeeded(tenant)
	case r.ctx.Err() != nil, errors.Is(err, hook.ErrLimit): // the caller gave up, or the item is too large
		circuit.dunno(tenant)
	default:
		circuit.failed(tenant, p.o.Now())
	}
	r.call.Fuel += i.fuel
	if err == nil {
		r.call.Findings = append(r.call.Findings, i.findings...)
	}
	var found map[string]int
	if len(i.findings) > 0 {
		found = map[string]int{"": 0} // a plugin's rule names could contain text of the item
		for _, f := range i.findings {
			found[""] += f.Count
		}
	}
	r.observe(Event{Plugin: l.name, Kind: it.Kind, Err: kindOf(err), Fuel: i.fuel, Took: took, Findings: found,
		Suspended: circuit.suspended()})
	if err != nil && l.hook.FailOpen && r.ctx.Err() == nil && !errors.Is(err, hook.ErrRejected) {
		*it = before
		return nil
	}
	return err
}

func (r *chainRun) observe(e Event) {
	if f := r.chain.pipeline.o.Observe; f != nil {
		e.Stage = r.chain.stage
		f(e)
	}
}

func (c *counter) count(err error) {
	c.calls.Add(1)
	if err != nil && !errors.Is(err, hook.ErrRejected) {
		c.errors.Add(1)
	}
}

// kindOf returns the kind, one of package hook, of an error.
func kindOf(err error) error {
	if err == nil {
		return nil
	}
	for _, kind := range []error{hook.ErrRejected, hook.ErrTimeout, hook.ErrFuel, hook.ErrTrap, hook.ErrLimit,
		hook.ErrUnavailable, hook.ErrInvalid} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return hook.ErrFailed
}

// fail adds the hook and the item to an error. It discards an error that isn't from package hook,
// and the text of an error that a plugin itself reported.
func (r *chainRun) fail(l *link, it *hook.Item, err error) error {
	out := hook.Error{Kind: hook.ErrFailed, Reason: "it could not run"}
	if e, ok := errors.AsType[*hook.Error](err); ok {
		out = *e
	}
	if out.Plugin != redactName { // a plugin can call the redactor, whose errors already name it
		out.Plugin = l.name
	}
	out.Stage, out.Item = r.chain.stage, nameOf(it)
	if r.ctx.Err() != nil && out.Kind == hook.ErrTimeout {
		return &ended{&out, r.ctx.Err()}
	}
	return &out
}

// payloadType returns the type of the payload that a plugin gets for an item.
func payloadType(it *hook.Item) string {
	if it.Kind == hook.Label {
		return "json"
	}
	return it.Type
}

// isJSON and isText report whether the bytes of a type are JSON, or at least text.
func isJSON(typ string) bool {
	return typ == "json" || typ == "application/json" || strings.HasSuffix(typ, "+json")
}

func isText(typ string) bool { return isJSON(typ) || typ == "text" || strings.HasPrefix(typ, "text/") }

// sanitized returns the part of a plugin's findings that is safe to report: short printable ASCII
// names, and a limited number.
func sanitized(findings []hook.Finding, item string) []hook.Finding {
	const most = 1000
	if len(findings) > most {
		findings = findings[:most]
	}
	out := make([]hook.Finding, len(findings))
	for i, f := range findings {
		out[i] = hook.Finding{Rule: printable(f.Rule, 64), Path: printable(f.Path, 256), Item: item, Count: max(0, f.Count)}
	}
	return out
}

func printable(text string, most int) string {
	if len(text) > most || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		return ""
	}
	return text
}
