// Package spans finds the byte ranges of values in JSON and msgpack. It decodes nothing, allocates
// nothing, and counts where a parser would recurse, so that the time is linear in the length of the
// input.
//
// JSON is read leniently: in arrays and objects only brackets and strings count, and brackets of
// one kind end those of the other. Use a parser to find out whether it is valid JSON. Msgpack is
// read strictly.
package spans

import "errors"

var (
	// ErrNone: no value begins at the place, or it does not end.
	ErrNone = errors.New("incomplete value")
	// ErrDeep: arrays and objects are nested deeper than the caller allows.
	ErrDeep = errors.New("nested too deep")
)
