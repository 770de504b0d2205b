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

// The part of WASI preview 1 that the runtimes of Go, C and Rust need to start. There are no files,
// arguments or environment variables, the wall clock is frozen, and random numbers come from the
// call's seed.

// Error numbers of WASI.
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

	tick = 1000 // nanoseconds that each reading advances the monotonic clock by, so that loops and divisors see it move
)

// put64 and put32 write a number to the memory. They report whether the address is valid.
func (e *env) put64(ptr uint64, v uint64) bool { return e.memory.WriteUint64Le(uint32(ptr), v) }
func (e *env) put32(ptr uint64, v uint32) bool { return e.memory.WriteUint32Le(uint32(ptr), v) }

func errnoIf(ok bool) uint64 {
	if ok {
		return wasiOK
	}
	return wasiFault
}

// noStrings implements args_sizes_get and environ_sizes_get.
func (e *env) noStrings(s []uint64) { s[0] = errnoIf(e.put32(s[0], 0) && e.put32(s[1], 0)) }

// nothing does nothing and succeeds.
func (e *env) nothing(s []uint64) { s[0] = wasiOK }

// noFile refuses a descriptor or a path: there are no files.
func (e *env) noFile(s []uint64) { s[0] = wasiBadf }

// standard reports whether a descriptor is one of the three that exist.
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
	s[0] = errnoIf(e.put32(s[3], 0)) // end of file
}

// fdstat reports the standard streams as character devices.
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

// fdWrite sends standard output and standard error to the log.
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

// now reads a clock. The wall clock always shows the time of the call. The monotonic clock
// continues from its value in the image.
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

// seed depends on the plugin, so that one plugin cannot know the random numbers of another.
func (e *env) seed() (seed [32]byte) {
	mac := hmac.New(sha256.New, e.call.Seed[:])
	mac.Write([]byte("ckptd plugin random v1\x00"))
	mac.Write(e.plugin.digest[:])
	mac.Sum(seed[:0])
	return seed
}

// A subscription of poll_oneoff has 48 bytes, an event 32.
const (
	subscriptionSize = 48
	eventSize        = 32
	eventClock       = 0
)

// pollOneoff never sleeps. Streams are ready at once. If the guest waits only for clocks, the
// monotonic clock advances by the shortest wait, at one fuel per nanosecond.
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
	// The events can overlap the subscriptions.
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

// timeout returns the length of a subscription's wait, in nanoseconds.
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

// utf16 reads an AssemblyScript string, "" if there is none.
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
