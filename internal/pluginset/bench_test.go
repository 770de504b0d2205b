package pluginset

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/backend/badger"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/plugins/bundle"
	"github.com/ckptd/ckptd/plugins/examples"
)

// BenchmarkSave: durable saves of a state of 100 kB whose last 10 kB change, with what is
// installed, in turns; what each adds to a save without hooks is the median of the differences of
// the turns' p50.
func BenchmarkSave(b *testing.B) {
	const turn = 25
	var built examples.Builder
	plugin, err := bundle.Open(built.Bundle(b, "go/email"))
	if err != nil {
		b.Fatal(err)
	}
	redactor, email := &ckptdv1.InstallPluginRequest{Builtin: "redact"}, &ckptdv1.InstallPluginRequest{Archive: plugin.Archive()}
	names := []string{"none", "redactor", "go-plugin", "both"}
	var savers []func() time.Duration
	for _, what := range [][]*ckptdv1.InstallPluginRequest{nil, {redactor}, {email}, {email, redactor}} {
		savers = append(savers, saver(b, what))
	}
	rounds := make([][]float64, len(savers))
	for b.Loop() {
		for i, save := range savers {
			took := make([]float64, turn)
			for j := range took {
				took[j] = float64(save()) / 1e3
			}
			slices.Sort(took)
			rounds[i] = append(rounds[i], took[turn/2])
		}
	}
	median := func(list []float64) float64 {
		return slices.Sorted(slices.Values(list))[len(list)/2]
	}
	b.ReportMetric(median(rounds[0]), "none-µs")
	for i := 1; i < len(rounds); i++ {
		added := slices.Clone(rounds[i])
		for j := range added {
			added[j] -= rounds[0][j]
		}
		b.ReportMetric(median(added), names[i]+"-adds-µs")
	}
	b.ReportMetric(0, "ns/op")
}

// saver returns a function that makes one save on a store of its own and says how long it took.
func saver(b *testing.B, what []*ckptdv1.InstallPluginRequest) func() time.Duration {
	ctx, dir := b.Context(), b.TempDir()
	set := New(Options{Dir: filepath.Join(dir, "plugins")})
	check := func(err error) {
		if err != nil {
			b.Helper()
			b.Fatal(err)
		}
	}
	disk, err := badger.Open(filepath.Join(dir, "data"), badger.Options{})
	check(err)
	root, err := crypto.GenerateRootKey()
	check(err)
	keys, err := crypto.OpenFileKeystore(filepath.Join(dir, "keys"), true)
	check(err)
	st, err := engine.Open(ctx, disk, engine.Options{Root: root, Keystore: keys, Create: true, Hooks: set})
	check(err)
	b.Cleanup(func() { check(st.Close()); check(set.Close()) })
	set.Open(st.Upkeep())
	for _, m := range what {
		_, err := set.InstallPlugin(ctx, m)
		check(err)
	}
	message := func(i, n int) string {
		return fmt.Sprintf(`{"role": "tool", "id": %d, "content": %q}`, i, strings.Repeat("nothing to see in these words ", n/30))
	}
	before := "["
	for i := range 90 {
		before += message(i, 1000) + ", "
	}
	th := st.Thread(engine.Ref{Tenant: "acme", User: "alice", Thread: "bench"})
	n := 0
	var head *engine.Checkpoint
	return func() time.Duration {
		n++
		last := message(n, 10_000)
		d := engine.Draft{Channels: []engine.Change{{Name: "messages", Type: "json", Data: []byte(before + last + "]")}}}
		if head != nil {
			ch, _ := head.Channel("messages")
			d.Keep, d.Channels[0] = true, engine.Change{Name: "messages", Data: []byte(last), Base: ch.Version, Prefix: len(before), Suffix: 1}
		}
		start := time.Now()
		cp, err := th.Save(ctx, d)
		took := time.Since(start)
		check(err)
		head = cp
		return took
	}
}
