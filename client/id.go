package client

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"sync/atomic"
	"time"
)

// idClock makes UUIDs of version 7, each greater than all before it: 48 bits of milliseconds, 12 of
// the part of one, and 62 random ones.
type idClock struct{ last atomic.Uint64 }

func (c *idClock) next(now time.Time) string {
	ns := uint64(now.UnixNano())
	at := ns/1e6<<12 | ns%1e6*4096/1e6
	for {
		last := c.last.Load()
		at = max(at, last+1)
		if c.last.CompareAndSwap(last, at) {
			break
		}
	}
	var id [16]byte
	rand.Read(id[8:])
	binary.BigEndian.PutUint64(id[:], at>>12<<16|7<<12|at&0xfff)
	id[8] = id[8]&0x3f | 0x80
	var b [36]byte
	hex.Encode(b[:8], id[:4])
	hex.Encode(b[9:13], id[4:6])
	hex.Encode(b[14:18], id[6:8])
	hex.Encode(b[19:23], id[8:10])
	hex.Encode(b[24:], id[10:])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}
