package engine

import (
	"errors"
	"fmt"

	"github.com/ckptd/ckptd/codec"
)

// checkDraft checks everything about a draft that does not depend on its parent.
func (t *Thread) checkDraft(d *Draft) error {
	if err := t.ref.check(); err != nil {
		return err
	}
	for _, name := range [...]struct{ what, value string }{{"id", d.ID}, {"parent", d.Parent}, {"branch", d.Branch},
		{"status", d.Status}, {"run id", d.RunID}, {"kind", d.Kind}, {"id of the calling checkpoint", d.CalledFrom}} {
		if err := checkName(name.what, name.value, true); err != nil {
			return err
		}
	}
	if len(d.Labels) > codec.MaxLabels || len(d.Blobs) > codec.MaxBlobs || len(d.Channels) > codec.MaxChannels {
		return fmt.Errorf("%w: %d labels, %d blobs, %d channels; at most %d, %d, %d are allowed", ErrInvalid,
			len(d.Labels), len(d.Blobs), len(d.Channels), codec.MaxLabels, codec.MaxBlobs, codec.MaxChannels)
	}
	for k, v := range d.Labels {
		if err := errors.Join(checkName("label", k, false), checkName("value of a label", v, true)); err != nil {
			return err
		}
	}
	if d.CalledFrom != "" && t.ref.Namespace == "" {
		return fmt.Errorf("%w: CalledFrom needs a namespace: the unnamed one hangs on no checkpoint", ErrInvalid)
	}
	if d.NoRun && d.RunID != "" {
		return fmt.Errorf("%w: NoRun and RunID exclude each other", ErrInvalid)
	}
	if d.Root && d.Parent != "" {
		return fmt.Errorf("%w: Root and Parent exclude each other", ErrInvalid)
	}
	for i := range d.Channels {
		if err := t.checkChange(&d.Channels[i]); err != nil {
			return err
		}
	}
	if err := checkDelta(d.Delta); err != nil {
		return err
	}
	if name, twice := givenTwice(d.Channels); twice {
		return fmt.Errorf("%w: channel %q is given twice", ErrInvalid, name)
	}
	if len(d.Meta) > codec.MaxMeta {
		return &LimitError{"metadata", int64(len(d.Meta)), codec.MaxMeta}
	}
	return nil
}

func (t *Thread) checkChange(c *Change) error {
	if err := checkName("channel", c.Name, false); err != nil {
		return err
	}
	if err := checkName("type of a channel", c.Type, true); err != nil {
		return err
	}
	if err := c.checkSplices(); err != nil {
		return err
	}
	return t.s.checkSize(c.Name, c.given())
}

// checkDelta checks the names of delta channels.
func checkDelta(names []string) error {
	if len(names) > codec.MaxChannels {
		return fmt.Errorf("%w: %d delta channels, at most %d are allowed", ErrInvalid, len(names), codec.MaxChannels)
	}
	for _, name := range names {
		if err := checkName("delta channel", name, false); err != nil {
			return err
		}
	}
	return nil
}

// givenTwice finds a channel with two changes.
func givenTwice(changes []Change) (name string, twice bool) {
	if len(changes) <= fewChannels {
		for i := range changes {
			for j := range i {
				if changes[j].Name == changes[i].Name {
					return changes[i].Name, true
				}
			}
		}
		return "", false
	}
	seen := make(map[string]bool, len(changes))
	for i := range changes {
		if name := changes[i].Name; seen[name] {
			return name, true
		}
		seen[changes[i].Name] = true
	}
	return "", false
}

func (s *Store) checkSize(channel string, n int) error {
	if n < 0 || int64(n) > s.maxChannel {
		return &LimitError{fmt.Sprintf("channel %q", channel), int64(n), s.maxChannel}
	}
	return nil
}
