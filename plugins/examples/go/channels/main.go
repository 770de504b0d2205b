// Command channels is a step of a migration: from version 2 on, the channel msgs is called
// messages. It also implements the way back, for a host that has to be downgraded.
package main

import (
	"bytes"

	"github.com/ckptd/ckptd/plugins/pdk"
	"github.com/ckptd/ckptd/plugins/pdk/scan"
)

//go:wasmexport on_migrate
func onMigrate(from, to int64) int32 { return pdk.Migrate(from, to, migrate) }

func main() {}

// migrate gets a whole state: {"channels": {NAME: VALUE, …}, "types": {NAME: TYPE, …}, …}.
func migrate(in *pdk.Input, from, to uint64) ([]byte, error) {
	switch {
	case from == 1 && to == 2:
		return rename(in.Payload, "msgs", "messages")
	case from == 2 && to == 1:
		return rename(in.Payload, "messages", "msgs")
	}
	return nil, pdk.Fail(16, "this step is between the versions 1 and 2")
}

// rename renames a channel in place and leaves every other byte unchanged. A state without the
// channel is left as it is.
func rename(state []byte, old, name string) ([]byte, error) {
	out := bytes.Clone(state)
	for _, list := range []string{"types", "channels"} {
		members := scan.Member(out, list)
		if scan.Member(members, name) != nil {
			return nil, pdk.Fail(17, "there is a channel "+name+" already")
		}
		for key := range scan.Members(members) {
			if k, ok := scan.Unquote(key); ok && string(k) == old {
				at := scan.Offset(out, key)
				out = append(scan.AppendQuote(out[:at:at], []byte(name)), out[at+len(key):]...)
				break
			}
		}
	}
	if bytes.Equal(out, state) {
		return nil, nil
	}
	return out, nil
}
