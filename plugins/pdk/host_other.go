//go:build !wasip1

package pdk

import "unsafe"

// Outside a host there is no input, output is discarded and no capability is granted.

const denied = -1

func hostInputLen(int32) int64                                            { return 0 }
func hostInputRead(int32, int64, unsafe.Pointer, int32) int32             { return denied }
func hostOutputWrite(unsafe.Pointer, int32) int32                         { return 0 }
func hostErrorSet(int32, unsafe.Pointer, int32)                           {}
func hostLog(int32, unsafe.Pointer, int32)                                {}
func hostFinding(_ unsafe.Pointer, _ int32, _ unsafe.Pointer, _, _ int32) {}
func hostRedact(_ unsafe.Pointer, _ int32, _ unsafe.Pointer, _ int32, _ unsafe.Pointer, _ int32) int32 {
	return denied
}
func hostPseudonym(int32, unsafe.Pointer, int32, unsafe.Pointer) int32 { return denied }
func hostBlobPut(unsafe.Pointer, int32, unsafe.Pointer) int32          { return denied }
