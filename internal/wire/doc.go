// Package wire turns the words of the engine into messages of the wire API and back, for the server and the client. Pack
// functions make messages, Unpack functions take them apart; what a peer may have got wrong is engine.ErrInvalid. Byte
// slices are shared, not copied.
package wire
