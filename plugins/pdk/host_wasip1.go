package pdk

import "unsafe"

//go:wasmimport ckptd_v1 input_len
func hostInputLen(slot int32) int64

//go:wasmimport ckptd_v1 input_read
func hostInputRead(slot int32, off int64, ptr unsafe.Pointer, n int32) int32

//go:wasmimport ckptd_v1 output_write
func hostOutputWrite(ptr unsafe.Pointer, n int32) int32

//go:wasmimport ckptd_v1 error_set
func hostErrorSet(code int32, ptr unsafe.Pointer, n int32)

//go:wasmimport ckptd_v1 log
func hostLog(level int32, ptr unsafe.Pointer, n int32)

//go:wasmimport ckptd_v1 finding
func hostFinding(rule unsafe.Pointer, ruleLen int32, path unsafe.Pointer, pathLen int32, count int32)

//go:wasmimport ckptd_v1 redact_builtin
func hostRedact(set unsafe.Pointer, setLen int32, ptr unsafe.Pointer, n int32, out unsafe.Pointer, outCap int32) int32

//go:wasmimport ckptd_v1 pseudonym
func hostPseudonym(kind int32, ptr unsafe.Pointer, n int32, out unsafe.Pointer) int32

//go:wasmimport ckptd_v1 blob_put
func hostBlobPut(ptr unsafe.Pointer, n int32, out unsafe.Pointer) int32

//go:wasmexport ckptd_abi_v1
func abi() int32 { return ABI }
