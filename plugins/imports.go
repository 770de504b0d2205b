package plugins

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins/meter"
)

// ABI is the version of the contract in docs/plugins.md.
const ABI = 1

// Names of the host modules.
const (
	abiModule  = "ckptd_v1"
	wasiModule = "wasi_snapshot_preview1"
	envModule  = "env"
)

// hostFunc is a function that guests may import. In params and results, i is an i32 and I an i64.
type hostFunc struct {
	module, name    string
	params, results string
	call            func(e *env, stack []uint64)
}

// hostFuncs returns all of them, plus the meter's.
func hostFuncs() []hostFunc {
	return []hostFunc{
		{abiModule, "input_len", "i", "I", (*env).inputLen},
		{abiModule, "input_read", "iIii", "i", (*env).inputRead},
		{abiModule, "output_write", "ii", "i", (*env).outputWrite},
		{abiModule, "error_set", "iii", "", (*env).errorSet},
		{abiModule, "log", "iii", "", (*env).logLine},
		{abiModule, "finding", "iiiii", "", (*env).finding},
		{abiModule, "redact_builtin", "iiiiii", "i", (*env).redactBuiltin},
		{abiModule, "pseudonym", "iiii", "i", (*env).pseudonym},
		{abiModule, "blob_put", "iii", "i", (*env).blobPut},
		{wasiModule, "args_get", "ii", "i", (*env).nothing},
		{wasiModule, "args_sizes_get", "ii", "i", (*env).noStrings},
		{wasiModule, "environ_get", "ii", "i", (*env).nothing},
		{wasiModule, "environ_sizes_get", "ii", "i", (*env).noStrings},
		{wasiModule, "clock_res_get", "ii", "i", (*env).clockRes},
		{wasiModule, "clock_time_get", "iIi", "i", (*env).clockTime},
		{wasiModule, "fd_close", "i", "i", (*env).fdClose},
		{wasiModule, "fd_fdstat_get", "ii", "i", (*env).fdstat},
		{wasiModule, "fd_fdstat_set_flags", "ii", "i", (*env).nothing},
		{wasiModule, "fd_prestat_dir_name", "iii", "i", (*env).noFile},
		{wasiModule, "fd_prestat_get", "ii", "i", (*env).noFile},
		{wasiModule, "fd_read", "iiii", "i", (*env).fdRead},
		{wasiModule, "fd_seek", "iIii", "i", (*env).fdSeek},
		{wasiModule, "fd_write", "iiii", "i", (*env).fdWrite},
		{wasiModule, "poll_oneoff", "iiii", "i", (*env).pollOneoff},
		{wasiModule, "proc_exit", "i", "", (*env).procExit},
		{wasiModule, "random_get", "ii", "i", (*env).randomGet},
		{wasiModule, "sched_yield", "", "i", (*env).nothing},

		// A Go program imports these as soon as it uses reflection on some packages. They refuse
		// every file.
		{wasiModule, "fd_filestat_get", "ii", "i", (*env).noFile},
		{wasiModule, "fd_filestat_set_size", "iI", "i", (*env).noFile},
		{wasiModule, "fd_filestat_set_times", "iIIi", "i", (*env).noFile},
		{wasiModule, "fd_pread", "iiiIi", "i", (*env).noFile},
		{wasiModule, "fd_pwrite", "iiiIi", "i", (*env).noFile},
		{wasiModule, "fd_readdir", "iiiIi", "i", (*env).noFile},
		{wasiModule, "fd_sync", "i", "i", (*env).noFile},
		{wasiModule, "path_create_directory", "iii", "i", (*env).noFile},
		{wasiModule, "path_filestat_get", "iiiii", "i", (*env).noFile},
		{wasiModule, "path_filestat_set_times", "iiiiIIi", "i", (*env).noFile},
		{wasiModule, "path_link", "iiiiiii", "i", (*env).noFile},
		{wasiModule, "path_open", "iiiiiIIii", "i", (*env).noFile},
		{wasiModule, "path_readlink", "iiiiii", "i", (*env).noFile},
		{wasiModule, "path_remove_directory", "iii", "i", (*env).noFile},
		{wasiModule, "path_rename", "iiiiii", "i", (*env).noFile},
		{wasiModule, "path_symlink", "iiiii", "i", (*env).noFile},
		{wasiModule, "path_unlink_file", "iii", "i", (*env).noFile},
		{wasiModule, "sock_accept", "iii", "i", (*env).noFile},
		{wasiModule, "sock_shutdown", "ii", "i", (*env).noFile},

		{envModule, "abort", "iiii", "", (*env).abort},
		{meter.RefillModule, meter.RefillName, "I", "I", (*env).refillFunc},
	}
}

// refillFunc is called by metered code with the remaining fuel when that is below zero. It returns
// the new amount.
func (e *env) refillFunc(s []uint64) {
	e.fuel.Set(s[0])
	e.refill()
	s[0] = e.fuel.Get()
}

// instantiateHostFuncs registers the functions with a runtime.
func instantiateHostFuncs(ctx context.Context, rt wazero.Runtime) error {
	byModule := map[string]wazero.HostModuleBuilder{}
	for _, f := range hostFuncs() {
		b := byModule[f.module]
		if b == nil {
			b = rt.NewHostModuleBuilder(f.module)
			byModule[f.module] = b
		}
		fn := f.wrapped()
		b.NewFunctionBuilder().WithGoFunction(fn, valueTypes(f.params), valueTypes(f.results)).Export(f.name)
	}
	for module, b := range byModule {
		if _, err := b.Instantiate(ctx); err != nil {
			return fmt.Errorf("creating the host module %s: %w", module, err)
		}
	}
	return nil
}

// wrapped gets the env, which is the context, and charges for the call.
func (f hostFunc) wrapped() api.GoFunc {
	if f.module == meter.RefillModule {
		return func(ctx context.Context, stack []uint64) { f.call(ctx.(*env), stack) }
	}
	return func(ctx context.Context, stack []uint64) {
		e := ctx.(*env)
		e.charge(costCall)
		f.call(e, stack)
	}
}

func valueTypes(types string) []api.ValueType {
	var list []api.ValueType
	for _, t := range types {
		if t == 'I' {
			list = append(list, api.ValueTypeI64)
		} else {
			list = append(list, api.ValueTypeI32)
		}
	}
	return list
}

func meterTypes(types string) string {
	return strings.NewReplacer("i", string([]byte{meter.I32}), "I", string([]byte{meter.I64})).Replace(types)
}

func (f hostFunc) funcType() meter.FuncType {
	return meter.FuncType{Params: meterTypes(f.params), Results: meterTypes(f.results)}
}

// hooks lists the exports that are hooks, by stage.
var hooks = [...]struct {
	name   string
	params string
}{
	hook.PreSave: {"on_pre_save", ""},
	hook.Load:    {"on_load", ""},
	hook.Export:  {"on_export", ""},
	hook.Migrate: {"on_migrate", "II"},
}

// The other exports.
const (
	exportABI        = "ckptd_abi_v1"
	exportInitialize = "_initialize"
	exportConfigure  = "ckptd_configure"
	exportMemory     = "memory"
)

// checkImports refuses a module that imports an unknown function, and names that function.
func (s *Spec) checkImports(m *meter.Module) error {
	funcs := hostFuncs()
	var unknown []string
	for _, imp := range m.Imports {
		at := slices.IndexFunc(funcs, func(f hostFunc) bool { return f.module == imp.Module && f.name == imp.Name })
		if at < 0 || imp.Module == meter.RefillModule {
			if name := fmt.Sprintf("%.40q.%.60q", imp.Module, imp.Name); !slices.Contains(unknown, name) && len(unknown) < 8 {
				unknown = append(unknown, name)
			}
			continue
		}
		if want := funcs[at].funcType(); imp.Type != want {
			return s.fail(hook.ErrInvalid, "it imports %s.%s as %v, but its type is %v", imp.Module, imp.Name, imp.Type, want)
		}
	}
	if len(unknown) > 0 {
		return s.fail(hook.ErrInvalid, "it imports %s, which plugins cannot use (they have no files, network or environment)",
			strings.Join(unknown, ", "))
	}
	return nil
}

// checkExports finds the hooks of a module.
func (s *Spec) checkExports(m *meter.Module) ([]hook.Stage, error) {
	find := func(name string) *meter.Export {
		i := slices.IndexFunc(m.Exports, func(e meter.Export) bool { return e.Name == name })
		if i < 0 {
			return nil
		}
		return &m.Exports[i]
	}
	check := func(name, params, results string) (bool, error) {
		e, want := find(name), meter.FuncType{Params: meterTypes(params), Results: meterTypes(results)}
		if e != nil && (e.Kind != meter.Func || e.Type != want) {
			return false, s.fail(hook.ErrInvalid, "its export %s is not a function of type %v", name, want)
		}
		return e != nil, nil
	}
	has, err := check(exportABI, "", "i")
	switch {
	case err != nil:
		return nil, err
	case !has && find("_start") != nil:
		return nil, s.fail(hook.ErrInvalid, "it is a WASI command, not a plugin: build it as a reactor "+
			"(Go: -buildmode=c-shared; Rust: crate-type cdylib; C: -mexec-model=reactor)")
	case !has:
		return nil, s.fail(hook.ErrInvalid, "it does not export %s: it is for another host, or not for version %d of the ABI",
			exportABI, ABI)
	}
	if e := find(exportMemory); e == nil || e.Kind != meter.Memory {
		return nil, s.fail(hook.ErrInvalid, "it does not export a memory named %q", exportMemory)
	}
	if _, err := check(exportInitialize, "", ""); err != nil {
		return nil, err
	}
	if _, err := check(exportConfigure, "", "i"); err != nil {
		return nil, err
	}
	var stages []hook.Stage
	for stage := hook.PreSave; int(stage) < len(hooks); stage++ {
		has, err := check(hooks[stage].name, hooks[stage].params, "i")
		if err != nil {
			return nil, err
		}
		if has {
			stages = append(stages, stage)
		}
	}
	if len(stages) == 0 {
		return nil, s.fail(hook.ErrInvalid, "it exports none of on_pre_save, on_load, on_export and on_migrate")
	}
	return stages, nil
}
