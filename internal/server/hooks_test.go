package server

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/internal/access"
)

// troubled is hooks that fail at one stage, in words that hold what they were given.
type troubled struct {
	kind atomic.Pointer[error]
	at   atomic.Int32 // stage
}

func (h *troubled) For(stage hook.Stage, _, _ string) (hook.Chain, error) {
	if int32(stage) != h.at.Load() || h.kind.Load() == nil {
		return nil, nil
	}
	return h, nil
}

func (*troubled) Identities() []hook.Identity { return []hook.Identity{{Name: "troubled@1.0.0"}} }

func (h *troubled) Run(_ context.Context, c *hook.Call) error {
	e := &hook.Error{Kind: *h.kind.Load(), Plugin: "troubled@1.0.0", Stage: hook.Stage(h.at.Load())}
	for i := range c.Items {
		c.Findings = append(c.Findings, hook.Finding{Rule: string(c.Items[i].Data), Path: "/" + string(c.Items[i].Data), Item: c.Items[i].Name, Count: 1})
		e.Item, e.Reason = c.Items[i].Kind.String()+" "+c.Items[i].Name, "cannot take "+string(c.Items[i].Data)
	}
	return e
}

// TestNothingTellingOfHooks lets hooks fail in every way and with words that no hook should use: a
// plugin was written by anyone. The caller is told; logs, metrics, traces and the audit log have
// which plugin and how, and nothing of the state.
func TestNothingTellingOfHooks(t *testing.T) {
	b, s, _ := newWatchedBed(t)
	m := markers{}
	h := &troubled{}
	b.stop()
	b.opts.Hooks = h
	b.start()
	defer func() { h.kind.Store(nil) }()
	c := b.checkpoints(b.token(access.Everything()))
	state, channel, label := m.mark("state"), m.mark("channel"), m.mark("label")
	save := &ckptdv1.SaveRequest{Ref: ref(m.mark("thread")), Draft: &ckptdv1.Draft{Labels: &ckptdv1.Labels{Labels: map[string]string{"k": label}}, Channels: []*ckptdv1.Change{
		{Name: channel, Type: "text", Content: &ckptdv1.Change_Text{Text: state}}}}}
	mustSave(t, c, save.GetRef(), save.GetDraft())
	for _, kind := range []error{hook.ErrRejected, hook.ErrFailed, hook.ErrFuel, hook.ErrTimeout, hook.ErrTrap, hook.ErrLimit, hook.ErrUnavailable, hook.ErrInvalid} {
		h.kind.Store(&kind)
		h.at.Store(int32(hook.PreSave))
		_, err := c.Save(t.Context(), connect.NewRequest(save))
		packed, ok := errors.AsType[*connect.Error](err)
		if !ok || !strings.Contains(err.Error(), "troubled@1.0.0") || packed.Code() == connect.CodeInternal {
			t.Errorf("%v is answered with %v", kind, err)
		}
		batch, err := c.SaveBatch(t.Context(), connect.NewRequest(&ckptdv1.SaveBatchRequest{Saves: []*ckptdv1.SaveRequest{save}}))
		if err != nil || batch.Msg.GetResults()[0].GetError().GetDetail().GetPlugin().GetPlugin() != "troubled@1.0.0" {
			t.Errorf("%v in a batch: %v, %v", kind, batch, err)
		}
		if _, err = c.SetLabels(t.Context(), connect.NewRequest(&ckptdv1.SetLabelsRequest{Ref: save.GetRef(), Labels: map[string]string{"other": label}})); err == nil {
			t.Errorf("%v: labels pass", kind)
		}
		if _, err = c.PutWrites(t.Context(), connect.NewRequest(&ckptdv1.PutWritesRequest{Ref: save.GetRef(), CheckpointId: "c", Task: "t",
			Writes: []*ckptdv1.Write{{Channel: channel, Type: "text", Content: &ckptdv1.Write_Text{Text: state}}}})); err == nil {
			t.Errorf("%v: writes pass", kind)
		}
		for _, stage := range []hook.Stage{hook.Load, hook.Export} {
			h.at.Store(int32(stage))
			if _, err = c.Load(t.Context(), connect.NewRequest(&ckptdv1.LoadRequest{Ref: save.GetRef(), Export: true})); err == nil {
				t.Errorf("%v: a state passes %v", kind, stage)
			}
		}
	}
	h.kind.Store(nil)
	res, err := c.List(t.Context(), connect.NewRequest(&ckptdv1.ListRequest{Ref: save.GetRef()}))
	must(t, err)
	n := 0
	for res.Receive() {
		n += len(res.Msg().GetCheckpoints())
	}
	if must(t, res.Err()); n != 1 {
		t.Errorf("%d checkpoints are there, of which one was accepted", n)
	}
	for sink, text := range s.texts(t) {
		if found := m.found(text); len(found) > 0 {
			t.Errorf("the %s have %q", sink, found)
		}
		if sink == "logs" && !bytes.Contains(text, []byte(`"plugin":"troubled@1.0.0","failure":"fuel"`)) {
			t.Error("the logs do not say which plugin failed, and how")
		}
	}
}

// explosive is hooks that panic at a save of a state that says so.
type explosive struct{}

func (h explosive) For(stage hook.Stage, _, _ string) (hook.Chain, error) {
	if stage != hook.PreSave {
		return nil, nil
	}
	return h, nil
}

func (explosive) Identities() []hook.Identity { return []hook.Identity{{Name: "explosive@1.0.0"}} }

func (explosive) Run(_ context.Context, c *hook.Call) error {
	for i := range c.Items {
		if string(c.Items[i].Data) == "boom" {
			panic("a state that nobody thought of")
		}
	}
	return nil
}

// A save of a batch that panics, in a goroutine of its own, ends neither the process nor the other
// saves.
func TestPanicInABatch(t *testing.T) {
	b := newBed(t, Limits{})
	b.stop()
	b.opts.Hooks = explosive{}
	b.start()
	c := b.checkpoints("")
	batch := &ckptdv1.SaveBatchRequest{}
	for _, state := range []string{"a", "boom", "b"} {
		batch.Saves = append(batch.Saves, &ckptdv1.SaveRequest{Ref: ref("t-" + state), Draft: draft(state)})
	}
	res, err := c.SaveBatch(t.Context(), connect.NewRequest(batch))
	must(t, err)
	for i, r := range res.Msg.GetResults() {
		if saved := r.GetCheckpoint() != nil; saved == (i == 1) {
			t.Errorf("save %d: %v", i, r)
		}
	}
	if e := res.Msg.GetResults()[1].GetError(); strings.Contains(e.String(), "nobody") {
		t.Errorf("the caller is told %v", e)
	}
}
