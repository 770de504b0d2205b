package engine

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/ckptd/ckptd/hook"
)

// The state of a delta channel passes the export hooks, its value and its writes, and only in an
// export.
func TestExportHooksOfHistories(t *testing.T) {
	f, h := newHookFixture(t)
	th := f.Thread(testRef("t"))
	save(t, th, logDraft("0", "base"))
	logWrite(t, th, "0", "w0")
	save(t, th, logDraft("1", ""))
	h.set(hook.Load, each("load", func(b []byte) []byte { return append([]byte("<"), b...) }))
	h.set(hook.Export, each("export", bytes.ToUpper))
	for export, want := range map[bool]string{false: "<base|<w0", true: "<BASE|<W0"} {
		cp, err := th.Load(t.Context(), At("1"), LoadOptions{HeadersOnly: true, History: []string{"log"}, Export: export})
		if err != nil {
			t.Fatal(err)
		}
		if got := renderHistory(&cp.Histories[0]); got != want {
			t.Errorf("export %v: %q, want %q", export, got, want)
		}
	}
	h.set(hook.Export, refusing(hook.ErrFuel))
	if _, err := th.Load(t.Context(), At("1"), LoadOptions{HeadersOnly: true, History: []string{"log"}, Export: true}); err == nil {
		t.Error("hooks refuse the export, but it succeeds")
	}
}

// Hooks get the names of delta channels, which are stored unchanged.
func TestHooksSeeNamesOfDeltaChannels(t *testing.T) {
	f, h := newHookFixture(t)
	c := redacting("sk")
	h.set(hook.PreSave, c)
	_, err := f.Thread(testRef("t")).Save(context.Background(), Draft{Channels: []Change{jsonChannel("a", "1")}, Delta: []string{"sk-1", "log"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sk-1", "log"} {
		if !slices.ContainsFunc(c.seen[0].Names, func(n hook.Name) bool { return n.Text == name }) {
			t.Errorf("the hooks did not get %q: %v", name, c.seen[0].Names)
		}
	}
}
