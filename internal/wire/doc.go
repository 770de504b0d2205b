// Package wire converts the engine's types to messages of the wire API and back, for the server and
// the client. Pack functions create messages, Unpack functions read them; invalid messages are
// engine.ErrInvalid. Byte slices are shared, not copied.
package wire
