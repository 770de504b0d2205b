package plugins

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"unicode/utf16"

	"github.com/ckptd/ckptd/hook"
)

// The part of WASI preview 1 that the runtimes of Go, C and Rust need to start. There are no files, arguments and
// variables; the clock stands still; random numbers come from the seed of the call.

// Errors of WASI.
const (
	wasiOK    = 0
	wasiBadf  = 8
	wasiFault = 21
	wasiInval = 28
	wasiSpipe = 70
)

const (
	stdin  = 0
	stderr = 2

	tick = 1000 // nanoseconds that pass whenever the monotonic clock is read, so that loops and divisors see it move
)

// put writes a number to the memory, and reports whether there is memory.
func (e *env) put64(ptr uint64, v uint64) bool { return e.memory.WriteUint64Le(uint32(ptr), v) }
func (e *env) put32(ptr uint64, v uint32) bool { return e.memory.WriteUint32Le(uint32(ptr), v) }

func errnoIf(ok bool) uint64 {
	if ok {
		return wasiOK
	}
	return wasiFault
}

// noStrings is args_sizes_get and environ_sizes_get.
func (e *env) noStrings(s []uint64) { s[0] = errnoIf(e.put32(s[0], 0) && e.put32(s[1], 0)) }

// nothing succeeds.
func (e *env) nothing(s []uint64) { s[0] = wasiOK }

// noFile refuses a file that is not there, which all are.
func (e *env) noFile(s []uint64) { s[0] = wasiBadf }

// standard tells whether a descriptor is one of the three that exist.
func standard(fd uint64) bool { return uint32(fd) <= stderr }

func (e *env) fdClose(s []uint64) {
	if s[0] = wasiOK; !standard(s[0]) {
		s[0] = wasiBadf
	}
}

func (e *env) fdSeek(s []uint64) {
	if standard(s[0]) {
		s[0] = wasiSpipe
		return
	}
	s[0] = wasiBadf
}

func (e *env) fdRead(s []uint64) {
	if uint32(s[0]) != stdin {
		s[0] = wasiBadf
		return
	}
	s[0] = errnoIf(e.put32(s[3], 0)) // the end of the file
}

// fdstat says of the standard streams that they are character devices.
func (e *env) fdstat(s []uint64) {
	if !standard(s[0]) {
		s[0] = wasiBadf
		return
	}
	stat, ok := e.memory.Read(uint32(s[1]), 24)
	if ok {
		clear(stat)
		stat[0] = 2
	}
	s[0] = errnoIf(ok)
}

// fdWrite sends what goes to standard output and standard error to the log.
func (e *env) fdWrite(s []uint64) {
	fd := uint32(s[0])
	if fd == stdin || fd > stderr {
		s[0] = wasiBadf
		return
	}
	vecs, ok := e.memory.Read(uint32(s[1]), uint32(min(8*uint64(uint32(s[2])), math.MaxUint32)))
	total := uint64(0)
	for ; ok && len(vecs) > 0; vecs = vecs[8:] {
		var b []byte
		b, ok = e.memory.Read(binary.LittleEndian.Uint32(vecs), binary.LittleEndian.Uint32(vecs[4:]))
		e.charge(1 + uint64(len(b))>>costCopyShift)
		e.log.write(int(fd-1), b)
		total += uint64(len(b))
	}
	s[0] = errnoIf(ok && e.put32(s[3], uint32(min(total, math.MaxUint32))))
}

func (e *env) clockTime(s []uint64) {
	now, ok := e.now(uint32(s[0]))
	if !ok {
		s[0] = wasiInval
		return
	}
	s[0] = errnoIf(e.put64(s[2], now))
}

// now reads a clock. That of the wall stands at the time of the call. The monotonic one goes on from where it was when
// the image was made.
func (e *env) now(id uint32) (uint64, bool) {
	switch id {
	case 0:
		if e.call.Time.IsZero() {
			return 0, true
		}
		return uint64(e.call.Time.UnixNano()), true
	case 1:
		e.clock += tick
		return e.clock, true
	}
	return 0, false
}

func (e *env) clockRes(s []uint64) {
	if uint32(s[0]) > 1 {
		s[0] = wasiInval
		return
	}
	s[0] = errnoIf(e.put64(s[1], tick))
}

func (e *env) randomGet(s []uint64) {
	b, ok := e.memory.Read(uint32(s[0]), uint32(s[1]))
	if ok {
		e.charge(uint64(len(b)))
		if e.random == nil {
			e.random = rand.NewChaCha8(e.seed())
		}
		_, _ = e.random.Read(b) // never fails
	}
	s[0] = errnoIf(ok)
}

// seed is bound to the plugin, so that one plugin does not know what another draws.
func (e *env) seed() (seed [32]byte) {
	mac := hmac.New(sha256.New, e.call.Seed[:])
	mac.Write([]byte("ckptd plugin random v1\x00"))
	mac.Write(e.plugin.digest[:])
	mac.Sum(seed[:0])
	return seed
}

// A subscription of poll_oneoff has 48 bytes and an event 32.
const (
	subscriptionSize = 48
	eventSize        = 32
	eventClock       = 0
)

// pollOneoff never sleeps. Streams are ready at once; if only clocks are waited for, the monotonic clock moves on by the
// shortest wait, and each nanosecond costs one fuel.
func (e *env) pollOneoff(s []uint64) {
	n := uint64(uint32(s[2]))
	if n == 0 {
		s[0] = wasiInval
		return
	}
	subs, ok := e.memory.Read(uint32(s[0]), uint32(min(n*subscriptionSize, math.MaxUint32)))
	events, ok2 := e.memory.Read(uint32(s[1]), uint32(min(n*eventSize, math.MaxUint32)))
	if !ok || !ok2 {
		s[0] = wasiFault
		return
	}
	e.charge(n * 10)
	// The events may overlap the subscriptions.
	subs = bytes.Clone(subs)
	wait := uint64(math.MaxUint64)
	for i := range n {
		wait = min(wait, e.timeout(subs[i*subscriptionSize:]))
	}
	e.charge(wait)
	ready := uint32(0)
	for i := range n {
		sub := subs[i*subscriptionSize:]
		if e.timeout(sub) > wait {
			continue
		}
		event := events[ready*eventSize:][:eventSize]
		clear(event)
		copy(event[:8], sub[:8])
		event[10] = sub[8]
		ready++
	}
	e.clock += wait
	s[0] = errnoIf(e.put32(s[3], ready))
}

// timeout returns how long a subscription waits, in nanoseconds.
func (e *env) timeout(sub []byte) uint64 {
	if sub[8] != eventClock {
		return 0
	}
	t := binary.LittleEndian.Uint64(sub[24:])
	if sub[40]&1 == 0 {
		return t
	}
	now := e.clock
	if binary.LittleEndian.Uint32(sub[16:]) == 0 {
		now, _ = e.now(0)
	}
	return t - min(t, now)
}

func (e *env) procExit(s []uint64) {
	e.stop(hook.ErrTrap, "it exited with the code %d", uint32(s[0]))
}

// utf16 reads a string of AssemblyScript, "" if there is none.
func (e *env) utf16(ptr uint32) string {
	if ptr < 4 {
		return ""
	}
	size, ok := e.memory.ReadUint32Le(ptr - 4)
	if !ok {
		return ""
	}
	b, ok := e.memory.Read(ptr, min(size, 2*maxErrorText)&^1)
	if !ok {
		return ""
	}
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return string(utf16.Decode(units))
}
