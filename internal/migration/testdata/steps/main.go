// Command steps is the migration of the airline agents from version 1 to 4, as a plugin.
package main

import (
	"bytes"
	"encoding/json"

	"github.com/ckptd/ckptd/plugins/pdk"
)

//go:wasmexport on_migrate
func onMigrate(from, to int64) int32 { return pdk.Migrate(from, to, migrate) }

func main() {}

func migrate(in *pdk.Input, from, to uint64) ([]byte, error) {
	var doc map[string]json.RawMessage
	var channels map[string]json.RawMessage
	if json.Unmarshal(in.Payload, &doc) != nil || json.Unmarshal(doc["channels"], &channels) != nil {
		return nil, pdk.Fail(1, "this is not a state")
	}
	switch to {
	case 2:
		channels["history"] = channels["messages"]
		delete(channels, "messages")
	case 3:
		var turns []json.RawMessage
		if json.Unmarshal(channels["history"], &turns) != nil {
			return nil, pdk.Fail(2, "the history is not an array")
		}
		channels["history"] = join(map[string]json.RawMessage{"turns": channels["history"], "count": join(len(turns))})
	case 4:
		var history map[string]json.RawMessage
		json.Unmarshal(channels["history"], &history)
		if history["tone"] == nil {
			history["tone"] = join("plain")
		}
		channels["history"] = join(history)
		doc["labels"] = join(map[string]string{"origin": "tau"})
	}
	doc["channels"] = join(channels)
	return join(doc), nil
}

func join(v any) json.RawMessage {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.Encode(v)
	return bytes.TrimSpace(out.Bytes())
}
