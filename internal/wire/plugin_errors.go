package wire

import (
	"cmp"
	"errors"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/hook"
)

// pluginKind is the name on the wire of a way in which a hook fails.
type pluginKind struct {
	err  error
	name string
}

// pluginKinds has every one of them.
func pluginKinds() []pluginKind {
	return []pluginKind{{hook.ErrRejected, "rejected"}, {hook.ErrFailed, "failed"}, {hook.ErrFuel, "fuel"}, {hook.ErrTimeout, "timeout"}, {hook.ErrTrap, "trap"},
		{hook.ErrLimit, "limit"}, {hook.ErrUnavailable, "unavailable"}, {hook.ErrInvalid, "invalid"}}
}

// PluginKind names the way in which a hook failed, such as timeout; "" for an error that is none of
// a hook's.
func PluginKind(err error) string {
	for _, k := range pluginKinds() {
		if errors.Is(err, k.err) {
			return k.name
		}
	}
	return ""
}

// PluginUnfit reports whether an error is about a plugin that cannot be installed as it is, and not
// about one at work.
func PluginUnfit(err error) bool {
	e, ok := errors.AsType[*hook.Error](err)
	return ok && e.Stage == 0 && !errors.Is(err, engine.ErrRejected) && e.Kind != hook.ErrRejected && e.Kind != hook.ErrUnavailable
}

// packPluginError makes the message of a hook's error, nil for another one.
func packPluginError(err error) *ckptdv1.PluginError {
	kind := PluginKind(err)
	if kind == "" {
		return nil
	}
	m := &ckptdv1.PluginError{Kind: kind}
	if e, ok := errors.AsType[*hook.Error](err); ok {
		m.Plugin, m.Item, m.Code, m.Reason = toUTF8(e.Plugin), toUTF8(e.Item), e.Code, toUTF8(e.Reason)
		if e.Stage != 0 {
			m.Stage = e.Stage.String()
		}
	}
	return m
}

// rejection is the error of hooks that did not let something in or out.
type rejection struct{ by *hook.Error }

func (r rejection) Error() string   { return r.by.Error() }
func (r rejection) Unwrap() []error { return []error{engine.ErrRejected, r.by} }

// unpackPluginError is the inverse of packPluginError. The reason is enough for an unknown kind.
func unpackPluginError(d *ckptdv1.ErrorDetail) error {
	m := d.GetPlugin()
	e := &hook.Error{Plugin: m.GetPlugin(), Item: m.GetItem(), Code: m.GetCode(), Reason: m.GetReason()}
	e.Stage, _ = hook.ParseStage(m.GetStage())
	for _, k := range pluginKinds() {
		if k.name == m.GetKind() {
			e.Kind = k.err
		}
	}
	for _, row := range table {
		if row.Reason == d.GetReason() {
			e.Kind = cmp.Or(e.Kind, row.Err)
		}
	}
	if d.GetReason() == ckptdv1.Reason_REASON_PLUGIN_INVALID && PluginUnfit(e) {
		return e
	}
	return rejection{e}
}
