package meter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/ckptd/ckptd/plugins/meter"
)

// machine runs metered modules like a host: it grants fuel in slices.
type machine struct {
	rt      wazero.Runtime
	slice   int64
	limit   int64 // of fuel, for runs after a reset
	granted int64
	refills int
	late    int64 // the maximum used beyond a slice
}

var errFuel = errors.New("out of fuel")

// newMachine returns a machine that compiles or interprets.
func newMachine(t testing.TB, config wazero.RuntimeConfig) *machine {
	ctx := context.Background()
	m := &machine{rt: wazero.NewRuntimeWithConfig(ctx, config), slice: 50_000, limit: 1 << 40}
	t.Cleanup(func() { m.rt.Close(ctx) })
	_, err := m.rt.NewHostModuleBuilder(meter.RefillModule).NewFunctionBuilder().
		WithGoFunction(api.GoFunc(m.refill), []api.ValueType{api.ValueTypeI64}, []api.ValueType{api.ValueTypeI64}).
		Export(meter.RefillName).Instantiate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// refill is called with the remaining fuel, which is negative.
func (m *machine) refill(_ context.Context, stack []uint64) {
	used := m.granted - int64(stack[0])
	if used > m.limit {
		panic(errFuel)
	}
	m.refills++
	m.late = max(m.late, used-m.granted)
	m.granted = min(m.limit, used+m.slice)
	stack[0] = uint64(m.granted - used)
}

// instantiate compiles and instantiates a module, metered or not.
func (m *machine) instantiate(t testing.TB, bin []byte) api.Module {
	ctx := context.Background()
	compiled, err := m.rt.CompileModule(ctx, bin)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := m.rt.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		t.Fatal(err)
	}
	return mod
}

// call runs an exported function with a reset meter and returns the fuel it used.
func (m *machine) call(mod api.Module, name string, args ...uint64) (results []uint64, fuel int64, err error) {
	global, metered := mod.ExportedGlobal(meter.FuelExport).(api.MutableGlobal)
	if metered {
		m.granted, m.refills, m.late = 0, 0, 0
		global.Set(0)
	}
	f := mod.ExportedFunction(name)
	if f == nil {
		return nil, 0, fmt.Errorf("no function %q", name)
	}
	results, err = f.Call(context.Background(), args...)
	if metered {
		fuel = m.granted - int64(global.Get())
	}
	return results, fuel, err
}
