package worker

import (
	"context"
	"errors"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins"
)

// exchange is one call in a worker, as seen by the parent.
type exchange struct {
	ctx    context.Context // done at the call's deadline
	plugin *Plugin
	call   call
	limits plugins.Limits // never zero

	result  *plugins.Result
	failed  *hook.Error // the worker's report of a failure
	refused error       // why the plugin was refused an answer
}

func (x *exchange) operation() operation {
	return operation{
		number: x.call.number, limit: x.limits.Call, kind: kindCall, fields: x.call.build(), data: x.call.Payload,
		want: kindDone, size: x.size(), parse: x.parse, asks: x.asks, answer: x.answer,
	}
}

// size is the maximum size of a result.
func (x *exchange) size() int64 {
	const finding, line = 2*maxText + 32, 32
	l := &x.limits
	return l.Output + maxFindings*finding + int64(l.LogLines)*int64(3*l.LogLine+line) + 8*maxText
}

func (x *exchange) parse(body []byte) (err error) {
	r, failed, err := parseDone(body, x.call.number, x.limits, x.call.Item)
	if err == nil {
		x.result, x.failed = r, failed
	}
	return err
}

// asks allows a question if the plugin has the capability and the caller can answer it. The data of
// the question lies in the guest's memory, which bounds its size.
func (x *exchange) asks(k kind) int64 {
	can := x.plugin.spec.Capabilities
	if k == kindPutBlob && can.PutBlob && x.call.PutBlob != nil || k == kindRedact && can.RedactBuiltin && x.call.Redact != nil {
		return x.limits.Memory + 4*maxText
	}
	return noAnswer
}

// answer calls the caller's functions for the plugin. The plugin may learn of a limit and continue;
// any other error ends the call.
func (x *exchange) answer(k kind, body []byte) (data []byte, refused, err error) {
	a, err := parseAsk(body, x.call.number)
	if err != nil {
		return nil, nil, err
	}
	if k == kindRedact {
		data, refused = x.call.Redact(x.ctx, a.set, a.data)
		if x.ctx.Err() != nil && errors.Is(refused, hook.ErrTimeout) {
			refused = &hook.Error{Kind: hook.ErrTimeout, Reason: "it reached its time limit"}
		}
	} else {
		var id [32]byte
		id, refused = x.call.PutBlob(a.data)
		data = id[:]
	}
	if refused != nil {
		data = nil
		if k == kindRedact || !errors.Is(refused, hook.ErrLimit) {
			x.refused = refused
		}
	}
	return data, refused, nil
}
