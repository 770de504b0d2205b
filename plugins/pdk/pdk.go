// Package pdk is for writing ckptd plugins in Go. A plugin is a main package that exports the hooks it has, each a
// function that hands a handler to Run:
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
// It is built with
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o plugin.wasm .
//
// The host sets the memory of a plugin back after every call to what it was after Configure: nothing that a call left
// behind is there in the next one. The package imports neither fmt nor reflect, so a plugin without them stays small.
// Built for anything but wasip1 the functions of the host answer ErrDenied, and handlers can be tested as they are.
package pdk

import "errors"

// ABI is the version of the interface between host and plugin that the package speaks.
const ABI = 1

// What the exported functions return.
const (
	codeOutput    = 0
	codeUnchanged = 1
	codeRejected  = 2
	codeFailed    = 16 // and above: the plugin's own
)

// Input is what a hook is called with.
type Input struct {
	// Payload are the bytes of the item: of a json item JSON text, as the caller of the save wrote it.
	Payload []byte
	// Meta tells what the payload is, as a JSON object. See Kind, Name, Type.
	Meta []byte
}

// Handler makes an output of an input. The output may share memory with the payload; nil leaves the payload as it is.
// An error fails the operation: one of Reject because the plugin's policy wants it so, any other because it cannot work.
// The text of an error is logged, so it must not quote the payload.
type Handler func(in *Input) ([]byte, error)

// Run calls the handler with the input of the hook under way, and returns what the exported function must return.
func Run(h Handler) int32 {
	in, err := input()
	if err != nil {
		return fail(err)
	}
	return finish(h(in))
}

// Migrate is Run for on_migrate, which is told from which version of a schema to which it brings the payload.
func Migrate(from, to int64, h func(in *Input, from, to uint64) ([]byte, error)) int32 {
	return Run(func(in *Input) ([]byte, error) { return h(in, uint64(from), uint64(to)) })
}

// Configure calls a function with the plugin's configuration, a JSON object, or nil if there is none. It belongs into
// the export ckptd_configure, which runs once, before the first hook; what it leaves in variables stays for every call.
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

	// ErrDenied is what a function of the host answers that the manifest does not list among the capabilities, or that
	// cannot do what it was asked for.
	ErrDenied = errors.New("the host does not grant this: look at the capabilities in plugin.toml")
)

// Error is how a handler ends that does not give an output.
type Error struct {
	Code   int32 // 2 rejects by policy; 16 and above are the plugin's own
	Reason string
}

func (e *Error) Error() string { return e.Reason }

// Reject is the error of a handler that will not have the item stored, or handed out. Reason is one line without content.
func Reject(reason string) error { return &Error{codeRejected, reason} }

// Fail is the error of a handler that cannot do its work. The code is the plugin's own, from 16 on.
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
