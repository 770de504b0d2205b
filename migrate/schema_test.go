package migrate

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestSchemaAndNumbersOutOfRange: such a number in a state or schema used to make the library
// dereference a nil pointer.
func TestSchemaAndNumbersOutOfRange(t *testing.T) {
	for _, keyword := range []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"} {
		for _, number := range []string{"1e4000000", "-1e4000000", "1e-400000000"} {
			set := mustSet(t, map[string]string{"0002_a.jq": ".",
				"0002.schema.json": fmt.Sprintf(`{"properties":{"channels":{"properties":{"state":{"properties":{"attempts":{%q:3}}}}}}}`, keyword)})
			_, _, err := set.Migrate(t.Context(), jsonState(`{"attempts":`+number+`}`), 1, 2, false)
			if e, ok := errors.AsType[*StepError](err); !ok || e.Path != "/channels/state/attempts" || !strings.Contains(err.Error(), "out of range") {
				t.Errorf("%s of %s: %v", keyword, number, err)
			}
			if _, err := NewSchema("s.json", fmt.Appendf(nil, `{%q:%s}`, keyword, number)); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s %s: %v", keyword, number, err)
			}
		}
	}
	without := mustSet(t, map[string]string{"0002_a.jq": `.channels.state.b = 1`})
	got, _, err := without.Migrate(t.Context(), jsonState(`{"attempts":1e4000000}`), 1, 2, false)
	if err != nil || string(got.Channels[0].Data) != `{"attempts":1e4000000,"b":1}` {
		t.Errorf("without a schema: %s, %v", got.Channels, err)
	}
}
