// Package plugins runs WebAssembly modules over bytes. It is the only package that imports a
// WebAssembly runtime. It knows nothing about threads, records or manifests, and never imports
// engine.
//
// Every module is assumed to be hostile. A Plugin is built in stages: the bounded validator and
// metering rewriter of plugins/meter, then wazero's compiler behind a cache with authenticated
// files, then an instance that is initialized and configured once, and finally an image of that
// instance's memory and globals. Every call runs in an instance that equals the image. After a
// successful call the instance is reset to the image; after any other call it is discarded. So no
// state carries over from one call to the next: the same call gives the same output and uses the
// same fuel, in a fresh instance or a reused one, today or on another machine.
//
// A call is bounded by fuel (deterministic), time (a check after each slice of fuel, and the
// caller's context), memory (per guest, plus a budget for the whole process), the sizes of input,
// output and log, and the number of concurrent calls. A guest has no files, environment, arguments,
// sockets or real clock.
//
// docs/plugins.md is the contract of ABI v1.
package plugins
