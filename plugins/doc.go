// Package plugins is reserved: it will hold the host of WebAssembly hooks (validate, meter, compile, pool, call), and
// be the only package that imports a WebAssembly runtime. It holds no code yet, and ckptd runs no plugin.
//
// The package will turn bytes into bytes, and never import engine.
package plugins
