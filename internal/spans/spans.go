// Package spans tells where the values of JSON and msgpack are: from which byte to which. It decodes nothing, allocates
// nothing, and keeps a count where a parser would recurse, so that no input takes more than time in proportion to its
// length.
//
// JSON is read leniently: in arrays and objects only brackets and strings count, and brackets of one kind end those of
// the other. Who needs to know whether it is JSON asks a parser. Msgpack is read strictly.
package spans

import "errors"

var (
	// ErrNone: no value begins at the place, or it does not end.
	ErrNone = errors.New("incomplete value")
	// ErrDeep: arrays and objects are nested deeper than the caller allows.
	ErrDeep = errors.New("nested too deep")
)
