package migration

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/backend/badger"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine"
)

// BenchmarkDryRun tries three jq steps on the newest states of many threads, about 20 kB each:
// 2,000 of them, or as many as CKPTD_THREADS says. The store is made in CKPTD_BENCH_DIR, if that is
// set, and used again from there, by ckptd --data DIR/data --user bench too.
func BenchmarkDryRun(b *testing.B) {
	threads, err := strconv.Atoi(cmp.Or(os.Getenv("CKPTD_THREADS"), "2000"))
	if err != nil {
		b.Fatal(err)
	}
	dir := cmp.Or(os.Getenv("CKPTD_BENCH_DIR"), b.TempDir())
	sets := registry(b, threeSteps)
	s := openFiles(b, dir, func(_, kind string) *set { return sets.Set(kind) })
	defer s.Close()
	fill(b, s, threads)
	j := New(s, filepath.Join(dir, "data.migrations", "jobs"), func(_, kind string) *set { return sets.Set(kind) })
	b.ResetTimer()
	for b.Loop() {
		report, err := j.DryRun(b.Context(), Spec{Scope: Scope{Tenant: "default"}}, false, RunOptions{})
		if err != nil || report.Failed > 0 || report.Migrated != threads {
			b.Fatalf("%+v, %v", report, err)
		}
	}
	b.ReportMetric(float64(threads)*float64(b.N)/b.Elapsed().Seconds(), "states/s")
	b.ReportMetric(float64(peakMemory())/1e6, "peak-MB")
}

// openFiles opens a store on disk, as the command does.
func openFiles(t testing.TB, dir string, sets func(tenant, kind string) *set) *engine.Store {
	t.Helper()
	data := filepath.Join(dir, "data")
	key, err := crypto.ReadKeyFile(data + ".key")
	fresh := err != nil
	if fresh {
		if key, err = crypto.GenerateRootKey(); err == nil {
			err = crypto.WriteKeyFile(data+".key", key)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	be, err := badger.Open(data, badger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := crypto.OpenFileKeystore(data+".keys", fresh)
	if err != nil {
		t.Fatal(err)
	}
	s, err := engine.Open(context.Background(), be, engine.Options{Root: key, Keystore: keys, Create: fresh, Migrations: sets})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fill saves what is missing of so many threads.
func fill(b *testing.B, s *engine.Store, threads int) {
	err := inParallel(b.Context(), 64, func(_ context.Context, hand func(int) error) error {
		have := 0
		for _, err := range s.User("default", "bench").Threads(b.Context(), engine.ThreadOptions{}) {
			if err != nil {
				return err
			}
			have++
		}
		for n := have; n < threads; n++ {
			if err := hand(n); err != nil {
				return err
			}
		}
		return nil
	}, func(ctx context.Context, n int) error {
		_, err := s.Thread(engine.Ref{Tenant: "default", User: "bench", Thread: fmt.Sprintf("t%07d", n)}).Save(ctx, engine.Draft{
			Kind: "support", SchemaVersion: 1, Channels: []engine.Change{{Name: "state", Type: "json", Data: conversation(uint64(n), 20_000)}}})
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
}

// conversation is a state of about so many bytes.
func conversation(seed uint64, size int) []byte {
	rng := rand.New(rand.NewPCG(seed, 1))
	words := strings.Fields("the flight from Boston to Denver was cancelled and I would like a refund or another seat please check reservation " +
		"number status passenger baggage insurance gold member agent transfer confirm payment method gift card certificate economy")
	var out strings.Builder
	out.WriteString(`{"user_pref": {"lang": "en"}, "customer": "Mia Li", "attempts": "3", "messages": [`)
	for i := 0; out.Len() < size; i++ {
		if i > 0 {
			out.WriteString(", ")
		}
		fmt.Fprintf(&out, `{"role": "user", "id": %d, "content": "`, rng.Uint32())
		for range 60 + rng.IntN(60) {
			out.WriteString(words[rng.IntN(len(words))])
			out.WriteByte(' ')
		}
		out.WriteString(`", "tool_calls": null}`)
	}
	out.WriteString("]}")
	return []byte(out.String())
}

// peakMemory is the most memory in bytes that the process has had, 0 if the system does not tell.
func peakMemory() int64 {
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			return kb << 10
		}
	}
	return 0
}
