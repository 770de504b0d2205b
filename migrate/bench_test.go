package migrate

import (
	"fmt"
	"strings"
	"testing"
)

// chat returns a state of about n bytes: a list of messages of 500 bytes.
func chat(n int) State {
	var b strings.Builder
	b.WriteString(`{"user_pref": {"lang": "en", "tz": 1.0}, "messages": [`)
	for i := 0; b.Len() < n; i++ {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, `{"role": "user", "id": %d, "content": %q, "meta": {"a": [1, 2.50, null], "ok": true}}`, i, strings.Repeat("some words \"quoted\" ", 20))
	}
	b.WriteString("]}")
	return State{Channels: []Channel{{Name: "state", Type: "json", Data: []byte(b.String())}}, Meta: []byte(`{"source": "loop"}`)}
}

func BenchmarkThreeSteps(b *testing.B) {
	set := mustSet(b, map[string]string{
		"0002_rename.jq":  `.channels.state |= (.preferences = .user_pref | del(.user_pref))`,
		"0003_split.jq":   `.channels.state |= (.lang = .preferences.lang | .tz = .preferences.tz | del(.preferences))`,
		"0004_default.jq": `.channels.state.tone //= "plain"`,
	})
	state := chat(20_000)
	b.SetBytes(int64(len(state.Channels[0].Data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := set.Migrate(b.Context(), state, 1, 4, false); err != nil {
			b.Fatal(err)
		}
	}
}
