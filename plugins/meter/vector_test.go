package meter_test

import (
	"testing"

	"github.com/tetratelabs/wazero"

	wt "github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/plugins/meter"
)

// TestVectors runs the functions of docs/metering.md.
func TestVectors(t *testing.T) {
	for _, v := range []struct {
		name string
		body wt.Code // of (i32)->i32, with an i32 local
		arg  uint64
		want uint64
		fuel int64
	}{
		{name: "constant", body: wt.I32Const(1), want: 1, fuel: 2},
	} {
		t.Run(v.name, func(t *testing.T) {
			m := wt.New()
			m.Memory(4, 4)
			m.Func("f", wt.Sig(wt.I32, wt.I32), wt.I32, v.body)
			out, err := meter.Rewrite(m.Bytes(), meter.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			ma := newMachine(t, wazero.NewRuntimeConfigInterpreter())
			got, fuel, err := ma.call(ma.instantiate(t, out.Binary), "f", v.arg)
			if err != nil {
				t.Fatal(err)
			}
			if got[0] != v.want || fuel != v.fuel {
				t.Errorf("f(%d) = %d for %d units, want %d for %d", v.arg, got[0], fuel, v.want, v.fuel)
			}
		})
	}
}
