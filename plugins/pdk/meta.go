package pdk

import "github.com/ckptd/ckptd/plugins/pdk/scan"

// Kind is the kind of the payload: "channel", "write", "meta", "label", "blob" or "memory".
func (in *Input) Kind() string { return in.text("kind") }

// Name is the channel name or the label key.
func (in *Input) Name() string { return in.text("name") }

// Type is the type tag of the payload: "json", "text", "msgpack", …
func (in *Input) Type() string { return in.text("type") }

func (in *Input) text(key string) string {
	s, _ := scan.Unquote(scan.Member(in.Meta, key))
	return string(s)
}
