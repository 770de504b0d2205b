// Package plugins runs WebAssembly modules over bytes, and is the one package that imports a WebAssembly runtime. It
// knows nothing of threads, records or manifests, and never imports engine.
//
// A module is taken for hostile. What a Plugin is made of, in order: the bounded validator and metering rewriter of
// plugins/meter, the compiler of wazero behind a cache whose files are authenticated, an instance that is initialised
// and configured once, and an image of its memory and globals. Every call runs in an instance that equals that image:
// after a call that ended well the instance is set back to it, after any other it is thrown away. So nothing passes from
// one call to the next, and the same call gives the same output and uses the same fuel, in a fresh instance or an old
// one, today or on another machine.
//
// What bounds a call: fuel (deterministic), time (a check after each slice of fuel, and the caller's context), memory
// (per guest, and a budget for all of the process), the sizes of input, output and log, and the number of calls at a
// time. Files, environment, arguments, sockets and the real clock do not exist.
//
// docs/plugins.md is the contract of ABI v1.
package plugins
