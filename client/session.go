package client

import (
	"cmp"
	"context"
	"errors"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/alike"
)

// Session saves one thread step by step and sends only the changed parts of each channel. It
// remembers the channels of the last saved or loaded checkpoint: one copy of the state. A channel
// that hooks changed is sent whole each time. Whatever the parent of a draft is, the checkpoint is
// the same as if the channels had been sent whole. A Session is for one goroutine at a time.
type Session struct {
	t    *Thread
	have map[string]engine.Channel
}

// Session begins a session that remembers nothing yet.
func (t *Thread) Session() *Session { return &Session{t: t} }

// Save is Thread.Save of a draft with whole channels: it compares each with the remembered content
// and sends the differences as splices. If the parent on the server is not the remembered one, it
// sends the channels again, whole.
func (s *Session) Save(ctx context.Context, d engine.Draft) (*engine.Checkpoint, error) {
	s.t.s.identify(&d) // both drafts are of one checkpoint
	whole := d.Channels
	d.Channels = s.splices(whole)
	cp, err := s.t.Save(ctx, d)
	if errors.Is(err, engine.ErrNeedFull) {
		d.Channels = whole
		cp, err = s.t.Save(ctx, d)
	}
	if err != nil {
		return nil, err
	}
	for _, c := range whole {
		if c.Base == 0 {
			s.remember(cp, c.Name, c.Data)
		} else { // the caller knew better
			delete(s.have, c.Name)
		}
	}
	s.forget(cp)
	return cp, nil
}

// splices turns whole channels into splices on those that are remembered.
func (s *Session) splices(whole []engine.Change) []engine.Change {
	changes := make([]engine.Change, len(whole))
	for i, c := range whole {
		if had, ok := s.have[c.Name]; ok && c.Base == 0 && !c.Remove {
			c.Type = cmp.Or(c.Type, "bytes") // in a splice that would be the type that the channel has
			c.Base = had.Version
			c.Splices, c.Data = engine.Splices(had.Data, c.Data), nil
		}
		changes[i] = c
	}
	return changes
}

// Load is Thread.Load, but remembered content is not transferred again. It loads all channels.
func (s *Session) Load(ctx context.Context, w engine.Which) (*engine.Checkpoint, error) {
	have := make([]engine.Channel, 0, len(s.have))
	for _, ch := range s.have {
		have = append(have, ch)
	}
	cp, err := s.t.LoadHave(ctx, w, have)
	if err != nil {
		return nil, err
	}
	for i := range cp.Channels {
		s.remember(cp, cp.Channels[i].Name, cp.Channels[i].Data)
	}
	s.forget(cp)
	return cp, nil
}

// remember takes note of the content that a channel has in cp. It copies only bytes that differ
// from the remembered ones.
func (s *Session) remember(cp *engine.Checkpoint, name string, data []byte) {
	ch, ok := cp.Channel(name)
	if !ok || ch.Rewritten || ch.Size != int64(len(data)) { // removed, or these are not the bytes that its version is of
		delete(s.have, name)
		return
	}
	if s.have == nil {
		s.have = map[string]engine.Channel{}
	}
	had := s.have[name].Data
	same := alike.Prefix(had, data)
	ch.Data = append(had[:same], data[same:]...)
	s.have[name] = ch
}

// forget drops the channels that are another's by now: those that were kept from a parent with
// another content.
func (s *Session) forget(cp *engine.Checkpoint) {
	for name, had := range s.have {
		if ch, ok := cp.Channel(name); !ok || ch.Version != had.Version {
			delete(s.have, name)
		}
	}
}
