package plugins_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/plugins"
)

// goGuest builds a reactor for wasip1 from testdata, once for all tests.
var goGuest = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "ckptd-guest-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "guest.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-trimpath", "-o", out, ".")
	cmd.Dir = filepath.Join("testdata", "guest")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=", "GOWORK=off")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the guest: %w: %s", err, msg)
	}
	return os.ReadFile(out)
})

func buildGo(t testing.TB) []byte {
	t.Helper()
	if testing.Short() {
		t.Skip("builds a Go program")
	}
	bin, err := goGuest()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

var guests = []struct {
	name string
	bin  func(testing.TB) []byte
}{
	{"small", func(testing.TB) []byte { return wasmtest.Echo() }},
	{"go", buildGo},
}

func BenchmarkIdentity(b *testing.B) {
	for _, guest := range guests {
		b.Run(guest.name, func(b *testing.B) {
			p := load(b, newHost(b, plugins.Options{}), plugins.Spec{Binary: guest.bin(b)})
			for _, size := range []int{1 << 10, 100 << 10, 1 << 20} {
				in := bytes.Repeat([]byte("x"), size)
				b.Run(fmt.Sprintf("%dkB", size>>10), func(b *testing.B) {
					b.SetBytes(int64(size))
					b.ReportAllocs()
					for b.Loop() {
						if _, err := p.Call(context.Background(), &plugins.Call{Stage: hook.PreSave, Payload: in}); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, guest := range guests {
		bin := guest.bin(b)
		b.Run(guest.name+"/compiled", func(b *testing.B) {
			for b.Loop() {
				h := newHost(b, plugins.Options{})
				load(b, h, plugins.Spec{Binary: bin})
				if err := h.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(guest.name+"/cached", func(b *testing.B) {
			o := plugins.Options{CacheDir: filepath.Join(b.TempDir(), "cache"), CacheKey: [32]byte{1}}
			for b.Loop() {
				h := newHost(b, o)
				load(b, h, plugins.Spec{Binary: bin})
				if err := h.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFresh measures a call in a new instance that ends in a trap.
func BenchmarkFresh(b *testing.B) {
	for name, call := range map[string]*plugins.Call{
		"small": {Stage: hook.PreSave},
		"go":    {Stage: hook.Load, Payload: []byte("exit")},
	} {
		b.Run(name, func(b *testing.B) {
			bin := wasmtest.Trap()
			if name == "go" {
				bin = buildGo(b)
			}
			p := load(b, newHost(b, plugins.Options{}), plugins.Spec{Binary: bin})
			for b.Loop() {
				if _, err := p.Call(context.Background(), call); err == nil {
					b.Fatal("no error")
				}
			}
		})
	}
}
