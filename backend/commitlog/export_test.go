package commitlog

import "encoding/binary"

// AgeForTest gives the files that begin with a header or an anchor another version.
func AgeForTest(b []byte, version uint32) bool {
	var label string
	var sum int
	switch {
	case len(b) >= headerSize && string(b[:4]) == string(segmentMagic):
		label, sum = "ckptd/segment/", 96
	case len(b) >= slotSize && string(b[:4]) == string(anchorMagic):
		label, sum = "ckptd/anchor/", anchorBody
	default:
		return false
	}
	binary.BigEndian.PutUint32(b[4:], version)
	d := digest(label, b[:sum])
	copy(b[sum:], d[:])
	return true
}
