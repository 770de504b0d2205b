// Package pdk is for writing ckptd plugins in Go. A plugin is a main package that exports its
// hooks. Each hook is a function that passes a handler to Run:
//
//	//go:wasmexport on_pre_save
//	func onPreSave() int32 { return pdk.Run(shorten) }
//
//	func shorten(in *pdk.Input) ([]byte, error) {
//		if len(in.Payload) < 100 {
//			return nil, nil // unchanged
//		}
//		return in.Payload[:100], nil
//	}
//
//	func main() {}
//
// Build it with
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o plugin.wasm .
//
// After every call the host resets the plugin's memory to its contents after Configure, so nothing
// carries over from one call to the next. The package imports neither fmt nor reflect, so a plugin
// that avoids them stays small. On any platform other than wasip1 the host functions return
// ErrDenied, so handlers can be tested as ordinary Go functions.
package pdk

import "errors"

// ABI is the version of the host interface that this package implements.
const ABI = 1

// Return codes of the exported functions.
const (
	codeOutput    = 0
	codeUnchanged = 1
	codeRejected  = 2
	codeFailed    = 16 // this and above: the plugin's own codes
)

// Input is the input of a hook.
type Input struct {
	// Payload holds the bytes of the item. For a json item it is JSON text exactly as the caller of
	// the save wrote it.
	Payload []byte
	// Meta describes the payload as a JSON object. See Kind, Name, Type.
	Meta []byte
}

// Handler turns an input into an output. The output may share memory with the payload; nil leaves
// the payload unchanged. An error fails the operation: return Reject if the plugin's policy forbids
// the item, and any other error if the handler cannot do its work. The text of an error is logged,
// so it must not quote the payload.
type Handler func(in *Input) ([]byte, error)

// Run calls the handler with the input of the current hook and returns the exported function's
// result.
func Run(h Handler) int32 {
	in, err := input()
	if err != nil {
		return fail(err)
	}
	return finish(h(in))
}

// Migrate is Run for on_migrate, which also receives the schema version of the payload and the
// version to migrate it to.
func Migrate(from, to int64, h func(in *Input, from, to uint64) ([]byte, error)) int32 {
	return Run(func(in *Input) ([]byte, error) { return h(in, uint64(from), uint64(to)) })
}

// Configure calls f with the plugin's configuration: a JSON object, or nil if there is none. Call
// it from the export ckptd_configure, which runs once, before the first hook. Values that f stores
// in variables persist for every later call.
func Configure(f func(config []byte) error) int32 {
	config, err := read(slotConfig)
	if err == nil {
		err = f(config)
	}
	if err != nil {
		return fail(err)
	}
	return codeOutput
}

func input() (*Input, error) {
	payload, err := read(slotPayload)
	if err != nil {
		return nil, err
	}
	meta, err := read(slotMeta)
	if err != nil {
		return nil, err
	}
	return &Input{Payload: payload, Meta: meta}, nil
}

func finish(out []byte, err error) int32 {
	switch {
	case err != nil:
		return fail(err)
	case out == nil:
		return codeUnchanged
	case !write(out):
		return fail(errOutput)
	}
	return codeOutput
}

var (
	errInput  = errors.New("the input cannot be read")
	errOutput = errors.New("the output is over the limit")

	// ErrDenied is the error of a host function whose capability is missing from the manifest, or
	// that the host cannot carry out.
	ErrDenied = errors.New("the host does not grant this: look at the capabilities in plugin.toml")
)

// Error is the error of a handler that gives no output.
type Error struct {
	Code   int32 // 2 rejects by policy; 16 and above are the plugin's own
	Reason string
}

func (e *Error) Error() string { return e.Reason }

// Reject is the error of a handler that refuses to let the item be stored or returned. Reason is a
// single line without user content.
func Reject(reason string) error { return &Error{codeRejected, reason} }

// Fail is the error of a handler that cannot do its work. The code is the plugin's own, 16 or
// above.
func Fail(code int32, reason string) error { return &Error{max(code, codeFailed), reason} }

func fail(err error) int32 {
	code := int32(codeFailed)
	var e *Error
	if errors.As(err, &e) {
		code = e.Code
	}
	setError(code, err.Error())
	return code
}
