package migrate

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

var fence = regexp.MustCompile("(?ms)^```\\w+ (\\S+?)( \\(mended\\))?\n(.*?)^```$")

// example returns the set of docs/migrations.md, in its first or its mended form.
func example(t *testing.T, mended bool) *Set {
	t.Helper()
	page, err := os.ReadFile("../docs/migrations.md")
	if err != nil {
		t.Fatal(err)
	}
	fsys := fstest.MapFS{}
	for _, m := range fence.FindAllStringSubmatch(string(page), -1) {
		if m[2] == "" || mended {
			fsys[m[1]] = &fstest.MapFile{Data: []byte(m[3])}
		}
	}
	r, err := new(Reader).Read(t.Context(), fsys)
	if err != nil {
		t.Fatal(err)
	}
	return r.Set("support")
}

func TestWorkedExample(t *testing.T) {
	old := jsonState(`{"user_pref": {"lang": "en"}, "customer": "Mia Li", "attempts": "3", "messages": []}`)
	first := jsonState(`{"user_pref": {}, "customer": "Cher"}`)

	set := example(t, false)
	got, steps, err := set.Migrate(t.Context(), old, 1, 4, false)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"customer": {"family": "Li","given": "Mia"}, "attempts": 3, "messages": [], "preferences": {"lang": "en", "tone": "plain"}}`
	if text := string(got.Channels[0].Data); !mustOpen(t, got).Equal(mustOpen(t, jsonState(want))) {
		t.Errorf("state: %s", text)
	}
	var said []string
	for _, s := range steps {
		said = append(said, s.Description)
	}
	if diff := cmp.Diff([]string{"Rename user_pref to preferences.", "Split the name of the customer, and give every state a tone.",
		"Count attempts as a number."}, said); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if v, ok := set.Version("1.2.0"); !ok || v != 4 || set.Name(4) != "4 (1.2.0)" {
		t.Errorf("version 1.2.0 is %d, %v", v, ok)
	}

	_, _, err = set.Migrate(t.Context(), first, 1, 4, false)
	const mistake = `step 3 to 4 of "support" (support/0004_count_attempts.jq): tonumber cannot be applied to: null`
	if err == nil || !strings.HasSuffix(err.Error(), mistake) {
		t.Errorf("the mistake: %v", err)
	}
	page, _ := os.ReadFile("../docs/migrations.md")
	if !strings.Contains(string(page), mistake) {
		t.Error("docs/migrations.md does not show the mistake as it is")
	}
	got, _, err = example(t, true).Migrate(t.Context(), first, 1, 4, false)
	if err != nil || !strings.Contains(string(got.Channels[0].Data), `"attempts": 0`) {
		t.Errorf("mended: %s, %v", got.Channels, err)
	}
}
