package pdk

import "github.com/ckptd/ckptd/plugins/pdk/scan"

// Kind is what the payload is: "channel", "write", "meta", "label", "blob" or "memory".
func (in *Input) Kind() string { return in.text("kind") }

// Name is the name of the channel, or the key of the label.
func (in *Input) Name() string { return in.text("name") }

// Type is the type tag of the payload: "json", "text", "msgpack", …
func (in *Input) Type() string { return in.text("type") }

func (in *Input) text(key string) string {
	s, _ := scan.Unquote(scan.Member(in.Meta, key))
	return string(s)
}
