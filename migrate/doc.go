// Package migrate is reserved: it will hold schema versions and the steps between them, so that an old state loads in
// new code. It holds no code yet. Until it does, the engine stores the schema version of every checkpoint and gives it
// back with the state, and migrating is the caller's.
//
// The package will turn bytes into bytes, and never import engine.
package migrate
