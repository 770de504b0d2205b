package badger

import (
	"encoding/binary"
	"fmt"

	"github.com/dgraph-io/badger/v4/fb"
	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/badger/v4/y"
	"github.com/klauspost/compress/snappy"
	"google.golang.org/protobuf/proto"

	"github.com/ckptd/ckptd/backend"
)

// Badger opens a table only if its index and its last block are whole, and ends at a damaged one.
// Here each block is read by itself.
//
// A table is its blocks, then the index, which says where they are. Behind a block that is
// unpacked, and behind the index, come a checksum and its length; before these a block has the
// places of its entries and their number, and the index its length.

const (
	wordSize  = 4
	mostBlock = 16 * backend.MaxBatchBytes // bytes; one that damage makes longer would take all memory
)

// eachBlock calls f with every block of a table that is whole, and says how many are not. The error
// is that of a table without an index.
func eachBlock(b []byte, f func(block []byte) error) (bad, blocks int, err error) {
	b, sum, err := cutChecksum(b)
	if err != nil {
		return 0, 0, err
	}
	index, _, err := cutLast(b, wordSize)
	if err != nil {
		return 0, 0, err
	}
	if _, index, err = cutLast(index, int(y.BytesToU32(b[len(index):]))); err != nil {
		return 0, 0, err
	}
	if err := y.VerifyChecksum(index, sum); err != nil {
		return 0, 0, fmt.Errorf("%w: its index is damaged", backend.ErrCorrupt)
	}
	tree := fb.GetRootAsTableIndex(index, 0)
	for i := range tree.OffsetsLength() {
		var at fb.BlockOffset
		tree.Offsets(&at, i)
		if whole, err := wholeBlock(b, int(at.Offset()), int(at.Len())); err != nil {
			bad++
		} else if err := f(whole); err != nil {
			return bad, tree.OffsetsLength(), err
		}
	}
	return bad, tree.OffsetsLength(), nil
}

// wholeBlock unpacks a block and checks it.
func wholeBlock(b []byte, at, length int) (block []byte, err error) {
	defer guard("reading a block", &err)()
	packed := b[at : at+length]
	if size, err := snappy.DecodedLen(packed); err != nil || size > mostBlock {
		return nil, fmt.Errorf("%w: a block of %d bytes, %v", backend.ErrCorrupt, size, err)
	}
	if block, err = snappy.Decode(nil, packed); err != nil {
		return nil, err
	}
	block, sum, err := cutChecksum(block)
	if err != nil {
		return nil, err
	}
	return block, y.VerifyChecksum(block, sum)
}

// eachEntry calls f with the entries of a block that is whole.
func eachEntry(block []byte, f func(key []byte, value y.ValueStruct) error) (err error) {
	defer guard("reading a block", &err)()
	places, _, err := cutLast(block, wordSize)
	if err != nil {
		return err
	}
	entries, places, err := cutLast(places, wordSize*int(y.BytesToU32(block[len(places):])))
	if err != nil {
		return err
	}
	var first []byte // the key of the first entry, of which others have a part
	for i := 0; i < len(places); i += wordSize {
		end := len(entries)
		if i+wordSize < len(places) {
			end = int(binary.NativeEndian.Uint32(places[i+wordSize:]))
		}
		e := entries[binary.NativeEndian.Uint32(places[i:]):end]
		shared, own := int(binary.NativeEndian.Uint16(e)), wordSize+int(binary.NativeEndian.Uint16(e[2:]))
		key := append(first[:shared:shared], e[wordSize:own]...)
		if i == 0 {
			first = key
		}
		var value y.ValueStruct
		value.Decode(e[own:])
		if err := f(key, value); err != nil {
			return err
		}
	}
	return nil
}

// cutChecksum takes the checksum off.
func cutChecksum(b []byte) (rest []byte, sum *pb.Checksum, err error) {
	rest, length, err := cutLast(b, wordSize)
	if err != nil {
		return nil, nil, err
	}
	rest, encoded, err := cutLast(rest, int(y.BytesToU32(length)))
	if err != nil {
		return nil, nil, err
	}
	sum = &pb.Checksum{}
	return rest, sum, proto.Unmarshal(encoded, sum)
}

func cutLast(b []byte, n int) (rest, last []byte, err error) {
	if n < 0 || n > len(b) {
		return nil, nil, fmt.Errorf("%w: %d bytes of %d", backend.ErrCorrupt, n, len(b))
	}
	return b[:len(b)-n], b[len(b)-n:], nil
}
