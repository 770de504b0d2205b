//go:build !linux

package badger

import "os"

// Elsewhere Badger syncs by itself.

const ownSync = false

func syncData(*os.File) error { return nil }

func adviseRandom(*os.File) {}
