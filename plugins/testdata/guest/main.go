// The guest for the tests: a plugin without the pdk whose hooks obey a command at the start of the
// payload.
package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"
	"unsafe"
)

//go:wasmimport ckptd_v1 input_len
func inputLen(slot uint32) int64

//go:wasmimport ckptd_v1 input_read
func inputRead(slot uint32, off int64, p unsafe.Pointer, n uint32) int32

//go:wasmimport ckptd_v1 output_write
func outputWrite(p unsafe.Pointer, n uint32) int32

//go:wasmexport ckptd_abi_v1
func abi() int32 { return 1 }

func main() {}

var (
	stash   []byte // would hold a leftover of the previous call, if anything could
	calls   int
	address = regexp.MustCompile(`[a-z.]+@[a-z]+\.[a-z]{2,}`)
)

func read() []byte {
	b := make([]byte, inputLen(0))
	if len(b) > 0 {
		inputRead(0, 0, unsafe.Pointer(&b[0]), uint32(len(b)))
	}
	return b
}

func write(b []byte) int32 {
	if len(b) == 0 {
		outputWrite(nil, 0)
		return 0
	}
	outputWrite(unsafe.Pointer(&b[0]), uint32(len(b)))
	return 0
}

//go:wasmexport on_pre_save
func onPreSave() int32 { return write(read()) }

//go:wasmexport on_load
func onLoad() int32 {
	in := read()
	command, rest, _ := strings.Cut(string(in), " ")
	switch command {
	case "stash":
		calls++
		out := fmt.Sprintf("%d %q", calls, stash)
		stash = in
		return write([]byte(out))
	case "redact":
		return write(address.ReplaceAll([]byte(rest), []byte("[email]")))
	case "json":
		return reformat(rest)
	case "env":
		return environment()
	case "sleep":
		start := time.Now()
		time.Sleep(100 * time.Millisecond)
		return write([]byte(fmt.Sprint(time.Since(start) >= 100*time.Millisecond)))
	case "forever":
		select {}
	case "panic":
		panic("secret " + rest)
	case "exit":
		os.Exit(0)
	case "oom":
		var all [][]byte
		for {
			all = append(all, make([]byte, 16<<20))
			all[len(all)-1][5] = 1
		}
	case "say":
		fmt.Println("to stdout:", rest)
		fmt.Fprint(os.Stderr, "to stderr")
		return 1
	}
	return 16
}

// reformat produces garbage and runs the collector.
func reformat(text string) int32 {
	var last []byte
	for i := range 6 {
		if i%2 == 1 {
			runtime.GC()
		}
		var v any
		if json.Unmarshal([]byte(text), &v) != nil {
			return 17
		}
		last, _ = json.Marshal(v)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return write(fmt.Appendf(last, " gc=%v", m.NumGC > 0))
}

// environment outputs everything the guest can see of the outside world.
func environment() int32 {
	b := make([]byte, 8)
	rand.Read(b)
	_, err := os.ReadFile("/etc/hostname")
	return write(fmt.Appendf(nil, "%d %s %x %v %v", time.Now().UTC().Unix(), os.Getenv("HOME"), b, len(os.Args), err != nil))
}
