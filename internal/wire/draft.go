package wire

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/types/known/durationpb"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
)

// PackDraft makes the message of a draft.
func PackDraft(d *engine.Draft) *ckptdv1.Draft {
	m := &ckptdv1.Draft{
		Id: d.ID, Parent: d.Parent, Root: d.Root, AllowDangling: d.AllowDangling, Branch: d.Branch, Generation: d.Generation,
		Step: d.Step, Status: d.Status, SchemaVersion: d.SchemaVersion, Keep: d.Keep, Kind: d.Kind,
		RunId: d.RunID, NoRun: d.NoRun, Delta: d.Delta, CalledFrom: d.CalledFrom,
	}
	if seq, ok := d.Expect.Head(); ok {
		m.ExpectHead = &seq
	}
	if d.Labels != nil {
		m.Labels = &ckptdv1.Labels{Labels: d.Labels}
	}
	if d.Meta != nil {
		meta := string(d.Meta)
		m.Meta = &meta
	}
	if d.Blobs != nil {
		m.Blobs = &ckptdv1.Blobs{Ids: packBlobs(d.Blobs)}
	}
	if d.TTL != 0 {
		m.Ttl = durationpb.New(d.TTL)
	}
	room := make([]ckptdv1.Change, len(d.Channels))
	m.Channels = make([]*ckptdv1.Change, len(d.Channels))
	for i := range d.Channels {
		packChange(&room[i], &d.Channels[i])
		m.Channels[i] = &room[i]
	}
	return m
}

func packChange(m *ckptdv1.Change, c *engine.Change) {
	m.Name, m.Type = c.Name, c.Type
	switch {
	case c.Remove:
		m.Content = &ckptdv1.Change_Remove{Remove: true}
	case c.Splices != nil:
		m.Content = &ckptdv1.Change_Splices{Splices: &ckptdv1.Splices{Base: uint64(c.Base), Replace: packSplices(c.Splices)}}
	case c.Base != 0:
		m.Content = &ckptdv1.Change_Splice{Splice: &ckptdv1.Splice{Base: uint64(c.Base), Prefix: uint64(c.Prefix), Suffix: uint64(c.Suffix),
			Content: &ckptdv1.Splice_Data{Data: c.Data}}}
	default:
		m.Content = &ckptdv1.Change_Data{Data: c.Data}
	}
}

func packSplices(splices []engine.Splice) []*ckptdv1.Replace {
	room := make([]ckptdv1.Replace, len(splices))
	ms := make([]*ckptdv1.Replace, len(splices))
	for i, s := range splices {
		m := &room[i]
		if m.From, m.To = uint64(s.From), uint64(s.To); len(s.Data) > 0 {
			m.Content = &ckptdv1.Replace_Data{Data: s.Data}
		}
		ms[i] = m
	}
	return ms
}

// UnpackDraft is the inverse of PackDraft.
func UnpackDraft(m *ckptdv1.Draft) (engine.Draft, error) {
	d := engine.Draft{
		ID: m.GetId(), Parent: m.GetParent(), Root: m.GetRoot(), AllowDangling: m.GetAllowDangling(), Branch: m.GetBranch(),
		Generation: m.GetGeneration(), Step: m.GetStep(), Status: m.GetStatus(), SchemaVersion: m.GetSchemaVersion(),
		RunID: m.GetRunId(), Keep: m.GetKeep(), TTL: m.GetTtl().AsDuration(), Kind: m.GetKind(), Delta: m.GetDelta(),
		NoRun: m.GetNoRun(), CalledFrom: m.GetCalledFrom(),
	}
	if m == nil {
		return d, nil
	}
	if m.ExpectHead != nil {
		d.Expect = engine.ExpectHead(m.GetExpectHead())
	}
	if m.Labels != nil {
		if d.Labels = m.GetLabels().GetLabels(); d.Labels == nil {
			d.Labels = map[string]string{}
		}
	}
	if m.Meta != nil {
		d.Meta = []byte(m.GetMeta())
	}
	if m.Blobs != nil {
		ids, err := unpackBlobs(m.GetBlobs().GetIds())
		if err != nil {
			return d, err
		}
		if d.Blobs = ids; ids == nil {
			d.Blobs = []engine.BlobID{}
		}
	}
	if n := len(m.GetChannels()); n > 0 {
		d.Channels = make([]engine.Change, n)
	}
	for i, c := range m.GetChannels() {
		if err := unpackChange(&d.Channels[i], c); err != nil {
			return d, err
		}
	}
	return d, nil
}

func unpackChange(c *engine.Change, m *ckptdv1.Change) error {
	c.Name, c.Type = m.GetName(), m.GetType()
	switch content := m.GetContent().(type) {
	case *ckptdv1.Change_Data:
		c.Data = content.Data
	case *ckptdv1.Change_Text:
		c.Data = []byte(content.Text)
	case *ckptdv1.Change_Remove:
		if c.Remove = content.Remove; !c.Remove {
			return fmt.Errorf("%w: channel %q: remove is false: omit it", engine.ErrInvalid, c.Name)
		}
	case *ckptdv1.Change_Splice:
		return unpackSplice(c, content.Splice)
	case *ckptdv1.Change_Splices:
		return unpackSplices(c, content.Splices)
	default:
		return fmt.Errorf("%w: channel %q has no content: set data, text, splice, splices or remove", engine.ErrInvalid, c.Name)
	}
	return nil
}

func unpackSplice(c *engine.Change, m *ckptdv1.Splice) error {
	if m.GetBase() == 0 {
		return fmt.Errorf("%w: channel %q: a splice needs the version of its base", engine.ErrInvalid, c.Name)
	}
	// The engine adds the two to the length of the data, so they must not be near the greatest int.
	if m.GetPrefix() > math.MaxInt32 || m.GetSuffix() > math.MaxInt32 {
		return fmt.Errorf("%w: channel %q: the splice keeps more bytes than the largest possible channel", engine.ErrInvalid, c.Name)
	}
	c.Base, c.Prefix, c.Suffix = engine.Version(m.GetBase()), int(m.GetPrefix()), int(m.GetSuffix())
	switch content := m.GetContent().(type) {
	case *ckptdv1.Splice_Data:
		c.Data = content.Data
	case *ckptdv1.Splice_Text:
		c.Data = []byte(content.Text)
	}
	return nil
}

func unpackSplices(c *engine.Change, m *ckptdv1.Splices) error {
	if m.GetBase() == 0 {
		return fmt.Errorf("%w: channel %q: splices need the version of their base", engine.ErrInvalid, c.Name)
	}
	if n := len(m.GetReplace()); n > engine.MaxSplices {
		return fmt.Errorf("%w: channel %q: %d splices, at most %d are allowed", engine.ErrInvalid, c.Name, n, engine.MaxSplices)
	}
	c.Base, c.Splices = engine.Version(m.GetBase()), make([]engine.Splice, len(m.GetReplace()))
	for i, r := range m.GetReplace() {
		if r.GetFrom() > math.MaxInt32 || r.GetTo() > math.MaxInt32 {
			return fmt.Errorf("%w: channel %q: splice %d reaches beyond the largest possible channel", engine.ErrInvalid, c.Name, i+1)
		}
		s := engine.Splice{From: int(r.GetFrom()), To: int(r.GetTo())}
		switch content := r.GetContent().(type) {
		case *ckptdv1.Replace_Data:
			s.Data = content.Data
		case *ckptdv1.Replace_Text:
			s.Data = []byte(content.Text)
		}
		c.Splices[i] = s
	}
	return nil
}
